"""The parts of the demo: it calls nothing proved that is not, and leaves neither processes nor foreign files behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from demo.airflow_server import airflow_environment
from demo.broker import Broker
from demo.failures import DemoFailed
from demo.outcome import Logged, assess, late_across_batches
from demo.place import MIRROR, DemoFolder, claim, clean_environment
from demo.processes import Service, session_members
from demo.run import main
from demo.shop import TOPIC, MirroringService, last_applied
from demo.source_formats import CES, FORMATS, LATE_ACROSS_RUNS, SourceFormat
from demo.story import BROKER_CONNECTION
from open_mirroring.config import Mirror, load_mirror
from workload_generator.source import COUNTS
from workload_generator.tables import SHOP_TABLES

PROGRAM_WITH_ORPHAN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.{on_interrupt})
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("ready", flush=True)
time.sleep(600)
"""


def wait_for(condition: Callable[[], bool], limit: float = 300.0) -> None:
    give_up = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < give_up, "the condition did not come true"
        time.sleep(0.05)


# --- the folder ------------------------------------------------------------------------------------------------------


def test_a_folder_that_is_no_demos_is_never_removed(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(DemoFailed, match="no demo has put there"), claim(mine):
        pass
    assert (mine / "thesis.txt").read_text() == "years of work"


def test_a_second_demo_starts_in_an_empty_folder(tmp_path: Path) -> None:
    with claim(tmp_path / "demo") as first:
        (first.landing_zone / "left.parquet").touch()
    with claim(tmp_path / "demo") as second:
        assert second.root == first.root
        assert list(second.landing_zone.iterdir()) == []


def test_a_demo_beside_a_running_one_takes_the_next_folder(tmp_path: Path) -> None:
    with claim(tmp_path / "demo") as running:
        (running.capture / "events.avro").touch()
        with claim(tmp_path / "demo") as other:
            assert other.root == tmp_path / "demo-2"
        assert (running.capture / "events.avro").exists()


def mirror_of(place: DemoFolder, source_format: SourceFormat) -> Mirror:
    shutil.copy(source_format.mirror_file, place.mirrors / f"{MIRROR}.yaml")
    return load_mirror(place.mirrors / f"{MIRROR}.yaml")


@pytest.mark.parametrize("source_format", FORMATS.values(), ids=list(FORMATS))
def test_the_mirror_file_is_valid_and_mirrors_every_table_of_the_shop(
    tmp_path: Path, source_format: SourceFormat
) -> None:
    with claim(tmp_path / "demo") as place:
        mirror = mirror_of(place, source_format)
        assert mirror.name == MIRROR and mirror.home == place.root
        assert {table.source: list(table.key) for table in mirror.tables} == {
            table.full_name: list(table.key) for table in SHOP_TABLES
        }
        assert [table.initial_load is not None for table in mirror.tables] == [source_format.with_export] * 4
        assert (mirror.source.connection == BROKER_CONNECTION) == source_format.with_broker
        assert getattr(mirror.source, "topics", None) == ((TOPIC,) if source_format.with_broker else None)
        assert mirror.resolve(mirror.landing_zone.path) == place.landing_zone
        assert mirror.resolve(mirror.change_log) == place.change_log


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_interrupt", "patience"), [("default_int_handler", 30.0), ("SIG_IGN", 0.2)])
def test_stopping_a_service_ends_what_it_started_too(tmp_path: Path, on_interrupt: str, patience: float) -> None:
    """An orphan in its session, as a killed launcher leaves one, is ended; so is a program deaf to SIGINT."""
    program = PROGRAM_WITH_ORPHAN.format(on_interrupt=on_interrupt)
    log = tmp_path / "log"
    service = Service("it", [sys.executable, "-c", program], dict(os.environ), tmp_path, log)
    wait_for(lambda: "ready" in log.read_text())
    assert len(session_members(service.session)) == 2
    assert service.stop(patience) == []
    assert session_members(service.session) == []
    assert service.stop(patience) == []


def test_a_service_that_ends_by_itself_is_a_failure_that_shows_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    service = Service("it", [sys.executable, "-c", "print('no space'); raise SystemExit(3)"], {}, tmp_path, log)
    wait_for(lambda: not session_members(service.session))
    with pytest.raises(DemoFailed, match="exit code 3") as failure:
        service.check()
    assert failure.value.log is not None and "no space" in failure.value.log.read_text()
    service.stop()


@pytest.mark.kafka
def test_an_interrupted_demo_stops_everything(tmp_path: Path) -> None:
    """Ctrl-C while Airflow starts: exit code 130 and none of its processes left, even where callers ignore SIGINT."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "demo.run", "--source", "qlik-kafka", "--folder", str(tmp_path / "demo")],
        env=clean_environment(),
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if "watches the landing zone" in line:
                break
        started = psutil.Process(demo.pid).children(recursive=True)
        for program in ("standalone", "kafka.Kafka"):
            assert any(program in process.cmdline() for process in started), program
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=300)
    finally:
        demo.kill()
    assert demo.returncode == 130, output
    assert [process for process in started if process.is_running()] == []


INTERRUPTED_AT_ONCE = """
import os, signal, sys, threading, time
from demo import run


class Story:
    def __init__(self, *_, **__): ...

    def prove(self):
        both = {signal.SIGINT, signal.SIGTERM}
        signal.pthread_sigmask(signal.SIG_BLOCK, both)
        for number in both:
            signal.pthread_kill(threading.main_thread().ident, number)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
        time.sleep(60)

    def end(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        print("everything is stopped", flush=True)


run.Story = Story
sys.exit(run.main(["--folder", sys.argv[1]]))
"""


def test_a_second_signal_that_follows_at_once_leaves_nothing_running(tmp_path: Path) -> None:
    """As a terminal and a supervisor send them: SIGINT and SIGTERM in the same moment."""
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_AT_ONCE, str(tmp_path / "demo")],
        env=clean_environment(),
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 130, ended.stderr
    assert "everything is stopped" in ended.stdout and "Traceback" not in ended.stderr


# --- the broker ------------------------------------------------------------------------------------------------------


def test_a_broker_without_jars_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("demo.broker.JARS", tmp_path)
    with pytest.raises(DemoFailed, match="make jars-broker"):
        Broker(tmp_path)


# --- Airflow ---------------------------------------------------------------------------------------------------------


def test_airflow_knows_its_own_port_and_nothing_of_another_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", "/elsewhere")
    monkeypatch.setenv("AIRFLOW_CONN_SECRET", "other")
    monkeypatch.setenv("OPEN_MIRRORING_HOME", "/elsewhere")
    monkeypatch.setenv("NO_PROXY", "example.org")
    environment = airflow_environment(
        DemoFolder(tmp_path), port=12345, log_ports=[1, 2], passwords=tmp_path / "p", follows_schedules=False
    )
    assert environment["AIRFLOW__API__BASE_URL"] == "http://127.0.0.1:12345"
    assert environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"] == "http://127.0.0.1:12345/execution/"
    assert environment["AIRFLOW__API__HOST"] == "127.0.0.1"
    assert "elsewhere" not in json.dumps(environment)
    assert "AIRFLOW_CONN_SECRET" not in environment
    assert environment["NO_PROXY"] == "example.org,127.0.0.1,localhost"
    assert environment["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)


# --- the mirroring service -------------------------------------------------------------------------------------------


def test_files_wait_until_the_service_said_that_it_applied_them(tmp_path: Path) -> None:
    """Also in a folder whose last file stays there after it was applied (F-35)."""
    log = "watching\napplied dbo/orders 1 rows=3 version=1\napplied dbo/orders 2 rows=1 version=2\n"
    assert last_applied(log) == {"dbo.orders": 2}
    with claim(tmp_path / "demo") as place:
        service = MirroringService(place)
        try:
            assert service.pending(["dbo.orders"]) == {}
            folder = place.landing_zone / "dbo.schema" / "orders"
            folder.mkdir(parents=True)
            # Nothing describes this table yet, so it is not applied.
            (folder / f"{1:020d}.parquet").touch()
            assert service.pending(["dbo.orders"]) == {"dbo.orders": 1}
            with pytest.raises(DemoFailed, match="not applied"):
                service.wait_until_applied(["dbo.orders"], limit=0.1)
        finally:
            assert service.service.stop() == []


# --- the outcome -----------------------------------------------------------------------------------------------------

VERDICT = {
    "table": "dbo.orders",
    "source_rows": 9,
    "mirrored_rows": 9,
    "equal": True,
    "files": 4,
    "differences": [],
}


def report(source_format: SourceFormat, withheld: int = 0, **counts: int) -> dict[str, Any]:
    seen = {**dict.fromkeys(COUNTS, 0), **dict.fromkeys(source_format.kinds, 1), **counts}
    return {"tables": {"dbo.orders": seen}, "withheld": withheld}


def late(source_format: SourceFormat) -> dict[str, int]:
    return {"dbo.orders": 2} if source_format.is_late else {}


@pytest.mark.parametrize("source_format", FORMATS.values(), ids=list(FORMATS))
def test_equal_tables_that_have_seen_everything_are_proved(source_format: SourceFormat) -> None:
    seen = (report(source_format), late(source_format), {"dbo.orders": "EQUAL"})
    outcome = assess(source_format, [VERDICT], {"dbo.orders": 12.4}, *seen)
    assert outcome.objections == []
    assert outcome.text.splitlines()[1].split() == ["dbo.orders", "9", "9", "yes", "EQUAL", "4", "12", "s"]


@pytest.mark.parametrize("proved", [{"dbo.orders": "DIFFERENT"}, {"dbo.orders": "UNPROVEN because"}, {}])
def test_a_proof_that_does_not_say_equal_is_an_objection(proved: dict[str, str]) -> None:
    (objection,) = assess(CES, [VERDICT], {}, report(CES), late(CES), proved).objections
    assert "open-mirroring prove" in objection and proved.get("dbo.orders", "nothing") in objection


@pytest.mark.parametrize(
    ("source_format", "kind"),
    [pytest.param(one, kind, id=f"{one.name}: {kind}") for one in FORMATS.values() for kind in one.columns],
)
def test_a_table_that_has_not_seen_a_kind_of_event_proves_too_little(source_format: SourceFormat, kind: str) -> None:
    seen = report(source_format) if kind == LATE_ACROSS_RUNS else report(source_format, **{kind: 0})
    across = {} if kind == LATE_ACROSS_RUNS else late(source_format)
    (objection,) = assess(source_format, [VERDICT], {}, seen, across).objections
    assert f"no {kind.replace('_', ' ')}" in objection


@pytest.mark.parametrize(
    ("verdicts", "withheld", "objection"),
    [
        ([{**VERDICT, "equal": False, "differences": ["order_id=1: missing"]}], 0, "order_id=1: missing"),
        ([], 0, "dbo.orders was not judged"),
        ([VERDICT], 3, "withheld 3 messages"),
    ],
)
def test_what_is_not_equal_not_judged_or_not_delivered_is_not_proved(
    verdicts: list[dict[str, Any]], withheld: int, objection: str
) -> None:
    outcome = assess(CES, verdicts, {}, report(CES, withheld), late(CES))
    assert any(objection in one for one in outcome.objections)


def test_late_is_what_a_later_run_read_below_a_newer_change() -> None:
    changes = [
        Logged("t", 1, "e", "05:1:1", "a"),
        Logged("t", 1, "e", "03:1:1", "b"),  # disorder inside a batch is not late
        Logged("t", 2, "e", "04:1:1", "a"),  # late
        Logged("t", 2, "e", "05:1:1", "a"),  # read again
        Logged("t", 2, "e", "06:1:1", "a"),
        Logged("t", 3, "other", "01:1:1", "a"),  # another stream: not comparable
        Logged("u", 2, "e", "01:1:1", "a"),  # another table
    ]
    assert late_across_batches(changes) == {"t": 1, "u": 0}


# --- the command line ------------------------------------------------------------------------------------------------


def test_one_run_cannot_show_an_event_late_across_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--runs", "1"])
    assert ended.value.code == 2
    assert "late across runs" in capsys.readouterr().err
