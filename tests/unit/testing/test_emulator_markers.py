"""The emulator's row markers: F-12, F-15, F-34, F-50 to F-58."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.testing.emulator_zone import ITEM, MARKER, Row, Zone, error_of, items, put

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def interpreted(files: Sequence[Sequence[Row]]) -> list[Row]:
    """The marker table of the documentation, read aloud: rows of (marker, id, name), one after the other."""
    table: list[Row] = []
    for marker, key, name in itertools.chain(*files):
        present = any(row[0] == key for row in table)
        if marker == DELETE:
            table = [row for row in table if row[0] != key]
        elif marker == INSERT or not present:
            table.append((key, name))
        else:
            table = [(key, name) if row[0] == key else row for row in table]
    return sorted(table, key=repr)


_CHANGE = st.tuples(st.sampled_from([INSERT, UPDATE, DELETE, UPSERT]), st.integers(0, 3))


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.lists(_CHANGE, max_size=9), min_size=1, max_size=4))
def test_any_files_end_as_the_marker_table_says_row_by_row(changes: list[list[tuple[int, int]]]) -> None:
    """F-34, F-51 to F-54, F-59: order inside a file counts, duplicates of marker 0 stay, wherever files are cut."""
    counter = itertools.count()
    files = [[(marker, key, f"v{next(counter)}") for marker, key in file] for file in changes]
    with TemporaryDirectory() as root:
        zone = Zone(Path(root))
        folder = zone.folder()
        for number, rows in enumerate(files, 1):
            put(folder, number, items(rows))
        applied = zone.service().poll()
        assert [done.number for done in applied] == list(range(1, len(files) + 1))
        assert zone.rows() == interpreted(files)


def test_keys_of_several_columns_and_of_every_type_find_their_rows(zone: Zone) -> None:
    """F-11: a composite key is equal only if all its columns are; names of columns may be anything."""
    key = pa.schema(
        [
            pa.field('select "k1"', pa.string()),
            pa.field("position", pa.decimal128(38, 10)),
            pa.field("marker", pa.timestamp("us", tz="UTC")),
            pa.field("b", pa.binary()),
        ]
    )
    when = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    one = ("a\0é", Decimal("1.0000000001"), when, b"\xff\x00")
    other = ("a\0é", Decimal("1.0000000002"), when, b"\xff\x00")
    third = ("a", Decimal("1.0000000001"), when, b"\xff\x00")

    def file(*rows: tuple[int, Row, int]) -> pa.Table:
        fields = [*key, pa.field("amount", pa.int32()), pa.field(MARKER, pa.int32())]
        return pa.Table.from_pylist(
            [dict(zip([f.name for f in fields], [*values, amount, m], strict=True)) for m, values, amount in rows],
            schema=pa.schema(fields),
        )

    folder = zone.folder(keys=key.names)
    put(folder, 1, file((UPSERT, one, 1), (UPSERT, other, 2), (UPSERT, third, 3)))
    put(folder, 2, file((UPDATE, one, 10), (DELETE, other, 0)))
    zone.service().poll()
    assert zone.rows() == sorted([(*one, 10), (*third, 3)], key=repr)


def _locations(*rows: tuple[str, str | None, int]) -> pa.Table:
    columns = {"EmployeeID": [r[0] for r in rows], "EmployeeLocation": [r[1] for r in rows]}
    return pa.table({**columns, MARKER: pa.array([r[2] for r in rows], pa.int32())})


def test_the_documented_examples_end_as_they_say(zone: Zone) -> None:
    """F-55, F-56: an update with the whole row; a key change as a delete of the old key and a row of the new one."""
    moved, renamed = zone.folder("moved", keys=["EmployeeID"]), zone.folder("renamed", keys=["EmployeeID"])
    start = [(f"E000{n}", "Redmond", INSERT) for n in (1, 2, 3)]
    put(moved, 1, _locations(*start, ("E0001", "Bellevue", UPDATE)))
    put(renamed, 1, _locations(("E0001", "Bellevue", INSERT)))
    put(renamed, 2, _locations(("E0001", None, DELETE), ("E0002", "Bellevue", UPSERT)))
    zone.service().poll()
    assert zone.rows("dbo/moved") == [("E0001", "Bellevue"), ("E0002", "Redmond"), ("E0003", "Redmond")]
    assert zone.rows("dbo/renamed") == [("E0002", "Bellevue")]


def test_a_file_without_marker_inserts_all_its_rows(zone: Zone) -> None:
    """F-57: without looking for duplicates."""
    folder = zone.folder()
    put(folder, 1, items([(1, "a"), (1, "b")], marked=False))
    put(folder, 2, items([(1, "c")], marked=False))
    zone.service().poll()
    assert zone.rows() == [(1, "a"), (1, "b"), (1, "c")]


def test_a_delete_needs_its_keys_only(zone: Zone) -> None:
    """F-55: the other columns are null, or not in the file at all."""
    folder = zone.folder()
    put(folder, 1, items([(1, "a"), (2, "b")], marked=False))
    put(folder, 2, pa.table({"id": [1], MARKER: pa.array([DELETE], pa.int32())}))
    put(folder, 3, items([(DELETE, 2, None)]))
    zone.service().poll()
    assert zone.rows() == []


@pytest.mark.parametrize("marker", [UPDATE, DELETE, UPSERT])
def test_a_table_without_keys_takes_inserts_only(zone: Zone, marker: int) -> None:
    """F-12."""
    folder = zone.folder(keys=None)
    put(folder, 1, items([(INSERT, 1, "a"), (INSERT, 1, "a")]))
    put(folder, 2, items([(marker, 1, "b")]))
    service = zone.service()
    service.poll()
    assert zone.rows() == [(1, "a"), (1, "a")]
    assert error_of(service) == "UpdateWithoutKey"


_GOOD = items([(UPSERT, 1, "a")])
_BAD_MARKERS = {
    "unknown value": items([(3, 1, "a")]),
    "null": items([(UPSERT, 1, "a"), (None, 2, "b")]),
    "not last": _GOOD.select([MARKER, "id", "name"]),
    "text": items([("4", 1, "a")], marker_type=pa.string()),
    "other case": _GOOD.rename_columns(["id", "name", "__RowMarker__"]),
}


@pytest.mark.parametrize("file", _BAD_MARKERS.values(), ids=_BAD_MARKERS)
def test_a_wrong_marker_fails_the_table_and_changes_nothing(zone: Zone, file: pa.Table) -> None:
    """F-50."""
    folder = zone.folder()
    put(folder, 1, items([(UPSERT, 1, "before")]))
    put(folder, 2, file)
    service = zone.service()
    assert [done.number for done in service.poll()] == [1]
    assert error_of(service) == "InvalidRowMarker"
    assert zone.rows() == [(1, "before")]


def test_assumed_marker_rules_can_be_switched_off(zone: Zone) -> None:
    """F-50: the marker anywhere; a null marker is a row without marker."""
    folder = zone.folder()
    put(folder, 1, _BAD_MARKERS["not last"])
    put(folder, 2, items([(None, 1, "b")]))
    service = zone.service(marker_must_be_last=False, null_marker="default")
    service.poll()
    assert zone.rows() == [(1, "a"), (1, "b")]


@pytest.mark.parametrize("marked", [True, False])
def test_a_null_key_fails_the_table(zone: Zone, marked: bool) -> None:
    folder = zone.folder()
    schema = pa.schema([pa.field("id", pa.int64()), ITEM.field("name")])
    file = pa.table({"id": [1, None], "name": ["a", "b"]}, schema=schema)
    if marked:
        file = file.append_column(MARKER, pa.array([DELETE, DELETE], pa.int32()))
    put(folder, 1, file)
    service = zone.service()
    assert service.poll() == []
    assert error_of(service) == "NullKey"
    assert not zone.exists()


def test_a_hundred_thousand_rows_take_a_mixed_file(zone: Zone) -> None:
    """The way through columns must hold for tables of a real size: every third row updated, every fifth deleted."""
    folder = zone.folder()
    size = 100_000
    put(folder, 1, items([(n, "old") for n in range(size)], marked=False))
    changes = [(UPSERT, n, "new") for n in range(0, size, 3)] + [(DELETE, n, None) for n in range(0, size, 5)]
    put(folder, 2, items(changes))
    zone.service().poll()
    expected = {n: "new" if n % 3 == 0 else "old" for n in range(size) if n % 5}
    assert dict(zone.rows()) == expected
