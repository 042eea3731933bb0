"""What an operator reads in a task's log: at its end a few lines of ours, and below a failure its way out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag

from open_mirroring.errors import TerminalError
from open_mirroring_airflow.operators import DeepCheckOperator, PublishingOperator
from tests.hand_made_mirror import HandMadeMirror

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]


def _operator(kind: Any, made: HandMadeMirror, job: str) -> Any:
    return kind(task_id="x", mirror="shop", mirror_file=str(made.file), job=job)


def _logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """The messages of the log, as Airflow writes it in a test."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert "alembic" not in plain, "another library's chatter"
    return re.findall(r"^\S+ \[(?:info|warning|error) *\] (.*?) *\[\S+\](?: \S+=.*)?$", plain, re.MULTILINE)


def test_a_task_ends_with_what_its_job_did(
    made: HandMadeMirror, fake_spark: Any, task_context: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    report = {
        "job": "publish_changes",
        "files": {"dbo.orders": [3, 4]},
        "stopped": {"dbo.customers": "FILE_MISSING: 2"},
    }
    fake_spark.answers(3, "WARN SomeLibrary: chatter " + "x" * 300, left={"report": report})
    _operator(PublishingOperator, made, "publish_changes").execute(task_context)
    first, second, last = _logged(capsys)[-3:]
    assert first == "Published: 2 files of 1 table." and second == "  dbo.orders: numbers 3 to 4"
    assert last.startswith("STOPPED: dbo.customers: FILE_MISSING: 2. Next step: ")


def test_a_failing_task_says_first_what_its_job_did_and_drags_no_other_error_along(
    made: HandMadeMirror, fake_spark: Any, task_context: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """The provider's error repeats the log of the job: it would stand between ours and who looks for the way out."""
    finding = ["dbo.orders", "CONTENT_CHANGED", "number 2 has other rows", {"count": 1}]
    verdicts = {"dbo.orders": "STOP", "dbo.customers": "PASS"}
    stopped = {"dbo.orders": "CONTENT_CHANGED: number 2 has other rows"}
    report = {"verdicts": verdicts, "findings": [finding], "stopped": stopped}
    fake_spark.answers(3, left={"report": report})
    with pytest.raises(TerminalError, match=r"TABLES_STOPPED.*Next step") as failed:
        _operator(DeepCheckOperator, made, "reconcile_sequence").execute(task_context)
    assert failed.value.__cause__ is None and failed.value.__context__ is None
    *said, stop = _logged(capsys)[-3:]
    assert said == ["Checked: 2 tables: 1 stopped, 1 mirrored.", "dbo.orders: CONTENT_CHANGED: number 2 has other rows"]
    assert stop.startswith("STOPPED: dbo.orders: CONTENT_CHANGED")


def test_below_a_failure_stands_its_next_step(
    made: HandMadeMirror, fake_spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Airflow writes it, in a run: below the traceback, and outside of what Airflow folds."""
    fake_spark.answers(1, left={"error": ["LOG_DAMAGED", "somebody upgraded it. Next step: take the newer version"]})
    run = DagBag(dag_folder=ROOT / "dags").dags["shop__maintain"].test()
    assert run.state == "failed"
    text = "".join(capsys.readouterr())
    below = text[text.rindex("Traceback (most recent call last)") :]
    assert below.count("Traceback") == 1 and "Cannot execute" not in text
    assert below.index("LOG_DAMAGED") < below.index("::endgroup::") < (said := below.index("Mirror shop: failed"))
    assert below.index("Next step: take the newer version", said) > said


def test_a_run_ends_with_the_verdicts_in_words(
    made: HandMadeMirror, task_context: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    made.stop("dbo.orders", "PARTIAL_ROWS", "2 of 3 columns")
    reconcile = DagBag(dag_folder=ROOT / "dags").dags["shop__replicate"].get_task("reconcile")
    task_context["ti"].states = {}
    with pytest.raises(TerminalError, match="TABLES_STOPPED"):
        reconcile.execute(task_context)
    first, last = _logged(capsys)[-2:]
    assert first == "2 tables: 1 stopped, 1 mirrored."
    assert last.startswith("STOPPED: dbo.orders: PARTIAL_ROWS: 2 of 3 columns. Next step: ")
    assert "{" not in first + last
