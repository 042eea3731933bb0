"""Deleted rows that stay at the target with their last values (G-192), against a fold of the history's own changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event, lsn
from tests.e2e.test_first_day import declare
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY
from tests.e2e.test_transaction_cut import PARTITIONED, whole_at_each_tick
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from tests.shaped_tables import FORMS, commits, mirrored
from tests.spark.test_initial_load_jdbc import connect
from workload_generator.history import SHOP_TABLES, random_history
from workload_generator.sql_values import typed

TABLES = [
    {"source": t.full_name, "target": f"shop/{t.name}", "key": list(t.key), "on_delete": "keep"} for t in SHOP_TABLES
]
COLS = (("id", "int"), ("name", "nvarchar(9)"), ("photo", "nvarchar(max)"))
ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"], "on_delete": "keep"}
ZONE = {"store": "local", "path": "zone", "tables": "tables"}
REMOVED_AT = "2026-08-07 16:30:10.123000"


def kept(made: Any, full_name: str) -> dict[tuple[str, ...], tuple[dict[str, Any], bool]]:
    """The last row of each key that ever was, and whether it is gone."""
    rows: dict[tuple[str, ...], tuple[dict[str, Any], bool]] = {}
    for change in commits(made):
        if change.table.full_name != full_name:
            continue
        if change.before is not None and change.table.key_of(change.before) in rows:
            old = rows[key := change.table.key_of(change.before)]
            if old[0] == dict(change.before):  # else another row took the key in this transaction
                rows[key] = (old[0], True)
        if change.after is not None:
            rows[change.table.key_of(change.after)] = (dict(change.after), False)
    return rows


def assert_kept(pipeline: Pipeline, made: Any) -> int:
    """Every table has the last row of each key; returns how many of them are gone."""
    gone = 0
    for table in SHOP_TABLES:
        types = {column.name: column.sql_type for column in table.columns}
        expected = [
            {**{name: typed(types[name], text) for name, text in row.items()}, "_deleted_at": is_gone}
            for row, is_gone in kept(made, table.full_name).values()
        ]
        found = pipeline.mirrored("shop", table.name) if expected else []
        found = [{**row, "_deleted_at": row["_deleted_at"] is not None} for row in found]
        assert in_order(found, table.key) == in_order(expected, table.key), table.name
        gone += sum(row["_deleted_at"] for row in expected)
    return gone


@pytest.mark.parametrize("form", FORMS)
def test_a_deleted_row_stays_with_its_last_values_g192(form: str, tmp_path: Path, spark: Any) -> None:
    """G-192, G-03, G-05: key changes, exchanged keys, keys that come back; late, repeated and over kills."""
    made = random_history(92, 60)
    pipeline = mirrored(form, made, tmp_path, spark, TABLES, publish={"max_rows_per_file": 3})
    assert assert_kept(pipeline, made) > 20


@pytest.mark.long
def test_spark_s_workers_keep_the_same_rows_g192(tmp_path: Path, spark_workers: Any) -> None:
    made = random_history(92, 60)
    assert assert_kept(mirrored("ces", made, tmp_path, spark_workers, TABLES), made) > 20


def test_a_transaction_is_kept_as_a_complete_g192_c88(tmp_path: Path, spark: Any) -> None:
    """G-192, I4: what the target shows is the source at a commit, deleted rows included."""
    made = random_history(95, 60)
    pipeline = Pipeline(tmp_path, spark, TABLES, source=PARTITIONED, consistency="transaction")
    gone = 0
    for whole in whole_at_each_tick(pipeline, made):
        gone = assert_kept(pipeline, whole)
    assert gone > 10


def scene(operation: str, key: int, name: str, at: int, photo: str | None = "p") -> bytes:
    row = {"id": str(key), "name": name, "photo": photo}
    images = (None, {"id": str(key)}) if operation == "DEL" else (row, None if operation == "INS" else {"id": str(key)})
    return event(operation, *images, cols=COLS, commit=at) + b"\n"


class Orders:
    """A mirror of one table that keeps deleted rows."""

    def __init__(self, folder: Path, spark: Any, table: dict[str, Any] = ORDERS, **settings: Any) -> None:
        given = {"source": {"layout": "bare"}, "landing_zone": ZONE, "prove": {"settle_seconds": 0}, **settings}
        self.pipeline, self.files = Pipeline(folder, spark, [table], **given), 0

    def tick(self, *changes: bytes) -> int:
        self.files += 1
        self.pipeline.deliver(f"{self.files}.jsonl", b"".join(changes))
        return self.command("tick")

    def command(self, *words: str) -> int:
        code = main([words[0], str(self.pipeline.file), *words[1:]])
        self.pipeline.service.poll()
        return code

    def rows(self, *more: str) -> list[tuple[Any, ...]]:
        found = in_order(self.pipeline.mirrored("dbo", "orders"), ["id"])
        names = ("id", "name", "photo", "_deleted_at", *more)
        return [tuple(str(row[name]) if name == "_deleted_at" else row[name] for name in names) for row in found]

    @property
    def stop(self) -> str | None:
        return self.pipeline.reader.tables()["dbo.orders"].stop_code


def test_loaded_rows_stay_and_a_proof_does_not_miss_them_at_the_source_g192(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """G-192, G-08, G-80: deletes with nothing but the key; a correction that deletes; maintenance, a lost ledger."""
    connect(monkeypatch, postgres, postgres.port)
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(9), photo text)",
        "INSERT INTO orders SELECT n, 'n' || n, 'p' FROM generate_series(1, 5) n",
    )
    load = {"format": "jdbc", "connection": "shop_db", "table": "public.orders"}
    extra = {"operation": "_operation"}
    orders = Orders(tmp_path / "shop", spark, {**ORDERS, "initial_load": load, "extra_columns": extra})
    assert orders.command("initial-load") == Exit.DONE, capsys.readouterr().out
    assert orders.tick(scene("DEL", 2, "", 11), scene("UPD", 3, "new", 12), scene("DEL", 3, "", 13)) == Exit.DONE
    postgres.execute("DELETE FROM orders WHERE id in (2, 3)")
    alive = [(n, f"n{n}", "p", "None", "load") for n in (1, 4, 5)]
    two, three = (2, "n2", "p", REMOVED_AT, "delete"), (3, "new", "p", REMOVED_AT, "delete")
    assert orders.rows("_operation") == [alive[0], two, three, *alive[1:]]
    assert orders.command("prove") == Exit.DONE, capsys.readouterr().out
    assert orders.command("maintain") == Exit.DONE

    assert orders.tick(scene("INS", 2, "back", 14, None)) == Exit.DONE
    postgres.execute("INSERT INTO orders VALUES (2, 'back')", "DELETE FROM orders WHERE id = 4")
    assert orders.rows()[1] == (2, "back", None, "None")
    capsys.readouterr()
    assert orders.command("prove", "--json") == Exit.NOT_EQUAL
    (proof,) = json.loads(capsys.readouterr().out)["tables"].values()
    assert [(one["key"], one["kind"]) for one in proof["keys"]] == [('["4"]', "extra")], proof
    approved = ["--correct", "--approved-by", "Ada", "--why", "ticket 4711"]
    assert orders.command("prove", *approved) == Exit.NOT_EQUAL
    unknown = (4, "n4", "p", "1970-01-01 00:00:00", "delete")
    assert orders.rows("_operation")[3] == unknown, "no one knows when"
    assert orders.command("prove") == Exit.DONE, capsys.readouterr().out

    forget(orders.pipeline)
    code, text = said(capsys, orders.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert orders.tick(scene("DEL", 5, "", 20), scene("DEL", 5, "", 20)) == Exit.DONE, capsys.readouterr().out
    postgres.execute("DELETE FROM orders WHERE id = 5")
    assert orders.rows("_operation")[4] == (5, "n5", "p", REMOVED_AT, "delete")
    assert orders.command("prove") == Exit.DONE == orders.command("reconcile"), capsys.readouterr().out


def test_changes_of_one_key_end_alike_however_they_come_g192(tmp_path: Path, spark: Any) -> None:
    """G-192, G-05: in one batch or in many, late ones, a row that was never read; another name for the column."""
    story = [
        scene("INS", 1, "one", 1), scene("DEL", 1, "", 2),
        scene("INS", 2, "two", 3), scene("UPD", 2, "Two", 5), scene("DEL", 2, "", 6),
        scene("INS", 3, "three", 7), scene("DEL", 3, "", 8), scene("INS", 3, "Three", 9),
        scene("DEL", 4, "", 10), scene("INS", 9, "end", 99),
    ]  # fmt: skip
    expected = [(1, "one", "p", True), (2, "Two", "p", True), (3, "Three", "p", False), (9, "end", "p", False)]
    orders = [[*range(10)], [0, 1, 2, 4, 3, 5, 6, 7, 8, 9], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]]
    for number, order in enumerate(orders):
        for at_once in (1, 2, 10):
            table = {**ORDERS, "extra_columns": {"deleted_at": "gone"}}
            mirror = Orders(tmp_path / f"{number}-{at_once}", spark, table)
            for at in range(0, len(order), at_once):
                assert mirror.tick(*(story[one] for one in order[at : at + at_once])) == Exit.DONE
            found = in_order(mirror.pipeline.mirrored("dbo", "orders"), ["id"])
            rows = [(row["id"], row["name"], row["photo"], row["gone"] is not None) for row in found]
            assert rows == expected, (order, at_once)


def test_partial_rows_are_completed_before_they_are_kept_g192_g04(tmp_path: Path, spark: Any) -> None:
    orders = Orders(tmp_path, spark, {**ORDERS, "complete_rows": True})
    part = event("UPD", {"id": "1", "name": "new"}, {"id": "1"}, cols=COLS[:2], commit=2) + b"\n"
    assert orders.tick(scene("INS", 1, "one", 1), part) == Exit.DONE
    assert orders.tick(scene("DEL", 1, "", 5)) == Exit.DONE
    late = event("UPD", {"id": "1", "photo": "late"}, {"id": "1"}, cols=COLS[::2], commit=3) + b"\n"
    assert orders.tick(late) == Exit.DONE
    assert orders.rows() == [(1, "new", "late", REMOVED_AT)]


def test_the_setting_changes_by_a_rebuild_and_nothing_is_kept_by_halves_g192(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """G-192, G-129: a row of a load that is not in the log cannot stay with its last values: the table stops."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text("id,name,photo\n1,Ada,p\n2,Eve,p\n")
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(COLS)}
    orders = Orders(tmp_path / "shop", spark, {**ORDERS, "on_delete": "remove", "initial_load": load})
    assert orders.command("initial-load") == Exit.DONE == orders.tick(scene("INS", 3, "three", 10))

    declare(orders, on_delete="keep")
    assert orders.tick(scene("DEL", 3, "", 11)) == Exit.DONE
    assert orders.rows()[2] == (3, "three", "p", REMOVED_AT), "its insert is in the log"
    assert orders.tick(scene("DEL", 2, "", 12)) == Exit.TABLES_STOPPED
    assert orders.stop == "ROW_INCOMPLETE" and len(orders.rows()) == 3
    (tmp_path / "shop" / "export.csv").write_text("id,name,photo\n1,Ada,p\n")
    declare(orders, initial_load={**load, "stream_from": lsn(20)})
    reload = ["reload-table", "--reason", "keep", "--approved-by", "Ada", "--table", "dbo.orders", "--wait", "0"]
    for _ in range(6):
        if orders.command(*reload) == Exit.DONE:
            break
        orders.command("tick")
    assert orders.rows() == [(1, "Ada", "p", "None")], "a load begins with what is there"
    assert orders.tick(scene("INS", 4, "four", 30), scene("DEL", 1, "", 31)) == Exit.DONE, capsys.readouterr().out
    assert orders.rows() == [(1, "Ada", "p", REMOVED_AT), (4, "four", "p", "None")]
    declare(orders, on_delete="remove")
    orders.command("tick")
    assert "`on_delete` leaves out the deleted_at, which is published as '_deleted_at'" in caplog.text
    assert orders.stop == "SCHEMA_CHANGED"


def test_no_load_drops_kept_rows_before_a_person_asks_for_it_g192_g68(
    tmp_path: Path, spark: Any, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, capsys: Any, caplog: Any
) -> None:
    """G-192, G-68: neither source nor load have them any more; a request for them is refused."""
    connect(monkeypatch, postgres, postgres.port)
    postgres.execute(
        "DROP TABLE IF EXISTS orders",
        "CREATE TABLE orders (id int PRIMARY KEY, name varchar(9), photo text)",
        "INSERT INTO orders VALUES (1, 'one', 'p'), (2, 'two', 'p')",
    )
    load = {"format": "jdbc", "connection": "shop_db", "table": "public.orders"}
    publish = {"on_schema_change": "reload"}
    orders = Orders(tmp_path / "shop", spark, {**ORDERS, "initial_load": load}, publish=publish)
    assert orders.command("initial-load") == Exit.DONE == orders.tick(scene("DEL", 1, "", 11)), capsys.readouterr().out
    postgres.execute("DELETE FROM orders WHERE id = 1")

    declare(orders, where="id < 9")
    for _ in range(4):
        assert orders.command("tick") in (Exit.TABLES_STOPPED, Exit.ON_HOLD)
    kept = (1, "one", "p", REMOVED_AT)
    assert orders.stop == "SCHEMA_CHANGED" and orders.rows() == [kept, (2, "two", "p", "None")]
    reload = ["reload-table", "--reason", "where", "--approved-by", "Ada", "--table", "dbo.orders", "--wait", "0"]
    for _ in range(6):
        if orders.command(*reload) == Exit.DONE:
            break
        orders.command("tick")
    assert orders.rows() == [(2, "two", "p", "None")]
    assert "rows that were deleted at the source before the load do not come back" in caplog.text


def test_tables_of_a_pattern_keep_rows_where_they_have_a_key_g192_g70(tmp_path: Path, spark: Any) -> None:
    orders = Orders(tmp_path, spark, {"source": "dbo.*", "on_delete": "keep"}, extra_columns={"deleted_at": "gone"})

    def change(operation: str, at: int, table: str, key: dict[str, str] | None) -> bytes:
        row = {"id": "1", "name": "Ada", "photo": "p"}
        images = (None, row) if operation == "DEL" else (row, None)
        return event(operation, *images, cols=COLS, commit=at, tbl=table, pkkey=key) + b"\n"

    key = {"id": "1"}
    assert orders.tick(change("INS", 1, "orders", key), change("INS", 2, "log", None)) == Exit.DONE
    assert orders.tick(change("DEL", 3, "orders", key)) == Exit.DONE
    (row,), (other,) = (orders.pipeline.mirrored("dbo", name) for name in ("orders", "log"))
    assert row["gone"] is not None and "gone" not in other


def test_check_refuses_a_table_without_key_and_a_name_that_is_taken_g192(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for at, (settings, what) in enumerate((
        ({"key": []}, "so `on_delete` means nothing"),
        ({"columns": ["id", "_deleted_at"]}, "under which a column of the source lands"),
    )):  # fmt: skip
        orders = Orders(tmp_path / str(at), spark, {**ORDERS, **settings})
        assert orders.command("check") != Exit.DONE
        assert what in "".join(capsys.readouterr())
