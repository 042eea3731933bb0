"""The emulator's columns: union, type changes, NOT NULL, and which types there are (F-80 to F-88)."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.unit.testing.emulator_zone import ITEM, MARKER, Zone, error_of, items, put, recreate


@pytest.fixture
def zone(tmp_path: Path) -> Zone:
    return Zone(tmp_path)


def _file(schema: pa.Schema, *rows: dict[str, object]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema.append(pa.field(MARKER, pa.int32())))


WIDER = ITEM.append(pa.field("price", pa.decimal128(10, 2)))


@pytest.mark.parametrize("how", ["append", "rewrite"])
def test_a_new_column_is_added_and_a_missing_one_is_null_in_new_rows(zone: Zone, how: str) -> None:
    """F-83, F-84: old rows keep what they have."""
    folder = zone.folder()
    last = 4 if how == "append" else 1
    put(folder, 1, items([(1, "a")], marked=False))
    put(folder, 2, _file(WIDER, {"id": last, "name": "b", "price": Decimal("1.50"), MARKER: 4}))
    put(folder, 3, _file(WIDER, {"id": 2, "name": "c", "price": Decimal("2.50"), MARKER: 4}))
    put(folder, 4, items([(4, 3, "d")]))
    zone.service().poll()
    kept = [] if how == "rewrite" else [(1, "a", None)]
    expected = [*kept, (last, "b", Decimal("1.50")), (2, "c", Decimal("2.50")), (3, "d", None)]
    assert zone.rows() == sorted(expected, key=repr)


def test_a_renamed_column_is_a_new_one_and_only_a_new_folder_sheds_the_old(zone: Zone) -> None:
    """F-85, F-88: columns are only ever added, until the folder is made anew."""
    folder = zone.folder()
    put(folder, 1, items([(4, 1, "a")]))
    renamed = items([(4, 2, "b")]).rename_columns(["id", "title", MARKER])
    put(folder, 2, renamed)
    put(folder, 3, items([(4, 2, "c")]).rename_columns(renamed.column_names))
    service = zone.service()
    service.poll()
    assert error_of(service) is None
    assert zone.rows() == [(1, "a", None), (2, None, "c")], "also where rows are rewritten"
    put(recreate(zone, folder), 1, renamed)
    service.poll()
    assert zone.rows() == [(2, "b")]
    assert DeltaTable(zone.tables / "dbo/items").schema().to_arrow().names == ["id", "title"]


@pytest.mark.parametrize(("setting", "price"), [("null", None), ("keep", Decimal("1.50"))])
def test_what_a_column_left_out_of_an_update_holds_is_a_switch(zone: Zone, setting: str, price: Decimal | None) -> None:
    """F-55 demands full rows; what a partial one does is assumed."""
    folder = zone.folder()
    put(folder, 1, _file(WIDER, {"id": 1, "name": "a", "price": Decimal("1.50"), MARKER: 4}))
    put(folder, 2, items([(4, 1, "b")]))
    zone.service(column_left_out_of_update=setting).poll()
    assert zone.rows() == [(1, "b", price)]


_REQUIRED = pa.schema([*ITEM, pa.field("must", pa.string(), nullable=False)])
_FIRST = _file(_REQUIRED, {"id": 1, "name": "a", "must": "m", MARKER: 4})
_MISFITS = {
    "F-87 other type": _file(_REQUIRED.set(1, pa.field("name", pa.int32())), {"id": 1, "name": 1, "must": "m"}),
    "F-87 wider integer": _file(_REQUIRED.set(0, pa.field("id", pa.int32(), nullable=False)), {"id": 1, "must": "m"}),
    "F-86 NOT NULL column dropped": _file(ITEM, {"id": 1, "name": "a"}),
    "NOT NULL column added": _file(
        _REQUIRED.append(pa.field("more", pa.int32(), nullable=False)), {"id": 1, "must": "m", "more": 1}
    ),
    "NOT NULL column null": _file(_REQUIRED.set(2, pa.field("must", pa.string())), {"id": 1, "must": None}),
    "other case": _file(_REQUIRED.set(1, pa.field("NAME", pa.string())), {"id": 1, "must": "m"}),
}


@pytest.mark.parametrize("misfit", _MISFITS.values(), ids=_MISFITS)
def test_any_other_change_of_columns_fails_the_table_for_the_life_of_its_folder(zone: Zone, misfit: pa.Table) -> None:
    """F-86, F-87: replacing the file heals nothing, a recreated folder does."""
    misfit = misfit.set_column(misfit.num_columns - 1, MARKER, pa.array([4], pa.int32()))
    folder = zone.folder()
    put(folder, 1, _FIRST)
    put(folder, 2, misfit)
    service = zone.service()
    assert [done.number for done in service.poll()] == [1]
    assert error_of(service) == "SchemaMergeFailure"
    assert zone.rows() == [(1, "a", "m")]
    put(folder, 2, _FIRST)
    assert service.poll() == []
    assert error_of(service) == "SchemaMergeFailure"
    put(recreate(zone, folder), 1, misfit)
    assert [done.number for done in service.poll()] == [1]
    assert error_of(service) is None


def test_a_delete_does_not_excuse_a_dropped_not_null_column(zone: Zone) -> None:
    """F-86: columns are merged before rows; every other column being nullable is what lets deletes carry keys only."""
    folder = zone.folder()
    put(folder, 1, _FIRST)
    put(folder, 2, items([(2, 1, None)]))
    service = zone.service()
    service.poll()
    assert error_of(service) == "SchemaMergeFailure"
    assert zone.rows() == [(1, "a", "m")]


def test_every_documented_type_arrives_as_it_was(zone: Zone) -> None:
    """F-80: timestamps in UTC microseconds, decimals to 38 digits, keys NOT NULL."""
    schema = pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            pa.field("bool", pa.bool_()),
            pa.field("int16", pa.int16()),
            pa.field("int32", pa.int32()),
            pa.field("int64", pa.int64()),
            pa.field("float32", pa.float32()),
            pa.field("float64", pa.float64()),
            pa.field("binary", pa.binary()),
            pa.field("date", pa.date32()),
            pa.field("timestamp", pa.timestamp("us", tz="UTC")),
            pa.field("decimal", pa.decimal128(38, 10)),
        ]
    )
    row = {
        "id": "é\0",
        "bool": True,
        "int16": -32768,
        "int32": 2**31 - 1,
        "int64": -(2**63),
        "float32": 0.5,
        "float64": 0.1,
        "binary": b"\xff\x00",
        "date": datetime(9999, 12, 31).date(),
        "timestamp": datetime(1, 1, 1, tzinfo=UTC),
        "decimal": Decimal("-1234567890123456789012345678.0123456789"),
    }
    folder = zone.folder()
    put(folder, 1, pa.Table.from_pylist([row, {"id": "null"}], schema=schema))
    put(folder, 2, _file(schema, {"id": "other", MARKER: 4}, {"id": "other", MARKER: 2}, {**row, MARKER: 4}))
    zone.service().poll()
    assert zone.rows() == sorted([tuple(row.values()), ("null", *[None] * 10)], key=repr)
    assert pa.schema(DeltaTable(zone.tables / "dbo/items").schema().to_arrow()) == schema


def test_writers_variants_of_a_type_are_one_type(zone: Zone) -> None:
    """Field: milliseconds and times without zone are common; large and dictionary columns are one Parquet type."""
    when = datetime(2026, 1, 2, 3, 4, 5)
    folder = zone.folder(keys=None)
    for number, (kind, text) in enumerate(
        [
            (pa.timestamp("us", tz="UTC"), pa.string()),
            (pa.timestamp("ms"), pa.large_string()),
            (pa.timestamp("us", tz="Europe/Berlin"), pa.dictionary(pa.int32(), pa.string())),
        ],
        1,
    ):
        values = pa.array([when.replace(tzinfo=UTC)], pa.timestamp("us", tz="UTC"))
        times = values.cast(kind) if kind.tz else values.cast(pa.timestamp("us")).cast(kind)
        put(folder, number, pa.table({"time": times, "text": pa.array(["x"]).cast(text)}))
    service = zone.service()
    service.poll()
    assert error_of(service) is None
    assert zone.rows() == [(when.replace(tzinfo=UTC), "x")] * 3


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1], pa.uint32()),
        pa.array([1], pa.timestamp("ns", tz="UTC")),
        pa.array([1], pa.time64("us")),
        pa.array([None], pa.null()),
        pa.array([[1]], pa.list_(pa.int32())),
        pa.array([Decimal(1)], pa.decimal256(50, 2)),
    ],
    ids=lambda column: str(column.type),
)
def test_types_that_nobody_documents_fail_the_table(zone: Zone, column: pa.Array) -> None:
    """F-80, F-81 (assumed: refused)."""
    put(zone.folder(), 1, pa.table({"id": [1], "strange": column}))
    service = zone.service()
    assert service.poll() == []
    assert error_of(service) == "UnsupportedType"
