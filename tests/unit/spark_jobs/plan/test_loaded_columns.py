"""G-86, G-114: what a load brought against the type that a change tells."""

from __future__ import annotations

import pyarrow as pa
import pytest

from open_mirroring.ledger.load_ledger import LoadColumn, columns_of_both
from spark_jobs.plan.loaded_columns import LoadedColumn, doubt, doubt_by_deletes, loaded_columns, may_lack_digits
from spark_jobs.sources.exports.columns import landing_column

US, MS = pa.timestamp("us"), pa.timestamp("ms")


def loaded(
    kind: pa.DataType, sql_type: str | None = None, shortest: int | None = None, *, key: bool = False
) -> LoadedColumn:
    return LoadedColumn(landing_column("c", kind, sql_type), shortest, key)


@pytest.mark.parametrize(
    ("one", "sql_type"),
    [
        (loaded(US), "datetimeoffset(3)"),
        (loaded(pa.string(), "datetime2(3)"), "datetimeoffset(3)"),
        (loaded(pa.timestamp("us", "Europe/Berlin")), "datetime"),
        (loaded(pa.timestamp("us", "+01:00")), "datetime2(7)"),
        (loaded(pa.string(), shortest=32), "uniqueidentifier"),
        (loaded(pa.string(), shortest=8, key=True), "time(7)"),
        (loaded(pa.string(), shortest=2), "char(5)"),
        (loaded(pa.binary(), shortest=2), "binary(4)"),
    ],
)
def test_what_can_be_two_things_is_found_g86_g114(one: LoadedColumn, sql_type: str) -> None:
    assert doubt(one, sql_type) is not None


@pytest.mark.parametrize(
    ("one", "sql_type"),
    [
        (loaded(US), "datetime2(7)"),
        (loaded(US, "datetimeoffset(3)"), "datetimeoffset(3)"),
        (loaded(pa.timestamp("us", "UTC")), "datetime2(7)"),
        (loaded(pa.timestamp("us", "Europe/Berlin")), "datetimeoffset(7)"),
        (loaded(pa.timestamp("us", "Europe/Berlin"), "datetime2(3)"), "datetime2(3)"),
        (loaded(pa.string(), shortest=36), "uniqueidentifier"),
        (loaded(pa.string(), shortest=8), "time(7)"),
        (loaded(pa.string(), shortest=8, key=True), "time(0)"),
        (loaded(pa.string(), shortest=0), "varchar(5)"),
        (loaded(pa.int64()), "geography"),
    ],
)
def test_what_is_said_or_sound_is_not_g114(one: LoadedColumn, sql_type: str) -> None:
    assert doubt(one, sql_type) is None


def test_times_in_milliseconds_may_lack_digits_g114() -> None:
    assert may_lack_digits(landing_column("c", MS, None), "datetime2(7)")
    assert not may_lack_digits(landing_column("c", MS, None), "datetime")
    assert not may_lack_digits(landing_column("c", US, None), "datetime2(7)")


def test_deletes_alone_tell_the_type_of_a_key_g114() -> None:
    keys = {"id": loaded(pa.string(), shortest=2, key=True)}
    lists = {"gone": '[["id","char(5)",0]]', "kept": '[["id","varchar(5)",0]]'}
    rows = {name: pa.table({"op": ["D"], "cols": [text]}) for name, text in lists.items()}
    found = doubt_by_deletes(keys, rows["gone"])
    assert found is not None and found.code == "LOAD_UNFILLED"
    assert doubt_by_deletes(keys, rows["kept"]) is None
    assert doubt_by_deletes({}, rows["gone"]) is None


def test_files_of_one_export_may_hold_times_in_other_ways_g114() -> None:
    one, other = landing_column("c", US, None), landing_column("c", pa.timestamp("ms", "+01:00"), None)
    both = columns_of_both([one], [other])
    assert both is not None and both[0].held == ["milliseconds", "wall clock", "zone"]
    assert columns_of_both([one], [LoadColumn("c", "date")]) is None
    plan = {"columns": [list(both[0])], "shortest": {"c": 3}}
    assert loaded_columns(plan, ["c"])["c"] == LoadedColumn(both[0], 3, True)
    assert loaded_columns(None, ["c"]) == {}
