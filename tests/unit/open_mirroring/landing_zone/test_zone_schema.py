"""Columns as we write them: which types there are, what is NOT NULL, and what may be added (F-50, F-80 to F-88)."""

from __future__ import annotations

from functools import reduce
from itertools import combinations_with_replacement, permutations

import pyarrow as pa
import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type, file_schema
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema, landed, wider

ID, NAME, ADDED = LandingColumn("id", "int64"), LandingColumn("name", "string"), LandingColumn("added", "date")
MARKER = pa.field("__rowMarker__", pa.int32(), nullable=False)


def test_only_keys_and_the_marker_are_not_null_and_the_marker_is_last() -> None:
    """F-50, F-55, F-84, F-86: so a delete may carry its key only, and a later file may leave a column out."""
    schema = file_schema([NAME, ID, ADDED], ["id"], marker=True)
    assert schema.names == ["name", "id", "added", "__rowMarker__"]
    assert [field.name for field in schema if not field.nullable] == ["id", "__rowMarker__"]
    assert schema.field(-1).equals(MARKER)


def test_a_file_of_the_initial_load_has_no_marker_f57() -> None:
    assert file_schema([ID, NAME], ["id"], marker=False).names == ["id", "name"]


def test_every_type_is_a_simple_one_of_parquet() -> None:
    """F-80, F-82: signed integers, microseconds in UTC, decimals to 38 digits; binary is a type of its own."""
    wanted = {
        "bool": pa.bool_(),
        "int16": pa.int16(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "float32": pa.float32(),
        "float64": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "decimal(38,38)": pa.decimal128(38, 38),
        "decimal(1,0)": pa.decimal128(1, 0),
    }
    assert {name: arrow_type(name) for name in wanted} == wanted


@pytest.mark.parametrize(
    "landing_type",
    ["uint32", "time", "timestamp_ns", "decimal(39,0)", "decimal(5,6)", "decimal(0,0)", "list<int32>", "json", ""],
)
def test_what_nobody_documents_cannot_be_written(landing_type: str) -> None:
    """F-80, F-81: neither unsigned, nor a time of day, nor nanoseconds, nor anything nested."""
    with pytest.raises(TerminalError, match="TYPE_UNSUPPORTED"):
        arrow_type(landing_type)


def test_a_new_column_goes_behind_the_others_and_none_is_lost() -> None:
    """F-83, F-84: the union of all columns, first sight first; a list that lacks some takes none away."""
    schema = TableSchema((ID, NAME)).extended([ADDED, ID])
    assert schema.columns == (ID, NAME, ADDED)
    assert schema.extended([ID]) == schema
    assert file_schema(schema.columns, ["id"], marker=False).field("added").nullable


@pytest.mark.parametrize(
    ("column", "code"),
    [
        pytest.param(LandingColumn("name", "binary"), "SCHEMA_CHANGED", id="F-87 other"),
        pytest.param(LandingColumn("NAME", "string"), "COLUMN_NAME_INVALID", id="F-88 case"),
        pytest.param(LandingColumn("__ROWMARKER__", "int32"), "COLUMN_NAME_INVALID", id="F-50 the marker's name"),
        pytest.param(LandingColumn("more", "time"), "TYPE_UNSUPPORTED", id="F-80 no type of the zone"),
    ],
)
def test_what_the_target_could_not_follow_is_refused(column: LandingColumn, code: str) -> None:
    with pytest.raises(TerminalError, match=code):
        TableSchema((ID, NAME)).extended([ADDED, column])


LANDING_TYPES = [
    "bool", "int16", "int32", "int64", "decimal(1,1)", "decimal(8,2)", "decimal(38,0)", "decimal(38,38)", "float32",
    "float64", "date", "timestamp", "string", "binary",
]  # fmt: skip


def test_the_wider_type_of_several_is_the_same_in_whatever_order_they_come_g65() -> None:
    """G-65: which files are read first must not decide a column's type."""
    for kinds in combinations_with_replacement(LANDING_TYPES, 3):
        found = {reduce(lambda one, other: one and wider(one, other), order) for order in permutations(kinds)}
        assert len(found) == 1, (kinds, found)


def test_columns_have_the_targets_names_in_files_only_and_never_one_of_two_g120() -> None:
    """G-120: two may change places; what the ledger stores of a table without other names stays as it was."""
    swapped = TableSchema((ID._replace(renamed="name"), NAME._replace(renamed="ID"), ADDED))
    columns, keys = landed(swapped.columns, ["id"])
    assert ([column.name for column in columns], keys) == (["name", "ID", "added"], ("name",))
    assert TableSchema.from_json(swapped.to_json()) == swapped
    assert TableSchema((ID, NAME)).to_json() == '[["id", "int64"], ["name", "string"]]'
    assert swapped.extended([ID._replace(type="int32", renamed="name")]) == swapped, "what is published keeps its name"
    for late in (LandingColumn("other", "date", "Id"), LandingColumn("Other", "date", "ADDED")):
        with pytest.raises(TerminalError, match="would both land as") as refused:
            swapped.extended([late])
        assert refused.value.code == "COLUMN_NAME_INVALID"
    with pytest.raises(TerminalError, match="in case only"):
        swapped.extended([LandingColumn("NAME", "date", "other")])
