"""A mirror's jobs run in Fabric's own Spark by Livy: a stand-in of the API, which really runs them (S-16)."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.dag_processing.dagbag import DagBag
from cryptography.fernet import Fernet

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring_airflow.job_operator import OpenMirroringSparkOperator
from tests.e2e.test_histories import TABLES, assert_mirrored, history, slices
from tests.livy import SECRET, TOKEN, LivyStub, running_livy
from tests.pipeline import Pipeline
from tests.postgres import PostgresServer
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

pytestmark = [pytest.mark.airflow, pytest.mark.postgres]

ROOT = Path(__file__).resolve().parents[2]
KEY = Fernet.generate_key().decode()
_RECORDS_ITS_END = """
import json, os
from pathlib import Path
from open_mirroring.config import load_mirror
from open_mirroring.ledger import open_ledger
from open_mirroring.operate.job_result import record_end
from open_mirroring.operate.sealed_job import opened
order = opened(argv[1], argv[0])
os.environ.update(order.connections, OPEN_MIRRORING_HOME=order.home)
here = Path(__file__).parent
(here / "shop.yaml").write_text(order.text)
(here / "result.json").write_text(json.dumps({"report": {"job": order.job}}))
record_end(open_ledger(load_mirror(here / "shop.yaml").ledger_url()), order.run, "shop", 0, here / "result.json")
"""
_RUNS_LONG = "open(__file__ + '.began', 'w').close()\ntime.sleep(300)"


@pytest.fixture
def livy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LivyStub]:
    monkeypatch.setattr("open_mirroring_airflow.submission.livy_hook._POLL_SECONDS", 0.1)
    monkeypatch.setenv("AIRFLOW_CONN_JOB_KEY", json.dumps({"conn_type": "generic", "password": KEY}))
    with running_livy(tmp_path / "fabric", KEY) as stub:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", stub.connection())
        yield stub


@pytest.fixture
def shop(
    tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch, mirrors: Path, livy: LivyStub
) -> Pipeline:
    """A mirror with its ledger in PostgreSQL, whose DAGs are those that are found."""
    database = f"book_{secrets.token_hex(4)}"
    postgres.execute(f"CREATE DATABASE {database}")
    book = {"conn_type": "postgres", "host": "127.0.0.1", "port": postgres.port, "schema": database}
    book |= {"login": postgres.user, "password": postgres.password}
    monkeypatch.setenv("AIRFLOW_CONN_BOOK", json.dumps(book))
    pipeline = Pipeline(tmp_path / "mirror", None, TABLES, mirror="shop", ledger={"connection": "book"})  # type: ignore[arg-type]
    monkeypatch.setenv("OPEN_MIRRORING_MIRRORS", str(pipeline.file.parent))
    monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
    return pipeline


@pytest.fixture
def task(shop: Pipeline) -> Callable[..., OpenMirroringSparkOperator]:
    def made(job: str = "extract_changes") -> OpenMirroringSparkOperator:
        return OpenMirroringSparkOperator(task_id="task", mirror="shop", mirror_file=str(shop.file), job=job)

    return made


def _runs(mode: str, livy: LivyStub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", livy.connection(mode))


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("mode", ["batch", "session"])
def test_a_mirror_runs_in_fabrics_spark(
    shop: Pipeline, livy: LivyStub, monkeypatch: pytest.MonkeyPatch, capfd: Any, postgres: PostgresServer, mode: str
) -> None:
    """S-16: each job is a batch, or all runs share one session; no secret is in a call, a log or a submission."""
    _runs(mode, livy, monkeypatch)
    livy.start_spark()
    made = history(seed=33, transactions=30)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700), Delivery(disorder=20, duplicates=0.05, seed=33))
    said = ""
    for at, part in enumerate(slices(messages, 2)):
        shop.deliver(f"{at}.jsonl", json_lines(part, layout="wrapped"))
        run = DagBag(dag_folder=ROOT / "dags").dags["shop__replicate"].test()
        said += "".join(capfd.readouterr())
        states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
        assert states == dict.fromkeys(("extract", "gate", "publish", "reconcile"), "success"), said + livy.logs()
        shop.service.poll()
    assert_mirrored(shop, made)
    if mode == "batch":
        assert (len(livy.batches), len(livy.sessions)) == (4, 0)
    else:
        [session] = livy.sessions.values()
        assert not livy.batches and [one["state"] for one in session.statements] == ["available"] * 4
    for secret in (KEY, SECRET, TOKEN, postgres.password):
        assert secret not in said + livy.logs() + "".join(livy.bodies)


@pytest.mark.spark
@pytest.mark.long
def test_batches_of_two_tries_side_by_side_end_as_one(
    shop: Pipeline, livy: LivyStub, task: Callable[..., Any], task_context: dict[str, Any]
) -> None:
    """The first try's answer is lost, and so is the search for its batch: the ledger lets one of the two write."""
    livy.start_spark()
    made = history(seed=5, transactions=30)
    shop.deliver("0.jsonl", json_lines(render(made.changes, CesOptions(), Delivery(seed=5)), layout="wrapped"))
    livy.faults = {"POST /batches": ["lost"], "GET /batches": [503] * 12}
    with pytest.raises(TransientError, match="UNREACHABLE"):
        task().execute(task_context)
    livy.faults.clear()
    [first] = livy.batches.values()
    assert first.process.poll() is None, "it runs on"
    task().execute(task_context)
    assert len(livy.batches) == 2
    for batch in livy.batches.values():
        assert batch.process.wait(120) == 0, livy.logs()
    task("publish_changes").execute(task_context)
    shop.service.poll()
    assert_mirrored(shop, made)


def test_the_jobs_own_end_counts_and_its_report_is_the_tasks(
    livy: LivyStub, task: Callable[..., Any], task_context: dict[str, Any]
) -> None:
    """S-16: also where Livy says that the batch failed."""
    livy.replace_job(f"{_RECORDS_ITS_END}\nsys.exit(3)")
    assert task().execute(task_context) == {"job": "extract_changes"}


@pytest.mark.parametrize("mode", ["batch", "session"])
@pytest.mark.parametrize("job", ["sys.exit(1)", "raise ValueError('no')", "import os; os._exit(9)"])
def test_a_job_without_an_end_has_died_and_is_tried_again(
    livy: LivyStub,
    task: Callable[..., Any],
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    job: str,
) -> None:
    _runs(mode, livy, monkeypatch)
    livy.replace_job(job)
    with pytest.raises(TransientError, match="JOB_FAILED: the job ended without saying why"):
        task().execute(task_context)


def test_another_session_is_started_where_the_last_one_died(
    livy: LivyStub, task: Callable[..., Any], task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _runs("session", livy, monkeypatch)
    livy.replace_job("import os; os._exit(9)")
    with pytest.raises(TransientError, match="JOB_FAILED"):
        task().execute(task_context)
    livy.replace_job(_RECORDS_ITS_END)
    for _ in range(2):
        assert task().execute(task_context) == {"job": "extract_changes"}
    assert [len(one.statements) for one in livy.sessions.values()] == [1, 2]


@pytest.mark.parametrize(
    ("mode", "lost"),
    [("batch", "/batches"), ("session", "/sessions"), ("session", "/sessions/ID/statements")],
)
def test_what_began_without_an_answer_is_found_and_not_begun_again(
    livy: LivyStub,
    task: Callable[..., Any],
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    lost: str,
) -> None:
    """Also on a later page of what is listed; what never began fails the try, and nothing runs."""
    _runs(mode, livy, monkeypatch)
    livy.replace_job(_RECORDS_ITS_END)
    for _ in range(3):
        assert task().execute(task_context) == {"job": "extract_changes"}
    began = len(livy.batches), sum(len(one.statements) for one in livy.sessions.values())
    for session in livy.sessions.values():
        if lost == "/sessions":
            session.end()
    livy.faults = {f"POST {lost}": ["lost", "never"]}
    assert task().execute(task_context) == {"job": "extract_changes"}
    assert (len(livy.batches), sum(len(one.statements) for one in livy.sessions.values())) == (
        began[0] + (mode == "batch"),
        began[1] + (mode == "session"),
    )
    for session in livy.sessions.values():
        if lost == "/sessions":
            session.end()
    with pytest.raises(TransientError, match="UNREACHABLE"):
        task().execute(task_context)


def test_a_job_outlives_an_interruption_of_the_api(
    livy: LivyStub, task: Callable[..., Any], task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    livy.replace_job(f"time.sleep(2)\n{_RECORDS_ITS_END}")
    livy.faults = {"GET /batches/ID": ["never", 503, 500] * 3}
    assert task().execute(task_context) == {"job": "extract_changes"}
    assert len(livy.batches) == 1
    monkeypatch.setattr("open_mirroring_airflow.submission.livy_hook._PATIENCE_SECONDS", 0)
    livy.replace_job(_RUNS_LONG)
    livy.faults = {"GET /batches/ID": ["never"] * 50}
    with pytest.raises(TransientError, match="UNREACHABLE"):
        task().execute(task_context)
    assert [*livy.batches.values()][-1].is_cancelled


@pytest.mark.parametrize("mode", ["batch", "session"])
def test_a_killed_task_cancels_its_job(
    livy: LivyStub,
    task: Callable[..., Any],
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
) -> None:
    """The session stays: other jobs may run in it."""
    _runs(mode, livy, monkeypatch)
    livy.replace_job(_RUNS_LONG)
    killed = task()

    def kill() -> None:
        _wait_until((livy.library / "spark_jobs/sealed_job.py.began").exists)
        killed.on_kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(TransientError, match="JOB_FAILED: Airflow ended the job"):
        killed.execute(task_context)
    thread.join()
    if mode == "batch":
        [batch] = livy.batches.values()
        assert batch.is_cancelled and batch.process.poll() is not None
    else:
        [session] = livy.sessions.values()
        _wait_until(lambda: session.statements[0]["state"] == "cancelled")
        assert session.process.poll() is None


def test_a_batch_that_begins_after_its_task_was_killed_is_cancelled(
    livy: LivyStub, task: Callable[..., Any], task_context: dict[str, Any]
) -> None:
    livy.replace_job(_RUNS_LONG)
    livy.faults = {"POST /batches": ["slow"]}
    killed = task()

    def kill() -> None:
        _wait_until(lambda: not livy.faults["POST /batches"])
        killed.on_kill()

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(TransientError, match="JOB_FAILED: Airflow ended the job"):
        killed.execute(task_context)
    thread.join()
    [batch] = livy.batches.values()
    assert batch.is_cancelled


def test_a_task_that_times_out_cancels_its_batch(
    shop: Pipeline, livy: LivyStub, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    livy.replace_job(_RUNS_LONG)
    dag = DagBag(dag_folder=ROOT / "dags").dags["shop__replicate"]
    for name in ("extract", "publish"):
        dag.get_task(name).execution_timeout = timedelta(seconds=5)
    run = dag.test()
    states = {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
    assert states["extract"] == states["publish"] == "failed"
    assert livy.batches and all(batch.is_cancelled for batch in livy.batches.values())


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (430, TransientError, "TARGET_BUSY"),
        (429, TransientError, "TARGET_BUSY"),
        (400, TerminalError, "SERVICE_REFUSED"),
    ],
)
def test_what_fabric_refuses_is_no_batch(
    livy: LivyStub, task: Callable[..., Any], task_context: dict[str, Any], status: int, error: type, said: str
) -> None:
    livy.faults = {"POST /batches": [status]}
    with pytest.raises(error, match=said):
        task().execute(task_context)
    assert not livy.batches


def test_a_ledger_in_a_file_is_refused(
    livy: LivyStub, write_mirror: Callable[..., Path], task_context: dict[str, Any]
) -> None:
    operator = OpenMirroringSparkOperator(
        task_id="task", mirror="shop", mirror_file=str(write_mirror()), job="extract_changes"
    )
    with pytest.raises(TerminalError, match=r"INSTALLATION_INCOMPLETE.*ledger in a file"):
        operator.execute(task_context)
    assert not livy.batches


def _wait_until(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.05)
