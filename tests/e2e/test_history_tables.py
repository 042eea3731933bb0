"""History tables (G-194): one row for each change, against the changes of the generator's own list."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from open_mirroring.page.views import table as page_of_table
from spark_jobs.cli.command_line import main
from spark_jobs.maintain import maintain
from tests.ces_messages import event
from tests.e2e.test_first_day import declare
from tests.e2e.test_kept_rows import COLS, REMOVED_AT, Orders, scene
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_maintain import grow_old
from tests.e2e.test_rebuild_ledger import APPLY
from tests.e2e.test_source_reloads import MD_A, WATCHED, A, Lines, accept, landed, load, of, ticked
from tests.e2e.test_source_reloads import TABLES as RELOADED
from tests.e2e.test_transaction_cut import PARTITIONED, whole_at_each_tick
from tests.pipeline import Pipeline, in_order
from tests.shaped_tables import FORMS, commits, mirrored, plain
from workload_generator.history import SHOP_TABLES, random_history
from workload_generator.sql_values import typed

TABLES = [
    {
        "source": t.full_name,
        "target": f"shop/{t.name}",
        "key": list(t.key),
        "history": {"target": f"shop/{t.name}_history"},
    }
    for t in SHOP_TABLES
]


def expected_changes(made: Any, table: Any) -> Counter[str]:
    """Each change of a table as its history shows it: the values after, of a removed row its key."""
    types = {column.name: column.sql_type for column in table.columns}
    found = Counter[str]()
    for change in commits(made):
        if change.table.full_name != table.full_name:
            continue
        before, after = change.before, change.after
        moved = before is not None and after is not None and table.key_of(before) != table.key_of(after)
        if before is not None and (after is None or moved):
            found[plain({"_operation": "delete", **{k: typed(types[k], before[k]) for k in table.key}})] += 1
        if after is not None:
            named = "insert" if change.op == "I" else "update"
            found[plain({"_operation": named, **{name: typed(types[name], text) for name, text in after.items()}})] += 1
    return found


def shown(pipeline: Any, table: Any) -> Counter[str]:
    """The rows of a history, of removed rows only the key."""
    found = Counter[str]()
    positions = []
    for row in pipeline.mirrored("shop", f"{table.name}_history"):
        positions.append(row["_position"])
        own = {name: value for name, value in row.items() if name == "_operation" or not name.startswith("_")}
        if own["_operation"] == "delete":
            own = {name: own[name] for name in ("_operation", *table.key)}
        found[plain(own)] += 1
        assert row["_commit_time"] is not None and row["_transaction"]
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_history_has_each_change_once_g194(
    form: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-194: key changes and deletes, late, repeated and over kills; the current tables are as they were without."""
    made = random_history(94, 60)
    pipeline = mirrored(form, made, tmp_path, spark, TABLES, publish={"max_rows_per_file": 3})
    for table in SHOP_TABLES:
        assert shown(pipeline, table) == expected_changes(made, table), table.name
    capsys.readouterr()
    assert main(["status", str(pipeline.file)]) == Exit.DONE
    assert f"{SHOP_TABLES[0].full_name} (history)" in capsys.readouterr().out


HISTORY = {"target": "dbo/orders_history"}
ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
LOAD = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": dict(COLS)}


class Histories(Orders):
    """A mirror of one table with a history."""

    @property
    def changes(self) -> list[tuple[Any, ...]]:
        found = in_order(self.pipeline.mirrored("dbo", "orders_history"), ["_position", "id"])
        names = ("_operation", "id", "name", "photo")
        return [tuple(row[name] for name in names) for row in found]

    @property
    def current(self) -> list[tuple[Any, ...]]:
        found = in_order(self.pipeline.mirrored("dbo", "orders"), ["id"])
        return [tuple(row[name] for name in ("id", "name", "photo")) for row in found]


def deleted(key: int, name: str, at: int) -> bytes:
    """A delete with what its row was."""
    return event("DEL", None, {"id": str(key), "name": name, "photo": "p"}, cols=COLS, commit=at) + b"\n"


def test_loaded_rows_come_first_and_a_reload_adds_nothing_g194(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-194, G-08: a removed row with its last values or its key; a lost ledger; maintenance."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text("id,name,photo\n1,Ada,p\n2,Eve,p\n")
    orders = Histories(tmp_path / "shop", spark, {**ORDERS, "initial_load": LOAD, "history": HISTORY})
    assert orders.command("initial-load") == Exit.DONE == orders.command("tick"), capsys.readouterr().out
    loaded = [("load", 1, "Ada", "p"), ("load", 2, "Eve", "p")]
    assert orders.changes == loaded
    move = event("UPD", {"id": "4", "name": "Ada", "photo": "p"}, {"id": "1"}, cols=COLS, commit=13) + b"\n"
    assert orders.tick(deleted(2, "Eve", 11), scene("INS", 3, "Joe", 12), move) == Exit.DONE
    expected = [
        *loaded,
        ("delete", 2, "Eve", "p"),
        ("insert", 3, "Joe", "p"),
        ("delete", 1, None, None),
        ("update", 4, "Ada", "p"),
    ]
    assert orders.changes == expected
    (row, *_) = [row for row in orders.pipeline.mirrored("dbo", "orders_history") if row["_operation"] == "delete"]
    assert str(row["_commit_time"]) == REMOVED_AT
    assert orders.command("maintain") == Exit.DONE
    assert orders.tick(scene("DEL", 3, "", 14), scene("INS", 3, "Joe", 12)) == Exit.DONE
    expected.append(("delete", 3, None, None))
    assert orders.changes == expected and orders.current == [(4, "Ada", "p")]

    approved = ["--table", "dbo.orders", "--approved-by", "Ada", "--reason", "x", "--wait", "0", "--request", "a"]
    codes = [orders.command("reload-table", *approved) for _ in range(6)]
    assert codes[-1] == Exit.DONE, capsys.readouterr().out
    assert orders.tick(scene("INS", 9, "late", 20)) == Exit.DONE
    assert orders.changes == [*expected, ("insert", 9, "late", "p")]

    forget(orders.pipeline)
    code, text = said(capsys, orders.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert orders.tick(scene("UPD", 9, "new", 21), scene("INS", 9, "late", 20)) == Exit.DONE
    assert orders.changes == [*expected, ("insert", 9, "late", "p"), ("update", 9, "new", "p")]
    assert orders.command("reconcile") == Exit.DONE, capsys.readouterr().out


def test_a_history_may_be_declared_later_and_begins_with_the_next_change_g194(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-194: even with a delete, which shows its key only."""
    orders = Histories(tmp_path, spark, ORDERS)
    assert orders.tick(scene("INS", 1, "one", 1), scene("INS", 2, "two", 2)) == Exit.DONE
    declare(orders, history=HISTORY)
    assert orders.tick(scene("DEL", 1, "", 3), scene("UPD", 2, "Two", 4)) == Exit.DONE, capsys.readouterr().out
    expected = [("delete", 1, None, None), ("update", 2, "Two", "p")]
    assert orders.changes == expected
    assert orders.command("reconcile") == Exit.DONE, capsys.readouterr().out

    now, mirror, ledger = datetime.now(UTC), orders.pipeline.mirror, orders.pipeline.ledger
    shown_of = [page_of_table(mirror, ledger, source, now) for source in ("dbo.orders", "dbo.orders (history)")]
    assert [one and one["rows"] for one in shown_of] == [
        ["their history is in dbo/orders_history"],
        ["one for each change of a row of dbo.orders", "only appended to, files without markers"],
    ]
    assert all(one is not None and one["adds_up"] for one in shown_of)

    approved = ["--table", "dbo.orders (history)", "--approved-by", "Ada", "--reason", "x", "--wait", "0"]
    codes = [orders.command("reload-table", *approved, "--request", "a") for _ in range(6)]
    assert codes[-1] == Exit.DONE, capsys.readouterr().out
    assert orders.tick(scene("UPD", 2, "TWO", 5)) == Exit.DONE, capsys.readouterr().out
    assert orders.changes == [*expected, ("update", 2, "TWO", "p")]

    declare(orders, history=None)
    codes = [orders.command("drop-table", *approved, "--request", "b") for _ in range(6)]
    assert codes[-1] == Exit.DONE == orders.tick(scene("UPD", 2, "end", 6)), capsys.readouterr().out
    assert orders.current == [(2, "end", "p")] and not (orders.pipeline.zone / "dbo.schema" / "orders_history").exists()
    assert orders.command("reconcile") == Exit.DONE, capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"key": []}, "so `history` means nothing"),
        ({"complete_rows": True}, "parts of rows only"),
        ({"where": "id > 1"}, "no last change"),
        ({"history": {"target": "dbo/orders"}}, "is the same table"),
        ({"extra_columns": {"operation": "id"}}, "choose another name"),
    ],
)
def test_check_refuses_what_does_not_go_with_a_history_g194(
    settings: dict[str, Any], what: str, tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    orders = Histories(tmp_path, spark, {**ORDERS, "history": HISTORY, **settings})
    assert orders.command("check") != Exit.DONE
    assert what in "".join(capsys.readouterr())


@pytest.mark.parametrize("form", ["changes", "scd2"])
def test_a_reload_by_a_qlik_task_leaves_the_history_as_it_is_g194(form: str, tmp_path: Path, spark: Any) -> None:
    """G-194, K-18, G-125: its table stops until the reload is accepted; the history goes on all the while."""
    history = {"history": {"target": "dbo/a_history", "form": form}}
    lines = Lines(tmp_path, spark, **WATCHED, tables=[{**RELOADED[0], **history}])
    lines.send(MD_A, load(A, 1), load(A, 2), of(A, 3, number=5))
    assert lines.tick() == Exit.DONE
    lines.send(load(A, 1, "again"), load(A, 2, "again"), of(A, 4, number=9))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("a")[0] == "RELOAD_SEEN"
    assert accept(lines) == Exit.DONE and ticked(lines) == Exit.DONE
    lines.pipeline.service.poll()
    assert lines.rows("a") == landed((1, "again"), (2, "again"), 4)
    found = in_order(lines.pipeline.mirrored("dbo", "a_history"), ["_position", "id"])
    changes = [(row["_operation"], row["id"], row["name"]) for row in found]
    assert changes == [("load", 1, "Ada"), ("load", 2, "Ada"), ("insert", 3, "Ada"), ("insert", 4, "Ada")]
    assert main(["reconcile", str(lines.pipeline.file)]) == Exit.DONE


VERSIONS = [{**table, "history": {**table["history"], "form": "scd2"}} for table in TABLES]


def expected_versions(made: Any, table: Any) -> Counter[str]:
    """Each version of each row by its key, how many there were before, and whether a change ended it."""
    types = {column.name: column.sql_type for column in table.columns}
    found: dict[tuple[str, ...], list[tuple[dict[str, Any], bool]]] = {}
    for change in commits(made):
        before, after = change.before, change.after
        if change.table.full_name != table.full_name:
            continue
        if before is not None and (versions := found.get(table.key_of(before))):
            row, is_current = versions[-1]
            if is_current and row == dict(before):  # else another row took the key in this transaction
                versions[-1] = (row, False)
        if after is not None:
            versions = found.setdefault(table.key_of(after), [])
            versions[-1:] = [(row, False) for row, _ in versions[-1:]]
            versions.append((dict(after), True))
    return Counter(
        plain({**{name: typed(types[name], text) for name, text in row.items()}, "at": at, "is_current": is_current})
        for versions in found.values()
        for at, (row, is_current) in enumerate(versions)
    )


def shown_versions(pipeline: Any, table: Any) -> Counter[str]:
    """The same as the target has it; no version overlaps another one of its key, nor leaves a hole but by a delete."""
    found = Counter[str]()
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in in_order(pipeline.mirrored("shop", f"{table.name}_history"), ["_position"]):
        by_key.setdefault(tuple(row[name] for name in table.key), []).append(row)
    for versions in by_key.values():
        for at, row in enumerate(versions):
            later = versions[at + 1] if at + 1 < len(versions) else None
            assert row["valid_from"] is not None and row["is_current"] == (row["valid_to"] is None)
            assert row["is_current"] or row["valid_from"] <= row["valid_to"]
            if later is not None:
                assert row["valid_to"] <= later["valid_from"]
            own = {name: value for name, value in row.items() if not name.startswith(("_", "valid_"))}
            found[plain({**own, "at": at})] += 1
    return found


@pytest.mark.parametrize("form", FORMS)
def test_a_history_has_each_version_and_its_current_ones_are_the_table_g195(
    form: str, tmp_path: Path, spark: Any
) -> None:
    """G-195: key changes, exchanged keys, keys that come back; late, repeated and over kills."""
    made = random_history(94, 60)
    pipeline = mirrored(form, made, tmp_path, spark, VERSIONS, publish={"max_rows_per_file": 3})
    for table in SHOP_TABLES:
        assert shown_versions(pipeline, table) == expected_versions(made, table), table.name
        names = [column.name for column in table.columns]
        current = [row for row in pipeline.mirrored("shop", f"{table.name}_history") if row["is_current"]]
        mirror = pipeline.mirrored("shop", table.name)
        assert Counter(plain({name: row[name] for name in names}) for row in current) == Counter(map(plain, mirror))
        page = page_of_table(pipeline.mirror, pipeline.ledger, f"{table.full_name} (history)", datetime.now(UTC))
        assert page is not None and page["adds_up"], page
    assert sum(expected_versions(made, table).total() for table in SHOP_TABLES) > 100


SCD2 = {"target": "dbo/orders_history", "form": "scd2"}


class Versions(Histories):
    """A mirror of one table with its versions."""

    @property
    def versions(self) -> list[tuple[Any, ...]]:
        """Key and name of each version, and whether it has a beginning and an end."""
        found = in_order(self.pipeline.mirrored("dbo", "orders_history"), ["id", "_position"])
        assert all(row["is_current"] == (row["valid_to"] is None) for row in found)
        return [(row["id"], row["name"], row["valid_from"] is not None, row["valid_to"] is not None) for row in found]


def test_a_late_change_splits_the_version_that_it_belongs_to_g195(tmp_path: Path, spark: Any) -> None:
    """G-195, G-05: in one batch or in many, in any order, with repetitions: the same versions."""
    move = event("UPD", {"id": "4", "name": "moved", "photo": "p"}, {"id": "1"}, cols=COLS, commit=8) + b"\n"
    story = [
        scene("INS", 1, "one", 1), scene("UPD", 1, "two", 2), scene("UPD", 1, "three", 3), scene("DEL", 1, "", 5),
        scene("INS", 1, "back", 6), move, scene("DEL", 9, "", 9), scene("INS", 3, "end", 99),
    ]  # fmt: skip
    expected = [
        (1, "one", True, True),
        (1, "two", True, True),
        (1, "three", True, True),
        (1, "back", True, True),
        (3, "end", True, False),
        (4, "moved", True, False),
    ]
    for number, order in enumerate([[*range(8)], [7, 6, 5, 4, 3, 2, 1, 0], [0, 2, 4, 1, 0, 3, 5, 2, 6, 7]]):
        for at_once in (1, 3):
            mirror = Versions(tmp_path / f"{number}-{at_once}", spark, {**ORDERS, "history": SCD2})
            for at in range(0, len(order), at_once):
                assert mirror.tick(*(story[one] for one in order[at : at + at_once])) == Exit.DONE
            assert mirror.versions == expected, (order, at_once)
            assert mirror.current == [(3, "end", "p"), (4, "moved", "p")]
            assert mirror.command("reconcile") == Exit.DONE


def test_loaded_rows_are_the_first_versions_and_a_lost_ledger_is_made_again_g195(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-195, G-08: maintenance keeps what a late change needs; a reload of either table changes nothing."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "export.csv").write_text("id,name,photo\n1,Ada,p\n2,Eve,p\n")
    orders = Versions(tmp_path / "shop", spark, {**ORDERS, "initial_load": LOAD, "history": SCD2})
    assert orders.command("initial-load") == Exit.DONE == orders.command("tick"), capsys.readouterr().out
    assert orders.versions == [(1, "Ada", False, False), (2, "Eve", False, False)]
    assert orders.tick(scene("UPD", 1, "Joe", 11), scene("DEL", 2, "", 12)) == Exit.DONE
    expected = [(1, "Ada", False, True), (1, "Joe", True, False), (2, "Eve", False, True)]
    assert orders.versions == expected
    assert orders.command("maintain") == Exit.DONE == orders.command("reconcile"), capsys.readouterr().out

    forget(orders.pipeline)
    code, text = said(capsys, orders.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert orders.tick(scene("UPD", 1, "late", 10), scene("UPD", 1, "Joe", 11)) == Exit.DONE, capsys.readouterr().out
    expected[1:1] = [(1, "late", True, True)]
    assert orders.versions == expected

    table = ["--approved-by", "Ada", "--reason", "x", "--wait", "0", "--table"]
    for source in ("dbo.orders (history)", "dbo.orders"):
        codes = [orders.command("reload-table", *table, source, "--request", source) for _ in range(6)]
        assert codes[-1] == Exit.DONE, capsys.readouterr().out
        assert orders.command("tick") == Exit.DONE and orders.versions == expected, capsys.readouterr().out


@pytest.mark.parametrize("form", ["changes", "scd2"])
def test_a_history_ends_at_a_complete_transaction_g194_g195_c88(form: str, tmp_path: Path, spark: Any) -> None:
    """G-194, G-195, I4: what it shows are the changes of the source up to a commit."""
    made = random_history(95, 60)
    tables, shows, expects = TABLES, shown, expected_changes
    if form == "scd2":
        tables, shows, expects = VERSIONS, shown_versions, expected_versions
    pipeline = Pipeline(tmp_path, spark, tables, source=PARTITIONED, consistency="transaction")
    rows = 0
    for at, whole in enumerate(whole_at_each_tick(pipeline, made)):
        for table in SHOP_TABLES:
            if expected := expects(whole, table):
                assert shows(pipeline, table) == expected, (at, table.name)
                rows = expected.total()
    assert rows > 10


@pytest.mark.long
@pytest.mark.parametrize("form", ["changes", "scd2"])
def test_spark_s_workers_make_the_same_histories_g194_g195(form: str, tmp_path: Path, spark_workers: Any) -> None:
    made = random_history(94, 60)
    tables, shows, expects = TABLES, shown, expected_changes
    if form == "scd2":
        tables, shows, expects = VERSIONS, shown_versions, expected_versions
    pipeline = mirrored("ces", made, tmp_path, spark_workers, tables)
    for table in SHOP_TABLES:
        assert shows(pipeline, table) == expects(made, table), table.name


@pytest.mark.parametrize("form", ["changes", "scd2"])
def test_a_row_that_cannot_be_typed_ends_no_version_g194_g195(form: str, tmp_path: Path, spark: Any) -> None:
    """G-09: the other changes of its key are there, and the run reports the loss."""
    cols = (("id", "int"), ("name", "nvarchar(9)"), ("born", "date"))

    def born(operation: str, text: str, at: int) -> bytes:
        row = {"id": "1", "name": str(at), "born": text}
        return event(operation, row, None if operation == "INS" else {"id": "1"}, cols=cols, commit=at) + b"\n"

    orders = Versions(tmp_path, spark, {**ORDERS, "history": {**HISTORY, "form": form}})
    told_ = born("INS", "2020-01-01", 1), born("UPD", "never", 2)
    assert orders.tick(*told_) == Exit.DONE_WITH_LOSSES
    assert orders.tick(born("UPD", "2020-01-03", 3)) == Exit.DONE_WITH_LOSSES
    found = in_order(orders.pipeline.mirrored("dbo", "orders_history"), ["_position"])
    assert [row["name"] for row in found] == ["1", "3"]
    assert orders.command("reconcile") == Exit.DONE_WITH_LOSSES


@pytest.mark.parametrize(("form", "dropped"), [("changes", 99), ("scd2", 0)])
def test_maintenance_drops_what_changes_need_no_more_and_keeps_versions_g194_g195(
    form: str, dropped: int, tmp_path: Path, spark: Any
) -> None:
    """G-05, G-194, G-195: the end of a version may be published again only while the log has its row."""
    table = {**ORDERS, "history": {**HISTORY, "form": form}}
    orders = Versions(tmp_path, spark, table)
    assert orders.tick(scene("INS", 1, "one", 1)) == Exit.DONE
    grow_old(orders.pipeline, 99)
    assert orders.tick(scene("UPD", 1, "two", 2)) == Exit.DONE
    grow_old(orders.pipeline, 100)
    done = maintain(orders.pipeline.mirror, orders.pipeline.ledger)
    assert done.dropped_batch == dropped, done
    assert orders.tick(scene("UPD", 1, "three", 3)) == Exit.DONE == orders.tick(scene("UPD", 1, "three", 3))
    found = in_order(orders.pipeline.mirrored("dbo", "orders_history"), ["_position"])
    assert [row["name"] for row in found] == ["one", "two", "three"]
    assert orders.command("reconcile") == Exit.DONE
