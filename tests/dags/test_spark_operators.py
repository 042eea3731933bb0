"""How a job is started and how its end is understood; its Python is a stand-in that records its call."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest
import sqlalchemy as sa
from airflow.sdk.exceptions import AirflowSkipException
from cryptography.fernet import Fernet

from open_mirroring.config import load_mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.ledger import open_ledger, tables
from open_mirroring_airflow import spark_installation
from open_mirroring_airflow.job_operator import OpenMirroringSparkOperator
from open_mirroring_airflow.operators import ExtractOperator, PublishingOperator
from tests.postgres import PostgresServer

pytestmark = pytest.mark.airflow

ROOT = Path(__file__).resolve().parents[2]
CANARY = "canary-7f3a9"
LEDGER = {
    "conn_type": "postgres",
    "host": "db.invalid",
    "port": 5432,
    "login": "writer",
    "password": CANARY,
    "schema": "ledger",
    "extra": {"sslmode": "require"},
}
LEDGER_BY_NAME = """
mirror: shop
source: {format: sqlserver-ces, transport: capture, path: capture}
landing_zone: {store: local, path: zone}
ledger: {connection: shop_ledger}
change_log: log
tables: [{source: dbo.orders, target: dbo/orders, key: [order_id]}]
"""


def _operator(file: Path, kind: type = OpenMirroringSparkOperator, job: str = "extract_changes", **more: Any) -> Any:
    return kind(task_id="task", mirror="shop", mirror_file=str(file), job=job, **more)


@pytest.fixture
def mirror_file(write_mirror: Callable[..., Path]) -> Path:
    return write_mirror()


def _option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_a_job_is_submitted_with_name_program_mirror_file_jars_and_quiet_logging(
    mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    """AF-02, AF-16: jars from their folder, never resolved at run time; a name that says what runs."""
    _operator(mirror_file).execute(task_context)
    [call] = fake_spark.calls
    argv, environment = call["argv"], call["environment"]
    assert argv[-2:] == [str(ROOT / "spark_jobs" / "extract_changes.py"), str(mirror_file)]
    assert _option(argv, "--name") == "shop extract_changes"
    assert _option(argv, "--master") == "local[2]"
    jars = sorted(str(jar) for jar in (ROOT / "jars").glob("*.jar"))
    assert (_option(argv, "--driver-class-path").split(":") if jars else []) == jars
    assert "--packages" not in argv and "--jars" not in argv
    assert any("log4j2.configurationFile=file://" in word for word in argv)
    assert environment["PYSPARK_PYTHON"] == sys.executable
    assert environment["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)


def test_cores_and_memory_of_the_mirror_file_are_used(
    write_mirror: Callable[..., Path], fake_spark: Any, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_mirror(
        LEDGER_BY_NAME.replace("{connection: shop_ledger}", "sqlite:///l.db") + "spark: {cores: 3, memory: 2g}"
    )
    _operator(file).execute(task_context)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "spark://master", "port": 7077}')
    _operator(file).execute(task_context)
    local, cluster = (call["argv"] for call in fake_spark.calls)
    assert (_option(local, "--master"), "--total-executor-cores" in local) == ("local[3]", False)
    assert (_option(cluster, "--master"), _option(cluster, "--total-executor-cores")) == ("spark://master:7077", "3")
    for argv in (local, cluster):
        assert _option(argv, "--driver-memory") == _option(argv, "--executor-memory") == "2g"


def test_secrets_are_in_the_environment_of_the_submitting_process_and_nowhere_else(
    write_mirror: Callable[..., Path],
    fake_spark: Any,
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_LEDGER", json.dumps(LEDGER))
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", '{"conn_type": "http", "password": "of-somebody-else"}')
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD", "of-airflow")
    before = dict(os.environ)
    operator = _operator(write_mirror(LEDGER_BY_NAME))
    operator.execute(task_context)
    assert dict(os.environ) == before
    [call] = fake_spark.calls
    assert json.loads(call["environment"].pop("AIRFLOW_CONN_SHOP_LEDGER")) == LEDGER | {
        "extra": json.dumps(LEDGER["extra"])
    }
    # What the mirror does not name, a job does not get.
    assert not [name for name in call["environment"] if name.startswith(("AIRFLOW_CONN_", "AIRFLOW__"))]
    rendered = {name: getattr(operator, name) for name in operator.template_fields}
    output = capfd.readouterr()
    for place in (json.dumps(call), json.dumps(rendered), caplog.text, output.out, output.err):
        assert CANARY not in place


def test_a_job_reads_the_connection_that_it_was_given(
    write_mirror: Callable[..., Path], fake_spark: Any, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The core resolves the name from exactly this variable to the same ledger that Airflow's tasks use."""
    from open_mirroring_airflow.connections import ledger_url

    file = write_mirror(LEDGER_BY_NAME)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_LEDGER", json.dumps(LEDGER))
    _operator(file).execute(task_context)
    for_tasks = ledger_url(load_mirror(file))
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_LEDGER", fake_spark.calls[0]["environment"]["AIRFLOW_CONN_SHOP_LEDGER"])
    assert load_mirror(file).ledger_url() == for_tasks
    assert CANARY in for_tasks and "sslmode=require" in for_tasks


def test_an_unknown_spark_connection_is_our_error_and_not_yarn(
    mirror_file: Path, fake_spark: Any, task_context: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """AF-09."""
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT")
    with pytest.raises(TerminalError, match=r"CONNECTION_INVALID.*'spark_default'") as caught:
        _operator(mirror_file).execute(task_context)
    assert "AIRFLOW_CONN_SPARK_DEFAULT" in caught.value.next_step
    assert fake_spark.calls == []


def test_an_unknown_connection_of_the_mirror_stops_before_anything_runs(
    write_mirror: Callable[..., Path], fake_spark: Any, task_context: dict[str, Any]
) -> None:
    with pytest.raises(TerminalError, match=r"CONNECTION_INVALID.*'shop_ledger'"):
        _operator(write_mirror(LEDGER_BY_NAME)).execute(task_context)
    assert fake_spark.calls == []


@pytest.mark.parametrize(
    ("master", "extra", "said"),
    [
        ("spark://master", {}, "INSTALLATION_INCOMPLETE.*no driver of a Python program"),
        ("yarn", {}, "INSTALLATION_INCOMPLETE.*no way to a ledger in a file"),
    ],
)
def test_a_driver_on_a_cluster_that_cannot_do_it_is_refused(
    mirror_file: Path,
    fake_spark: Any,
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    master: str,
    extra: dict[str, str],
    said: str,
) -> None:
    """S-16."""
    _on_a_cluster(monkeypatch, master, extra)
    with pytest.raises(TerminalError, match=said):
        _operator(mirror_file).execute(task_context)
    assert fake_spark.calls == []


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ({}, "INSTALLATION_INCOMPLETE"),
        ({"job-key": "job_key"}, "INSTALLATION_INCOMPLETE"),
        ({"job-key": "nobody", "job-key-file": "/key"}, "CONNECTION_INVALID.*'nobody'"),
        ({"job-key": "job_key", "job-key-file": "/key"}, "INSTALLATION_INCOMPLETE"),
    ],
)
def test_without_a_key_nothing_is_sealed_job(
    write_mirror: Callable[..., Path],
    fake_spark: Any,
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    extra: dict[str, str],
    said: str,
) -> None:
    """S-16."""
    _on_a_cluster(monkeypatch, "yarn", extra)
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_LEDGER", json.dumps(LEDGER))
    monkeypatch.setenv("AIRFLOW_CONN_JOB_KEY", json.dumps({"conn_type": "generic", "password": "short"}))
    with pytest.raises(TerminalError, match=said):
        _operator(write_mirror(LEDGER_BY_NAME)).execute(task_context)
    assert fake_spark.calls == []


def _on_a_cluster(monkeypatch: pytest.MonkeyPatch, master: str, extra: dict[str, str]) -> None:
    spark = {"conn_type": "spark", "host": master, "extra": {"deploy-mode": "cluster", **extra}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))


@pytest.mark.parametrize(("exit_code", "clusters_own"), [(None, 0), (0, 0), (0, 1), (3, 0)])
def test_a_driver_on_the_cluster_is_handed_sealed_text_and_its_end_is_read_from_the_ledger(
    write_mirror: Callable[..., Path],
    fake_spark: Any,
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    postgres: PostgresServer,
    exit_code: int | None,
    clusters_own: int,
) -> None:
    """S-16: what the cluster says counts for nothing: a job that left no end has died, and is tried again."""
    key, key_file = Fernet.generate_key().decode(), tmp_path / "key"
    extra = {"job-key": "job_key", "job-key-file": str(key_file)}
    _on_a_cluster(monkeypatch, "yarn", extra)
    monkeypatch.setenv("AIRFLOW_CONN_JOB_KEY", json.dumps({"conn_type": "generic", "password": key}))
    ledger = {"conn_type": "postgres", "host": "127.0.0.1", "port": postgres.port, "login": postgres.user}
    ledger |= {"password": postgres.password, "schema": postgres.database}
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_LEDGER", json.dumps(ledger))
    submit = fake_spark.home / "bin" / "spark-submit"
    runs = f'echo "$@" > {tmp_path}/argv; env > {tmp_path}/env; exec {sys.executable} {tmp_path}/job.py "$@"'
    submit.write_text(f"#!/bin/sh\n{runs}\n")
    key_file.write_text(f"{key}\n")
    file = write_mirror(LEDGER_BY_NAME)
    report = {"report": {"job": "extract_changes", "stopped": {"dbo.a": "FILE_MISSING"}}}
    (tmp_path / "job.py").write_text(
        dedent(
            f"""\
            import os, sys
            from pathlib import Path
            from open_mirroring.config import load_mirror
            from open_mirroring.ledger import open_ledger
            from open_mirroring.operate.sealed_job import opened
            from open_mirroring.operate.job_result import record_end
            order = opened(sys.argv[-1], Path(sys.argv[-2]))
            result = Path({str(tmp_path)!r}) / "result.json"
            result.write_text({json.dumps(report)!r})
            print(order.job, order.mirror, order.arguments, sorted(order.connections))
            os.environ.update(order.connections)
            if {exit_code!r} is not None:
                ledger = load_mirror(Path({str(file)!r})).ledger_url()
                record_end(open_ledger(ledger), order.run, "shop", {exit_code!r}, result)
            sys.exit({clusters_own})
            """
        )
    )
    operator = _operator(file)
    if exit_code is None:
        with pytest.raises(TransientError, match="JOB_FAILED: the job ended without saying why"):
            operator.execute(task_context)
    elif exit_code:
        with pytest.raises(TerminalError, match=r"TABLES_STOPPED.*dbo\.a: FILE_MISSING"):
            operator.execute(task_context)
    else:
        assert operator.execute(task_context)["job"] == "extract_changes"
    said = "".join(capfd.readouterr())
    assert "extract_changes shop.yaml [] ['AIRFLOW_CONN_SHOP_LEDGER']" in said
    sent = (tmp_path / "argv").read_text()
    assert "--deploy-mode cluster" in sent and sent.split()[-3].endswith("spark_jobs/sealed_job.py")
    for text in (said, sent, (tmp_path / "env").read_text()):
        assert postgres.password not in text and key not in text
    assert "(the sealed job)" in said and sent.split()[-1] not in said


def test_a_server_of_spark_connect_is_joined_and_its_token_is_shown_nowhere(
    mirror_file: Path,
    fake_spark: Any,
    task_context: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """S-15: no option of spark-submit goes with it; another server in Airflow's own environment is not meant."""
    extra = {"use_ssl": True, "x-databricks-cluster-id": "0123-abc"}
    connect = {"conn_type": "spark_connect", "host": "server", "port": 443, "password": CANARY, "extra": extra}
    monkeypatch.setenv("SPARK_REMOTE", "sc://another")
    _operator(mirror_file).execute(task_context)
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connect))
    _operator(mirror_file).execute(task_context)
    submitted, joined = (call["environment"] for call in fake_spark.calls)
    assert "SPARK_REMOTE" not in submitted
    address = f"sc://server:443/;token={CANARY};use_ssl=True;x-databricks-cluster-id=0123-abc"
    assert joined["SPARK_REMOTE"] == address and "PYSPARK_SUBMIT_ARGS" not in joined
    said = "".join(capfd.readouterr())
    assert "sc://server:443" in said and CANARY not in said


def test_spark_is_that_of_the_installed_pyspark_unless_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", os.defpath)
    environment = spark_installation.job_environment({})
    assert (Path(environment["SPARK_HOME"]) / "bin" / "spark-submit").is_file()
    assert environment["PATH"].startswith(environment["SPARK_HOME"])
    monkeypatch.setenv("SPARK_HOME", "elsewhere")
    monkeypatch.setenv("PYSPARK_PYTHON", "another-python")
    with pytest.raises(TerminalError, match="INSTALLATION_INCOMPLETE"):
        spark_installation.job_environment({})


def test_flags_for_the_jvm_come_only_from_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    assert "SPARK_SUBMIT_OPTS" not in spark_installation.job_environment({})
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:+UseSerialGC")
    assert spark_installation.job_environment({})["SPARK_SUBMIT_OPTS"] == "-XX:+UseSerialGC"


REPORT = {"job": "extract_changes", "mirror": "shop", "batch": 7, "counts": {"messages": 3}}
ERROR = "2026-01-05 09:00:00,000 ERROR spark_jobs.runtime.job: "


def test_the_report_of_a_job_is_what_its_task_returns(
    mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    said = REPORT | {"findings": [{"code": "FILE_MISSING"}]}
    fake_spark.answers(output='26/01/05 WARN x\n{"job": "of another library"}', left={"report": said})
    assert _operator(mirror_file).execute(task_context) == REPORT


@pytest.mark.parametrize(
    ("exit_code", "output", "kind", "code"),
    [
        (1, ERROR + "COUNTS_DIFFER: 3 messages were read, 2 have a disposition", TerminalError, "COUNTS_DIFFER"),
        (4, ERROR + "UNREACHABLE: the ledger does not answer", TransientError, "UNREACHABLE"),
        (2, ERROR + "CONFIG_INVALID: 1 mistake found:", TerminalError, "CONFIG_INVALID"),
        (2, "usage: extract_changes [-h] mirror", TerminalError, "INSTALLATION_INCOMPLETE"),
        (3, json.dumps(REPORT | {"stopped": {"dbo.orders": "FILE_MISSING: x"}}), TerminalError, "TABLES_STOPPED"),
        # Not said by the job itself: spark-submit could not start it, or an accident: worth another attempt.
        (1, "Traceback (most recent call last):\nMemoryError", TransientError, "JOB_FAILED"),
        (4, "", TransientError, "JOB_FAILED"),
        (137, "", TransientError, "JOB_FAILED"),
    ],
)
def test_exit_codes_become_terminal_or_transient_errors(
    mirror_file: Path,
    fake_spark: Any,
    task_context: dict[str, Any],
    exit_code: int,
    output: str,
    kind: type[TerminalError | TransientError],
    code: str,
) -> None:
    fake_spark.answers(exit_code, output)
    with pytest.raises(kind) as caught:
        _operator(mirror_file).execute(task_context)
    assert caught.value.code == code
    if code == "TABLES_STOPPED":
        assert "dbo.orders: FILE_MISSING: x" in caught.value.what


def test_a_job_on_hold_is_skipped(mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]) -> None:
    fake_spark.answers(5)
    with pytest.raises(AirflowSkipException, match="HOLD"):
        _operator(mirror_file).execute(task_context)


NINE, TEN = datetime(2026, 1, 5, 9, tzinfo=UTC), datetime(2026, 1, 5, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    ("run_type", "reread", "arguments"),
    [
        ("scheduled", False, []),
        ("manual", False, []),
        ("backfill", False, ["--from", "2026-01-05T09:00:00+00:00", "--to", "2026-01-05T10:00:00+00:00"]),
        ("backfill", True, ["--from", "2026-01-05T09:00:00+00:00", "--to", "2026-01-05T10:00:00+00:00", "--reread"]),
        ("manual", True, ["--from", "2026-01-05T09:00:00+00:00", "--to", "2026-01-05T10:00:00+00:00", "--reread"]),
    ],
)
def test_only_a_backfill_reads_its_interval_first(
    run_type: str, reread: bool, arguments: list[str], mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    """AF-05: of any other run the ledger alone decides what is read."""
    task_context["params"]["reread"] = reread
    task_context["dag_run"] = SimpleNamespace(run_type=run_type, data_interval_start=NINE, data_interval_end=TEN)
    _operator(mirror_file, ExtractOperator).execute(task_context)
    argv = fake_spark.calls[-1]["argv"]
    assert argv[argv.index(str(mirror_file)) + 1 :] == ["--publish", *arguments]


@pytest.mark.parametrize("interval", [(None, None), (TEN, TEN)])
def test_a_run_that_is_to_read_again_without_an_interval_is_refused(
    interval: tuple[Any, Any], mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    """AF-05: a run started by hand has no interval unless it was given a date."""
    task_context["params"]["reread"] = True
    start, end = interval
    task_context["dag_run"] = SimpleNamespace(run_type="manual", data_interval_start=start, data_interval_end=end)
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        _operator(mirror_file, ExtractOperator).execute(task_context)
    assert fake_spark.calls == []


def _publish(file: Path, gate: str | None = "gate") -> Any:
    return _operator(file, PublishingOperator, "publish_changes", gate_task_id=gate)


def _answer(*passing: str, **held: str) -> dict[str, Any]:
    return {"passing": list(passing), "held": held, "stopped": {}, "note": "HOLD: it waits" if held else ""}


def test_publish_takes_the_tables_that_pass(mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]) -> None:
    task_context["ti"].xcoms["gate"] = _answer("dbo.orders")
    _publish(mirror_file).execute(task_context)
    task_context["ti"].xcoms["gate"] = _answer("dbo.orders", "dbo.customers")
    _publish(mirror_file).execute(task_context)
    some, all_of_them = (call["argv"] for call in fake_spark.calls)
    assert some[-1] == "--tables=dbo.orders"
    assert all_of_them[-1] == str(mirror_file)


@pytest.mark.parametrize("answer", [_answer(held="BACKLOG: 9 files"), _answer(), None])
def test_publish_is_skipped_when_nothing_is_known_to_pass(
    mirror_file: Path, fake_spark: Any, task_context: dict[str, Any], answer: dict[str, Any] | None
) -> None:
    task_context["ti"].xcoms["gate"] = answer
    with pytest.raises(AirflowSkipException, match="HOLD" if answer and answer["held"] else None):
        _publish(mirror_file).execute(task_context)
    assert fake_spark.calls == []


def test_a_table_that_is_mirrored_no_more_is_not_put_on_a_command_line(
    mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    task_context["ti"].xcoms["gate"] = _answer("dbo.orders", "--conf")
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        _publish(mirror_file).execute(task_context)
    task_context["params"]["tables"] = ["; rm -r"]
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        _publish(mirror_file, gate=None).execute(task_context)
    assert fake_spark.calls == []


def test_nothing_is_published_for_a_mirror_that_is_stopped_as_a_complete(
    mirror_file: Path, fake_spark: Any, task_context: dict[str, Any]
) -> None:
    mirror = load_mirror(mirror_file)
    with open_ledger(mirror.ledger_url()).begin() as db:
        stopped = {"name": "shop", "stop_code": "LOG_BEHIND", "stop_what": "another log", "unnamed_rejects": 0}
        db.execute(sa.insert(tables.mirror).values(version=1, committed=3, **stopped))
    task_context["ti"].xcoms["gate"] = _answer("dbo.orders")
    for gate in ("gate", None):
        with pytest.raises(TerminalError, match="LOG_BEHIND"):
            _publish(mirror_file, gate).execute(task_context)
    assert fake_spark.calls == []


def test_a_stopped_table_does_not_fail_publishing_the_others(
    mirror_file: Path, fake_spark: Any, task_context: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    report = {"job": "publish_changes", "files": {"dbo.customers": [1]}, "stopped": {"dbo.orders": "FILE_MISSING: x"}}
    fake_spark.answers(3, json.dumps(report))
    task_context["ti"].xcoms["gate"] = _answer("dbo.orders", "dbo.customers")
    assert _publish(mirror_file).execute(task_context) == report


def test_the_installed_spark_by_another_path_is_not_read_out_of_its_archives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AF: an image names the installed pyspark by a link; its archive hides the installed one and is compiled anew."""
    installed = Path(importlib.util.find_spec("pyspark").submodule_search_locations[0])  # type: ignore[union-attr,index]
    (tmp_path / "spark").symlink_to(installed)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert ".zip" not in spark_installation.job_environment({})["PYTHONPATH"]
