"""The decisions of `where` equal SQL's, and what a database is asked for never lacks a row (G-193)."""

from __future__ import annotations

import random
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from open_mirroring.config.row_filter import Condition, parse_condition
from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.load.task import MatchingRows
from spark_jobs.sources.jdbc.dialects import PostgreSql, SqlServer, spelled_for
from spark_jobs.sources.sql_server.row_filters import matching
from tests.mutated_tables import random_rows

SQL_TYPES = {
    "bool": "bit",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float64": "float",
    "string": "nvarchar(400)",
    "date": "date",
    "timestamp": "datetime2(6)",
    "decimal(12,3)": "decimal(12,3)",
}
COLUMNS = (LandingColumn("id", "int32"), *(LandingColumn(f"c {at}", kind) for at, kind in enumerate(SQL_TYPES)))
LOADED = [LoadColumn(column.name, column.type, SQL_TYPES[column.type]) for column in COLUMNS]


def literal(chance: random.Random, kind: str, values: list[Any]) -> Any:
    """A literal that a condition may compare a column with: mostly one of its values, or near one."""
    value = chance.choice(values or [None])
    if kind == "bool":
        return chance.choice([True, False])
    if kind == "string":
        return chance.choice(["", "a", "A", "a ", "it's", value or "x"])
    if kind in ("date", "timestamp"):
        return "2000-01-01" if value is None else str(value.replace(tzinfo=None) if kind == "timestamp" else value)
    number = Decimal(chance.choice([0, "-0.5", "10.125", 2**40, "1e20"])) if value is None else Decimal(str(value))
    return int(number) if chance.random() < 0.4 else number.quantize(Decimal("0.0001"))


def condition(chance: random.Random, rows: list[dict[str, Any]], depth: int = 3) -> Condition:
    kind = chance.choice(["AND", "OR", "NOT", "leaf", "leaf"]) if depth else "leaf"
    if kind == "NOT":
        return Condition("NOT", (condition(chance, rows, depth - 1),))
    if kind != "leaf":
        parts = tuple(condition(chance, rows, depth - 1) for _ in range(chance.randint(2, 3)))
        return Condition(kind, parts)
    column = chance.choice(COLUMNS)
    values = [row[column.name] for row in rows if row[column.name] is not None]
    operator = chance.choice(["NULL", "IN", "=", "<>", "<", "<=", ">", ">="])
    if column.type == "bool" and operator not in ("NULL", "IN", "=", "<>"):
        operator = "="
    count = {"NULL": 0, "IN": 3}.get(operator, 1)
    return Condition(operator, (), column.name, tuple(literal(chance, column.type, values) for _ in range(count)))


def asked(rows: pa.Table, sql: str) -> set[int]:
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        db.register("rows", rows)
        return {one for (one,) in db.execute(f"SELECT id FROM rows WHERE {sql}").fetchall()}


@pytest.mark.parametrize("seed", range(150))
def test_a_condition_is_decided_as_sql_does_and_asked_for_without_a_loss_g193(seed: int) -> None:
    chance = random.Random(seed)
    found = random_rows(chance, COLUMNS, 60)
    rows = pa.Table.from_pylist(found, pa.schema([(column.name, arrow_type(column.type)) for column in COLUMNS]))
    where = condition(chance, found)
    assert str(parse_condition(str(where))) == str(where)
    matched = MatchingRows(_Rows(rows), where)
    ids = [key for table in matched for key in table["id"].to_pylist()]
    assert set(ids) == set(rows.filter(matching(rows, where))["id"].to_pylist()) == asked(rows, str(where)), str(where)
    assert [matched.place(at) for at in range(len(ids))] == [str(key) for key in ids]
    sql = spelled_for(where, LOADED, PostgreSql())
    assert sql is None or asked(rows, sql) >= set(ids), (str(where), sql)


class _Rows:
    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows

    def __iter__(self) -> Any:
        return (self._rows.slice(at, 7) for at in range(0, self._rows.num_rows, 7))

    def place(self, row: int) -> str:
        return str(self._rows["id"][row].as_py())


@pytest.mark.parametrize(
    ("where", "postgres", "sql_server"),
    [
        ("id = 1 AND \"c 5\" > 'a'", '("id" = 1)', "([id] = 1)"),
        ("id = 1 OR \"c 5\" > 'a'", None, None),
        ("\"c 5\" = 'it''s'", "CAST(\"c 5\" AS text) = 'it''s'", "[c 5] = N'it''s'"),
        ("NOT \"c 5\" = 'a'", None, None),
        ("NOT id IN (1, 2)", 'NOT ("id" IN (1, 2))', "NOT ([id] IN (1, 2))"),
        ("\"c 6\" < '2026-01-31'", "\"c 6\" < DATE '2026-01-31'", "[c 6] < CONVERT(date, '2026-01-31', 23)"),
        ("\"c 6\" < 'never'", None, None),
        ("\"c 7\" < '2026-01-31'", None, None),
        ('"c 7" IS NOT NULL', 'NOT ("c 7" IS NULL)', "NOT ([c 7] IS NULL)"),
    ],
)
def test_a_database_is_asked_only_for_what_it_compares_alike_g193(
    where: str, postgres: str | None, sql_server: str | None
) -> None:
    """Collations find texts equal that are not; a database's times may have more digits than land."""
    parsed = parse_condition(where)
    assert spelled_for(parsed, LOADED, PostgreSql()) == postgres
    assert spelled_for(parsed, LOADED, SqlServer()) == sql_server
