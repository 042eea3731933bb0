"""Full loads that a Qlik task sends again: what is accepted begins the table anew, from the log alone (G-125, G-126).

Driven by the command line, with the emulator as the target.
"""

from __future__ import annotations

import getpass
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.requests import ACCEPT_RELOAD
from open_mirroring.operate.deciding import decide_and_look
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.reconciliation.inspection import zone_address
from spark_jobs.cli.command_line import main
from tests.e2e.test_bad_input_qlik_change_tables import DATA, ct, ct_landed, dfm, put
from tests.e2e.test_silent_qlik_messages import MD_A, MD_B, TABLES, A, B, Lines, landed, load, of, row
from tests.kafka_broker import KafkaBroker
from tests.pipeline import Pipeline, in_order
from tests.qlik_messages import dt

WATCHED: dict[str, Any] = {"landing_zone": {"store": "local", "path": "zone", "tables": "tables"}}


def accept(lines: Lines, table: str = "a", *more: str) -> int:
    return main(["accept-reload", str(lines.pipeline.file), "--table", f"dbo.{table}", "--why", "ticket 7", *more])


def ticked(lines: Lines, times: int = 5) -> int:
    """Ticks until the table is back."""
    for _ in range(times):
        code = lines.tick()
        if not any(state.reset or state.start.accepted for state in lines.pipeline.reader.tables().values()):
            break
    return code


def test_a_table_begins_with_the_load_that_came_again_and_rows_it_lacks_are_gone_g125(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, MD_B, load(A, 1), load(A, 2), load(A, 3), load(B, 1))
    lines.send(of(A, 2, "new", "UPDATE", number=5, changeMask="02"), of(A, 4, number=6))
    assert lines.tick() == Exit.DONE
    assert accept(lines) == Exit.TERMINAL and "RELOAD_UNCLEAR" in capsys.readouterr().err
    # While changes go on: 2 is loaded before it is deleted, 5 comes behind the load; 3 and 4 are gone unnoticed.
    lines.send(load(A, 1), load(A, 2, "again"), of(A, 2, operation="DELETE", number=8), of(A, 5, number=9))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("a")[0] == "RELOAD_SEEN"
    assert accept(lines, "a", "--request", "one") == Exit.DONE
    assert ticked(lines) == Exit.DONE
    assert (lines.rows("a"), lines.rows("b")) == (landed(1, 5), landed(1))
    lines.send(of(A, 1, "last", "UPDATE", number=11, changeMask="02"), of(B, 2, number=12))
    assert lines.tick() == Exit.DONE
    assert (lines.rows("a"), lines.rows("b")) == (landed((1, "last"), 5), landed(1, 2))
    # Asked again, nothing begins again; a change of before that is sent once more stays of before.
    generation = lines.pipeline.reader.tables()["dbo.a"].row.generation
    assert accept(lines, "a", "--request", "one") == Exit.DONE
    lines.send(of(A, 4, number=6))
    assert lines.tick() == Exit.DONE and lines.rows("a") == landed((1, "last"), 5)
    assert lines.pipeline.reader.tables()["dbo.a"].row.generation == generation == 2
    # And once more: the next load is noticed, and begins the table anew just as well.
    lines.send(load(A, 9))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("a")[0] == "RELOAD_SEEN"
    assert accept(lines) == Exit.DONE and ticked(lines) == Exit.DONE
    assert lines.rows("a") == landed(9)


def test_no_change_before_an_unreadable_row_of_a_reload_heals_it_g22_k67(tmp_path: Path, spark: Any) -> None:
    """In the order it stands below them. The table may lack all of that load, so each run tells a loss."""
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, load(A, 1), of(A, 1, "new", "UPDATE", number=5, changeMask="02"))
    assert lines.tick() == Exit.DONE
    untold = {"changeSequence": "", "transactionEventCounter": None}
    lines.send(dt("REFRESH", {**row(1, "again"), "odd": 1}, schema_id=A, **untold))
    assert [lines.tick(), lines.tick()] == [Exit.DONE_WITH_LOSSES] * 2
    lines.send(load(A, 1, "again"))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("a")[0] == "RELOAD_SEEN"
    assert accept(lines) == Exit.DONE and ticked(lines) == Exit.DONE
    assert lines.rows("a") == landed((1, "again"))


def test_rows_of_the_load_that_come_later_are_of_it_and_a_reset_from_the_log_keeps_it_g125(
    tmp_path: Path, spark: Any
) -> None:
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, load(A, 1), load(A, 2), of(A, 3, number=5), load(A, 2, "again"))
    assert lines.tick() == Exit.TABLES_STOPPED
    assert accept(lines) == Exit.DONE
    lines.send(load(A, 4))
    assert ticked(lines) == Exit.DONE and lines.rows("a") == landed((2, "again"), 4)
    lines.send(load(A, 5), of(A, 6, number=9))
    assert lines.tick() == Exit.DONE and lines.rows("a") == landed((2, "again"), 4, 5, 6)
    reload = ["reload-table", str(lines.pipeline.file), "--table", "dbo.a", "--reason", "r", "--approved-by", "Ada"]
    for _ in range(4):
        code = main([*reload, "--request", "r1", "--wait", "0"])
        lines.pipeline.service.poll()
    assert code == Exit.DONE and lines.rows("a") == landed((2, "again"), 4, 5, 6)


def test_a_reload_with_other_types_is_no_change_of_structure_g125(tmp_path: Path, spark: Any) -> None:
    """What was logged before the load has columns that the table has no more."""
    from tests.qlik_messages import COLUMNS, ROW, dt, md

    text = [(name, "WSTRING" if name == "price" else kind, *more) for name, kind, *more in COLUMNS]
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, load(A, 1), of(A, 2, number=5))
    assert lines.tick() == Exit.DONE
    lines.send(md(text, schema_id="C" * 32, table="a", version=2))
    lines.send(dt("REFRESH", {**ROW, "id": 1, "price": "dear"}, schema_id="C" * 32, changeSequence="",
                  transactionEventCounter=None))  # fmt: skip
    assert lines.tick() == Exit.TABLES_STOPPED
    assert accept(lines) == Exit.DONE and ticked(lines) == Exit.DONE
    assert [(row["id"], row["price"]) for row in lines.rows("a")] == [(1, "dear")]
    # A ledger that is lost is made again from what files and log say: the table still begins with that load.
    before = lines.pipeline.reader.tables()["dbo.a"].start.newest_load
    lines.pipeline.ledger.dispose()
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    again = ["rebuild-ledger", str(lines.pipeline.file), "--apply", "--approved-by", "Ada", "--reason", "it was lost"]
    assert main(again) == Exit.DONE
    assert lines.pipeline.reader.tables()["dbo.a"].start.newest_load == before is not None
    lines.send(dt("INSERT", {**ROW, "id": 2, "price": "dearer"}, schema_id="C" * 32, number=9))
    lines.send(of(A, 2, number=5))
    assert lines.tick() == Exit.DONE
    assert [(row["id"], row["price"]) for row in lines.rows("a")] == [(1, "dear"), (2, "dearer")]


def test_a_delete_behind_the_load_is_no_proof_of_columns_g125(tmp_path: Path, spark: Any) -> None:
    """K-22: a large object that is NULL may not be sent; a row that leaves told that its column was dropped."""
    from tests.qlik_messages import ROW, dt

    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, load(A, 1), load(A, 2), of(A, 3, number=5), load(A, 1, "again"), load(A, 2, "again"))
    lines.send(dt("DELETE", {**ROW, "id": 2, "note": None}, schema_id=A, number=8), of(A, 4, number=9))
    assert lines.tick() == Exit.TABLES_STOPPED
    assert accept(lines) == Exit.DONE and ticked(lines) == Exit.DONE
    assert lines.stop("a") == (None, None) and lines.rows("a") == landed((1, "again"), 4)


def test_a_ledger_made_again_knows_the_columns_of_a_load_behind_changes_in_one_batch_g125_g31(
    tmp_path: Path, spark: Any
) -> None:
    """G-04: one list of columns in one batch, of an older change and of the load: it was forgotten with the change."""
    from tests.qlik_messages import dt

    lines = Lines(tmp_path, spark, **WATCHED, tables=[{**TABLES[0], "complete_rows": True}])
    lines.send(MD_A, load(A, 1), load(A, 2), of(A, 3, number=5), load(A, 1, "again"), load(A, 2))
    assert lines.tick() == Exit.TABLES_STOPPED
    assert accept(lines) == Exit.DONE and ticked(lines) == Exit.DONE
    lines.pipeline.ledger.dispose()
    for path in tmp_path.glob("ledger.db*"):
        path.unlink()
    again = ["rebuild-ledger", str(lines.pipeline.file), "--apply", "--approved-by", "Ada", "--reason", "it was lost"]
    assert main(again) == Exit.DONE
    lines.send(dt("UPDATE", {"id": 2, "name": "new"}, {"id": 2, "name": "Ada"}, schema_id=A, number=8))
    assert lines.tick() == Exit.DONE, lines.stop("a")
    assert lines.rows("a") == landed((1, "again"), (2, "new"))


def test_several_partitions_are_divided_or_the_stop_stays_g125(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, MD_B, (0, load(A, 1)), (1, load(A, 2)), (1, load(A, 4)), (0, load(B, 1)), (1, load(B, 2)))
    lines.send((0, of(A, 1, "new", "UPDATE", number=5, changeMask="02")), (1, of(A, 3, number=6)))
    lines.send((0, of(B, 1, "new", "UPDATE", number=5, changeMask="02")), (1, of(B, 3, number=6)))
    assert lines.tick() == Exit.DONE
    # Of A each partition shows where the load begins; of B the second one has no row of it, and a change between.
    lines.send((1, load(A, 2, "again")), (0, load(A, 1, "again")), (1, of(A, 5, number=8)))
    lines.send((0, load(B, 1, "again")), (1, of(B, 5, number=8)))
    assert lines.tick() == Exit.TABLES_STOPPED
    assert accept(lines, "b") == Exit.TERMINAL
    assert "RELOAD_UNCLEAR" in (said := capsys.readouterr().err) and "t/1" in said
    assert accept(lines) == Exit.DONE
    assert ticked(lines) == Exit.TABLES_STOPPED
    assert lines.stop("a")[0] is None and lines.stop("b")[0] == "RELOAD_SEEN"
    assert lines.rows("a") == landed((1, "again"), (2, "again"), 5)


def test_the_mirror_file_approves_reloads_for_a_table_so_often_a_day_g126(tmp_path: Path, spark: Any) -> None:
    """Not before the load has ended; killed at each step, the next run goes on."""
    lines = Lines(tmp_path, spark, **WATCHED, publish={"on_reload": "rebuild", "reloads_per_day": 1})
    lines.send(MD_A, load(A, 1), load(A, 2), of(A, 3, number=5))
    assert lines.tick() == Exit.DONE
    lines.send(load(A, 1, "again"))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("a")[0] == "RELOAD_SEEN", "it may go on"
    lines.send(load(A, 4), of(A, 5, number=9))
    lines.pipeline.extract()
    for fault in ("reset.requested", "reset.folder_deleted"):
        lines.pipeline.killed("publish_changes", fault)
        lines.pipeline.service.poll()
    assert lines.tick() == Exit.ON_HOLD
    for fault in ("reset.rebuilding", "publish.sealed"):
        lines.pipeline.killed("publish_changes", fault)
    assert ticked(lines) == Exit.DONE and lines.rows("a") == landed((1, "again"), 4, 5)
    lines.send(load(A, 6), of(A, 7, number=11))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.rows("a") == landed((1, "again"), 4, 5)
    assert accept(lines) == Exit.DONE and ticked(lines) == Exit.DONE
    assert lines.rows("a") == landed(6, 7)
    with lines.pipeline.ledger.connect() as db:
        c = t.audit.c
        asked = db.scalars(sa.select(c.detail).where(c.event == "RESET_REQUESTED").order_by(c.at))
        assert [json.loads(one)["who"] for one in asked] == ["the mirror file test", getpass.getuser()]


def test_a_quiet_load_has_ended_and_a_second_load_before_any_change_is_accepted_too_g85_g126(
    tmp_path: Path, spark: Any
) -> None:
    lines = Lines(tmp_path, spark, **WATCHED, publish={"on_reload": "rebuild"})
    lines.send(MD_A, load(A, 1), load(A, 2), load(A, 3), load(A, 4))
    assert lines.tick() == Exit.DONE
    lines.send(load(A, 1), load(A, 2), load(A, 4))
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("a")[0] == "LOAD_REPEATED"
    assert lines.tick() == Exit.TABLES_STOPPED
    with lines.pipeline.ledger.begin() as db:
        db.execute(t.log_batch.update().values(committed_at=datetime.now(UTC) - timedelta(minutes=11)))
    assert ticked(lines) == Exit.DONE and lines.rows("a") == landed(1, 2, 4)


def test_a_decision_that_the_log_cannot_follow_is_reported_by_the_stop_g125(tmp_path: Path, spark: Any) -> None:
    """The page, and a run in Airflow, record the decision alone; the next run finds out."""
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, (0, load(A, 1)), (1, load(A, 2)), (0, of(A, 1, "new", "UPDATE", number=5, changeMask="02")))
    lines.send((1, of(A, 2, "new", "UPDATE", number=6, changeMask="02")))
    assert lines.tick() == Exit.DONE
    lines.send((0, load(A, 1, "again")), (1, of(A, 3, number=8)))
    assert lines.tick() == Exit.TABLES_STOPPED
    mirror, ledger = lines.pipeline.mirror, lines.pipeline.ledger
    form = {"source": "dbo.a", "request": "r"}
    said = decide_and_look(mirror, ledger, zone_address(mirror), ACCEPT_RELOAD, form, Reason("ann", "it was loaded"))
    assert "the next run builds" in said[0]
    assert lines.tick() == Exit.TABLES_STOPPED
    code, what = lines.stop("a")
    assert code == "RELOAD_SEEN" and "RELOAD_UNCLEAR" in (what or "") and "t/1" in (what or "")
    assert lines.pipeline.reader.tables()["dbo.a"].start.accepted is None
    # Approved by the mirror file, it is looked at again when more has come: now both partitions are divided.
    text = lines.pipeline.file.read_text()
    lines.pipeline.file.write_text(f"{text}publish: {{on_reload: rebuild}}\n")
    assert lines.tick() == Exit.TABLES_STOPPED and lines.stop("a") == (code, what)
    lines.send((1, load(A, 2, "again")), (0, of(A, 5, number=9)))
    assert ticked(lines) == Exit.DONE and lines.rows("a") == landed((1, "again"), (2, "again"), 5)


def test_partitions_of_a_broker_that_were_read_to_their_end_hold_nothing_older_g125(
    tmp_path: Path, spark: Any, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition without a row of the load takes changes behind it, although no place divides it."""
    topic = f"reload-{uuid4().hex[:8]}"
    kafka.create_topic(topic, 3)
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
    source = {"transport": "kafka", "connection": "broker", "topics": [topic], "path": "", "layout": None}
    lines = Lines(tmp_path, spark, **WATCHED, source=source)
    kafka.publish(topic, [(0, None, body) for body in (MD_A, load(A, 1), of(A, 3, number=5))])
    kafka.publish(topic, [(1, None, body) for body in (load(A, 2), load(A, 4))])
    assert lines.tick() == Exit.DONE
    kafka.publish(topic, [(0, None, load(A, 1, "again")), (1, None, load(A, 2))])
    assert lines.tick() == Exit.TABLES_STOPPED
    kafka.publish(topic, [(0, None, of(A, 5, number=8))])
    assert lines.tick() == Exit.TABLES_STOPPED and accept(lines) == Exit.DONE
    assert ticked(lines) == Exit.DONE and lines.rows("a") == landed((1, "again"), 2, 5)
    kafka.publish(topic, [(2, None, of(A, 6, number=7))])
    assert lines.tick() == Exit.DONE and lines.rows("a") == landed((1, "again"), 2, 5, 6)


def full_load(folder: Path, *rows: tuple[str, str]) -> None:
    """The full load of a file target: the task writes it anew, beside the changes."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    header = '"id","name","price"\n'
    (folder / "LOAD00000001.csv").write_text(header + "".join(f'"{key}","{name}","1.50"\n' for key, name in rows))
    described = json.loads(dfm("items", "LOAD00000001.csv", len(rows), columns=DATA, target="items"))
    described["fileInfo"]["content"] = "data"
    (folder / "LOAD00000001.dfm").write_text(json.dumps(described))


@pytest.mark.parametrize("truncated", [False, True])
def test_a_full_load_beside_change_tables_begins_the_table_again_with_its_load_t31_g128(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], truncated: bool
) -> None:
    """The changes of the new `load` were read before anybody decided: nothing of them is lost, whichever came first."""
    loaded = {"format": "qlik-full-load", "path": "full/shop.items", "stream_from": "beginning"}
    table = {"source": "shop.items", "target": "shop/items", "key": ["id"], "initial_load": loaded}
    source = {"format": "qlik-change-table", "layout": None, "load": "1"}
    pipeline = Pipeline(tmp_path, spark, [table], source=source, **WATCHED)

    def command(*words: str) -> int:
        code = main([words[0], str(pipeline.file), *words[1:]])
        pipeline.service.poll()
        return code

    def rows() -> list[dict[str, Any]]:
        return in_order(pipeline.mirrored("shop", "items"), ["id"])

    full = tmp_path / "full" / "shop.items"
    full_load(full, ("1", "Ada"), ("2", "Bob"))
    put(pipeline, "items", "1", ct(50, "I", "3"), ct(51, "I", "4"))
    assert command("initial-load") == Exit.DONE and command("tick") == Exit.DONE
    assert rows() == [ct_landed(1), ct_landed(2, "Bob"), ct_landed(3), ct_landed(4)]
    accepting = ("accept-reload", "--table", "shop.items", "--why", "the task was reloaded")
    assert command(*accepting) == Exit.TERMINAL and "RELOAD_UNCLEAR" in capsys.readouterr().err
    # The task is reloaded: 2 and 4 are gone untold, and its positions begin anew.
    if truncated:
        put(pipeline, "items", "1t", ct(52, "T", "1", operation="TRUNCATE"))
        assert command("tick") == Exit.TABLES_STOPPED
    full_load(full, ("1", "Eve"), ("3", "Ada"))
    pipeline.file.write_text(pipeline.file.read_text().replace("load: '1'", "load: '2'"))
    put(pipeline, "items", "2", ct(7, "D", "3"), ct(8, "I", "5"))
    assert command("tick") == Exit.TABLES_STOPPED
    stopped = "KEY_UNKNOWN" if truncated else "EPOCH_UNKNOWN"
    assert pipeline.reader.tables()["shop.items"].stop_code == stopped
    assert command(*accepting) == Exit.DONE
    if not truncated:
        pipeline.killed("publish_changes", "reset.requested")
    for _ in range(5):
        code = command("tick")
    assert code == Exit.DONE and rows() == [ct_landed(1, "Eve"), ct_landed(5)]
    put(pipeline, "items", "3", ct(9, "D", "1"))
    assert command("tick") == Exit.DONE and rows() == [ct_landed(5)]
    # What comes late of the old load is old; built anew again, the table is the same.
    reload = ("reload-table", "--table", "shop.items", "--reason", "r", "--approved-by", "Ada", "--request", "r1")
    for _ in range(4):
        code = command(*reload, "--wait", "0")
    assert code == command("tick") == Exit.DONE and rows() == [ct_landed(5)]


def test_a_table_that_is_reset_with_its_load_lands_as_wide_as_its_changes_g65(tmp_path: Path, spark: Any) -> None:
    """It stopped again with the very load that it began with, in a circle."""
    loaded = {"format": "qlik-full-load", "path": "full/shop.items", "stream_from": "beginning"}
    table = {"source": "shop.items", "target": "shop/items", "key": ["id"], "initial_load": loaded}
    pipeline = Pipeline(
        tmp_path,
        spark,
        [table],
        source={"format": "qlik-change-table", "transport": "files", "layout": None},
        **WATCHED,
    )
    full_load(tmp_path / "full" / "shop.items", ("1", "Ada"))

    def change(name: str, number: int, key: str, price: str, digits: int) -> None:
        put(pipeline, "items", name, ct(number, "I", key, price=price))
        path = pipeline.source / f"shop.items__ct/{name}.dfm"
        path.write_text(path.read_text().replace('"precision": 10', f'"precision": {digits}'))

    def command(*words: str) -> int:
        code = main([words[0], str(pipeline.file), *words[1:]])
        pipeline.service.poll()
        return code

    change("1", 50, "2", "2.50", 10)
    assert command("initial-load") == Exit.DONE and command("tick") == Exit.DONE
    change("2", 51, "3", "1234567890.50", 12)
    assert command("tick") == Exit.TABLES_STOPPED
    assert pipeline.reader.tables()["shop.items"].stop_code == "SCHEMA_CHANGED"
    asked = ("reload-table", "--table", "shop.items", "--reason", "r", "--approved-by", "Ada", "--wait", "0")
    codes = [command(*asked, "--request", "one") for _ in range(5)]
    assert codes[-1] == Exit.DONE and command("tick") == Exit.DONE
    prices = [str(row["price"]) for row in in_order(pipeline.mirrored("shop", "items"), ["id"])]
    assert prices == ["1.50", "2.50", "1234567890.50"]
