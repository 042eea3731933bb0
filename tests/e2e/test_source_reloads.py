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
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.page import ways_out
from open_mirroring.page.deciding import decide
from open_mirroring.reconciliation.inspection import zone_address
from spark_jobs.cli.command_line import main
from tests.e2e.test_silent_qlik_messages import MD_A, MD_B, A, B, Lines, landed, load, of
from tests.kafka_broker import KafkaBroker

WATCHED: dict[str, Any] = {"landing_zone": {"store": "local", "path": "zone", "tables": "tables"}}


def accept(lines: Lines, table: str = "a", *more: str) -> int:
    return main(["accept-reload", str(lines.pipeline.file), "--table", f"dbo.{table}", "--why", "ticket 7", *more])


def ticked(lines: Lines, times: int = 5) -> int:
    """Ticks until the table is back."""
    for _ in range(times):
        code = lines.tick()
        if not any(state.reset or state.accepted for state in lines.pipeline.reader.tables().values()):
            break
    return code


def test_a_table_begins_with_the_load_that_came_again_and_rows_it_lacks_are_gone_g125(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, MD_B, load(A, 1), load(A, 2), load(A, 3), load(B, 1))
    lines.send(of(A, 2, "new", "UPDATE", number=5, changeMask="02"), of(A, 4, number=6))
    assert lines.tick() == Exit.DONE
    assert accept(lines) == Exit.TERMINAL and "RELOAD_UNSEEN" in capsys.readouterr().err
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


def test_a_decision_that_the_log_cannot_follow_is_told_by_the_stop_g125(tmp_path: Path, spark: Any) -> None:
    """The page, and a run in Airflow, record the decision alone; the next run finds out."""
    lines = Lines(tmp_path, spark, **WATCHED)
    lines.send(MD_A, (0, load(A, 1)), (1, load(A, 2)), (0, of(A, 1, "new", "UPDATE", number=5, changeMask="02")))
    lines.send((1, of(A, 2, "new", "UPDATE", number=6, changeMask="02")))
    assert lines.tick() == Exit.DONE
    lines.send((0, load(A, 1, "again")), (1, of(A, 3, number=8)))
    assert lines.tick() == Exit.TABLES_STOPPED
    mirror, ledger = lines.pipeline.mirror, lines.pipeline.ledger
    form = {"source": "dbo.a", "request": "r"}
    said = decide(mirror, ledger, zone_address(mirror), ways_out.ACCEPT_RELOAD, form, Reason("ann", "it was loaded"))
    assert "the next run builds" in said[0]
    assert lines.tick() == Exit.TABLES_STOPPED
    code, what = lines.stop("a")
    assert code == "RELOAD_SEEN" and "RELOAD_UNCLEAR" in (what or "") and "t/1" in (what or "")
    assert lines.pipeline.reader.tables()["dbo.a"].accepted is None


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
