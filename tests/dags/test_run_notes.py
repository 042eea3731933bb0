"""What an operator sees without a log: the first line of a run's note is its outcome, and events are sent once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.dag_processing.dagbag import DagBag
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from airflow.sdk.exceptions import TaskDeferred
from airflow.utils.session import create_session

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.ledger import tables as t
from open_mirroring_airflow import operators
from open_mirroring_airflow.operators import DeepCheckOperator, ExtractOperator, PublishingOperator, ReloadOperator
from open_mirroring_airflow.verdict import ReconcileOperator
from tests.hand_made_mirror import GUID, HandMadeMirror

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
ORDERS = "dbo.orders"


def _note(name: str, *, forgets: bool = False, **conf: Any) -> list[str]:
    """The lines of the note of a run that failed; *forgets* what its tasks left, as if they had been killed."""
    dag = DagBag(dag_folder=ROOT / "dags").dags[f"shop__{name}"]
    run_id = dag.test(run_conf=conf or None).run_id
    with create_session() as session:
        run = session.scalars(sa.select(DagRun).where(DagRun.run_id == run_id, DagRun.dag_id == dag.dag_id)).one()
        assert run.state == "failed"
        if forgets:
            session.execute(sa.delete(XComModel).where(XComModel.run_id == run_id, XComModel.dag_id == dag.dag_id))
        # As the scheduler tells it; the runner of this test tells it of a copy of the run.
        run.dag = dag
        run.notify_dagrun_state_changed(msg="failed")
        session.flush()
        return (run.note or "").splitlines()


def test_the_note_of_a_red_run_begins_with_its_outcome_and_goes_on_with_the_cause(
    made: HandMadeMirror, fake_spark: Any
) -> None:
    made.stop(ORDERS, "PARTIAL_ROWS", "2 of 3 columns")
    fake_spark.answers(
        1, left={"error": ["COUNTS_DIFFER", "3 were read, 2 have a disposition"]}, only="extract_changes"
    )
    lines = _note("replicate")
    assert lines[0] == "Failed: stopped dbo.orders (PARTIAL_ROWS); task extract failed."
    assert "2 tables: 1 stopped, 1 mirrored." in lines
    assert "Failed: COUNTS_DIFFER: 3 were read, 2 have a disposition (extract_changes)" in lines


def test_a_failed_decision_leaves_its_reason(made: HandMadeMirror) -> None:
    [first] = _note("decide", decision="resume", reason="ticket 1")
    assert first.startswith("Failed: ARGUMENT_INVALID: nothing was decided: for 'Resume this table' (resume) a field ")
    assert "of the form is missing: table" in first


def test_a_run_whose_task_left_no_line_names_the_task(made: HandMadeMirror, fake_spark: Any) -> None:
    fake_spark.answers(1)
    [line] = _note("maintain", forgets=True)
    assert line.startswith("Failed: maintain ended without a message: killed, timed out, or marked as failed.")
    with create_session() as session:
        run = session.scalars(sa.select(DagRun).order_by(DagRun.id.desc()).limit(1)).one()
        run.state = "success"  # as after it was cleared
        run.dag = DagBag(dag_folder=ROOT / "dags").dags[run.dag_id]
        run.notify_dagrun_state_changed(msg="success")
        assert run.note == "", "nothing is left of the attempt before"


def _operator(kind: Any, made: HandMadeMirror, job: str, **named: Any) -> Any:
    return kind(task_id="x", mirror="shop", mirror_file=str(made.file), job=job, **named)


def _left(context: dict[str, Any]) -> list[str]:
    return str(context["ti"].xcoms["note"]).splitlines()


def test_a_task_that_fails_after_its_report_begins_its_note_with_the_failure(
    made: HandMadeMirror, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    report = {"verdicts": {ORDERS: "STOP"}, "stopped": {ORDERS: "CONTENT_CHANGED: x"}}
    fake_spark.answers(3, left={"report": report})
    with pytest.raises(TerminalError):
        _operator(DeepCheckOperator, made, "reconcile_sequence").execute(task_context)
    first, second, *_ = _left(task_context)
    assert first.startswith("Failed: TABLES_STOPPED: tables stopped: dbo.orders") and second.startswith("Checked: ")


def test_an_error_before_the_job_is_noted_too(
    made: HandMadeMirror, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    made.file.write_text("mirror: shop\ntables: [")
    with pytest.raises(TerminalError):
        _operator(ExtractOperator, made, "extract_changes").execute(task_context)
    assert _left(task_context)[0].startswith("Failed: CONFIG_INVALID") and fake_spark.calls == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_job_that_died_names_the_signal(
    made: HandMadeMirror, fake_spark: Any, task_context: dict[str, Any], number: signal.Signals
) -> None:
    fake_spark.binary.write_text(f"#!/bin/sh\nkill -{int(number)} $$\n")
    with pytest.raises(TransientError, match=f"JOB_FAILED: the job was ended by {number.name}"):
        _operator(ExtractOperator, made, "extract_changes").execute(task_context)
    assert number.name in _left(task_context)[0]


def test_a_job_that_airflow_ended_names_airflow(
    made: HandMadeMirror, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    fake_spark.binary.write_text("#!/bin/sh\nkill -9 $$\n")
    operator = _operator(ExtractOperator, made, "extract_changes")
    wait = operator._job_hook

    def killed(*given: Any) -> Any:
        hook = wait(*given)
        operator.on_kill()  # Airflow calls it when the task is cleared or marked
        return hook

    operator._job_hook = killed
    with pytest.raises(TransientError, match="JOB_FAILED: Airflow ended the job: its task was cleared"):
        operator.execute(task_context)


def _publish(made: HandMadeMirror, *numbers: int, source: str = ORDERS) -> None:
    """As if these numbers of a table had been published, 10 rows each."""
    file = {"generation": 1, "etag": "e", "digest": "d", "rows": 10, "size": 1, "kind": "changes", "batch_from": 0}
    now = datetime.now(UTC)
    for number in numbers:
        place = {"first_position": f"{number}:a", "last_position": f"{number}:z", "batch_to": number}
        made.insert(t.published_file, table_id=made.ids[source], number=number, **file, **place, confirmed_at=now)
    made.set_table(source, confirmed=max(numbers), generation=1)


@pytest.fixture
def attempt(
    made: HandMadeMirror, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[list[tuple[int, int, int]], str]]:
    """Run the publishing task, whose job publishes *numbers*: its events and the first line of its note."""

    def run(*numbers: int, fails: type[BaseException] | None = None) -> tuple[list[tuple[int, int, int]], str]:
        def job(operator: Any, *_: Any) -> dict[str, Any]:
            if numbers:
                _publish(made, *numbers)
            if fails is not None:
                raise fails("X", "it failed") if issubclass(fails, TransientError) else fails
            operator.log_report({"job": "publish_changes", "files": {ORDERS: list(numbers)} if numbers else {}})
            return {}

        monkeypatch.setattr(PublishingOperator, "run_job", job)
        task_context["outlet_events"].clear()
        task_context["ti"].xcoms.clear()
        _operator(PublishingOperator, made, "publish_changes").execute(task_context)
        sent = task_context["outlet_events"].get("open-mirroring/shop", [])
        return [(e["first_number"], e["number"], e["rows"]) for _, e in sent], _left(task_context)[0]

    return run


NOTHING = "Published: nothing, the target has all that was logged and may be published."


def test_a_run_that_is_cleared_repeats_no_event_and_notes_what_it_published_itself(
    made: HandMadeMirror, attempt: Callable[..., Any]
) -> None:
    """Also a run of a backfill that is processed again: the task is the same, and others published in between."""
    assert attempt(1, 2) == ([(1, 2, 20)], "Published: 2 files of 1 table, 20 rows.")
    _publish(made, 3, 4, 5)  # other runs, which announced it
    assert attempt() == ([], NOTHING)
    assert attempt(6) == ([(6, 6, 10)], "Published: 1 file of 1 table, 10 rows.")


def test_a_failed_run_that_is_cleared_later_announces_its_own_files_alone(
    made: HandMadeMirror, attempt: Callable[..., Any]
) -> None:
    with pytest.raises(TransientError):
        attempt(1, 2, fails=TransientError)
    _publish(made, 3, 4, 5)  # other runs, which announced it
    assert attempt(6) == ([(1, 2, 20), (6, 6, 10)], "Published: 3 files of 1 table, 30 rows.")
    assert attempt() == ([], NOTHING)


def test_what_a_killed_attempt_published_is_announced_by_the_next(
    made: HandMadeMirror, attempt: Callable[..., Any]
) -> None:
    with pytest.raises(KeyboardInterrupt):
        attempt(1, 2, fails=KeyboardInterrupt)  # nothing of ours runs after it
    assert attempt(3) == ([(1, 3, 30)], "Published: 3 files of 1 table, 30 rows.")


def test_settings_that_changed_between_attempts_announce_no_table_that_is_gone(
    made: HandMadeMirror, attempt: Callable[..., Any]
) -> None:
    with pytest.raises(TransientError):
        attempt(1, 2, fails=TransientError)
    made.file.write_text(made.file.read_text().replace(ORDERS, "dbo.invoices").replace("dbo/orders", "dbo/invoices"))
    assert attempt() == ([], NOTHING)


def _leaf(made: HandMadeMirror) -> ReconcileOperator:
    dag = DagBag(dag_folder=ROOT / "dags").dags["shop__reload_table"]
    found = dag.get_task("reconcile")
    assert isinstance(found, ReconcileOperator)
    return found


def test_a_reload_whose_changes_are_not_published_says_so(made: HandMadeMirror, task_context: dict[str, Any]) -> None:
    made.accept(ORDERS, GUID, 0)
    made.commit(1, {ORDERS: (942, "0000000A:01:1")})
    task_context["params"] = {"table": ORDERS}
    answer = _leaf(made).execute(task_context)
    assert answer["note"] == "HOLD: dbo.orders: logged changes are not published yet; the next run does it"
    first, second, *_ = _left(task_context)
    assert first == answer["note"] and second == "2 tables: 1 waiting, 1 mirrored."
    task_context["params"] = {"table": "dbo.customers"}
    assert _leaf(made).execute(task_context)["note"] == "", "a run is not to publish what was not chosen for it"


def test_a_reload_that_waits_is_no_error(made: HandMadeMirror, fake_spark: Any, task_context: dict[str, Any]) -> None:
    """The job ends on hold, and its task defers; nothing is logged as an error."""
    report = {"job": "reload_table", "table": ORDERS, "stage": "FOLDER_DELETED", "waits_for": "the target"}
    fake_spark.answers(5, left={"report": report})
    task_context["params"] = {"table": ORDERS, "reason": "x"}
    task_context["ti"].xcoms["approve"] = {"responded_by_user": {"name": "Ada"}}
    operator = _operator(ReloadOperator, made, "reload_table", approval_task_id="approve")
    with pytest.raises(TaskDeferred) as waits:
        operator.execute(task_context)
    assert isinstance(waits.value.trigger, operators.ResetTrigger)
    assert _left(task_context) == ["The reset of dbo.orders (FOLDER_DELETED) waits for the target."]
