"""Proving that the mirrored tables equal the source's: over JDBC and over exports, while the source moves (G-40)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spark_jobs.command_line import main
from spark_jobs.exit_codes import Exit
from tests.ces_messages import envelope, payload
from tests.pipeline import Pipeline
from tests.postgres import PostgresServer

COLUMNS = (("id", "int"), ("name", "nvarchar(max)"), ("price", "decimal(10,2)"))
TABLES = tuple(f"shop.t{number}" for number in range(1, 6))
Row = tuple[int, str | None, str | None]


class Shop:
    """Tables in PostgreSQL whose changes are told to a mirror, or not: then somebody has lost them."""

    def __init__(self, folder: Path, spark: Any, server: PostgresServer, tables: tuple[str, ...], **prove: Any) -> None:
        self.server, self.tables, self.commit = server, tables, 15
        server.execute("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop")
        for name in tables:
            server.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, name text, price numeric(10,2))")
        described = [
            {
                "source": name,
                "target": name.replace(".", "/"),
                "key": ["id"],
                "prove": {"format": "jdbc", "connection": "shop_db", **prove},
            }
            for name in tables
        ]
        self.pipeline = Pipeline(
            folder,
            spark,
            described,
            source={"layout": "bare"},
            landing_zone={"store": "local", "path": "zone", "tables": "tables"},
            prove={"settle_seconds": 0},
        )
        self.lines: list[str] = []

    def set(self, table: str, row: Row, *, told: bool = True) -> None:
        name = "NULL" if row[1] is None else "'" + row[1].replace("'", "''") + "'"
        values = f"({row[0]}, {name}, {'NULL' if row[2] is None else row[2]})"
        update = "SET name = EXCLUDED.name, price = EXCLUDED.price"
        self.server.execute(f"INSERT INTO {table} VALUES {values} ON CONFLICT (id) DO UPDATE {update}")
        if told:
            image = {"id": str(row[0]), "name": row[1], "price": row[2]}
            self._tell("INS", table, current=image)

    def remove(self, table: str, key: int, *, told: bool = True) -> None:
        self.server.execute(f"DELETE FROM {table} WHERE id = {key}")
        if told:
            self._tell("DEL", table, old={"id": str(key)}, pkkey={"id": str(key)})

    def deliver(self) -> None:
        """What was told reaches the place where it is read."""
        if self.lines:
            self.pipeline.deliver(f"{self.commit:06d}.jsonl", "".join(self.lines).encode())
            self.lines = []

    def tick(self) -> None:
        self.deliver()
        self.pipeline.tick()

    def _tell(self, operation: str, table: str, **images: Any) -> None:
        self.commit += 1
        schema, _, tbl = table.partition(".")
        data = payload(**images, cols=COLUMNS, commit=self.commit, schema=schema, tbl=tbl)
        message = envelope(operation, json.dumps(data), commit=self.commit)
        self.lines.append(json.dumps(message) + "\n")


@pytest.fixture
def shop_of(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Shop]:
    content = {
        "conn_type": "postgres",
        "host": "127.0.0.1",
        "port": postgres.port,
        "login": postgres.user,
        "password": postgres.password,
        "schema": postgres.database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", json.dumps(content))
    return lambda *tables, **settings: Shop(tmp_path / "shop", spark, postgres, tables, **settings)


def proved(shop: Shop, capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["prove", str(shop.pipeline.file), "--json", *map(str, argv)])
    return code, json.loads(capsys.readouterr().out)["tables"]


def test_every_kind_of_difference_is_found_and_nothing_else(
    shop_of: Callable[..., Shop], capsys: pytest.CaptureFixture[str]
) -> None:
    """G-40: a lost row, a ghost, NULL over a value, a stale row, a last digit, a trailing blank, another case."""
    shop = shop_of(*TABLES)
    for table in TABLES:
        for key in range(40):
            shop.set(table, (key, f"name {key}", f"{key}.50"))
    shop.tick()
    code, found = proved(shop, capsys)
    assert (code, {one["verdict"] for one in found.values()}) == (Exit.DONE, {"EQUAL"}), found
    assert {(one["rows_source"], one["rows_target"], one["looks"]) for one in found.values()} == {(40, 40, 1)}

    one, two, three, four, _ = TABLES
    shop.set(one, (100, "lost", "1.00"), told=False)
    shop.remove(one, 7, told=False)
    shop.set(two, (3, None, "3.50"), told=False)
    shop.set(two, (4, "name 4", "99.00"), told=False)
    shop.set(three, (5, "name 5", "5.51"), told=False)
    shop.set(three, (6, "name 6 ", "6.50"), told=False)
    shop.set(four, (8, "NAME 8", "8.50"), told=False)
    shop.set(four, (9, "", "9.50"))
    shop.tick()
    shop.set(four, (9, None, "9.50"), told=False)
    code, found = proved(shop, capsys)
    assert code == Exit.NOT_EQUAL
    keys = {table: {(k["key"], k["kind"], tuple(k["columns"])) for k in one["keys"]} for table, one in found.items()}
    assert keys == {
        "shop.t1": {('["100"]', "missing", ()), ('["7"]', "extra", ())},
        "shop.t2": {('["3"]', "different", ("name",)), ('["4"]', "different", ("price",))},
        "shop.t3": {('["5"]', "different", ("price",)), ('["6"]', "different", ("name",))},
        "shop.t4": {('["8"]', "different", ("name",)), ('["9"]', "different", ("name",))},
        "shop.t5": set(),
    }
    assert found["shop.t2"]["columns"] == {"name": 1, "price": 1}
    assert found["shop.t5"]["verdict"] == "EQUAL"
