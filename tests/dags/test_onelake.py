"""A mirror in OneLake under Airflow: the login comes from Airflow's connection, and stays out of everything told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from open_mirroring.config import load_mirror
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring_airflow.connections import job_connections, landing_zone
from open_mirroring_airflow.hooks import OneLakeHook
from open_mirroring_airflow.sensors import GateSensor
from open_mirroring_airflow.triggers import GateTrigger
from open_mirroring_airflow.verdict import ReconcileOperator
from tests.onelake import CLIENTS, SECRET, connection_variable, emulator

pytestmark = pytest.mark.airflow

MIRROR = """
mirror: shop
source: {{format: sqlserver-ces, transport: capture, path: capture}}
landing_zone: {{store: onelake, workspace: {workspace}, item: {item}, connection: lake}}
ledger: sqlite:///ledger.db
change_log: log
tables:
  - {{source: dbo.orders, target: dbo/orders, key: [order_id]}}
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorServer]:
    with emulator(tmp_path / "lake", clients=CLIENTS) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        yield server


@pytest.fixture
def file(server: EmulatorServer, write_mirror: Callable[..., Path]) -> Path:
    return write_mirror(MIRROR.format(workspace=server.workspace_id, item=server.database_id))


def test_gate_trigger_and_verdict_look_with_airflows_own_connection(
    file: Path, server: EmulatorServer, task_context: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    """O-02, I30: every question is asked of the zone; no answer, no argument and no log line holds the secret."""
    caplog.set_level(logging.DEBUG)
    server.faults.reset_calls()
    event = GateSensor(task_id="gate", mirror_file=str(file)).execute(task_context)
    assert event["passing"] == ["dbo.orders"]
    verdict = ReconcileOperator(task_id="reconcile", mirror_file=str(file)).execute(task_context)
    assert verdict["verdicts"] == {"dbo.orders": "PASS"}
    until = (datetime.now(UTC) + timedelta(seconds=60)).isoformat()
    trigger = GateTrigger(str(file), ["dbo.orders"], until, 0.01)

    async def first() -> Any:
        async for answer in trigger.run():
            return answer.payload

    asked = asyncio.run(asyncio.wait_for(first(), 30))
    assert asked["passing"] == ["dbo.orders"]
    assert server.faults.calls()["list"] == 3
    story = json.dumps([event, verdict, asked, trigger.serialize()]) + caplog.text
    assert SECRET not in story


def test_a_job_gets_the_login_in_its_environment(file: Path, server: EmulatorServer) -> None:
    mirror = load_mirror(file)
    variables = job_connections(mirror)
    assert json.loads(variables["AIRFLOW_CONN_LAKE"])["password"] == SECRET
    zone = landing_zone(mirror)
    assert isinstance(zone, OneLakeZone) and zone.login.secret == SECRET
    assert SECRET not in repr(zone)


def test_the_connection_can_be_tested(server: EmulatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert OneLakeHook("lake").test_connection()[0] is True
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server).replace(SECRET, "wrong-canary"))
    passed, story = OneLakeHook("lake").test_connection()
    assert (passed, "ACCESS_DENIED" in story, "wrong-canary" in story) == (False, True, False)
