"""Control tables of a Qlik task: what they tell of a table is reported by each run, until the task takes it back."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_dead_letters_seen import Shop
from tests.e2e.test_dropped_columns_formats import FIRST, RENAMED, SHORT, Change, Source
from tests.e2e.test_first_day import declare
from tests.e2e.test_histories import TABLES, history
from tests.e2e.test_transaction_cut_qlik import OVER_JDBC, stored
from tests.postgres import PostgresServer
from tests.qlik_change_rows import sequence
from tests.qlik_change_tables_sql import apply_exception, control_table_statements, ddl, suspended
from tests.spark.test_initial_load_jdbc import connect
from workload_generator.tables import CUSTOMERS, ORDERS, TableDef

SINCE = datetime(2024, 1, 1, 12, 30)


@pytest.fixture
def shop(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], postgres: PostgresServer, monkeypatch: Any
) -> Shop:
    """A mirror of change tables of which all partitions are closed, and without control tables that tell signals."""
    for closing in list(stored(postgres, history(seed=99, transactions=6), monkeypatch)):
        postgres.execute(*closing)
    return Shop(tmp_path / "shop", spark, capsys, tables=TABLES, source=OVER_JDBC)


def test_what_control_tables_show_is_reported_t_81(
    shop: Shop, postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """T-81: a suspended table is no quiet one; an error is a note; absent tables, or rights, are reported once."""
    for times in (1, 1):
        story = shop.tick()
        assert (story.code, story.document["losses"]) == (Exit.DONE, {})
        assert caplog.text.count("CONTROL_TABLE_UNREAD") == times
    postgres.execute(*control_table_statements())
    assert shop.tick().code == Exit.DONE
    postgres.execute(
        suspended(ORDERS, "Failed to\x1b[31m read", SINCE),
        suspended(replace(ORDERS, name="not mirrored"), "no", SINCE),
        apply_exception(CUSTOMERS, "it's full", SINCE),
        apply_exception(CUSTOMERS, "still", SINCE.replace(hour=13)),
    )
    for run in (shop.tick, shop.tick, lambda: shop.run("status")):
        story = run()
        assert (story.code, list(story.document["losses"])) == (Exit.DONE_WITH_LOSSES, ["dbo.orders"])
        loss = story.document["losses"]["dbo.orders"]
        assert loss.startswith("TABLE_SUSPENDED: the task suspended the table at 2024-01-01") and "Failed to" in loss
        assert "\x1b" not in loss, "a foreign text is shown, not printed"
        note = "TASK_ERRORS: the task recorded 2 errors of it, the newest at 2024-01-01 13:30"
        assert note in str(story.document)
    (orders,) = (one for one in story.document["tables"] if one["source"] == "dbo.orders")
    assert (orders["verdict"], orders["code"]) == ("LOSSES", "TABLE_SUSPENDED")
    postgres.execute("DELETE FROM control.attrep_suspended_tables", "DROP TABLE control.attrep_apply_exceptions")
    story = shop.tick()
    assert (story.code, story.document["losses"], "TASK_ERRORS" in str(story.document)) == (Exit.DONE, {}, False)
    assert caplog.text.count("CONTROL_TABLE_UNREAD") == 2 and "no attrep_apply_exceptions" in caplog.text


ITEMS = TableDef("shop", "items", (), ())


class Database(Source):
    """A change table in PostgreSQL, and the task's history of DDL beside it."""

    settings: ClassVar = {"format": "qlik-change-table", "transport": "jdbc", "connection": "shop_db", "path": "",
                "layout": None, "control_schema": "CONTROL"}  # fmt: skip
    source = "shop.items"
    server: PostgresServer

    def send(self, changes: Sequence[Change]) -> None:
        for one in changes:
            row = {"header__change_seq": sequence(one.at), "header__change_oper": one.operation[0], **one.row()}
            row |= {"header__change_mask": r"\x10"} if one.operation == "UPD" else {}
            values = ", ".join(f"'{cell}'" for cell in row.values())
            self.server.execute(f"INSERT INTO shop.items__ct ({', '.join(row)}) VALUES ({values})")

    def altered(self, at: int, done: str, **columns: tuple[str, str | None]) -> None:
        story = ddl(ITEMS, sequence(at), at=SINCE, columns=columns)
        self.server.execute(f"ALTER TABLE shop.items__ct {done}", story)


@pytest.fixture
def story(tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Database:
    connect(monkeypatch, postgres, postgres.port)
    Database.server = postgres
    headers = "header__change_seq varchar(35), header__change_oper varchar(1), header__change_mask bytea"
    postgres.execute(*(f"DROP SCHEMA IF EXISTS {name} CASCADE" for name in ("shop", "control")))
    columns = f"{headers}, id int, name text, city text, price text"
    postgres.execute("CREATE SCHEMA shop", f"CREATE TABLE shop.items__ct ({columns})", *control_table_statements())
    database = Database(tmp_path, spark)
    write(database, "landing_zone", tables="tables")
    return database


def write(story: Source, section: str, **settings: str) -> None:
    document = yaml.safe_load(story.pipeline.file.read_text())
    document[section] |= settings
    story.pipeline.file.write_text(yaml.safe_dump(document))


def test_a_rename_or_a_drop_that_a_history_of_ddl_shows_is_not_asked_for_t84(
    story: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-84, G-60, G-68: the rename builds the table anew by itself, the drop goes on; without a word it is asked."""
    assert story.tick(*FIRST) == Exit.DONE
    story.altered(10, "RENAME COLUMN price TO cost", price=("ALTER", "cost"))
    after = [Change("INS", 4, 10, RENAMED), Change("UPD", 2, 11, RENAMED, "Eve")]
    codes = [story.tick(*after), story.tick(), story.tick(), story.tick()]
    assert codes[-1] == Exit.DONE and Exit.TABLES_STOPPED not in codes[1:], capsys.readouterr().out
    rows = [(row["name"], row["cost"]) for row in story.rows]
    assert rows == [("Ada", "1.50"), ("Eve", "2.50"), ("Ada", "1.50"), ("Ada", "2.50")]
    assert "price" not in story.rows[0]
    story.altered(19, "DROP COLUMN cost, ADD COLUMN more text", cost=("DROP", None), more=("ADD", None))
    assert story.tick(Change("INS", 5, 20, SHORT)) == Exit.DONE, capsys.readouterr().out
    assert story.gone == ["cost"] and story.rows[-1]["more"] is None
    story.server.execute("ALTER TABLE shop.items__ct RENAME COLUMN city TO town")
    story.server.execute(f"INSERT INTO shop.items__ct VALUES ('{sequence(30)}', 'I', NULL, 6, 'Kim', 'Graz', '3.50')")
    assert story.tick() == Exit.TABLES_STOPPED
    assert story.stop == "RENAME_POSSIBLE"
    story.server.execute(ddl(ITEMS, sequence(29), at=SINCE, columns={"city": ("DROP", None), "town": ("ADD", None)}))
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    assert sorted(story.gone) == ["city", "cost"]


def test_a_name_that_a_history_of_ddl_says_was_given_again_is_another_column_t88(
    story: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-18, T-33, T-88, G-66: rows that are read again have the new column as NULL, and none ever lacked the name."""
    assert story.tick(*FIRST) == Exit.DONE
    story.altered(9, "RENAME COLUMN price TO cost", price=("ALTER", "cost"))
    story.altered(9, "DROP COLUMN city", city=("DROP", None))
    story.altered(10, "ADD COLUMN price text, ADD COLUMN city text", price=("ADD", None), city=("ADD", None))
    again = ("id", "name", "cost", "price", "city")
    story.tick(Change("INS", 4, 11, again), Change("UPD", 2, 12, again, "Eve"))
    codes = [story.tick(), story.tick(), story.tick()]
    assert codes[-1] == Exit.DONE and Exit.TABLES_STOPPED not in codes, capsys.readouterr().out
    rows = [(row["name"], row["cost"], row["price"], row["city"]) for row in story.rows]
    assert rows == [
        ("Ada", "1.50", None, None), ("Eve", "2.50", "1.50", "Linz"), ("Ada", "1.50", None, None),
        ("Ada", "2.50", "1.50", "Linz"),
    ]  # fmt: skip
    assert story.tick(Change("UPD", 3, 13, again, "Kim")) == Exit.DONE, "what is read again is still the same"


def test_what_was_done_to_a_complete_table_is_a_loss_until_it_is_built_again_t85_t87(
    story: Database, capsys: pytest.CaptureFixture[str]
) -> None:
    """T-81, T-85, T-87: what lies before the first change concerns nobody; rows of another task count for none."""

    def done(at: int, kind: str, **more: Any) -> None:
        story.server.execute(ddl(ITEMS, sequence(at), kind, at=SINCE, **more))

    def losses() -> str:
        main(["status", str(story.pipeline.file), "--json"])
        found = json.loads(capsys.readouterr().out)
        return str(found["losses"].get("shop.items")) + str(found["notes"]) + str(found["tables"][0]["notes"])

    done(0, "DROP_TABLE")
    done(1, "CREATE_TABLE")
    assert story.tick(*FIRST) == Exit.DONE, capsys.readouterr().out
    done(5, "TRUNCATE_TABLE")
    done(6, "ALTER_TABLE", columns={"price": ("DROP", None)}, task="Other")
    story.server.execute("ALTER TABLE shop.items__ct RENAME COLUMN price TO cost")
    assert story.tick(Change("INS", 9, 9, RENAMED)) == Exit.TABLES_STOPPED
    capsys.readouterr()
    assert "TASK_UNKNOWN: the control tables name 'shop.items' for the tasks 'Other', 'task'" in losses()
    write(story, "source", task="TASK")
    done(6, "ALTER_TABLE", columns={"price": ("DROP", None)})
    assert story.tick() == Exit.DONE_WITH_LOSSES, capsys.readouterr().out
    capsys.readouterr()
    found = losses()
    assert "TABLE_EMPTIED: it was truncated at the source at 2024-01-01 12:30:00" in found and "TASKS" not in found
    headers = "header__change_seq, header__change_oper, header__change_mask"
    story.server.execute(
        "CREATE TABLE shop.items AS SELECT * FROM shop.items__ct WHERE id = 9",
        *(f"ALTER TABLE shop.items DROP COLUMN {name}" for name in headers.split(", ")),
    )
    declare(story, initial_load={"format": "jdbc", "connection": "shop_db"})
    reset = ["reload-table", str(story.pipeline.file), "--table", story.source, "--reason", "truncated"]
    reset += ["--approved-by", "Ada", "--request", "r1", "--wait", "0"]
    for _ in range(5):
        main(reset)
        story.pipeline.service.poll()
    story.server.execute(suspended(ITEMS, "again", SINCE))
    assert story.tick() == Exit.DONE_WITH_LOSSES, "what a load mends, and what only the task does"
    capsys.readouterr()
    assert (found := losses()).startswith("TABLE_SUSPENDED")
    assert "rows unverified" in found and "may not apply its changes" in found, "T-30: nothing tells that it does"
    assert [row["id"] for row in story.rows] == ["9"]
    story.server.execute("DELETE FROM control.attrep_suspended_tables")
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    done(20, "DROP_TABLE")
    done(21, "ALTER_TABLE", new_name="things")
    assert story.tick() == Exit.DONE_WITH_LOSSES
    capsys.readouterr()
    found = losses()
    assert "TABLE_EMPTIED: it was dropped" in found and "TABLE_RENAMED: it is 'things' at the source" in found
    write(story, "source", task="tsk", control_schema="contrl")
    assert main(["check", str(story.pipeline.file)]) == Exit.DONE
    assert "CONTROL_TABLE_UNREAD" in capsys.readouterr().out
    assert story.tick() == Exit.DONE_WITH_LOSSES, "what was reported once is not forgotten"
    capsys.readouterr()
    assert "CONTROL_TABLE_UNREAD: the login sees no attrep_suspended_tables" in losses()
    write(story, "source", task="tsk", control_schema="control")
    story.tick()
    capsys.readouterr()
    assert "TASK_UNKNOWN: no row of the control tables is of the task 'tsk'; there are 'Other', 'task'" in losses()
