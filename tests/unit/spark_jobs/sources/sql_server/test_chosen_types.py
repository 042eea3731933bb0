"""Columns that land as the mirror file says, whatever their source's type (G-110)."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.exports.columns import land_column, landing_column
from spark_jobs.sources.qlik.change_table.rows import RowLayout, Structure
from spark_jobs.sources.sql_server.chosen_types import as_wide_as, chosen_key_converter, landed_as
from spark_jobs.sources.sql_server.typed_rows import Failure, typed_column
from tests import qlik_change_rows as change_rows
from tests import qlik_messages as messages

DAY = "2024-02-29 23:59:59.1234567"


def landed(
    sql_type: str, chosen: str, *texts: str | None, times: int = 1, key: bool = False
) -> tuple[list[Any], list[str]]:
    """The values that land, and why others do not."""
    (field,) = file_schema([LandingColumn("v", landed_as(sql_type, chosen))], ("v",) if key else (), marker=False)
    bad: dict[int, Failure] = {}
    column = typed_column(
        pa.array([*texts] * times, pa.string()), sql_type, field, pa.array(range(len(texts) * times)), bad
    )
    assert column.type == field.type
    return column.to_pylist(), [f"{one.code} {one.reason}" for one in bad.values()]


@pytest.mark.parametrize(
    ("sql_type", "text", "as_text"),
    [
        ("datetimeoffset(7)", f"{DAY} +02:00", "2024-02-29T23:59:59.1234567+02:00"),
        ("datetimeoffset(7)", "2024-02-29T23:59:59.12Z", "2024-02-29T23:59:59.1200000+00:00"),
        ("datetimeoffset(0)", "2024-02-29 23:59:59-00:00", "2024-02-29T23:59:59+00:00"),
        ("datetime2(7)", DAY, "2024-02-29T23:59:59.1234567"),
        ("datetime2(3)", "2024-02-29 23:59:59.1", "2024-02-29T23:59:59.100"),
        ("datetime", "2024-02-29 23:59:59.003", "2024-02-29T23:59:59.003"),
        ("smalldatetime", "2024-02-29 23:59:00", "2024-02-29T23:59:00"),
        ("date", "2024-02-29", "2024-02-29"),
        ("decimal(8,3)", "+007.5", "7.500"),
        ("money", "1.5", "1.5000"),
        ("bigint", "+0042", "42"),
        ("bit", "True", "1"),
        ("float", "1e2", "100.0"),
        ("varbinary(4)", "0xab01", "AB01"),
        ("uniqueidentifier", "6f9619ff-8b86-d011-b42d-00c04fc964ff", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
    ],
)
def test_any_type_lands_as_text_in_one_spelling_g110(sql_type: str, text: str, as_text: str) -> None:
    """G-110: as a key alike, by which loads, changes and deletes find their row; and what was spelled so reads back."""
    for times in (1, 300):
        assert landed(sql_type, "string", text, None, times=times) == ([as_text, None] * times, [])
    assert chosen_key_converter(sql_type, "string")(text) == as_text
    assert landed(sql_type, "string", as_text, key=True) == ([as_text], [])


def test_the_sign_of_a_zero_stays_in_a_text_that_is_no_key_g110() -> None:
    for times in (1, 300):
        assert landed("float", "string", "-0", "0", times=times)[0] == ["-0.0", "0.0"] * times
        assert landed("real", "string", "-0.0", times=times)[0] == ["-0"] * times
    assert landed("float", "string", "-0", key=True)[0] == [chosen_key_converter("float", "string")("-0")] == ["0.0"]


def test_a_number_lands_as_another_one_exactly_or_not_at_all_g110() -> None:
    assert landed("decimal(18,4)", "decimal(38,10)", "1.2345", None) == ([Decimal("1.2345000000"), None], [])
    assert landed("decimal(18,4)", "decimal(10,2)", "1.2300", "-5") == ([Decimal("1.23"), Decimal("-5.00")], [])
    assert landed("decimal(18,4)", "int32", "12.0000") == ([12], [])
    assert landed("tinyint", "int64", "255") == ([255], [])
    assert landed("bit", "decimal(3,1)", "1") == ([Decimal("1.0")], [])
    for times in (1, 300):
        values, why = landed("decimal(18,4)", "decimal(10,2)", "1.23", "1.2345", "123456789.00", None, times=times)
        assert values == [Decimal("1.23"), None, None, None] * times and len(why) == 2 * times
        assert why[0].startswith("VALUE_INVALID column 'v' (decimal(18,4) as decimal(10,2)): '1.2345' has more than 2")
    assert landed("bigint", "int32", "2147483648", "-1")[0] == [None, -1]
    assert landed("decimal(4,1)", "int16", "1.5", "-1.0")[0] == [None, -1]


@pytest.mark.parametrize(
    ("sql_type", "chosen"),
    [
        ("nvarchar(20)", "int64"),
        ("float", "decimal(18,4)"),
        ("bigint", "float64"),
        ("datetime2(7)", "int64"),
        ("uniqueidentifier", "decimal(38,0)"),
        ("varbinary(8)", "int64"),
        ("int", "timestamp"),
    ],
)
def test_a_choice_that_would_lose_what_the_source_shows_is_refused_g110(sql_type: str, chosen: str) -> None:
    with pytest.raises(TerminalError, match="cannot land as") as refused:
        landed_as(sql_type, chosen)
    assert refused.value.code == "TYPE_UNSUPPORTED"


def test_a_key_lands_as_text_or_in_a_type_in_which_it_is_spelled_alike_g110() -> None:
    assert chosen_key_converter("int", "int64")("007") == "7"
    assert chosen_key_converter("decimal(8,2)", "decimal(38,2)")("1.5") == "1.50"
    for sql_type, chosen in (
        ("int", "decimal(12,2)"),
        ("decimal(8,2)", "decimal(8,4)"),
        ("int", "int16"),
        ("date", "timestamp"),
    ):
        with pytest.raises(TerminalError, match="a key of type"):
            chosen_key_converter(sql_type, chosen)
    with pytest.raises(ValueError, match="types"):
        chosen_key_converter("datetime2(7)", None)


def exported(values: pa.Array, sql_type: str | None, chosen: str) -> list[Any]:
    column = landing_column("v", values.type, sql_type, chosen)
    (field,) = file_schema([LandingColumn("v", column.type)], (), marker=False)
    bad: dict[int, Failure] = {}
    landed = land_column(values, column, field, bad).to_pylist()
    assert not bad, bad
    return landed


def test_an_export_lands_as_the_changes_do_g110() -> None:
    seconds = pa.array([0, None], pa.timestamp("us"))
    assert exported(seconds, "datetime2(3)", "string") == ["1970-01-01T00:00:00.000", None]
    assert exported(pa.array([DAY]), "datetime2(7)", "string") == ["2024-02-29T23:59:59.1234567"]
    assert exported(pa.array([7], pa.int32()), None, "int64") == [7]
    assert exported(pa.array([7], pa.int64()), "bigint", "decimal(12,2)") == [Decimal("7.00")]
    assert exported(pa.array([Decimal("7.10")], pa.decimal128(8, 2)), None, "decimal(4,1)") == [Decimal("7.1")]
    assert exported(pa.array([b"\xab"]), "varbinary(2)", "string") == ["AB"]
    assert exported(pa.array([7.1]), None, "decimal(8,2)") == [Decimal("7.10")]
    assert exported(pa.array([7.0]), "int", "string") == ["7"]
    assert exported(pa.array([3_723_004_005], pa.time64("us")), None, "string") == ["01:02:03.004005"]


@pytest.mark.parametrize(
    ("kind", "sql_type", "chosen"),
    [
        (pa.timestamp("us", "UTC"), "datetimeoffset(3)", "string"),
        (pa.timestamp("ns"), "datetime2(7)", "string"),
        (pa.string(), None, "string"),
        (pa.float64(), "float", "decimal(8,2)"),
        (pa.string(), "varchar(5)", "int64"),
    ],
)
def test_an_export_that_lost_what_shall_land_is_refused_g110(kind: Any, sql_type: str | None, chosen: str) -> None:
    with pytest.raises(TerminalError) as refused:
        landing_column("v", kind, sql_type, chosen)
    assert refused.value.code == "TYPE_UNSUPPORTED"


def test_a_name_means_its_column_in_any_case_g110() -> None:
    choice = ColumnChoice(types=(("Made", "string"),))
    assert (choice.type_of("MADE"), choice.type_of("made_by")) == ("string", None)
    assert choice.is_all


def test_a_numeric_without_digits_has_those_that_the_mirror_file_says_g110() -> None:
    """G-110, K-13, T-43: in messages, change tables and full loads; another choice gives it none."""
    story = ColumnChoice(types=(("PRICE", "decimal(38,10)"),))
    columns = [*messages.COLUMNS[:2], ("price", "NUMERIC", 0, 0, 0, 0), messages.COLUMNS[3]]
    sent = messages.md(columns), messages.dt()
    (row,) = messages.decode(*sent, tables=[MirroredTable("dbo.orders", ("id",), story)]).rows
    assert (row.kind, row.code) == ("change", None)
    assert dict(one[:2] for one in json.loads(row.cols or ""))["price"] == "decimal(38,10)"
    other = ColumnChoice(types=(("price", "string"),))
    *_, refused = messages.decode(*sent, tables=[MirroredTable("dbo.orders", ("id",), other)]).rows
    assert refused.code == "ROW_INVALID" and "`types`" in (refused.reason or "")

    data = [one._replace(type="NUMERIC") if one.name == "price" else one for one in change_rows.DATA]
    structure = Structure(change_rows.TABLE, (*change_rows.HEADERS, *data))
    layout = RowLayout(structure, MirroredTable(change_rows.TABLE, ("id",), story), "header__")
    assert dict(one[:2] for one in json.loads(layout.cols))["price"] == "decimal(38,10)"


@pytest.mark.parametrize(
    ("loaded", "streamed", "lands"),
    [
        ("int32", (), "int32"),
        ("int32", ("int", "bigint"), "int64"),
        ("int32", ("bigint",), "int64"),
        ("int64", ("int",), "int64"),
        ("decimal(10,2)", ("decimal(12,2)",), "decimal(12,2)"),
        ("date", ("date", "datetime2(3)"), "timestamp"),
        ("int32", ("int", "decimal(12,2)"), "decimal(12,2)"),
        ("date", ("datetime2(3)",), "date"),
        ("float32", ("float",), "float32"),
        ("int32", ("decimal(12,2)",), "int32"),
        ("int32", ("int", "varchar(20)"), "int32"),
        ("int32", ("int", "geography"), "int32"),
    ],
)
def test_a_loaded_column_lands_as_wide_as_changes_unless_the_load_may_have_cut_it_g65(
    loaded: str, streamed: tuple[str, ...], lands: str
) -> None:
    """What no change has as the load has it may have lost digits, or its time of day, on the way into the export."""
    assert as_wide_as(loaded, streamed) == lands
