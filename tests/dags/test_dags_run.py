"""The three DAGs of a mirror through Airflow with the real jobs: load, replicate, deep check, and a zone on HOLD.

A generated shop with Capture files goes in; the emulator applies what is published; a judge that knows nothing of the
product compares every cell.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from airflow.dag_processing.dagbag import DagBag
from airflow.models.asset import AssetEvent, AssetModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState

from demo.judge import judge
from fabric_emulator.service import MirroringService
from open_mirroring.config import load_mirror
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.ledger.requests import TARGET_BACK, TARGET_GONE
from open_mirroring_airflow import operators
from tests.attached_job import environment_of
from tests.quick_java import java_options
from workload_generator.ces_shipping import CaptureShipping
from workload_generator.exporting import export
from workload_generator.source import Source
from workload_generator.tables import SHOP_TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.airflow, pytest.mark.spark]

ROOT = Path(__file__).resolve().parents[2]
GREEN = {"extract": "success", "gate": "success", "publish": "success", "reconcile": "success"}
HELD = GREEN | {"publish": "skipped"}


class Shop:
    """A source, a mirror of it in the folder that ``dags/`` reads, and the target."""

    def __init__(self, mirrors: Path, folder: Path, *, rows: int, load: bool, **settings: Any) -> None:
        self.folder = folder
        self.source = Source.create(folder / "source.db", seed=11, rows=rows)
        if load:
            export(self.source, folder / "export", "parquet")
        document = {
            "mirror": "shop",
            "source": {"format": "sqlserver-ces", "transport": "capture", "path": str(folder / "capture")},
            "landing_zone": {"store": "local", "path": str(folder / "zone")},
            "ledger": f"sqlite:///{folder}/ledger.db",
            "change_log": str(folder / "log"),
            "tables": [self._table(table, load) for table in SHOP_TABLES],
            **settings,
        }
        file = mirrors / "shop.yaml"
        file.write_text(json.dumps(document))  # JSON is YAML
        (folder / "capture").mkdir()
        self.ledger = LedgerReader(open_ledger(load_mirror(file).ledger_url()), "shop")
        self.service = MirroringService(folder / "zone", folder / "tables")

    def _table(self, table: Any, load: bool) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "source": table.full_name,
            "target": table.full_name.replace(".", "/"),
            "key": list(table.key),
        }
        if load:
            path, manifest = self.folder / "export" / table.full_name, self.folder / "export" / "export.json"
            entry["initial_load"] = {"format": "parquet", "path": str(path), "stream_from": {"file": str(manifest)}}
        return entry

    def goes_on(self, **options: Any) -> None:
        self.source.run(CaptureShipping(self.folder / "capture"), transactions=25, **options)

    def numbers(self) -> dict[str, int]:
        """The highest confirmed number of each table."""
        return {source: state.row.confirmed for source, state in self.ledger.tables().items()}

    def files(self) -> set[str]:
        """Every file of zone and log: where it is, or was moved to, does not matter."""
        folders = (self.folder / "zone", self.folder / "log")
        return {f"{path.parent.name}/{path.name}" for folder in folders for path in folder.rglob("*.*")}

    def apply(self) -> None:
        """Let the target apply everything."""
        while self.service.poll():
            pass

    def assert_equal(self) -> None:
        self.apply()
        verdicts = judge(self.folder / "source.db", self.folder / "tables")
        assert {verdict.table: verdict.differences for verdict in verdicts if not verdict.equal} == {}


@pytest.fixture
def shop(mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shop]:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", java_options())
    # What fails here is reported at once, not after minutes.
    monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
    return lambda **options: Shop(mirrors, tmp_path, **options)


@pytest.fixture
def attached(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that use the JVM of the tests: for a test of what many runs do, where another one starts a JVM for each."""
    python = tmp_path / "attached-python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -m tests.attached_job "$@"\n')
    python.chmod(0o755)
    for name, value in {**environment_of(spark), "PYSPARK_DRIVER_PYTHON": str(python)}.items():
        monkeypatch.setenv(name, value)


def _run(name: str) -> tuple[str, dict[str, str]]:
    run = DagBag(dag_folder=ROOT / "dags").dags[f"shop__{name}"].test()
    return run.state, {instance.task_id: instance.state for instance in run.get_task_instances()}


def _clear(name: str) -> tuple[str, dict[str, int]]:
    """Clear the newest run of a DAG and let it run again: its state, and how often each task was tried by now."""

    def cleared(*, dag: Any, session: Any, **_: Any) -> DagRun:
        # Airflow's own in-process runner clears the task instances, and would then replace the run.
        session.execute(sa.update(DagRun).where(DagRun.id == newest.id).values(state=DagRunState.RUNNING))
        session.commit()
        run: DagRun = session.get_one(DagRun, newest.id)
        run.dag = dag
        return run

    with create_session() as session:
        runs = sa.select(DagRun).where(DagRun.dag_id == f"shop__{name}").order_by(DagRun.id.desc())
        newest = session.scalars(runs.limit(1)).one()
        session.expunge(newest)
    dag = DagBag(dag_folder=ROOT / "dags").dags[f"shop__{name}"]
    with patch("airflow.models.dagrun.get_or_create_dagrun", cleared):
        run = dag.test(logical_date=newest.logical_date)
    assert run.run_id == newest.run_id
    return run.state, {instance.task_id: instance.try_number for instance in run.get_task_instances()}


def _notes(name: str, of_somebody: str | None = None) -> tuple[str, str]:
    """The notes of the newest run and of its task that publishes, when it ends; *of_somebody* was there before."""
    with create_session() as session:
        runs = sa.select(DagRun).where(DagRun.dag_id == f"shop__{name}").order_by(DagRun.id.desc())
        run = session.scalars(runs.limit(1)).one()
        if of_somebody is not None:
            run.note = of_somebody
            run.dag_run_note.user_id = "1"
        # As the scheduler tells it; the runner of this test tells it of a copy of the run.
        run.dag = DagBag(dag_folder=ROOT / "dags").dags[run.dag_id]
        run.notify_dagrun_state_changed(msg="success")
        session.flush()
        published = run.get_task_instance("publish", session=session)
        return run.note, published.note


def _newest_event() -> int:
    """All tests share one Airflow, and most of them name their mirror alike."""
    with create_session() as session:
        return session.scalar(sa.select(sa.func.coalesce(sa.func.max(AssetEvent.id), 0))) or 0


def _events(after: int) -> dict[str, list[dict[str, Any]]]:
    """The asset events of the mirror since then, by table."""
    with create_session() as session:
        found = session.execute(
            sa.select(AssetModel.uri, AssetEvent.extra)
            .join(AssetEvent, AssetEvent.asset_id == AssetModel.id)
            .where(AssetModel.uri.startswith("open-mirroring://shop/"), AssetEvent.id > after)
            .order_by(AssetEvent.id)
        )
        events: dict[str, list[dict[str, Any]]] = {}
        for uri, extra in found:
            events.setdefault(uri.removeprefix("open-mirroring://shop/").replace("/", "."), []).append(extra)
    return events


def test_load_replicate_and_deep_check_end_equal_to_the_source(
    shop: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """AF-12: the events follow the ledger. A run without new input leaves no trace, and starts no Spark."""
    made, before_it = shop(rows=40, load=True), _newest_event()
    assert _run("initial_load") == ("success", {"load": "success", "reconcile": "success"})
    loaded = made.numbers()
    assert all(number >= 1 for number in loaded.values())
    made.goes_on()
    assert _run("replicate") == ("success", GREEN)
    made.assert_equal()
    of_run, of_task = _notes("replicate")
    assert of_run.startswith(f"4 tables: 4 mirrored.\n{of_task}\nRead: batch 1 of the change log, ")
    assert of_task.startswith("Published: 4 files of 4 tables, ")
    numbers, events = made.numbers(), _events(before_it)
    assert {table: [(e["first_number"], e["number"]) for e in story] for table, story in events.items()} == {
        table: [(1, loaded[table]), (loaded[table] + 1, number)] for table, number in numbers.items()
    }

    before = made.files()
    assert _clear("replicate") == ("success", dict.fromkeys(GREEN, 2))
    assert _notes("replicate", of_somebody="Ada looked at it")[0] == "Ada looked at it"
    assert made.files() == before
    with monkeypatch.context() as without_java:
        without_java.setenv("JAVA_HOME", "/nowhere")
        assert _run("replicate") == ("success", GREEN)
        assert _run("initial_load") == ("success", {"load": "success", "reconcile": "success"})
    assert made.files() == before
    assert made.numbers() == numbers
    # As with any task of Airflow, clearing one that published repeats its events; nothing new is reported.
    assert {table: _distinct(story) for table, story in _events(before_it).items()} == events
    assert _run("reconcile") == ("success", {"deep_check": "success"})


def test_a_zone_on_hold_for_three_slots_lets_the_log_grow_and_catches_up(
    shop: Callable[..., Shop], attached: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("open_mirroring_airflow.sensors.timedelta", _moments)
    made = shop(rows=0, load=False, gate={"max_files": 1}, publish={"max_rows_per_file": 3})
    made.goes_on()
    assert _run("replicate") == ("success", GREEN)
    # The target applies nothing: more files of each table wait than are allowed.
    numbers, batch = made.numbers(), made.ledger.mirror().committed
    for slot in range(1, 4):
        made.goes_on()
        assert _run("replicate") == ("success", HELD)
        assert made.ledger.mirror().committed == batch + slot
        assert made.numbers() == numbers
    made.apply()
    assert _run("replicate") == ("success", GREEN)
    assert all(made.numbers()[table] > number for table, number in numbers.items())
    made.assert_equal()


@pytest.mark.long
def test_a_reload_ends_in_airflow_alone_where_nobody_can_see_the_target_g_89(
    shop: Callable[..., Shop], task_context: dict[str, Any], approved: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-89: the real job, Spark and target; two words of an operator, and the table equals its source again."""
    made = shop(rows=0, load=False)
    made.goes_on()
    assert _run("replicate") == ("success", GREEN)
    made.apply()
    table = SHOP_TABLES[0].full_name
    monkeypatch.setattr(operators, "_LOOK_SECONDS", 0.1)
    looks: list[str] = []
    real = operators.ResetTrigger.look

    def looked(self: Any, *asked: Any) -> Any:
        stage = self.serialize()[1]["stage"]
        looks.append(stage)
        if looks.count(stage) == 2:
            made.apply()  # the target drops the table, or makes it anew; nothing in Airflow shows it
            word = TARGET_GONE if stage == "FOLDER_DELETED" else TARGET_BACK
            task_context["dag_run"].triggering_user_name = "Eve"
            task_context["run_id"] = word
            task_context["params"] = {"decision": word, "table": table, "reason": "looked"}
            operators.DecideOperator(task_id="decide", mirror_file=self.mirror_file).execute(task_context)
        return real(self, *asked)

    monkeypatch.setattr(operators.ResetTrigger, "look", looked)
    run = DagBag(dag_folder=ROOT / "dags").dags["shop__reload_table"].test(run_conf={"table": table, "reason": "x"})
    assert run.state == "success"
    assert looks == ["FOLDER_DELETED"] * 2 + ["REBUILDING"] * 2
    assert made.ledger.tables()[table].row.generation == 2
    made.goes_on()
    assert _run("replicate") == ("success", GREEN)
    made.assert_equal()


def _distinct(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for at, event in enumerate(events) if event not in events[:at]]


def _moments(minutes: float) -> timedelta:
    """The gate's minutes, for a test, as moments."""
    return timedelta(seconds=minutes / 100)
