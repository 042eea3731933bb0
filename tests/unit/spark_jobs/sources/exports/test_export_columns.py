"""Exported columns become what the stream will say of them, or are refused; no value is bent (G-02, G-06, C-82)."""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.load.task import find_duplicate
from spark_jobs.sources.exports.columns import land_column, landing_column
from spark_jobs.sources.exports.files import Export, export_columns
from spark_jobs.sources.sql_server.type_text import landing_type
from spark_jobs.sources.sql_server.typed_rows import Failure


def landed(values: pa.Array, sql_type: str | None = None, *, key: bool = False) -> tuple[list[Any], dict[int, Failure]]:
    column = landing_column("c", values.type, sql_type)
    schema = file_schema([LandingColumn(column.name, column.type)], ["c"] if key else [], marker=False)
    bad: dict[int, Failure] = {}
    array = land_column(values, column, schema.field(0), bad)
    assert array.type == schema.field(0).type
    return ([] if bad else array.to_pylist()), bad


@pytest.mark.parametrize(
    ("kind", "landing"),
    [
        (pa.int8(), "int16"),
        (pa.uint8(), "int16"),
        (pa.int16(), "int16"),
        (pa.int32(), "int32"),
        (pa.int64(), "int64"),
        (pa.float32(), "float32"),
        (pa.float64(), "float64"),
        (pa.decimal128(12, 2), "decimal(12,2)"),
        (pa.decimal128(38, 38), "decimal(38,38)"),
        (pa.string(), "string"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.bool_(), "bool"),
        (pa.date32(), "date"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.timestamp("s", tz="Europe/Berlin"), "timestamp"),
        (pa.binary(), "binary"),
        (pa.binary(4), "binary"),
        (pa.uuid(), "string"),
        (pa.time64("us"), "string"),
        (pa.float16(), "float32"),
        (pa.decimal256(40, 2), "decimal(38,2)"),
    ],
)
def test_the_arrow_type_decides_where_no_sql_type_is_named(kind: pa.DataType, landing: str) -> None:
    assert landing_column("c", kind, None)._replace(held=()) == LoadColumn("c", landing)


@pytest.mark.parametrize("kind", [pa.list_(pa.int32()), pa.decimal256(60, 40), pa.null(), pa.struct([])])
def test_other_types_are_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(TerminalError, match="TYPE_UNSUPPORTED: column 'c'"):
        landing_column("c", kind, None)


@pytest.mark.parametrize(
    ("kind", "sql_type"),
    [
        (pa.int32(), "varchar(9)"),
        (pa.binary(16), "uniqueidentifier"),
        (pa.float64(), "varchar(9)"),
        (pa.bool_(), "tinyint"),
        (pa.decimal128(9, 2), "float"),
        (pa.timestamp("us"), "time(6)"),
        (pa.timestamp("us", "Europe/Berlin"), "date"),
        (pa.date32(), "datetimeoffset(3)"),
        (pa.time64("us"), "datetime2(6)"),
        (pa.time64("us"), "uniqueidentifier"),
    ],
)
def test_a_sql_type_of_another_kind_is_refused(kind: pa.DataType, sql_type: str) -> None:
    with pytest.raises(TerminalError, match="TYPE_UNSUPPORTED"):
        landing_column("c", kind, sql_type)


@pytest.mark.parametrize(
    ("values", "sql_type", "expected"),
    [
        (pa.array([255], pa.uint8()), None, [255]),
        (pa.array([7, None], pa.int64()), "tinyint", [7, None]),
        (pa.array([Decimal("1.50")], pa.decimal128(38, 10)), "money", [Decimal("1.5000")]),
        (
            pa.array(["a1b2c3d4-0000-4000-8000-00000000abcd"]),
            "uniqueidentifier",
            ["A1B2C3D4-0000-4000-8000-00000000ABCD"],
        ),
        (pa.array(["2024-01-02 03:04:05.1234567"]), "datetime2(7)", [datetime(2024, 1, 2, 3, 4, 5, 123456, UTC)]),
        (pa.array([None, None]), "int", [None, None]),
        (pa.array(["x"]).dictionary_encode(), "varchar(1)", ["x"]),
        (pa.array([b"ab"], pa.large_binary()), "varbinary(2)", [b"ab"]),
        (pa.array([date(1, 1, 1), date(9999, 12, 31)]), "date", [date(1, 1, 1), date(9999, 12, 31)]),
    ],
)
def test_values_are_read_by_their_sql_type(values: pa.Array, sql_type: str | None, expected: list[Any]) -> None:
    assert landed(values, sql_type) == (expected, {})


@pytest.mark.parametrize(
    ("values", "sql_type", "expected"),
    [
        (pa.array([5.0, None, -(2.0**53) + 1]), "bigint", [5, None, -(2**53) + 1]),
        (pa.array([5.0, 0.0], pa.float32()), "int", [5, 0]),
        (pa.array([1.0, 0.0, None]), "bit", [True, False, None]),
        (pa.array([1, 0, None], pa.int8()), "bit", [True, False, None]),
        (pa.array([9.99, 1e-07]), "decimal(15,7)", [Decimal("9.99"), Decimal("1e-7")]),
        (pa.array([-123456.78]), "decimal(8,2)", [Decimal("-123456.78")]),
        (pa.array([9.99], pa.float32()), "money", [Decimal("9.99")]),
        (pa.array([7, -1], pa.int64()), "decimal(8,2)", [Decimal(7), Decimal(-1)]),
        (pa.array([Decimal("7.000"), Decimal("-1")], pa.decimal128(38, 18)), "int", [7, -1]),
        (pa.array([Decimal("9.99")], pa.decimal256(60, 2)), "decimal(8,2)", [Decimal("9.99")]),
        (pa.array([1.5, None], pa.float16()), "real", [1.5, None]),
        (pa.array([7], pa.int64()), "float", [7.0]),
        (pa.array([datetime(2024, 2, 29), None], pa.timestamp("ns")), "date", [date(2024, 2, 29), None]),
        (pa.array([datetime(1, 1, 1)], pa.timestamp("us", "UTC")), "date", [date(1, 1, 1)]),
        (pa.array([date(2024, 2, 29)]), "datetime2(3)", [datetime(2024, 2, 29, tzinfo=UTC)]),
        (pa.array([3_723_004_005], pa.time64("us")), "time(6)", ["01:02:03.004005"]),
        (pa.array([3_723_004_005], pa.time64("us")), "time", ["01:02:03.0040050"]),
        (pa.array([3_723_004], pa.time32("ms")), "time(3)", ["01:02:03.004"]),
        (pa.array([3_723], pa.time32("s")), "time(0)", ["01:02:03"]),
        (pa.array([3_723_004_005_600], pa.time64("ns")), None, ["01:02:03.0040056"]),
        (pa.array([3_723_004_005], pa.time64("us")), "varchar(20)", ["01:02:03.004005"]),
        (pa.array(["5.0", None, "7"]), "int", [5, None, 7]),
        (pa.array(["1.0", "0.0", None]), "bit", [True, False, None]),
        (
            pa.array(["1.5E+0", "15e-1", "1.5e2", "1E-2"]),
            "decimal(8,2)",
            [*map(Decimal, ("1.5", "1.5", "150", "0.01"))],
        ),
        (
            pa.array(["2024-01-02T03:04:05Z", "2024-01-02 03:04:05.000 +00:00", "2024-01-02"]),
            "datetime2(7)",
            [datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)] * 2 + [datetime(2024, 1, 2, tzinfo=UTC)],
        ),
        (pa.array(["2024-01-02T00:00:00.000"]), "date", [date(2024, 1, 2)]),
    ],
)
def test_a_value_that_a_file_holds_exactly_in_another_type_lands(
    values: pa.Array, sql_type: str | None, expected: list[Any]
) -> None:
    for times in (1, 300):
        assert landed(pa.concat_arrays([values] * times), sql_type) == (expected * times, {})


@pytest.mark.parametrize(
    ("values", "sql_type", "why"),
    [
        (pa.array([0.0, 5.5]), "int", "'5.5' is not a whole number; the file holds double: export it as int"),
        (pa.array([0.0, 2.0**53]), "bigint", "may have been rounded"),
        (pa.array([0.0, float("nan")]), "int", "'nan'"),
        (pa.array([0.0, 0.30000000000000004]), "decimal(8,2)", "more than 2 digits after the point"),
        (pa.array([0.0, 12345678901234.56]), "decimal(18,2)", "may have been rounded"),
        (pa.array([0.0, 1e17]), "decimal(38,0)", "may have been rounded"),
        (pa.array([0.0, 12345.67], pa.float32()), "decimal(8,2)", "may have been rounded"),
        (pa.array([0, 2], pa.int8()), "bit", "'2' is not a bit"),
        (pa.array([0, 2**53 + 2], pa.int64()), "float", "may have been rounded"),
        (pa.array([Decimal(0), Decimal("0.5")]), "int", "'0.5' is not a whole number"),
        (pa.array([datetime(2024, 1, 1), datetime(2024, 1, 1, 10)]), "date", "is not a date"),
        (pa.array([0, 1], pa.time64("us")), "time(3)", "more than 3 digits"),
        (pa.array([0, 1], pa.timestamp("ns")), "datetime2(6)", "more than 6 digits"),
        (pa.array(["0", "5.5"]), "int", "is not a whole number"),
        (pa.array(["0", "9007199254740993.0"]), "bigint", "is not a whole number"),
        (pa.array(["0", "1.23457E+11"]), "decimal(18,0)", "may have been rounded"),
        (pa.array(["2024-01-02 00:00:00", "2024-01-02T03:04:05+02:00"]), "datetime2(7)", "offset"),
        (pa.array(["2024-01-02 00:00:00", "01/31/2026 10:00:00 AM"]), "datetime2(7)", "yyyy-mm-dd"),
        (pa.array(["0", "$1.50"]), "decimal(8,2)", "is not a decimal number"),
    ],
)
def test_a_value_that_may_have_lost_something_is_named(values: pa.Array, sql_type: str, why: str) -> None:
    _, bad = landed(values, sql_type)
    assert [(failure.index, failure.code) for failure in bad.values()] == [(1, "VALUE_INVALID")]
    assert why in bad[1].reason


@pytest.mark.parametrize("sql_type", [None, "datetime2(7)", "datetime2"])
def test_a_key_that_lost_a_digit_is_refused_g02(sql_type: str | None) -> None:
    """C-82: cut, two keys of the source could become one."""
    nanoseconds = pa.array([1_000, 1_001], pa.timestamp("ns"))
    assert landed(nanoseconds, sql_type)[1] == {}
    assert "more than 6 digits" in landed(nanoseconds, sql_type, key=True)[1][1].reason


def test_a_uuid_is_spelled_as_the_stream_spells_it() -> None:
    one = uuid.UUID("a1b2c3d4-0000-4000-8000-00000000abcd")
    values = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([one.bytes, None], pa.binary(16)))
    assert landed(values, None) == ([str(one).upper(), None], {})


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.integers(-(2**62), 2**62))
def test_digits_beyond_the_sixth_are_cut_from_the_written_time(nanoseconds: int) -> None:
    """C-82: also before 1970, where cutting the count would round up."""
    [value], bad = landed(pa.array([nanoseconds], pa.timestamp("ns")))
    assert bad == {}
    passed = value - datetime(1970, 1, 1, tzinfo=UTC)
    assert (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds == nanoseconds // 1000


def test_an_instant_stays_and_a_wall_clock_is_read_as_utc() -> None:
    instant = datetime(2024, 7, 1, 12, tzinfo=UTC)
    zoned = pa.array([instant], pa.timestamp("ms", tz="America/New_York"))
    assert landed(zoned) == ([instant], {})
    assert landed(pa.array([datetime(2024, 7, 1, 12)], pa.timestamp("us"))) == ([instant], {})


@pytest.mark.parametrize(
    ("values", "sql_type"),
    [
        (pa.array([0, 256], pa.int32()), "tinyint"),
        (pa.array([0, 2**31], pa.int64()), "int"),
        (pa.array([Decimal(0), Decimal("0.005")]), "decimal(5,2)"),
        (pa.array([Decimal(0), Decimal("214748.3648")]), "smallmoney"),
        (pa.array(["", "toolong"]), "nvarchar(3)"),
        (pa.array(["1", "one"]), "int"),
        (pa.array([b"", b"abc"]), "varbinary(2)"),
        (pa.array([0.0, float("nan")]), "float"),
        (pa.array([0.0, 1e300]), "real"),
        (pa.array([0, 1], pa.timestamp("us")), "datetime2(3)"),
        (pa.array([0, 2**61], pa.timestamp("us")), None),
        (pa.array([0, 2**62], pa.timestamp("s")), None),
        (pa.array([0, 4_000_000], pa.date32()), None),
        (pa.array([0.5, float("nan")]), None),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_row(values: pa.Array, sql_type: str | None) -> None:
    _, bad = landed(values, sql_type)
    assert [(failure.index, failure.code) for failure in bad.values()] == [(1, "VALUE_INVALID")]


@pytest.mark.parametrize(
    ("values", "code"),
    [
        (pa.array([1, None], pa.int32()), "KEY_INVALID"),
        (pa.array(["x", "a1b2c3d4-0000-4000-8000-00000000abcd"]), "VALUE_INVALID"),
    ],
)
def test_a_key_that_the_stream_could_not_find_again_is_refused(values: pa.Array, code: str) -> None:
    """G-02: a guid in small letters as text would be another key than the stream's."""
    _, bad = landed(values, key=True)
    assert bad[1].code == code
    assert landed(values)[1] == {}


def test_texts_that_are_guids_throughout_have_to_be_in_capitals_or_to_have_a_type() -> None:
    """G-02: a value of the stream would be spelled otherwise than the loaded ones."""
    small, capital = "a1b2c3d4-0000-4000-8000-00000000abcd", "A1B2C3D4-0000-4000-8000-00000000ABCD"
    _, bad = landed(pa.array([capital, None, small]))
    assert [(failure.index, failure.code) for failure in bad.values()] == [(2, "VALUE_INVALID")]
    assert landed(pa.array([capital, small]), "uniqueidentifier") == ([capital, capital], {})
    assert landed(pa.array([small]), "varchar(36)") == ([small], {})
    assert landed(pa.array([capital, None]))[1] == landed(pa.array([small, ""]))[1] == {}


def test_every_sql_type_lands_as_the_stream_lands_it() -> None:
    for sql_type in ("int", "decimal(9,3)", "datetime2(7)", "uniqueidentifier", "time(3)", "varbinary(8)", "bit"):
        assert landing_column("c", pa.string(), sql_type).type == landing_type(sql_type)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(["", "a", "b'\""])), max_size=12), st.integers(1, 5))
def test_a_key_is_found_twice_wherever_its_rows_are(keys: list[tuple[int, str]], cut: int) -> None:
    """I6: exact over all tables, however they are cut; the places are those of two equal keys."""
    kinds = pa.schema([pa.field('n"; --', pa.int32()), pa.field("s", pa.string())])
    tables = [
        pa.table([[k[0] for k in part], [k[1] for k in part]], schema=kinds)
        for part in (keys[at : at + cut] for at in range(0, len(keys), cut))
    ]
    found = find_duplicate(tables, kinds)
    assert (found is None) == (len(set(keys)) == len(keys))
    if found is not None:
        assert found[0] < found[1] and keys[found[0]] == keys[found[1]]


def test_listed_columns_are_found_in_an_export_whatever_their_case_g67(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "NAME": ["x"], "secret": ["y"]}), tmp_path / "a.parquet")
    export = Export(tmp_path, "parquet")
    found = export_columns(export, ["a.parquet"], ColumnChoice(("id", "Name")), {})
    assert [column.name for column in found] == ["id", "NAME"]
    with pytest.raises(TerminalError) as error:
        export_columns(export, ["a.parquet"], ColumnChoice(("id", "nmae")), {})
    assert error.value.code == "LOAD_INVALID" and "nmae" in error.value.what
