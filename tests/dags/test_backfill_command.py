"""Airflow's own backfill command beside scheduled runs, with the real jobs: I25 for whole intervals, newest first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import sqlalchemy as sa
from airflow.dag_processing.dagbag import DagBag
from airflow.models.backfill import Backfill
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState

from open_mirroring.changes.manifest import Scope
from open_mirroring.config import load_mirror
from open_mirroring.ledger import open_ledger, tables
from tests.dags.test_dags_run import GREEN, ROOT, Shop, _run, shop

__all__ = ["shop"]
pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.long]

HOUR = timedelta(hours=1)


def create_backfill(start: datetime, end: datetime, *words: str) -> list[str]:
    """The ids of the runs that ``airflow backfill create`` makes for intervals from *start* to *end*, in order."""
    command = [sys.executable, "-m", "airflow"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "plugins")])}

    def airflow(*arguments: str) -> None:
        ended = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=300, env=environment)
        assert ended.returncode == 0, ended.stderr[-3000:]

    airflow("dags", "reserialize")
    span = ("--from-date", start.isoformat(), "--to-date", end.isoformat())
    with create_session() as session:
        before = set(session.scalars(sa.select(DagRun.id)))
    airflow("backfill", "create", "--dag-id", "shop__replicate", *span, "--reprocess-behavior", "completed", *words)
    with create_session() as session:
        runs = sa.select(DagRun).where(DagRun.dag_id == "shop__replicate", DagRun.run_type == "backfill")
        made = [run for run in session.scalars(runs) if run.state == DagRunState.QUEUED or run.id not in before]
        return [run.run_id for run in sorted(made, key=lambda run: run.logical_date)]


def execute(run_id: str) -> tuple[str, dict[str, str]]:
    """Let a run that exists already run, as the scheduler would."""

    def existing(*, dag: Any, session: Any, **_: Any) -> DagRun:
        session.execute(sa.update(DagRun).where(DagRun.run_id == run_id).values(state=DagRunState.RUNNING))
        session.commit()
        run: DagRun = session.scalars(sa.select(DagRun).where(DagRun.run_id == run_id)).one()
        run.dag = dag
        return run

    with create_session() as session:
        logical_date = session.scalars(sa.select(DagRun.logical_date).where(DagRun.run_id == run_id)).one()
    dag = DagBag(dag_folder=ROOT / "dags").dags["shop__replicate"]
    with patch("airflow.models.dagrun.get_or_create_dagrun", existing):
        run = dag.test(logical_date=logical_date)
    with create_session() as session:  # as the scheduler does when all runs of a backfill are done
        session.execute(sa.update(Backfill).values(completed_at=datetime.now(UTC)))
    return run.state, {instance.task_id: instance.state for instance in run.get_task_instances()}


def purposes(folder: Path) -> list[tuple[str, int]]:
    """What each batch was for, and of how many files."""
    ledger = open_ledger(load_mirror(folder).ledger_url())
    with ledger.connect() as db:
        c = tables.log_batch.c
        scopes = [Scope.from_json(text) for text in db.scalars(sa.select(c.ranges).order_by(c.number))]
    return [(scope.purpose, len(scope.ranges)) for scope in scopes]


def test_backfills_of_past_hours_newest_first_with_reread_and_without(mirrors: Path, shop: Callable[..., Shop]) -> None:
    """I25: between scheduled runs the final state is exact, numbers are unbroken, and a file never bound is in."""
    made = shop(rows=0, load=False)
    made.goes_on()
    assert _run("replicate") == ("success", GREEN)
    first = min((made.folder / "capture").rglob("*.avro"))  # of its windows the hour of the first is whole
    window = datetime(*map(int, first.with_suffix("").parts[-6:-1]), tzinfo=UTC)
    made.goes_on()  # files that no run has seen yet

    runs = create_backfill(window, window, "--run-backwards")
    assert len(runs) == 1
    assert execute(runs[0]) == ("success", GREEN)
    batches = purposes(mirrors / "shop.yaml")
    assert {purpose for purpose, _ in batches} == {"new"} and len(batches) > 1
    made.assert_equal()
    numbers = made.numbers()

    again = create_backfill(window, window, "--run-backwards", "--dag-run-conf", json.dumps({"reread": True}))
    assert execute(again[-1]) == ("success", GREEN)
    assert purposes(mirrors / "shop.yaml")[len(batches) :][0][0] == "reread"
    assert made.numbers() == numbers, "what was read again was published already"
    made.goes_on()
    assert _run("replicate") == ("success", GREEN)
    made.assert_equal()
