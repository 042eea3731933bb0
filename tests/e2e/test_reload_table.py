"""One table of a mirror is reset and built anew: exact again, while the others go on (F-71 to F-75, F-85 to F-89, I12).

Each step of a reset is a run of its own here, as after a crash; the emulator drops a table when its folder is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.data_file import read_footer
from open_mirroring.ledger.auditing import Reason
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main as command_line
from tests.ces_messages import COLS, event, lsn
from tests.e2e.test_histories import FOLDERS, TABLES, assert_mirrored, history, slices
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

OTHER_GUID = "11111111-2222-3333-4444-555555555555"
ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
OTHER = {"source": "dbo.notes", "target": "dbo/notes", "key": ["id"]}
WATCHED = {"landing_zone": {"store": "local", "path": "zone", "tables": "tables"}}
ASKED = Reason("Ada", "the target lost a file")


EXPORTED = [pa.field("id", pa.int32()), *(pa.field(name, pa.string()) for name in ("name", "city", "doc"))]
EXPORTED += [pa.field(name, pa.decimal128(8, 2)) for name in ("price", "cost")]


def mirror_of(folder: Path, spark: Any, *tables: dict[str, Any], **settings: Any) -> Pipeline:
    return Pipeline(folder / "mirror", spark, tables, source={"layout": "bare"}, **{**WATCHED, **settings})


def redeclare(pipeline: Pipeline, *tables: dict[str, Any]) -> None:
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    document["tables"] = [dict(table) for table in tables]
    pipeline.file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")


def ask(pipeline: Pipeline, source: str = "dbo.orders") -> bool:
    from spark_jobs.reload_table import request_reload

    return request_reload(pipeline.mirror, pipeline.ledger, source, ASKED)


def carry_on(pipeline: Pipeline, source: str = "dbo.orders") -> Any:
    from spark_jobs.reload_table import reload_table

    return reload_table(pipeline.mirror, pipeline.ledger, pipeline._spark, source, wait=timedelta(0))


def finish(pipeline: Pipeline, source: str = "dbo.orders") -> None:
    """Run until the reset is over, the service polling in between."""
    for _ in range(6):
        done = carry_on(pipeline, source)
        assert done.stopped == {}
        if not done.waits_for:
            return
        pipeline.service.poll()
    raise AssertionError(f"not over: {done}")


def reload(pipeline: Pipeline, source: str = "dbo.orders") -> None:
    assert ask(pipeline, source)
    finish(pipeline, source)


def exported(folder: Path, rows: Sequence[dict[str, Any]], stream_from: str) -> dict[str, Any]:
    folder.mkdir()
    fields = [field for field in EXPORTED if field.name in rows[0]]
    pq.write_table(pa.Table.from_pylist(list(rows), pa.schema(fields)), folder / "1.parquet")
    return {"format": "parquet", "path": str(folder), "stream_from": stream_from}


def orders(pipeline: Pipeline) -> list[dict[str, Any]]:
    return in_order(pipeline.mirrored("dbo", "orders"), ["id"])


def state(pipeline: Pipeline, source: str = "dbo.orders") -> Any:
    return pipeline.reader.tables()[source]


def deliver(pipeline: Pipeline, name: str, *events: bytes) -> None:
    pipeline.deliver(name, b"".join(one + b"\n" for one in events))


def row(number: int, name: str, price: str = "1.00") -> dict[str, str]:
    return {"id": str(number), "name": name, "price": price}


def test_one_table_is_rebuilt_from_the_log_while_the_others_publish(tmp_path: Path, spark) -> None:
    """F-75, I12: the others never wait; the reloaded one is exact, with numbers from 1 and nothing of its old life."""
    made = history(seed=5, transactions=60)
    messages = render(made.changes, CesOptions(), Delivery(disorder=20, duplicates=0.05, seed=5))
    pipeline = Pipeline(tmp_path, spark, TABLES, publish={"max_rows_per_file": 20}, **WATCHED)
    waiting = iter(list(slices(messages, 5)))

    def tick() -> Any:
        number = len(list(pipeline.source.iterdir()))
        pipeline.deliver(f"{number}.jsonl", json_lines(next(waiting), layout="wrapped"))
        return pipeline.tick()[1]

    tick()
    before = state(pipeline)
    assert ask(pipeline) and not ask(pipeline), "asked for once, it is under way"
    stages = []
    for _ in range(3):
        done = carry_on(pipeline)
        stages.append((done.stage, done.generation))
        published = tick()
        if done.generation == 1:
            assert published.held["dbo.orders"].startswith("RESET_OPEN: reload asked for by Ada")
        others = {source for source in FOLDERS if source != "dbo.orders"}
        assert others <= published.files.keys(), "the other tables go on"
    assert stages == [("FOLDER_DELETED", 1), ("FOLDER_DELETED", 1), ("REBUILDING", 2)]
    finish(pipeline)
    tick()
    pipeline.tick()
    assert_mirrored(pipeline, made)
    after = state(pipeline)
    assert (after.row.generation, after.reset, after.id) == (2, None, before.id)
    assert after.row.incarnation != before.row.incarnation
    footers = [read_footer(path) for path in (pipeline.zone / after.folder).rglob("*.parquet")]
    assert {footer.generation for footer in footers if footer} == {2}
    from spark_jobs.reconcile_sequence import reconcile_deep

    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []


def test_a_changed_key_begins_with_a_new_load(tmp_path: Path, spark) -> None:
    """F-13, F-89, I13: what is logged by the old key is never published by the new one, however late it comes."""
    pipeline = mirror_of(tmp_path, spark, ORDERS, OTHER)
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10), event("INS", row(2, "Eve"), commit=14))
    pipeline.tick()
    keyed = {**ORDERS, "key": ["name"]}
    redeclare(pipeline, keyed, OTHER)
    with pytest.raises(TerminalError, match=r"TABLE_REDECLARED.*reload-table"):
        pipeline.tick()
    with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*logged by the key"):
        ask(pipeline)
    rows = [{"id": 1, "name": "Ada", "price": Decimal("5.00")}, {"id": 2, "name": "Eve", "price": Decimal("1.00")}]
    old = exported(tmp_path / "old", rows, lsn(12))
    redeclare(pipeline, {**keyed, "initial_load": old}, OTHER)
    assert ask(pipeline)
    # Reading goes on meanwhile, by the new key; a late change lies below what the load is known to hold.
    deliver(pipeline, "b.jsonl", event("UPD", row(1, "Ada", "2.00"), row(1, "Ada"), commit=11))
    deliver(pipeline, "c.jsonl", event("INS", row(9, "Zoe"), tbl="notes", commit=13))
    assert dict(pipeline.tick()[1].files)["dbo.notes"] == [1]
    for _ in range(3):
        done = carry_on(pipeline)
        pipeline.service.poll()
    assert done.stopped["dbo.orders"].startswith("STREAM_FROM_INVALID")
    new = exported(tmp_path / "new", rows, lsn(14))
    redeclare(pipeline, {**keyed, "initial_load": new}, OTHER)
    finish(pipeline)
    deliver(pipeline, "d.jsonl", event("DEL", None, row(2, "Eve"), commit=15), event("INS", row(3, "Kim"), commit=15))
    pipeline.tick()
    assert [(r["id"], r["name"], float(r["price"])) for r in orders(pipeline)] == [(1, "Ada", 5.0), (3, "Kim", 1.0)]
    assert state(pipeline).keys == ("name",)
    assert pipeline.publish().stopped == {}


def test_completed_rows_begin_again_with_the_new_load(tmp_path: Path, spark) -> None:
    """G-02, G-04, G-08, I13: the old load's rows stay in the log, and neither come back nor conflict nor complete."""
    from spark_jobs.initial_load import load
    from spark_jobs.reconcile_sequence import reconcile_deep

    def priced(commit: int, number: int, price: str) -> bytes:
        story = {"id": str(number), "price": price}
        return event("UPD", story, {"id": str(number)}, cols=(COLS[0], COLS[2]), commit=commit)

    names = ["Ada", "Eve", "Kim"]
    rows = [{"id": n, "name": name, "price": Decimal(n)} for n, name in enumerate(names, 1)]
    completed = {**ORDERS, "complete_rows": True, "initial_load": exported(tmp_path / "old", rows, lsn(10))}
    pipeline = mirror_of(tmp_path, spark, completed)
    load(pipeline.mirror, pipeline.ledger, spark)
    deliver(pipeline, "a.jsonl", priced(11, 1, "5.00"))
    pipeline.tick()
    assert [(r["name"], float(r["price"])) for r in orders(pipeline)] == [("Ada", 5.0), ("Eve", 2.0), ("Kim", 3.0)]
    rows = [{"id": n, "name": name, "price": Decimal(5)} for n, name in ((1, "Ida"), (4, "Bob"))]
    redeclare(pipeline, {**completed, "initial_load": exported(tmp_path / "new", rows, lsn(13))})
    assert ask(pipeline)
    deliver(pipeline, "b.jsonl", priced(14, 4, "6.00"))
    pipeline.tick()
    finish(pipeline)
    deliver(pipeline, "c.jsonl", priced(12, 1, "0.00"), priced(15, 1, "7.00"))
    pipeline.tick()
    assert [(r["name"], float(r["price"])) for r in orders(pipeline)] == [("Ida", 7.0), ("Bob", 6.0)]
    assert (state(pipeline).row.generation, state(pipeline).reset, state(pipeline).stop_code) == (2, None, None)
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []


def test_after_maintenance_only_a_load_builds_a_table_again(tmp_path: Path, spark, capsys: Any) -> None:
    """G-05, F-71, I13: what was dropped from the log is in no plan, and in no finding of the deep check."""
    from spark_jobs.maintain import maintain
    from spark_jobs.reconcile_sequence import reconcile_deep
    from tests.e2e.test_maintain import grow_old

    pipeline = mirror_of(tmp_path, spark, ORDERS, OTHER)
    for number, (name, commit, last) in enumerate([("Ada", 10, 99), ("Eve", 12, 100)], 1):
        note = event("INS", row(number, name), tbl="notes", commit=commit)
        deliver(pipeline, f"{number}.jsonl", event("INS", row(number, name), commit=commit), note)
        pipeline.tick()
        grow_old(pipeline, last)
    assert maintain(pipeline.mirror, pipeline.ledger).dropped_batch == 99
    with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*1 of its files are not in the log"):
        ask(pipeline)
    rows = [{"id": n, "name": name, "price": Decimal(1)} for n, name in ((1, "Ada"), (2, "Eve"))]
    redeclare(pipeline, {**ORDERS, "initial_load": exported(tmp_path / "new", rows, lsn(11))}, OTHER)
    reload(pipeline)
    late = event("UPD", row(1, "Old"), row(1, "Ada"), commit=9)
    deliver(pipeline, "c.jsonl", late, event("UPD", row(1, "Ida"), row(1, "Ada"), commit=13))
    assert pipeline.tick()[1].stopped == {}
    assert [r["name"] for r in orders(pipeline)] == ["Ida", "Eve"]
    redeclare(pipeline, {**ORDERS, "initial_load": exported(tmp_path / "same", rows, lsn(11))})
    drop = ["drop-table", str(pipeline.file), "--table", "dbo.notes", "--reason", "moved", "--approved-by", "Ada"]
    for _ in range(3):
        command_line([*drop, "--wait", "0"])
        assert maintain(pipeline.mirror, pipeline.ledger).dropped_batch == 99, "also while a table is being dropped"
        pipeline.service.poll()
    assert list(pipeline.reader.tables()) == ["dbo.orders"]
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []


def test_a_table_is_dropped_and_comes_back_with_a_load(tmp_path: Path, spark, capsys: Any) -> None:
    """F-71, F-70: gone at the target and from the ledger; named again it is a new generation, which needs a load."""
    pipeline = mirror_of(tmp_path, spark, ORDERS, OTHER)
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    deliver(pipeline, "n.jsonl", event("INS", row(1, "note"), tbl="notes", commit=10))
    pipeline.tick()
    redeclare(pipeline, OTHER)
    with pytest.raises(TerminalError, match=r"TABLE_REDECLARED.*drop-table"):
        pipeline.tick()
    drop = ["drop-table", str(pipeline.file), "--table", "dbo.orders", "--reason", "moved", "--approved-by", "Ada"]
    assert command_line([*drop, "--wait", "0"]) == Exit.ON_HOLD
    deliver(pipeline, "b.jsonl", event("UPD", row(1, "Ada", "3.00"), row(1, "Ada"), commit=11))
    pipeline.tick()
    assert not (pipeline.target / "dbo" / "orders").exists()
    assert command_line([*drop, "--wait", "0"]) == Exit.ON_HOLD, "a second look has to agree"
    assert command_line([*drop, "--wait", "0"]) == Exit.DONE
    assert command_line([*drop, "--wait", "0"]) == Exit.DONE, "any number of runs"
    assert list(pipeline.reader.tables()) == ["dbo.notes"]
    redeclare(pipeline, ORDERS, OTHER)
    _, published = pipeline.tick()
    assert published.stopped["dbo.orders"].startswith("LOAD_NEEDED")
    with pytest.raises(TerminalError, match="LOAD_NEEDED"):
        ask(pipeline)
    load = exported(tmp_path / "new", [{"id": 1, "name": "Ada", "price": Decimal("3.00")}], lsn(11))
    redeclare(pipeline, {**ORDERS, "initial_load": load}, OTHER)
    reload(pipeline)
    deliver(pipeline, "c.jsonl", event("INS", row(2, "Eve"), commit=12))
    pipeline.tick()
    assert [(r["id"], float(r["price"])) for r in orders(pipeline)] == [(1, 3.0), (2, 1.0)]
    assert state(pipeline).row.generation == 3, "of its own first life, of its return, of the reload"


def test_a_renamed_target_leaves_no_old_table_behind(tmp_path: Path, spark) -> None:
    """F-74: the old folder is deleted, the new one filled from the log."""
    pipeline = mirror_of(tmp_path, spark, ORDERS)
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    pipeline.tick()
    redeclare(pipeline, {**ORDERS, "target": "dbo/sales"})
    reload(pipeline)
    pipeline.service.poll()
    assert not (pipeline.target / "dbo" / "orders").exists()
    assert [r["name"] for r in pipeline.mirrored("dbo", "sales")] == ["Ada"]


def test_what_only_a_load_can_show_is_refused_before_anything_is_deleted(tmp_path: Path, spark) -> None:
    """A log without a part of the rows, or of its files, rebuilds nothing."""
    pipeline = mirror_of(tmp_path, spark, ORDERS)
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    pipeline.tick()
    from open_mirroring.ledger import tables as t

    with pipeline.ledger.begin() as db:
        kept = db.execute(t.log_batch.select()).one()
        db.execute(t.log_batch.delete())
    with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*0 of 1 batches"):
        ask(pipeline)
    with pipeline.ledger.begin() as db:
        db.execute(t.log_batch.insert().values(**kept._mapping))
        db.execute(t.mirrored_table.update().values(stop_code="IDENTITY_CONFLICT", stop_what="x"))
    with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*two versions"):
        ask(pipeline)
    with pipeline.ledger.begin() as db:
        db.execute(t.batch_table.update().values(files=json.dumps(["gone.parquet"])))
    with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*1 of its files"):
        ask(pipeline)
    assert orders(pipeline) and state(pipeline).reset is None


RELOAD = ["reset.requested", "reset.deleted", "reset.folder_deleted", "reset.table_gone", "reset.rebuilding"]


@pytest.mark.parametrize("fault", [*RELOAD, "publish.sealed", "publish.confirmed", "reset.rebuilt", "reset.table_back"])
def test_killed_at_any_arrow_the_next_run_finishes(fault: str, tmp_path: Path, spark) -> None:
    """D13: one record per arrow; whoever comes next goes on from the last."""
    pipeline = mirror_of(tmp_path, spark, ORDERS, landing_zone={"store": "local", "path": "zone", "tables": "tables"})
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    pipeline.tick()
    late = RELOAD.index(fault) > 2 if fault in RELOAD else True
    if late:
        ask(pipeline)
        for _ in range(2):
            carry_on(pipeline)
            pipeline.service.poll()
    if fault == "reset.table_back":
        carry_on(pipeline)
        pipeline.service.poll()
    asked = ["--table", "dbo.orders", "--reason", "x", "--approved-by", "Ada", "--wait", "0"]
    pipeline.killed("reload_table", fault, *asked)
    pipeline.service.poll()
    if fault != "reset.table_back":
        assert not ask(pipeline), "the request outlived the run"
    finish(pipeline)
    deliver(pipeline, "b.jsonl", event("UPD", row(1, "Eve"), row(1, "Ada"), commit=11))
    pipeline.tick()
    assert [r["name"] for r in orders(pipeline)] == ["Eve"]
    assert state(pipeline).row.generation == 2
    assert pipeline.publish().stopped == {}


def test_a_batch_that_was_open_at_the_request_has_to_be_in_the_log_before_the_load(tmp_path: Path, spark) -> None:
    """G-08: what it holds of the table is not known before, and it may be keyed by the old key."""
    pipeline = mirror_of(tmp_path, spark, ORDERS)
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    pipeline.tick()
    deliver(pipeline, "b.jsonl", event("INS", row(2, "Eve"), commit=11))
    pipeline.killed("extract_changes", "extract.bound")
    rows = [{"id": 1, "name": "Ada", "price": Decimal("1.00")}, {"id": 2, "name": "Eve", "price": Decimal("1.00")}]
    load = exported(tmp_path / "new", rows, lsn(11))
    redeclare(pipeline, {**ORDERS, "key": ["name"], "initial_load": load})
    assert ask(pipeline)
    for _ in range(2):
        carry_on(pipeline)
        pipeline.service.poll()
    with pytest.raises(TransientError, match="CHANGED_MEANWHILE"):
        carry_on(pipeline)
    pipeline.extract()
    finish(pipeline)
    pipeline.tick()
    assert [r["id"] for r in orders(pipeline)] == [1, 2]


def test_a_load_from_the_database_covers_what_comes_late_and_a_stream_that_began_again(
    tmp_path: Path, spark, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-01, G-08: bound before the first row is read; nothing at or below what was logged is published again."""
    content = {"conn_type": "postgres", "host": "127.0.0.1", "port": postgres.port, "login": postgres.user}
    database = {"password": postgres.password, "schema": postgres.database}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", json.dumps(content | database))
    postgres.execute(
        "DROP SCHEMA IF EXISTS dbo CASCADE",
        "CREATE SCHEMA dbo",
        "CREATE TABLE dbo.orders (id int PRIMARY KEY, name varchar(50), price numeric(8,2))",
        "INSERT INTO dbo.orders VALUES (1, 'Ada 2', 1), (2, 'Eve', 1)",
    )
    pipeline = mirror_of(tmp_path, spark, ORDERS)
    deliver(
        pipeline,
        "a.jsonl",
        event("INS", row(1, "Ada"), commit=10),
        event("UPD", row(1, "Ada 2"), commit=20, pkkey={"id": 1}),
    )
    pipeline.tick()
    other = {"replaced": {"logicalid": f"{OTHER_GUID}:{lsn(7).replace(':', '')}:{1:020d}"}}
    deliver(pipeline, "b.jsonl", event("INS", row(2, "Eve"), commit=7, **other))
    assert pipeline.tick()[1].stopped["dbo.orders"].startswith("EPOCH_UNKNOWN")
    redeclare(pipeline, {**ORDERS, "initial_load": {"format": "jdbc", "connection": "shop_db"}})
    assert ask(pipeline)
    for _ in range(2):
        carry_on(pipeline)
        pipeline.service.poll()
    # Late ones of both streams: the load has something newer of their keys, or has seen them go.
    late = {"replaced": {"logicalid": f"{OTHER_GUID}:{lsn(6).replace(':', '')}:{1:020d}"}}
    finish(pipeline)
    deliver(
        pipeline,
        "c.jsonl",
        event("INS", row(3, "gone since"), commit=6, **late),
        event("UPD", row(1, "older"), commit=15, pkkey={"id": 1}),
    )
    pipeline.tick()
    newer = {"replaced": {"logicalid": f"{OTHER_GUID}:{lsn(8).replace(':', '')}:{1:020d}"}}
    deliver(pipeline, "d.jsonl", event("UPD", row(2, "Eve 2"), commit=8, pkkey={"id": 2}, **newer))
    pipeline.tick()
    assert [(r["id"], r["name"]) for r in orders(pipeline)] == [(1, "Ada 2"), (2, "Eve 2")]
    assert pipeline.publish().stopped == {}


def test_where_nothing_shows_the_target_an_operator_says_what_is_there(tmp_path: Path, spark, capsys: Any) -> None:
    """F-72, F-75: neither gone nor back is ever guessed; the command says what it waits for."""
    pipeline = mirror_of(tmp_path, spark, ORDERS, landing_zone={"store": "local", "path": "zone"})
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    pipeline.tick()

    def run(*more: str) -> tuple[int, str]:
        asked = ["reload-table", str(pipeline.file), "--table", "dbo.orders", "--reason", "x", "--approved-by", "Ada"]
        return command_line([*asked, "--wait", "0", *more]), capsys.readouterr().out

    recorded = "The reset of dbo.orders is recorded (REQUESTED); nothing is deleted yet.\n"
    assert run("--request-only") == (Exit.DONE, recorded)
    assert (pipeline.zone / "dbo.schema" / "orders").exists(), "nothing is deleted yet"
    for _ in range(2):
        exit_code, said = run()
        assert (exit_code, "an operator to confirm that the table is gone" in said) == (Exit.ON_HOLD, True)
    command_line(["status", str(pipeline.file)])
    assert "in a reset: reload asked for by Ada" in capsys.readouterr().out
    sees = [str(pipeline.file), "--table", "dbo.orders", "--why", "looked"]
    assert command_line(["target-says-gone", *sees]) == Exit.DONE
    exit_code, said = run()
    assert (exit_code, "REBUILDING" in said) == (Exit.ON_HOLD, True)
    deliver(pipeline, "b.jsonl", event("INS", row(2, "Eve"), commit=11))
    pipeline.extract()
    assert pipeline.publish().held["dbo.orders"].startswith("RESET_OPEN"), "no increment before the table is back"
    assert command_line(["target-says-back", *sees]) == Exit.DONE
    pipeline.tick()
    assert [r["name"] for r in orders(pipeline)] == ["Ada", "Eve"]
