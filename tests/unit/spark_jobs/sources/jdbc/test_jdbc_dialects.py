"""The SQL of a load over JDBC: no name, bound or host can become another statement; chunks split all rows (G-08)."""

from __future__ import annotations

import sqlite3
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.config.connections import Connection
from open_mirroring.errors import TerminalError
from spark_jobs.sources.jdbc.dialects import PostgreSql, SqlServer, condition, dialect_of, ranges
from spark_jobs.sources.jdbc.tables import _borders, _bound_kind


def test_identifiers_are_quoted_by_the_rules_of_the_dialect() -> None:
    assert PostgreSql().quote('a"b]c; --') == '"a""b]c; --"'
    assert SqlServer().quote('a"b]c; --') == '[a"b]]c; --]'


@pytest.mark.parametrize("dialect", [PostgreSql(), SqlServer()])
def test_names_in_the_catalog_query_are_literals(dialect) -> None:
    query = dialect.columns_query("s'; DROP", "t'")
    assert "'s''; DROP'" in query
    assert query.endswith("'t'''")


def test_addresses_cannot_be_extended_by_their_parts() -> None:
    """The certificate is always checked; a database's name ends no part of the URL, a host is a host."""
    url, properties = SqlServer().address(Connection("c", "mssql", "db.local", 1434, schema="a;encrypt=false"))
    assert url == "jdbc:sqlserver://"
    assert properties == {
        "serverName": "db.local",
        "portNumber": "1434",
        "databaseName": "a;encrypt=false",
        "encrypt": "true",
        "trustServerCertificate": "false",
    }
    url, _ = PostgreSql().address(Connection("c", "postgres", "db.local", None, schema="a?user=b/c"))
    assert url == "jdbc:postgresql://db.local:5432/a%3Fuser%3Db%2Fc"
    for host in ("h/x?user=a", "h;encrypt=false", "", "a b"):
        for dialect in (PostgreSql(), SqlServer()):
            with pytest.raises(TerminalError, match="CONNECTION_INVALID"):
                dialect.address(Connection("c", "any", host))


def test_only_known_types_of_connection_are_read() -> None:
    assert isinstance(dialect_of(Connection("c", "mssql")), SqlServer)
    with pytest.raises(TerminalError, match="CONNECTION_INVALID"):
        dialect_of(Connection("c", "mysql"))


@pytest.mark.parametrize(
    ("kind", "numbers", "sql_type", "text"),
    [
        ("int", {}, "int", "CONVERT(varchar(64), [c])"),
        ("decimal", {"digits": 12, "scale": 2}, "decimal(12,2)", "CONVERT(varchar(64), [c])"),
        ("money", {}, "money", "CONVERT(varchar(64), [c], 2)"),
        ("float", {"digits": 53}, "float", "CONVERT(varchar(64), [c], 3)"),
        ("real", {"digits": 24}, "real", "CONVERT(varchar(64), [c], 3)"),
        ("datetime2", {"second_digits": 7}, "datetime2(7)", "CONVERT(varchar(64), [c], 121)"),
        ("datetimeoffset", {"second_digits": 3}, "datetimeoffset(3)", "CONVERT(varchar(64), [c], 121)"),
        ("date", {"second_digits": 0}, "date", "CONVERT(varchar(64), [c], 23)"),
        ("time", {"second_digits": 7}, "time(7)", "CONVERT(varchar(64), [c])"),
        ("nvarchar", {"length": -1}, "nvarchar(max)", "CAST([c] AS nvarchar(max))"),
        ("varchar", {"length": 20}, "varchar(20)", "CAST([c] AS nvarchar(max))"),
        ("varbinary", {"length": 8}, "varbinary(8)", "CONVERT(varchar(max), CAST([c] AS varbinary(max)), 1)"),
        ("image", {"length": 2147483647}, "image", "CONVERT(varchar(max), CAST([c] AS varbinary(max)), 1)"),
        ("uniqueidentifier", {}, "uniqueidentifier", "CONVERT(varchar(64), [c])"),
    ],
)
def test_sql_server_columns_are_read_by_exact_styles(kind: str, numbers: dict, sql_type: str, text: str) -> None:
    """T-97: the load's types are the very ones that the stream names, so the registry never sees a change."""
    column = {"name": "c", "data_type": kind, "length": None, "digits": None, "scale": None, "second_digits": None}
    assert SqlServer().sql_type({**column, **numbers}) == sql_type
    assert SqlServer().as_text("[c]", sql_type) == text


@pytest.mark.parametrize(("dialect", "kind"), [(SqlServer(), "sql_variant"), (PostgreSql(), "ARRAY")])
def test_what_cannot_be_mirrored_is_named(dialect, kind: str) -> None:
    """T-97."""
    with pytest.raises(TerminalError, match=f"TYPE_UNSUPPORTED.*'c' of type {kind}"):
        dialect.sql_type({"name": "c", "data_type": kind, "length": None, "digits": None, "scale": None})


def test_bounds_are_literals_that_no_session_setting_bends() -> None:
    assert SqlServer().bound("timestamp", "2024-02-03 04:05:06") == "CONVERT(datetime2, '2024-02-03T04:05:06', 126)"
    assert SqlServer().bound("instant", "2024-02-03 04:05:06") == "CONVERT(datetimeoffset, '2024-02-03T04:05:06Z', 127)"
    assert PostgreSql().bound("instant", "2024-02-03 04:05:06") == "TIMESTAMP WITH TIME ZONE '2024-02-03 04:05:06+00'"
    assert PostgreSql().bound("date", "2024-02-03") == "DATE '2024-02-03'"


@settings(derandomize=True, deadline=None, max_examples=60)
@given(st.lists(st.none() | st.integers(-50, 50), max_size=30), st.integers(1, 9), st.integers(-60, 60))
def test_chunks_hold_every_row_once(values: list[int | None], chunks: int, later: int) -> None:
    """NULLs included, and rows outside the bounds that were read: bounds are read before the rows (I6)."""
    known = [value for value in values if value is not None]
    borders = _borders("int", str(min(known)), str(max(known)), chunks) if known else []
    rows = [*values, later]
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE t (place, v)")
        db.executemany("INSERT INTO t VALUES (?, ?)", enumerate(rows))
        read = [
            place
            for part in ranges(borders)
            for (place,) in db.execute(f"SELECT place FROM t WHERE {condition(PostgreSql(), 'v', 'integer', part)}")
        ]
    assert sorted(read) == list(range(len(rows)))


def test_borders_lie_between_the_bounds() -> None:
    assert _borders("bigint", "1", "101", 4) == ["26", "51", "76"]
    assert _borders("decimal(9,2)", "0.50", "4.99", 4) == ["1", "2", "3"]
    assert _borders("int", "5", "5", 4) == ["5"]
    assert _borders("date", "2024-01-01", "2024-01-05", 2) == ["2024-01-03"]
    assert _borders("datetime2(7)", "0900-01-01 00:00:00.0000000", "0900-01-01 00:00:04.0000000", 2) == [
        "0900-01-01 00:00:02"
    ]
    day = datetime(2024, 1, 1)
    assert _borders("datetimeoffset(6)", f"{day}Z", f"{day + timedelta(days=2)}Z", 2) == ["2024-01-02 00:00:00"]


def test_only_numbers_and_dates_have_ranges() -> None:
    types = [
        "tinyint",
        "decimal(9,2)",
        "date",
        "datetime",
        "datetimeoffset(3)",
        "varchar(9)",
        "uniqueidentifier",
        "float",
    ]
    assert [_bound_kind(one) for one in types] == [
        "integer",
        "integer",
        "date",
        "timestamp",
        "instant",
        None,
        None,
        None,
    ]


def test_the_catalog_query_of_sql_server_gives_each_column_once_with_its_place_in_the_key() -> None:
    """G-50: run by SQLite on tables of these names, for no SQL Server is here to answer it."""
    with sqlite3.connect(":memory:") as db:
        db.row_factory = sqlite3.Row
        db.execute("ATTACH ':memory:' AS INFORMATION_SCHEMA")
        of_table, of_key = "TABLE_SCHEMA, TABLE_NAME", "CONSTRAINT_SCHEMA, CONSTRAINT_NAME"
        types = "DATA_TYPE, CHARACTER_MAXIMUM_LENGTH, NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION"
        db.execute(f"CREATE TABLE INFORMATION_SCHEMA.TABLES ({of_table}, TABLE_TYPE)")
        db.execute(f"CREATE TABLE INFORMATION_SCHEMA.COLUMNS ({of_table}, COLUMN_NAME, {types}, ORDINAL_POSITION)")
        db.execute(f"CREATE TABLE INFORMATION_SCHEMA.TABLE_CONSTRAINTS ({of_key}, {of_table}, CONSTRAINT_TYPE)")
        used = f"{of_key}, {of_table}, COLUMN_NAME, ORDINAL_POSITION"
        db.execute(f"CREATE TABLE INFORMATION_SCHEMA.KEY_COLUMN_USAGE ({used})")
        for name, kind in (("orders", "BASE TABLE"), ("seen", "VIEW"), ("log", "BASE TABLE")):
            db.execute("INSERT INTO INFORMATION_SCHEMA.TABLES VALUES ('dbo', ?, ?)", (name, kind))
            for place, column in enumerate(("a", "b", "c"), 1):
                values = ("dbo", name, column, "decimal", None, 18, 4, None, place)
                db.execute("INSERT INTO INFORMATION_SCHEMA.COLUMNS VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
        for name, kind, columns in (("pk", "PRIMARY KEY", "cb"), ("uq", "UNIQUE", "ab"), ("fk", "FOREIGN KEY", "b")):
            values = ("dbo", name, "dbo", "orders", kind)
            db.execute("INSERT INTO INFORMATION_SCHEMA.TABLE_CONSTRAINTS VALUES (?, ?, ?, ?, ?)", values)
            for place, column in enumerate(columns, 1):
                values = ("dbo", name, "dbo", "orders", column, place)
                db.execute("INSERT INTO INFORMATION_SCHEMA.KEY_COLUMN_USAGE VALUES (?, ?, ?, ?, ?, ?)", values)
        lines = [dict(line) for line in db.execute(SqlServer().catalog_query())]
    found = sorted((line["schema"], line["table"], line["place"], line["name"], line["key_place"]) for line in lines)
    orders = [("dbo", "orders", 1, "a", None), ("dbo", "orders", 2, "b", 2), ("dbo", "orders", 3, "c", 1)]
    assert found == [*(("dbo", "log", place, name, None) for place, name in enumerate("abc", 1)), *orders]
    assert {SqlServer().sql_type(line) for line in lines} == {"decimal(18,4)"}
