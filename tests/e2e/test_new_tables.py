"""Tables that join a mirror by a pattern of their names, in every format (G-70 to G-72).

Through the command line with the emulator as the target. One story: a table of the pattern is known, another one comes
up in the middle of a batch, is inserted into and updated. None of its changes is lost, whatever the cuts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests import drift_stories
from tests.ces_messages import event
from tests.e2e.test_drift import ChangeTables, Messages
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.qlik_change_rows import sequence
from tests.spark.test_initial_load_jdbc import connect


class Change(NamedTuple):
    """A row that is inserted, or whose name is updated, at a place in the source's order."""

    table: str
    id: int
    at: int
    name: str = "Ada"
    old: str | None = None


COLUMNS = {"id": "int", "name": "varchar(50)"}
COLS = (("id", "int"), ("name", "nvarchar(50)"))


class Source:
    """A mirror of all tables of the schema ``shop`` but those that end with ``_tmp``."""

    settings: ClassVar[Mapping[str, Any]]
    schema = "shop"

    def __init__(self, folder: Path, spark: Any, **pattern: Any) -> None:
        described = {"source": "shop.*", "exclude": ["shop.*_tmp"], **pattern}
        zone = {"store": "local", "path": "zone", "tables": "tables"}
        self.pipeline = Pipeline(folder, spark, [described], source=self.settings, landing_zone=zone)
        self.files, self.offset, self.ids = 0, 0, dict[tuple[str, int], str]()

    def send(self, changes: Sequence[Change]) -> None:
        """Let the source tell these changes; its format knows how."""
        story: dict[str, list[drift_stories.Change]] = {}
        for one in changes:
            row = {"id": str(one.id), "name": one.name}
            old = None if one.old is None else {**row, "name": one.old}
            change = drift_stories.Change("INS" if old is None else "UPD", one.at, COLUMNS, row, old, 1)
            story.setdefault(one.table, []).append(change)
        super().send(story)  # type: ignore[misc]

    def run(self, command: str, *words: str) -> int:
        code = main([command, str(self.pipeline.file), *words])
        self.pipeline.service.poll()
        return code

    def tick(self, *changes: Change) -> int:
        if changes:
            self.files += 1
            self.send(changes)
        return self.run("tick")

    def rows(self, table: str) -> list[tuple[str, str]]:
        found = in_order(self.pipeline.mirrored("shop", table), ["id"])
        return [(str(row["id"]), str(row["name"])) for row in found]

    @property
    def tables(self) -> dict[str, str | None]:
        return {source: state.stop_code for source, state in self.pipeline.reader.tables().items()}

    def rewrite(self, change: Any) -> None:
        document = yaml.safe_load(self.pipeline.file.read_text())
        change(document)
        self.pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False))


class CesLines(Source):
    settings: ClassVar = {"layout": "bare"}

    def message(self, one: Change, **more: Any) -> bytes:
        story = {
            "schema": "shop",
            "tbl": one.table,
            "cols": COLS,
            "commit": one.at,
            "pkkey": {"id": str(one.id)},
            **more,
        }
        row = {"id": str(one.id), "name": one.name}
        return event("INS", row, **story) if one.old is None else event("UPD", row, {**row, "name": one.old}, **story)

    def send(self, changes: Sequence[Change]) -> None:
        self.pipeline.deliver(f"{self.files:03}.jsonl", b"".join(self.message(one) + b"\n" for one in changes))


class QlikMessages(Source, Messages):
    settings: ClassVar = Messages.settings


class ChangeTableFiles(Source, ChangeTables):
    settings: ClassVar = ChangeTables.settings


SOURCES = [CesLines, QlikMessages, ChangeTableFiles]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_new_table_joins_with_all_its_changes_g70(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-70: in its first batch beside a known table, and in a later one; what is excluded stays out."""
    story = kind(tmp_path, spark)
    assert story.tick() == Exit.DONE, "nothing is there yet"
    assert story.tick(Change("orders", 1, 1), Change("orders", 1, 2, "Eve", "Ada")) == Exit.DONE
    assert "New table: shop.orders: first seen in batch 1, with the key ['id']" in capsys.readouterr().out
    assert story.tick(Change("orders", 2, 3), Change("items", 7, 4), Change("x_tmp", 1, 5), Change("items", 8, 6)) == 0
    assert story.tick(Change("items", 7, 7, "Kim", "Ada"), Change("orders", 1, 8, "Bo", "Eve")) == Exit.DONE
    assert story.rows("orders") == [("1", "Bo"), ("2", "Ada")]
    assert story.rows("items") == [("7", "Kim"), ("8", "Ada")]
    assert story.tables == {"shop.orders": None, "shop.items": None}
    assert story.run("reconcile") == Exit.DONE
    assert story.run("status") == Exit.DONE


@pytest.mark.parametrize("kind", SOURCES)
def test_a_table_that_asks_loses_nothing_until_the_yes_g71(
    kind: type[Source], tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-71: its changes are logged from the first one on; `resume` is no yes, and a yes is said once."""
    story = kind(tmp_path, spark, new_tables="ask")
    words = ["--table", "shop.orders", "--why", "ticket 7"]
    assert story.tick(Change("orders", 1, 1), Change("orders", 2, 2)) == Exit.TABLES_STOPPED
    assert story.tables == {"shop.orders": "NEW_TABLE"}
    assert story.tick(Change("orders", 1, 3, "Eve", "Ada")) == Exit.TABLES_STOPPED
    assert not (story.pipeline.target / "shop" / "orders").exists()
    assert story.run("resume", *words) == Exit.TERMINAL
    assert "COMMAND_REFUSED" in capsys.readouterr().err
    assert story.run("accept-table", *words) == Exit.DONE
    assert story.run("accept-table", *words) == Exit.TERMINAL
    assert "COMMAND_REFUSED" in capsys.readouterr().err
    assert story.tick() == Exit.DONE
    assert story.rows("orders") == [("1", "Eve"), ("2", "Ada")]


def test_a_key_that_was_fixed_is_no_yes_g71(tmp_path: Path, spark: Any) -> None:
    """G-69, G-71: KEY_UNKNOWN goes before NEW_TABLE; once the key is mended by hand, the table asks again."""
    story = CesLines(tmp_path, spark, new_tables="ask")
    one = Change("orders", 1, 1)
    story.pipeline.deliver("0.jsonl", story.message(one, pkkey={"ID": "1"}) + b"\n")
    assert story.tick() == Exit.TABLES_STOPPED
    assert story.tables == {"shop.orders": "KEY_UNKNOWN"}
    table = {"source": "shop.orders", "target": "shop/orders", "key": ["id"]}
    story.rewrite(lambda document: document["tables"].insert(0, table))
    assert story.tick() == Exit.TABLES_STOPPED
    assert story.tables == {"shop.orders": "NEW_TABLE"}, "nobody said yes"
    assert story.run("accept-table", "--table", "shop.orders", "--why", "x") == Exit.DONE
    assert story.tick() == Exit.DONE
    assert story.rows("orders") == [("1", "Ada")]


def test_a_no_is_an_exclusion_and_a_drop_g71(tmp_path: Path, spark: Any) -> None:
    story = CesLines(tmp_path, spark, new_tables="ask")
    assert story.tick(Change("orders", 1, 1), Change("items", 1, 2)) == Exit.TABLES_STOPPED
    story.rewrite(lambda document: document["tables"][0]["exclude"].append("shop.orders"))
    dropping = ["--table", "shop.orders", "--reason", "x", "--approved-by", "Ada", "--wait", "0", "--request", "a"]
    assert Exit.DONE in [story.run("drop-table", *dropping) for _ in range(4)]
    assert story.run("accept-table", "--table", "shop.items", "--why", "x") == Exit.DONE
    assert story.tick(Change("orders", 1, 3), Change("items", 2, 4)) == Exit.DONE
    assert story.tables == {"shop.items": None}
    assert story.rows("items") == [("1", "Ada"), ("2", "Ada")]


def test_a_table_that_leaves_its_pattern_is_no_longer_declared_g72(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-72, G-06: a pattern that changes after publication stops by name; written out alike the table goes on."""
    story = CesLines(tmp_path, spark)
    assert story.tick(Change("orders", 1, 1)) == Exit.DONE
    story.rewrite(lambda document: document["tables"][0].update(target="new_{schema}/{table}"))
    assert story.run("tick") == Exit.TERMINAL
    assert "TABLE_REDECLARED" in capsys.readouterr().err
    story.rewrite(lambda document: document["tables"].__setitem__(0, {"source": "shop.i*"}))
    assert story.run("tick") == Exit.TERMINAL
    assert "TABLE_REDECLARED" in capsys.readouterr().err
    table = {"source": "shop.orders", "target": "shop/orders", "key": ["id"]}
    story.rewrite(lambda document: document["tables"].insert(0, table))
    assert story.tick(Change("orders", 2, 2), Change("items", 3, 3)) == Exit.DONE
    assert story.rows("orders") == [("1", "Ada"), ("2", "Ada")]
    assert story.rows("items") == [("3", "Ada")]


@pytest.mark.parametrize("fault", ["extract.joined", "extract.written"])
def test_a_run_that_dies_while_a_table_joins_loses_nothing_g70(tmp_path: Path, spark: Any, fault: str) -> None:
    """G-70: the bound batch is adopted, with the table or before it joined."""
    story = CesLines(tmp_path, spark, new_tables="ask")
    story.send([Change("orders", 1, 1), Change("items", 1, 2), Change("orders", 1, 3, "Eve", "Ada")])
    story.pipeline.killed("extract_changes", fault)
    assert story.tick() == Exit.TABLES_STOPPED
    assert story.tables == {"shop.orders": "NEW_TABLE", "shop.items": "NEW_TABLE"}, "nobody said yes"
    for table in story.tables:
        story.run("accept-table", "--table", table, "--why", "x")
    assert story.tick() == Exit.DONE
    assert story.rows("orders") == [("1", "Eve")]
    assert story.rows("items") == [("1", "Ada")]


class Refused(NamedTuple):
    """New tables of which one cannot join, and what the run says."""

    name: str
    changes: tuple[Change, ...]
    says: str
    pattern: Mapping[str, Any]


REFUSED = [
    Refused("no folder", (Change("a/b", 1, 1),), "'shop/a/b'", {}),
    Refused("case", (Change("Orders", 1, 1), Change("orders", 1, 2)), "in case only", {}),
    Refused("one target", (Change("a", 1, 1),), "same table", {"target": "dbo/taken{table}"}),
]


@pytest.mark.parametrize("one", REFUSED, ids=[one.name for one in REFUSED])
def test_a_table_that_cannot_join_stops_reading_and_nothing_is_lost_g72(
    one: Refused, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-72: the batch waits until the mirror file says what to do; `check --sample` says it before."""
    story = CesLines(tmp_path, spark, **one.pattern)
    taken = {"source": "dbo.other", "target": "dbo/takena", "key": ["id"]}
    story.rewrite(lambda document: document["tables"].append(taken))
    assert story.tick(Change("fine", 1, 1), *one.changes) == Exit.TERMINAL
    err = capsys.readouterr().err
    assert "CONFIG_INVALID" in err and one.says in err
    assert story.run("check", "--sample", "100") == Exit.USAGE
    assert "CONFIG_INVALID" in capsys.readouterr().out
    names = {change.table for change in one.changes}

    def exclude(document: Any) -> None:
        document["tables"][0]["exclude"] += [f"shop.{name}" for name in names]

    story.rewrite(exclude)
    story.tick()
    assert story.tables["shop.fine"] is None
    folder = "shop" if "target" not in one.pattern else "dbo"
    named = "fine" if folder == "shop" else "takenfine"
    assert [row["id"] for row in story.pipeline.mirrored(folder, named)] == [1]


def test_a_table_that_joined_is_proved_reset_and_replayed_like_any_other_g70(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-70: by the same commands, from its first batch on."""
    story = CesLines(tmp_path, spark)
    letter = story.message(Change("orders", 3, 3, "too long" * 20))
    story.pipeline.deliver("0.jsonl", story.message(Change("orders", 1, 1)) + b"\n" + letter + b"\n")
    assert story.tick(Change("orders", 2, 4)) == Exit.DONE_WITH_LOSSES
    assert story.run("replay-dead-letters", "--table", "shop.orders") != Exit.TERMINAL
    assert story.run("accept-dead-letters", "--table", "shop.orders", "--why", "x") == Exit.DONE
    reset = ["--table", "shop.orders", "--reason", "x", "--approved-by", "Ada", "--wait", "0", "--request", "a"]
    codes = [story.run("reload-table", *reset) for _ in range(4)]
    assert Exit.DONE in codes, capsys.readouterr()
    assert story.tick(Change("orders", 1, 9, "Eve", "Ada")) == Exit.DONE
    assert story.rows("orders") == [("1", "Eve"), ("2", "Ada")]
    export = tmp_path / "export"
    export.mkdir()
    rows = [{"id": 1, "name": "Eve"}, {"id": 2, "name": "Ada"}]
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    pq.write_table(pa.Table.from_pylist(rows, schema), export / "shop.orders.parquet")
    assert story.run("prove", "--export", str(export), "--tables", "shop.orders", "--settle", "0") == Exit.DONE
    pq.write_table(pa.Table.from_pylist(rows[:1], schema), export / "shop.orders.parquet")
    assert story.run("prove", "--export", str(export), "--tables", "shop.orders", "--settle", "0") == Exit.NOT_EQUAL


def test_a_table_without_a_primary_key_takes_inserts_f12(tmp_path: Path, spark: Any) -> None:
    """F-12: as a table with an empty `key` does."""
    story = CesLines(tmp_path, spark)
    story.files = 1
    body = story.message(Change("log", 1, 1), pkkey={})
    story.pipeline.deliver("a.jsonl", body + b"\n" + story.message(Change("log", 2, 2), pkkey={}) + b"\n")
    assert story.run("tick") == Exit.DONE
    assert story.rows("log") == [("1", "Ada"), ("2", "Ada")]


def test_changes_that_were_ignored_before_the_pattern_are_reported_g70(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-70: messages of it were read and ignored in an earlier batch: CHANGES_IGNORED, not silence."""
    story = CesLines(tmp_path, spark)
    story.rewrite(lambda document: document["tables"].__setitem__(0, {"source": "shop.i*"}))
    assert story.tick(Change("items", 1, 1), Change("orders", 1, 2)) == Exit.DONE
    story.rewrite(lambda document: document["tables"].append({"source": "shop.o*"}))
    assert story.tick(Change("orders", 2, 3)) == Exit.DONE_WITH_LOSSES
    assert "CHANGES_IGNORED" in capsys.readouterr().out
    assert story.rows("orders") == [("2", "Ada")]


def test_change_tables_in_a_database_join_from_their_beginning_g70(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-70: the catalog tells them, and the key of the loaded table beside them; the load brings the rows before."""
    connect(monkeypatch, postgres, postgres.port)
    header = "header__change_seq varchar(35), header__change_oper varchar(1), header__change_mask bytea"
    postgres.execute(
        "DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop",
        "CREATE TABLE shop.items (id int PRIMARY KEY, name text)",
        f"CREATE TABLE shop.items__ct ({header}, id int, name text)",
        "INSERT INTO shop.items VALUES (1, 'Old')",
    )  # fmt: skip

    class Database(Source):
        settings: ClassVar = {
            "format": "qlik-change-table", "transport": "jdbc", "connection": "shop_db", "path": "", "layout": None
        }  # fmt: skip

        def send(self, changes: Sequence[Change]) -> None:
            for one in changes:
                cells = f"'{sequence(one.at)}', 'I', {one.id}, '{one.name}'"
                names = "header__change_seq, header__change_oper, id, name"
                postgres.execute(f"INSERT INTO shop.{one.table}__ct ({names}) VALUES ({cells})")

    story = Database(tmp_path, spark, initial_load={"format": "jdbc", "connection": "shop_db"})
    assert story.tick(Change("items", 2, 1)) in (Exit.DONE, Exit.ON_HOLD)
    assert story.run("initial-load") == Exit.DONE
    assert story.tick() == Exit.DONE
    assert story.rows("items") == [("1", "Old"), ("2", "Ada")]
    postgres.execute(
        "CREATE TABLE shop.orders (id int PRIMARY KEY, name text)",
        f"CREATE TABLE shop.orders__ct ({header}, id int, name text)",
    )
    story.tick(Change("orders", 5, 9), Change("items", 3, 10))
    assert story.run("initial-load") == Exit.DONE
    assert story.tick() == Exit.DONE
    assert story.rows("orders") == [("5", "Ada")]
    assert story.rows("items") == [("1", "Old"), ("2", "Ada"), ("3", "Ada")]
