"""What extra columns tell of changes that a log holds (G-118)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from open_mirroring.changes.log_position import load_epoch
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema, extra_columns
from spark_jobs.changelog.reading import DATED_SCHEMA
from spark_jobs.sources.sql_server.target_columns import loaded_extra, times, with_extra

NAMES = ("commit_time", "log_position", "operation", "transaction", "source_table")
EXTRA = extra_columns((name, f"_{name}") for name in NAMES)
MOMENT = datetime(2026, 8, 7, 16, 30, 10, 123000, UTC)


def story(op: str, marker: int, **given: Any) -> dict[str, Any]:
    line = {"epoch": "guid", "pos": "A1:1:1", "committed": "2026-08-07T16:30:10.123Z", "transaction": "A1"} | given
    whole = {"batch": 1, "tbl": "dbo.t", "op": op, "origin": "f", "place": 0, **line}
    changes = pa.Table.from_pylist([whole], DATED_SCHEMA)
    changes = changes.append_column("order", pa.array([f"000000:{line['pos']}"]))
    columns = (LandingColumn("id", "int32"), *EXTRA)
    schema = file_schema(columns, ("id",), marker=True)
    rows = pa.Table.from_pylist([{"id": 1, "__rowMarker__": marker}], schema)
    found = with_extra(rows, changes, columns, "dbo.t")
    assert found.schema == schema
    return {column.content: found[column.name][0].as_py() for column in EXTRA if column.content}


@pytest.mark.parametrize(
    ("op", "given", "expected"),
    [
        ("I", {}, (MOMENT, "000000:A1:1:1", "insert", "A1")),
        ("U", {"committed": None, "transaction": None}, (None, "000000:A1:1:1", "update", None)),
        ("U", {"pos": "A1~:0:1", "committed": None}, (None, "000000:A1~:0:1", "correction", "A1")),
        ("I", {"epoch": load_epoch(1), "committed": None, "transaction": None}, (None, None, "load", None)),
        ("I", {"pos": "0000000000000000:1:1", "committed": None}, (None, None, "load", "A1")),
    ],
)
def test_a_row_shows_of_its_change_g118(op: str, given: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """G-118, K-18, G-45."""
    assert tuple(story(op, 4, **given).values()) == (*expected, "dbo.t")


def test_a_delete_has_its_key_alone_f55() -> None:
    """F-55, G-118."""
    assert {*story("D", 2).values()} == {None}


def test_loaded_rows_say_what_is_known_g118() -> None:
    rows = loaded_extra(pa.table({"id": [1, 2]}), EXTRA, "dbo.t").to_pylist()
    assert [tuple(row[column.name] for column in EXTRA) for row in rows] == [(None, None, "load", None, "dbo.t")] * 2


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-08-07T16:30:10.123Z", MOMENT),
        ("2026-08-07T18:30:10.123+02:00", MOMENT),
        ("2026-08-07 16:30:10.123", MOMENT),
        ("2026-08-07T16:30:10.1230009", MOMENT),
        ("2026-08-07T16:30:10.123000999+00:00", MOMENT),
        ("1970-01-01 00:00:00", None),
        ("", None),
        ("soon", None),
        ("2026-02-30T00:00:00Z", None),
        ("0001-01-01T00:00:00+14:00", None),
        (None, None),
    ],
)
def test_a_time_is_read_alike_alone_and_among_others_g118(text: str | None, moment: datetime | None) -> None:
    """G-118, T-17: what is no time is NULL, and no other row's time goes with it."""
    good = "2026-08-07T16:30:10.123Z"
    for beside in (None, good, "soon"):
        found = times(pa.array([text, beside, good], pa.string())).to_pylist()
        assert found == [moment, MOMENT if beside == good else None, MOMENT]


def test_no_column_of_a_source_is_taken_for_an_extra_one_g118() -> None:
    """G-118, F-50: a name at the target belongs to one of both, whichever came first."""
    known = TableSchema((LandingColumn("id", "int32"),))
    with pytest.raises(TerminalError, match="COLUMN_NAME_INVALID"):
        known.extended(EXTRA).extended([LandingColumn("_OPERATION", "string")])
    with pytest.raises(TerminalError, match="COLUMN_NAME_INVALID"):
        known.extended([LandingColumn("_OPERATION", "string")]).extended(EXTRA)
    with pytest.raises(TerminalError, match="COLUMN_NAME_INVALID"):
        known.extended([LandingColumn("__rowMarker__:else", "string")])
    assert TableSchema.from_json(known.extended(EXTRA).to_json()) == known.extended(EXTRA)
