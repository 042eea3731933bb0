"""Whole runs through Airflow, with a stand-in for ``spark-submit``: which outcome gives which colour (AF-08, AF-14)."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from airflow.serialization.serialized_objects import DagSerialization

from open_mirroring.config import load_mirror
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from tests.dags.test_notifier import Receiver, receiver

__all__ = ["receiver"]

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
MIRROR = """
mirror: shop
source: {format: sqlserver-ces, transport: capture, path: capture}
landing_zone: {store: local, path: %(home)s/zone}
ledger: sqlite:///%(home)s/ledger.db
change_log: %(home)s/log
tables:
  - {source: dbo.customers, target: dbo/customers, key: [customer_id]}
  - {source: dbo.orders, target: dbo/orders, key: [order_id]}
"""
ERROR = "2026-01-05 09:00:00,000 ERROR spark_jobs.runtime.job: "
GREEN = {"extract": "success", "gate": "success", "publish": "success", "reconcile": "success"}


@pytest.fixture
def home(mirrors: Path, tmp_path: Path) -> Path:
    (mirrors / "shop.yaml").write_text(MIRROR % {"home": tmp_path})
    return tmp_path


def _run(name: str, **conf: Any) -> tuple[str, dict[str, str]]:
    """One run of a DAG of the folder: its state, and that of each task."""
    run = DagBag(dag_folder=ROOT / "dags").dags[f"shop__{name}"].test(run_conf=conf or None)
    return run.state, {instance.task_id: instance.state for instance in run.get_task_instances()}


def _foreign_item(home: Path, table: str) -> None:
    folder = home / "zone" / "dbo.schema" / table
    folder.mkdir(parents=True)
    (folder / "stray.txt").write_text("of somebody else")


def test_a_good_run_submits_extract_and_publish_and_is_green(home: Path, fake_spark: Any) -> None:
    assert _run("replicate") == ("success", GREEN)
    assert fake_spark.jobs() == ["extract_changes", "publish_changes"]


def test_chosen_tables_reach_publishing(home: Path, fake_spark: Any) -> None:
    state, _ = _run("replicate", tables=["dbo.orders"])
    assert state == "success"
    assert fake_spark.calls[-1]["argv"][-1:] == ["--tables=dbo.orders"]
    assert fake_spark.calls[0]["argv"][-1] == "--publish=dbo.orders", "extraction itself is for all tables"


def test_a_replay_takes_the_letters_it_was_started_for_and_is_published(home: Path, fake_spark: Any) -> None:
    state, tasks = _run("replay_dead_letters", code="MESSAGE_INVALID", table="dbo.orders")
    assert (state, tasks) == ("success", {"replay": "success", "publish": "success", "reconcile": "success"})
    assert fake_spark.jobs() == ["replay_dead_letters", "publish_changes"]
    assert fake_spark.calls[0]["argv"][-2:] == ["--code=MESSAGE_INVALID", "--table=dbo.orders"]


def test_maintenance_is_one_job_and_returns_its_report(home: Path, fake_spark: Any) -> None:
    fake_spark.answers(output=json.dumps({"job": "maintain", "horizon_batch": 7, "held_by": []}))
    assert _run("maintain") == ("success", {"maintain": "success"})
    assert fake_spark.jobs() == ["maintain"]
    fake_spark.answers(1, ERROR + "LOG_DAMAGED: somebody upgraded it")
    assert _run("maintain") == ("failed", {"maintain": "failed"})


def test_a_failed_extract_lets_publish_go_on_and_makes_the_run_red(home: Path, fake_spark: Any) -> None:
    fake_spark.answers(1, ERROR + "COUNTS_DIFFER: 3 were read, 2 have a disposition", only="extract_changes")
    state, tasks = _run("replicate")
    assert (state, tasks) == ("failed", GREEN | {"extract": "failed", "reconcile": "failed"})
    assert fake_spark.jobs() == ["extract_changes", "publish_changes"], "terminal: not tried again"


def test_a_failed_gate_publishes_nothing_and_makes_the_run_red(home: Path, fake_spark: Any) -> None:
    (home / "ledger.db").write_text("this is no database, and never will be one " * 50)
    state, tasks = _run_failing_at_once("replicate")
    assert state == "failed"
    assert (tasks["extract"], tasks["gate"], tasks["publish"]) == ("failed", "failed", "skipped")
    assert fake_spark.jobs() == [], "a ledger that tells nothing tells no job anything"


def _run_failing_at_once(name: str, **conf: Any) -> tuple[str, dict[str, str]]:
    """As :func:`_run`, without the minutes between attempts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
        return _run(name, **conf)


def test_a_stopped_table_makes_the_run_red_after_the_others_were_published(home: Path, fake_spark: Any) -> None:
    _foreign_item(home, "orders")
    state, tasks = _run("replicate")
    assert (state, tasks) == ("failed", GREEN | {"reconcile": "failed"})
    assert fake_spark.calls[-1]["argv"][-1:] == ["--tables=dbo.customers"]


def _lose(home: Path, **values: Any) -> None:
    """An open dead letter in the ledger of the mirror, which an earlier run left."""
    ledger = open_ledger(f"sqlite:///{home}/ledger.db")
    letter = {"mirror": "shop", "batch": 1, "origin": "t/0", "code": "MESSAGE_INVALID", "reason": "cut", "letters": 1}
    with ledger.begin() as db:
        db.execute(t.mirror.insert().values(name="shop", committed=1))
        db.execute(t.open_letter.insert().values(**{**letter, "place": 7, **values}))


@pytest.mark.parametrize("source", [None, "dbo.orders"])
def test_losses_make_only_the_leaf_red_after_everything_was_published_g_20(
    home: Path, fake_spark: Any, source: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """G-20: jobs that end with 6 stop nothing; the leaf fails, and says what to do, until the letter is settled."""
    _lose(home, source=source)
    fake_spark.answers(6, json.dumps({"job": "x", "losses": {"dbo.orders": "DEAD_LETTERS_OPEN: 1"}}))
    assert _run("replicate") == ("failed", GREEN | {"reconcile": "failed"})
    assert fake_spark.jobs() == ["extract_changes", "publish_changes"]
    assert fake_spark.calls[-1]["argv"][-1].endswith("shop.yaml"), "all tables were published"
    assert _run("initial_load") == ("failed", {"load": "success", "reconcile": "failed"})
    assert _run("replay_dead_letters")[1] == {"replay": "success", "publish": "success", "reconcile": "failed"}
    with open_ledger(f"sqlite:///{home}/ledger.db").begin() as db:
        db.execute(t.open_letter.delete())
    fake_spark.answers()
    assert _run("replicate") == ("success", GREEN)


def test_letters_about_a_table_that_is_not_mirrored_leave_the_run_green_g_20(home: Path, fake_spark: Any) -> None:
    _lose(home, source="dbo.dropped")
    assert _run("replicate") == ("success", GREEN)


def test_the_deep_check_fails_for_losses_g_20(home: Path, fake_spark: Any) -> None:
    fake_spark.answers(6, json.dumps({"job": "reconcile_sequence", "losses": {"dbo.orders": "DEAD_LETTERS_OPEN: 1"}}))
    assert _run("reconcile") == ("failed", {"deep_check": "failed"})


def test_the_gate_ends_green_on_hold_publish_is_skipped_and_extraction_went_on(
    home: Path, mirrors: Path, fake_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table whose load is pending holds; the wait goes through Airflow's own deferral, cut to a moment."""
    monkeypatch.setattr("open_mirroring_airflow.sensors.timedelta", lambda minutes: _moment(minutes))
    load = ", initial_load: {format: parquet, path: export, stream_from: beginning}}"
    text = (mirrors / "shop.yaml").read_text()
    for key in ("customer_id", "order_id"):
        text = text.replace(f"key: [{key}]}}", f"key: [{key}]{load}")
    (mirrors / "shop.yaml").write_text(text)
    assert _run("replicate") == ("success", GREEN | {"publish": "skipped"})
    assert fake_spark.jobs() == ["extract_changes"]


def _moment(minutes: float) -> Any:
    return timedelta(seconds=minutes / 100)


def test_initial_load_and_deep_check_run(home: Path, fake_spark: Any) -> None:
    assert _run("initial_load") == ("success", {"load": "success", "reconcile": "success"})
    assert _run("reconcile") == ("success", {"deep_check": "success"})
    assert fake_spark.jobs() == ["initial_load", "reconcile_sequence"]


def test_a_proof_is_green_when_equal_red_when_not_and_skipped_when_it_is_not_reported(
    home: Path, fake_spark: Any
) -> None:
    """G-40, G-42: exit codes 0, 7 and 5 of the job; the message names the tables."""
    assert _run("prove", tables=["dbo.orders"]) == ("success", {"prove": "success"})
    assert fake_spark.jobs() == ["prove"] and fake_spark.calls[-1]["argv"][-1:] == ["--tables=dbo.orders"]
    tables = {"dbo.orders": {"verdict": "DIFFERENT"}, "dbo.customers": {"verdict": "EQUAL"}}
    fake_spark.answers(7, json.dumps({"job": "prove", "tables": tables}))
    assert _run("prove") == ("failed", {"prove": "failed"})
    fake_spark.answers(5, json.dumps({"job": "prove", "tables": {"dbo.orders": {"verdict": "UNPROVEN"}}}))
    assert _run("prove") == ("success", {"prove": "skipped"})


def test_a_routine_sends_a_difference_once_and_when_rows_are_not_compared_in_time(
    home: Path, mirrors: Path, fake_spark: Any, receiver: Receiver
) -> None:
    """By its schedule only what is due; a known difference fails the task, and sends no second message."""
    with (mirrors / "shop.yaml").open("a") as file:
        file.write("alerts: {connection: alerts}\n")
        file.write("prove: {schedule: '0 4 * * *', cover_in_days: 7, alert_after_days: 10}\n")
    dag = DagBag(dag_folder=ROOT / "dags").dags["shop__prove"]
    assert DagSerialization.to_dict(dag)["dag"]["timetable"]["__var"]["expression"] == "0 4 * * *"
    task: Any = dag.get_task("prove")
    for kind, is_routine in (("scheduled", True), ("manual", False)):
        context: Any = {"params": dag.params.dump(), "dag_run": SimpleNamespace(run_type=kind)}
        assert task.form(load_mirror(mirrors / "shop.yaml"), context)["routine"] is is_routine
    verified = {"share": 0.9, "days": 7, "differed_at": None, "is_late": False, "text": "verified 90 % of its rows"}
    verified["oldest"] = datetime.now(UTC).isoformat()
    found = {"verdict": "DIFFERENT", "proof": "4711", "missing": 2, "columns": {}, "is_known": False}

    def proved(**more: Any) -> None:
        tables = {"dbo.orders": {**found, "verified": verified, **more}, "dbo.customers": {"verdict": "EQUAL"}}
        fake_spark.answers(7, json.dumps({"job": "prove", "tables": tables}))
        assert _run("prove", routine=True) == ("failed", {"prove": "failed"})

    proved()
    assert fake_spark.calls[-1]["argv"][-1:] == ["--routine"]
    (message,) = receiver.messages
    assert "dbo.orders (2 rows differ)" in message["text"]
    assert "shop__correct_table with the proof (4711 of dbo.orders)" in message["text"]
    proved(is_known=True)
    assert len(receiver.messages) == 1
    # Late since this run: one message. Late for longer: it was sent.
    for days, messages in ((10.5, 2), (11.5, 2)):
        late = {**verified, "is_late": True, "oldest": (datetime.now(UTC) - timedelta(days=days)).isoformat()}
        proved(is_known=True, verified=late)
        assert len(receiver.messages) == messages
    assert receiver.messages[1]["event"] == "unverified"
    assert receiver.messages[1]["text"].endswith("not compared with the source for 10 days: dbo.orders")


ASKED = {"table": "dbo.orders", "reason": "the key changed"}


def _answering(monkeypatch: pytest.MonkeyPatch, choice: str, user: dict[str, str] | None) -> None:
    """Answer every approval at once, as the API would: the run itself would wait for ever."""

    def execute(self: Any, context: Any) -> Any:
        answer = {"chosen_options": [choice], "params_input": {}, "responded_by_user": user}
        return self.execute_complete(context, {**answer, "responded_at": datetime.now(UTC)})

    monkeypatch.setattr("airflow.providers.standard.operators.hitl.HITLOperator.execute", execute)


def test_an_approved_reload_resets_the_table_in_the_approvers_name(
    home: Path, fake_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answering(monkeypatch, "Approve", {"id": "7", "name": "Ada"})
    assert _run("reload_table", **ASKED) == (
        "success",
        {"approve": "success", "reload": "success", "reconcile": "success"},
    )
    assert fake_spark.jobs() == ["reload_table"]
    *arguments, request, _ = fake_spark.calls[-1]["argv"][-5:]
    assert arguments == ["--table=dbo.orders", "--reason=the key changed", "--approved-by=Ada"]
    # One approval is one request, whichever attempt or clearing of the task asks (G-30).
    assert re.fullmatch(r"--request=shop__reload_table/[^/]+/approve", request)


def test_an_approved_correction_is_logged_and_published_in_the_approvers_name(
    home: Path, fake_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-45."""
    _answering(monkeypatch, "Approve", {"id": "7", "name": "Ada"})
    proof = "0b6cb1a1-6f4f-4d09-9f0e-0d1c1ab5b4f5"
    done = dict.fromkeys(("approve", "correct", "publish", "reconcile"), "success")
    assert _run("correct_table", proof=proof, reason="lost") == ("success", done)
    assert fake_spark.jobs() == ["corrections", "publish_changes"]
    assert fake_spark.calls[0]["argv"][-3:] == [f"--proof={proof}", "--why=lost", "--approved-by=Ada"]
    # Given back, for its rows could not be read: nothing is published as if it were done.
    fake_spark.answers(5, json.dumps({"job": "corrections", "keys": 0, "waits": "UNREACHABLE: no answer"}))
    state, tasks = _run_failing_at_once("correct_table", proof=proof, reason="lost")
    assert (state, tasks["correct"]) == ("failed", "failed")


def test_a_rejected_reload_touches_nothing(home: Path, fake_spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, "Reject", {"id": "7", "name": "Ada"})
    assert _run("reload_table", **ASKED) == (
        "success",
        {"approve": "success", "reload": "skipped", "reconcile": "skipped"},
    )
    assert fake_spark.calls == []


def test_a_reload_that_nobody_approved_by_name_is_refused(
    home: Path, fake_spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _answering(monkeypatch, "Approve", None)
    state, tasks = _run("reload_table", **ASKED)
    assert (state, tasks["reload"]) == ("failed", "failed")
    assert fake_spark.calls == []
