"""What an operator without a shell brings to its end in Airflow: a reload whose target nobody can see, and a repair."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.dag_processing.dagbag import DagBag

from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.requests import TARGET_BACK, TARGET_GONE
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.operate.reset_driver import ResetDriver
from open_mirroring.protocols.resetting import ResetStage
from open_mirroring.reconciliation.inspection import declaration
from open_mirroring_airflow import operators
from open_mirroring_airflow.operators import DecideOperator
from tests.hand_made_mirror import HandMadeMirror
from tests.hand_published import ORDERS, HandPublished

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
ASKED = {"table": ORDERS, "reason": "the key changed"}
WAITS = {"error": ["RESET_OPEN", "the reset of 'dbo.orders' (FOLDER_DELETED) waits for somebody to say that"]}


def _run(name: str, **conf: Any) -> Any:
    return DagBag(dag_folder=_dags()).dags[f"shop__{name}"].test(run_conf=conf)


def _dags() -> Path:
    return ROOT / "dags"


def _tasks(run: Any) -> dict[str, str]:
    return {instance.task_id: instance.state for instance in run.get_task_instances()}


def _stage(made: HandMadeMirror) -> ResetStage | None:
    reset = made.table(ORDERS).reset
    return None if reset is None else reset.stage


def begin_reset(made: HandMadeMirror) -> ResetLedger:
    """A reset whose folder is deleted; nobody can see the target."""
    resets = ResetLedger(made.ledger, "shop")
    assert resets.request_reload(declaration(made.mirror.tables[0]), Reason("Ada", "the key changed"))
    ResetDriver(made.mirror, made.ledger, ORDERS).drive(timedelta(0))
    assert _stage(made) is ResetStage.FOLDER_DELETED
    return resets


def publish_first(made: HandMadeMirror) -> None:
    """The new generation has published all it begins with."""
    made.set_table(ORDERS, established=True, confirmed=1, published_batch=1)


def test_a_reload_waits_deferred_and_ends_with_what_somebody_says_in_airflow_g_89(
    made: HandMadeMirror, fake_spark: Any, approved: None, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-89: while it waits no job is started, however often the trigger looks; each word lets it go one part on."""
    begin_reset(made)
    fake_spark.answers(4, left=WAITS)
    monkeypatch.setattr(operators, "_LOOK_SECONDS", 0.01)
    looks: list[str] = []
    real = operators.ResetTrigger.look

    def looked(self: Any, *asked: Any) -> Any:
        stage = self.serialize()[1]["stage"]
        looks.append(stage)
        if looks.count(stage) == 3:
            say(stage)
        return real(self, *asked)

    def say(stage: str) -> None:
        gone = stage == "FOLDER_DELETED"
        task_context["dag_run"].triggering_user_name = "Eve"
        task_context["run_id"] = f"manual__{stage}"
        task_context["params"] = {"decision": TARGET_GONE if gone else TARGET_BACK, **ASKED}
        DecideOperator(task_id="decide", mirror_file=str(made.file)).execute(task_context)
        if gone:  # what the job does next
            ResetDriver(made.mirror, made.ledger, ORDERS).drive(timedelta(0))
            assert _stage(made) is ResetStage.REBUILDING
            publish_first(made)
        else:
            fake_spark.answers()

    monkeypatch.setattr(operators.ResetTrigger, "look", looked)
    run = _run("reload_table", **ASKED)
    assert _tasks(run)["reload"] == "success"
    assert looks == ["FOLDER_DELETED"] * 3 + ["REBUILDING"] * 3
    assert fake_spark.jobs() == ["reload_table"] * 3, "once for each part, not once for each look"
    assert _stage(made) is None
    said = [(event, detail["who"]) for _, event, detail in made.audit() if event.startswith("TARGET_SAYS")]
    assert said == [("TARGET_SAYS_GONE", "Eve"), ("TARGET_SAYS_BACK", "Eve")]


def test_a_reload_that_nobody_shows_anything_fails_with_its_next_step(
    made: HandMadeMirror, fake_spark: Any, approved: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_reset(made)
    fake_spark.answers(4, left=WAITS)
    monkeypatch.setattr(operators, "_TARGET_WAIT", timedelta(0))
    run = _run("reload_table", **ASKED)
    assert run.state == "failed" and _tasks(run)["reload"] == "failed"
    assert fake_spark.jobs() == ["reload_table"] and _stage(made) is ResetStage.FOLDER_DELETED
    operator = DagBag(dag_folder=_dags()).dags["shop__reload_table"].get_task("reload")
    with pytest.raises(TerminalError, match=r"RESET_OPEN: it waits.*shop__decide.*target-says-gone"):
        operator.execute_complete({}, {"goes_on": False, "waits_for": "it waits"})


def test_a_run_says_that_a_table_is_gone_and_another_that_it_is_back_g_89(made: HandMadeMirror) -> None:
    """G-89: each for the reset that waits for it; a table that is in none, or further, is not meant."""
    assert _run("decide", decision=TARGET_GONE, **ASKED).state == "failed", "it is in no reset"
    begin_reset(made)
    assert _run("decide", decision=TARGET_BACK, **ASKED).state == "failed", "it waits for another word"
    assert _stage(made) is ResetStage.FOLDER_DELETED
    assert _run("decide", decision=TARGET_GONE, **ASKED).state == "success"
    assert _stage(made) is ResetStage.TABLE_GONE
    ResetDriver(made.mirror, made.ledger, ORDERS).drive(timedelta(0))
    assert _run("decide", decision=TARGET_BACK, **ASKED).state == "failed", "nothing is published yet"
    publish_first(made)
    assert _run("decide", decision=TARGET_BACK, **ASKED).state == "success"
    assert _stage(made) is None


def test_what_was_said_of_one_reset_is_not_said_of_a_later_one_g_30(
    made: HandMadeMirror, task_context: dict[str, Any]
) -> None:
    """G-30, G-89: a run that is cleared after the next reset began must not let its folder's name be used again."""
    resets = begin_reset(made)
    task_context["dag_run"].triggering_user_name = "Eve"
    task_context["params"] = {"decision": TARGET_GONE, **ASKED}
    decide = DecideOperator(task_id="decide", mirror_file=str(made.file))
    first = decide.execute(task_context)
    assert _stage(made) is ResetStage.TABLE_GONE
    assert resets.request_reload(declaration(made.mirror.tables[0]), Reason("Ada", "again"), again=True)
    ResetDriver(made.mirror, made.ledger, ORDERS).drive(timedelta(0))
    assert decide.execute(task_context)[0] == first[0]
    assert _stage(made) is ResetStage.FOLDER_DELETED


def test_a_folder_that_somebody_wrote_into_is_not_gone_g_89(made: HandMadeMirror, tmp_path: Path) -> None:
    """G-89, F-75: a late upload; the next run deletes the folder again."""
    begin_reset(made)
    folder = tmp_path / "zone" / "dbo.schema" / "orders"
    folder.mkdir(parents=True)
    (folder / "late.parquet").touch()
    with pytest.raises(TerminalError, match=r"COMMAND_REFUSED.*has files again"):
        ResetDriver(made.mirror, made.ledger, ORDERS).say("gone", Reason("Eve", "looked"), "1")
    assert _stage(made) is ResetStage.FOLDER_DELETED


@pytest.fixture
def published(mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandPublished:
    """Three files in a local zone, the second without rows, of a mirror that ``dags/`` reads."""
    made = HandPublished(tmp_path)
    monkeypatch.setenv("OPEN_MIRRORING_MIRRORS", str(made.file.parent))
    monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    for keys in ([1], [], [3]):
        made.publish(orders=keys)
    return made


def test_a_lost_number_is_published_again_by_a_run_that_somebody_approved_f_40(
    published: HandPublished, approved: None
) -> None:
    """F-40, F-41, G-30: the real job, without a JVM; in the approver's name, and once however often it is cleared."""
    published.path(2).unlink()
    assert published.codes()[ORDERS] == "FILE_MISSING"
    run = _run("repair", number=2, **ASKED)
    assert (run.state, _tasks(run)) == ("success", {"approve": "success", "repair": "success", "reconcile": "success"})
    assert published.codes()[ORDERS] == "OK"
    event, detail = published.audit()[0]
    assert (event, detail["who"], detail["why"]) == ("REPAIR_REQUESTED", "Ada", ASKED["reason"])
    with published.ledger.connect() as db:
        request = db.scalar(sa.select(t.decision_request.c.request))
    assert request == f"shop__repair/{run.run_id}/approve"
    # One with rows is refused while nobody says how it is known that the target has not applied it.
    published.path(3).unlink()
    assert _run("repair", number=3, **ASKED).state == "failed"
    assert published.codes()[ORDERS] == "FILE_MISSING"


def test_how_it_is_known_reaches_the_repair(
    published: HandPublished, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = DagBag(dag_folder=_dags()).dags["shop__repair"].get_task("repair")
    task_context["params"] = {**ASKED, "number": 3, "not_applied": "no row of it is there"}
    task_context["ti"].xcoms["approve"] = {"responded_by_user": {"name": "Ada"}}
    arguments = operator.job_arguments(published.mirror, task_context)
    assert {"--not-applied=no row of it is there", "--number=3"} <= set(arguments)
    task_context["ti"].xcoms.clear()
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        operator.job_arguments(published.mirror, task_context)
