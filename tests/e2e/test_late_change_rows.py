"""Rows of a change table in a database that are committed below what was read, through the command line and emulator.

No newer row has to come with them, and they may lie below the overlap: a look at the table counts its rows (T-18).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.odd.inputs import call
from tests.pipeline import Pipeline
from tests.postgres import PostgresServer
from tests.qlik_change_rows import sequence
from tests.spark.test_initial_load_jdbc import connect

ITEMS = {"source": "shop.items", "target": "shop/items", "key": ["id"]}


class Items:
    """A change table in a database, and the mirror that reads it."""

    def __init__(self, folder: Path, spark: Any, server: PostgresServer) -> None:
        self._server = server
        columns = "header__change_seq varchar(35), header__change_oper varchar(1), header__change_mask varchar(9)"
        server.execute(
            "DROP SCHEMA IF EXISTS shop CASCADE",
            "CREATE SCHEMA shop",
            f"CREATE TABLE shop.items__ct ({columns}, id int, name text)",
        )
        source = {
            "format": "qlik-change-table", "transport": "jdbc", "connection": "shop_db", "layout": None, "path": None,
            "overlap_minutes": 1,
        }  # fmt: skip
        self.pipeline = Pipeline(folder, spark, [ITEMS], source=source)

    def commit(self, change_seq: str | None, oper: str, id_: int, name: str, mask: str = "10") -> None:
        place = "NULL" if change_seq is None else f"'{change_seq}'"
        self._server.execute(f"INSERT INTO shop.items__ct VALUES ({place}, '{oper}', '{mask}', {id_}, '{name}')")

    def forget(self) -> None:
        """The task's retention takes all rows away."""
        self._server.execute("DELETE FROM shop.items__ct")

    def tick(self) -> int:
        code, _ = call("tick", self.pipeline.file)
        self.pipeline.service.poll()
        return code

    def rows(self) -> dict[int, str]:
        return {row["id"]: row["name"] for row in self.pipeline.mirrored("shop", "items")}


@pytest.fixture
def items(tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Items:
    connect(monkeypatch, postgres, postgres.port)
    return Items(tmp_path / "mirror", spark, postgres)


def test_a_row_that_is_committed_late_comes_without_a_newer_one(items: Items) -> None:
    """T-18: a lower sequence inside of the overlap, and one far below it; rows that were read may be removed."""
    items.commit(sequence(3), "I", 3, "three")
    assert (items.tick(), items.rows()) == (0, {3: "three"})
    items.commit(sequence(2), "I", 2, "two")
    assert (items.tick(), items.rows()) == (0, {2: "two", 3: "three"})
    items.commit("2020" + sequence(1)[4:], "I", 1, "one")
    assert (items.tick(), items.rows()) == (0, {1: "one", 2: "two", 3: "three"})
    before = items.pipeline.reader.mirror().committed
    assert (items.tick(), items.pipeline.reader.mirror().committed) == (0, before), "nothing came, nothing is read"
    items.forget()
    assert (items.tick(), items.pipeline.reader.mirror().committed) == (0, before), "what is gone was read"
    items.commit(sequence(4), "U", 3, "newest")
    assert (items.tick(), items.rows()) == (0, {1: "one", 2: "two", 3: "newest"})


def test_a_late_row_without_a_place_in_the_order_is_reported(items: Items) -> None:
    """T-10, T-18: it lies in no interval, and is read all the same."""
    items.commit(sequence(3), "I", 3, "three")
    items.tick()
    items.commit(None, "I", 4, "four")
    items.commit("123", "I", 5, "five")
    assert items.tick() != 0
    assert [letter["code"] for letter in items.pipeline.letters()] == ["HEADER_INVALID", "HEADER_INVALID"]
