"""SQL Server's types and values: exact, strict, one spelling per key (G-02, G-06, C-80 to C-84)."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type
from spark_jobs.sources.sql_server.type_text import landing_type
from spark_jobs.sources.sql_server.types import (
    canonical_text,
    converter,
    hex_of_base64,
    key_converter,
    type_of_key_text,
    type_of_landed_key,
)

LANDING = {
    "tinyint": "int16",
    "smallint": "int16",
    "int": "int32",
    "BIGINT": "int64",
    "bit": "bool",
    "decimal(8,2)": "decimal(8,2)",
    "numeric(38, 38)": "decimal(38,38)",
    "decimal": "decimal(18,0)",
    "decimal(5)": "decimal(5,0)",
    "money": "decimal(19,4)",
    "smallmoney": "decimal(10,4)",
    "float": "float64",
    "float(24)": "float32",
    "float(25)": "float64",
    "real": "float32",
    "date": "date",
    "datetime": "timestamp",
    "smalldatetime": "timestamp",
    "datetime2(7)": "timestamp",
    "datetimeoffset": "timestamp",
    "time(3)": "string",
    "uniqueidentifier": "string",
    "char(3)": "string",
    "varchar(max)": "string",
    "nchar(4)": "string",
    "nvarchar(50)": "string",
    "text": "string",
    "ntext": "string",
    "xml": "string",
    "sysname": "string",
    "binary(8)": "binary",
    "varbinary(max)": "binary",
    "image": "binary",
}


@pytest.mark.parametrize(("sql_type", "expected"), LANDING.items())
def test_each_type_has_its_landing_type(sql_type: str, expected: str) -> None:
    """F-80 to F-82: `xml` is a text, images are binary."""
    assert landing_type(sql_type) == expected
    assert arrow_type(expected) is not None


@pytest.mark.parametrize(
    "sql_type",
    ["", "geography", "sql_variant", "int(4)", "decimal(39,0)", "decimal(5,6)", "decimal(0,0)", "varchar(0)",
     "varchar(9000)", "datetime2(8)", "float(54)", "int; drop table x", "varchar(max,2)", "char(max)", "nope(1)"],
)  # fmt: skip
def test_an_unknown_type_is_refused_by_name(sql_type: str) -> None:
    """F-82: `geography` among them, of which no rendering is known."""
    with pytest.raises(TerminalError) as caught:
        landing_type(sql_type)
    assert caught.value.code == "TYPE_UNSUPPORTED"
    assert repr(sql_type) in str(caught.value)


VALUES = [
    ("int", "-2147483648", -(2**31)),
    ("int", "+0007", 7),
    ("tinyint", "255", 255),
    ("bigint", "9223372036854775807", 2**63 - 1),
    ("bit", "TRUE", True),
    ("bit", "0", False),
    ("decimal(8,2)", "123456.70", Decimal("123456.70")),
    ("decimal(8,2)", "-1.5000", Decimal("-1.50")),
    ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
    ("decimal(18,15)", "-86.772450000000000", Decimal("-86.772450000000000")),
    ("money", "-922337203685477.5808", Decimal("-922337203685477.5808")),
    ("float", "1.7976931348623157e308", 1.7976931348623157e308),
    ("float", "-87.123", -87.123),
    ("real", "0.5", 0.5),
    ("date", "2024-02-29", date(2024, 2, 29)),
    ("datetime", "2025-03-14 16:45:01.003", datetime(2025, 3, 14, 16, 45, 1, 3000, UTC)),
    ("datetime2(7)", "2026-08-07 16:25:00.8833339", datetime(2026, 8, 7, 16, 25, 0, 883333, UTC)),
    ("datetime2(7)", "9999-12-31T23:59:59.9999999", datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)),
    ("datetimeoffset(2)", "2026-01-01 00:30:00.25 +01:00", datetime(2025, 12, 31, 23, 30, 0, 250000, UTC)),
    ("datetimeoffset", "2026-01-01T00:30:00Z", datetime(2026, 1, 1, 0, 30, 0, 0, UTC)),
    ("datetime2(7)", "2026-08-07 16:25:00.883333999999", datetime(2026, 8, 7, 16, 25, 0, 883333, UTC)),
    ("datetime2(6)", "2026-08-07 16:25:00.883333000000", datetime(2026, 8, 7, 16, 25, 0, 883333, UTC)),
    ("datetimeoffset(7)", "2026-08-07 16:25:00.123456789 +00:00", datetime(2026, 8, 7, 16, 25, 0, 123456, UTC)),
    ("date", "2024-02-29T00:00:00.000", date(2024, 2, 29)),
    ("decimal(8,2)", "1.5E+0", Decimal("1.50")),
    ("decimal(8,2)", "1e2", Decimal("100.00")),
    ("time(7)", "23:59:59.9999999", "23:59:59.9999999"),
    ("time(7)", "23:59:59.123456000000", "23:59:59.1234560"),
    ("time(7)", "23:59:59.123456789", "23:59:59.123456789"),
    ("time(3)", "24:00:00", "24:00:00"),
    ("time(0)", "-838:59:59", "-838:59:59"),
    ("uniqueidentifier", "0e984725-c51c-4bf4-9960-e1c80e27aba0", "0E984725-C51C-4BF4-9960-E1C80E27ABA0"),
    ("nvarchar(2)", "\N{GRINNING FACE}", "\N{GRINNING FACE}"),
    ("varchar(2)", "éé", "éé"),
    ("varbinary(max)", "0xDEADbeef", b"\xde\xad\xbe\xef"),
    ("binary(2)", "00ff", b"\x00\xff"),
]


@pytest.mark.parametrize(("sql_type", "text", "value"), VALUES)
def test_a_value_is_read_exactly(sql_type: str, text: str, value: object) -> None:
    """C-80 to C-84: the captured renderings, and the usual spellings where none was ever published."""
    found = converter(sql_type)(text)
    assert found == value
    assert type(found) is type(value)
    # What was read must fit the landing type to the last digit.
    scalar = pa.scalar(found, arrow_type(landing_type(sql_type)))
    assert scalar.as_py() == value


WRONG = [
    ("int", ["", " 5", "5 ", "1.0", "1e3", "0x1F", "1_000", "2147483648", "٣", "9" * 5000]),
    ("tinyint", ["256", "-1"]),
    ("bit", ["", "2", "yes", "t"]),
    ("decimal(8,2)", ["", ".", "1,5", "1e9", "1e", "1234567", "1.234", "NaN", "Infinity", "1 "]),
    ("money", ["922337203685477.5808", "$1"]),
    ("smallmoney", ["214748.3648"]),
    ("float", ["", "nan", "inf", "1e400", "1_0.0", "0x1p3", "1e99999"]),
    ("real", ["1e39"]),
    ("date", ["2023-02-29", "2023-2-1", "20230201", "2023-02-01 10:00:00", "2023-02-01 00:00:00Z",
              "0000-01-01", "0000-00-00", "10000-01-01", "-4712-01-01"]),
    ("datetime2(7)", ["2026-08-07", "2026-08-07 24:00:00", "2026-08-07 16:25:60", "2026-08-07 16:25:00.1234567890123",
                      "2026-08-07 16:25:00Z", "2026-13-07 16:25:00", "0000-00-00 00:00:00"]),
    ("datetime2(3)", ["2026-08-07 16:25:00.1234"]),
    ("datetimeoffset", ["2026-08-07 16:25:00", "2026-08-07 16:25:00 +14:01", "0001-01-01 00:00:00 +01:00",
                        "2026-08-07 16:25:00 +01:60"]),
    ("time", ["4:00:00", "12:60:00", "12:00", "12:00:00.1234567890123"]),
    ("time(3)", ["12:00:00.1234"]),
    ("uniqueidentifier", ["0E984725C51C4BF49960E1C80E27ABA0", "{0E984725-C51C-4BF4-9960-E1C80E27ABA0}", "x"]),
    ("nvarchar(2)", ["abc", "\N{GRINNING FACE}a"]),
    ("varchar(2)", ["abc"]),
    ("varbinary(2)", ["0x1", "0xGG", "0x010203"]),
]  # fmt: skip


@pytest.mark.parametrize(("sql_type", "text"), [(sql_type, text) for sql_type, texts in WRONG for text in texts])
def test_a_text_that_is_no_value_is_never_guessed_g06(sql_type: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+"):
        converter(sql_type)(text)


def test_base64_is_read_strictly() -> None:
    assert converter("varbinary(max)")(hex_of_base64("3q0=")) == b"\xde\xad"
    with pytest.raises(ValueError, match="base64"):
        hex_of_base64("3q0=!")


SAME_KEY = [
    ("decimal(5,2)", ["1", "1.0", "1.00", "+1.000"], "1.00"),
    ("decimal(5,2)", ["0", "-0.00"], "0.00"),
    ("int", ["7", "+7", "007"], "7"),
    ("uniqueidentifier", ["0e984725-c51c-4bf4-9960-e1c80e27aba0", "0E984725-C51C-4BF4-9960-E1C80E27ABA0"],
     "0E984725-C51C-4BF4-9960-E1C80E27ABA0"),
    ("datetime2(6)", ["2026-01-02 03:04:05.5", "2026-01-02T03:04:05.500000"], "2026-01-02T03:04:05.500000"),
    ("datetimeoffset(0)", ["2026-01-02 03:04:05 +01:00", "2026-01-02 02:04:05Z"], "2026-01-02T02:04:05.000000"),
    ("date", ["0099-01-01"], "0099-01-01"),
    ("datetime", ["0001-01-01 00:00:00"], "0001-01-01T00:00:00.000000"),
    ("time(3)", ["10:00:00.1", "10:00:00.100"], "10:00:00.100"),
    ("bit", ["1", "true", "True"], "1"),
    ("float", ["0.0", "-0.0", "0e5"], "0.0"),
    ("real", ["1.1", "1.10000002"], "1.10000002"),
    ("nvarchar(9)", [" é "], " é "),
    ("varbinary(4)", ["0xab", "AB"], "AB"),
]  # fmt: skip


@pytest.mark.parametrize(("sql_type", "texts", "canonical"), SAME_KEY)
def test_equal_key_values_have_one_canonical_text_g02(sql_type: str, texts: list[str], canonical: str) -> None:
    """C-83: a GUID is one key however it is spelled."""
    assert {key_converter(sql_type)(text) for text in texts} == {canonical}
    assert {canonical_text(sql_type, converter(sql_type)(text)) for text in texts} == {canonical}


@pytest.mark.parametrize(("sql_type", "texts", "canonical"), SAME_KEY)
def test_a_key_is_read_back_alike_by_its_type_and_by_what_it_lands_as_g02(
    sql_type: str, texts: list[str], canonical: str
) -> None:
    """C-71: of a table of which only deletes were read since its load, no event has told the types."""
    landed = type_of_landed_key(landing_type(sql_type))
    assert converter(landed)(canonical) == converter(type_of_key_text(sql_type))(canonical)


@pytest.mark.parametrize("sql_type", ["datetime2(7)", "datetime2", "datetimeoffset", "datetimeoffset(7)"])
def test_a_key_type_that_loses_digits_is_refused_g02(sql_type: str) -> None:
    with pytest.raises(ValueError, match="lands it as text"):
        key_converter(sql_type)
    with pytest.raises(ValueError, match="lands it as text"):
        canonical_text(sql_type, datetime.now(UTC))


def test_a_typed_decimal_that_does_not_fit_has_no_canonical_text() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        canonical_text("decimal(5,2)", Decimal("1.234"))
    assert canonical_text("decimal(38,10)", Decimal("1234567890123456789012345678.1")) == (
        "1234567890123456789012345678.1000000000"
    )


def test_a_converter_is_made_once_per_type() -> None:
    assert converter("decimal(8,2)") is converter("decimal(8,2)")
