"""Values that PostgreSQL's client brings in their own types land as their exact texts did (G-06)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from open_mirroring.changes.column_choice import ALL_COLUMNS, ColumnChoice
from open_mirroring.config.connections import resolve
from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.sources.jdbc.dialects import PostgreSql, Range
from spark_jobs.sources.jdbc.postgres_client import rows_of
from spark_jobs.sources.jdbc.tables import JdbcRows, JdbcTable
from tests.postgres import PostgresServer
from tests.spark.test_initial_load_jdbc import connect

NAME = SourceName("shop", "extremes")
WIDE = "9" * 28 + "." + "9" * 10
VALUES: dict[str, list[str | None]] = {
    "smallint": ["-32768", "32767", "0", None],
    "integer": ["-2147483648", "2147483647", None],
    "bigint": ["-9223372036854775808", "9223372036854775807", None],
    "boolean": ["true", "false", None],
    "real": ["0.1", "-0", "3.4028235e38", "1e-45", "-1.17549435e-38", "NaN", "Infinity", "-Infinity", None],
    "double precision": [
        *("0.1", "-0", "1.7976931348623157e308", "5e-324", "2.2250738585072014e-308", "1e22"),
        *("NaN", "Infinity", "-Infinity", None),
    ],
    "numeric(38,10)": [WIDE, f"-{WIDE}", "0", "-0.0000000001", "1e-10", "1e27", "NaN", None],
    "numeric(38,0)": ["9" * 38, "-" + "9" * 38, "1", "NaN"],
    "numeric(5,5)": ["0.99999", "-0.00001"],
    "numeric(1)": ["9", "-9", "0"],
    "date": [
        *("0001-01-01", "9999-12-31", "1969-12-31", "10000-01-01", "5874897-12-31", "0001-12-31 BC"),
        *("4713-01-01 BC", "infinity", "-infinity", None),
    ],
    "timestamp": [
        *("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999", "10000-01-01"),
        *("294276-12-31 23:59:59.999999", "0001-12-31 23:59:59.999999 BC", "4713-01-01 BC", "infinity", "-infinity"),
        *("1582-10-10 00:00:00.000001", None),
    ],
    "timestamp(0)": ["2024-02-29 23:59:59", None],
    "timestamp(3)": ["2024-02-29 23:59:59.999"],
    "timestamptz": [
        *("0001-01-01 00:00:00+00", "0001-01-01 00:00:00+01", "9999-12-31 23:59:59.999999+00"),
        *("9999-12-31 23:59:59.999999-01", "2024-03-31 02:30:00 Europe/Berlin", "2024-06-30 23:59:59.5-12:30"),
        *("infinity", "-infinity", "0044-03-15 BC", None),
    ],
    "time": ["00:00:00", "23:59:59.999999", "24:00:00", "12:00", None],
    "time(3)": ["23:59:59.999", "00:00:00.1"],
    "uuid": ["00000000-0000-0000-0000-00000000aBcD", "ffffffff-ffff-ffff-ffff-ffffffffffff", None],
    "bytea": ["\\x", "\\x00ff22", "\\x" + "00" * 5000, None],
    "text": [
        *("", " ", "NULL", "\\N", "\x01\x7f", "é😀\U0010ffff", "a\nb\r\nc", '"', "\ufeff", "e\u0301", "x" * 70_000),
        None,
    ],
    "varchar(9)": ["ab ", "", "😀😀", None],
    "char(5)": ["ab", "", "  x", "😀", None],
    "json": ['{"a" : "\\u0041,\\n"}', "null", "1e400", '{"a":1,"a":2}', None],
    "jsonb": ['{"b": [1, null], "a": "\\""}', "1.50", "1e400", None],
}
AS_TEXT: dict[str, list[str | None]] = {
    **VALUES,
    "interval": ["1 year -2 days 03:04:05.000006", "-1 mon", "00:00:00", None],
    "money": ["-92233720368547758.08", "92233720368547758.07"],
    "time with time zone": ["23:59:59.999999+15:59", "00:00:00-12:30"],
    "integer[]": ["{1,NULL,-3}", "{}", "{{1,2},{3,4}}", None],
    "text[]": ['{"a,b","\\"",NULL,"NULL"}'],
    "inet": ["::1/64", "10.0.0.1"],
    "bit(3)": ["101"],
    "point": ["(1.5,-2)"],
    "int4range": ["[1,5)", "empty"],
}
CHOSEN: list[tuple[str, str, list[str | None]]] = [
    ("numeric", "decimal(38,10)", [WIDE, "1.50", "1e-10", "1e-11", "1e100", "-0", "NaN", "Infinity", None]),
    ("numeric(40,2)", "decimal(38,2)", ["9" * 36 + ".99", "1" + "0" * 36]),
    ("numeric(5,2)", "decimal(10,4)", ["0", "999.99", None]),
    ("numeric(5,2)", "int16", ["7.00", "7.50"]),
    ("bigint", "decimal(19,0)", VALUES["bigint"]),
    ("bigint", "int16", ["1", "32768"]),
    ("boolean", "int16", VALUES["boolean"]),
    ("boolean", "decimal(1,0)", VALUES["boolean"]),
    ("real", "float64", VALUES["real"]),
    ("date", "timestamp", VALUES["date"]),
]


@pytest.fixture
def source(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresServer]:
    postgres.execute("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop")
    connect(monkeypatch, postgres, postgres.port)
    yield postgres
    postgres.execute("DROP SCHEMA IF EXISTS shop CASCADE")


def table_of(server: PostgresServer, kind: str, values: list[str | None]) -> JdbcTable:
    """A table of one value a row, in this order."""
    server.execute("DROP TABLE IF EXISTS shop.extremes", f"CREATE TABLE shop.extremes (v {kind})")
    with closing(server.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'Asia/Kolkata'")
        for value in values:
            cursor.execute(f"INSERT INTO shop.extremes VALUES (%s::{kind})", (value,))
    return JdbcTable(None, "shop_db", NAME)  # type: ignore[arg-type]


def batch_of(table: JdbcTable, columns: tuple[LoadColumn, ...]) -> pa.RecordBatch:
    (query,) = table._queries(columns, None, [Range(None, None, True)])
    (batch,) = rows_of(resolve("shop_db"), query, NAME)
    return batch


def landed(batch: pa.RecordBatch, at: int, times: int, columns: tuple[LoadColumn, ...], *, key: bool) -> Any:
    """Return the value that lands of a row that comes so many times, or the code of its refusal."""
    schema = file_schema([column.landing for column in columns], ["v"] if key else [], marker=False)
    rows = batch.take(pa.array(np.repeat(at, times)))
    try:
        (found,) = JdbcRows([rows], columns, schema, "here")
    except TerminalError as error:
        return error.code
    assert found.schema == schema
    return repr(found["v"][times - 1].as_py())


@pytest.mark.parametrize(("kind", "chosen", "values"), [*((kind, "", VALUES[kind]) for kind in VALUES), *CHOSEN])
def test_values_land_as_their_exact_texts_do(
    kind: str, chosen: str, values: list[str | None], source: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each value alone, and in a batch that is large enough to be cast as a whole; as a value and as a key."""
    table = table_of(source, kind, values)
    columns = table.columns(ColumnChoice(types=(("v", chosen),)) if chosen else ALL_COLUMNS)
    typed = batch_of(table, columns)
    monkeypatch.setattr(PostgreSql, "copies", False)
    texts = batch_of(table, columns)
    is_text = columns[0].type == "string" or kind.startswith("numeric")
    assert texts.schema.types == [pa.string()] and is_text == (typed.schema == texts.schema)
    for at, value in enumerate(values):
        for times in (1, 300):
            for key in (False, True):
                ours, exact = (landed(batch, at, times, columns, key=key) for batch in (typed, texts))
                assert ours == exact, f"{value} {times} times, key: {key}"


@pytest.mark.parametrize("kind", [kind for kind in AS_TEXT if not kind.startswith("numeric")])
def test_what_lands_as_text_is_the_databases_own_text(kind: str, source: PostgresServer) -> None:
    """G-110: whatever its type is; arrays, intervals, money and ranges have no other way."""
    table = table_of(source, kind, AS_TEXT[kind])
    columns = table.columns(ColumnChoice(types=(("v", "string"),)))
    with closing(source.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("SET TIME ZONE 'America/New_York'; SET extra_float_digits TO 1")
        cursor.execute(f"SELECT {PostgreSql().as_text('v', columns[0].sql_type or '')} FROM shop.extremes")
        assert batch_of(table, columns).column(0).to_pylist() == [line[0] for line in cursor.fetchall()]
