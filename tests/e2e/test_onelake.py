"""The whole pipeline on a landing zone in OneLake, over the wire: exact, also when the wire is bad, and quiet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault, Kind
from open_mirroring.errors import TransientError
from open_mirroring.fabric_target import open_target
from open_mirroring.http_service import RetryBudget
from open_mirroring.landing_zone import opening
from tests.e2e.test_histories import TABLES, assert_mirrored, history, slices
from tests.onelake import CLIENTS, connection_variable, emulator
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

FAULTS: dict[Kind, tuple[str, ...]] = {
    "unavailable_before": ("create", "append", "flush", "rename", "read", "properties", "list", "delete"),
    "unavailable_after": ("create", "append", "flush", "rename", "delete"),
    "dropped_after": ("create", "append", "flush", "rename", "delete"),
    "duplicated": ("create", "append", "flush", "rename", "delete"),
    "throttled": ("create", "flush", "rename", "list"),
    "token_expired": ("create", "append", "flush", "rename", "read"),
}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorServer]:
    with emulator(tmp_path / "mirror", clients=CLIENTS, seed=1) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        yield server
    opening._onelake_store.cache_clear()
    open_target.cache_clear()


def pipeline_of(folder: Path, spark, server: EmulatorServer) -> Pipeline:
    zone = {"store": "onelake", "workspace": server.workspace_id, "item": server.database_id, "connection": "lake"}
    pipeline = Pipeline(folder / "mirror", spark, TABLES, landing_zone=zone)
    pipeline.service = server.service
    return pipeline


def test_a_history_ends_exactly_and_an_idle_tick_is_cheap_r_04(tmp_path: Path, spark, server: EmulatorServer) -> None:
    """O-02, O-04, O-05, O-10: workers create staged objects, the driver renames; nothing else lies in the zone."""
    made = history(seed=11)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700, seed="a"), Delivery(partitions=3, disorder=40))
    pipeline = pipeline_of(tmp_path, spark, server)
    for tick, part in enumerate(slices(messages, 3)):
        pipeline.deliver(f"{tick}.jsonl", json_lines(part, layout="wrapped"))
        pipeline.tick()
    assert_mirrored(pipeline, made)
    pipeline.tick()
    server.faults.reset_calls()
    pipeline.tick()
    assert server.faults.calls() == {"list": 1, "status": 2}, "the zone, the database, its tables"
    names = {path.name for path in pipeline.zone.rglob("*") if path.is_file()}
    assert {name for name in names if not name.endswith(".parquet")} == {"_incarnation.json", "_metadata.json"}


def test_a_history_ends_exactly_whatever_the_wire_does(
    tmp_path: Path, spark, server: EmulatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-08: calls fail before and after their effect, come twice, are throttled, and tokens expire under them."""
    monkeypatch.setattr(RetryBudget, "back_off", lambda self, attempt: None)
    made = history(seed=12)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700, seed="b"), Delivery(partitions=3, disorder=40))
    pipeline = pipeline_of(tmp_path, spark, server)
    for kind, verbs in FAULTS.items():
        for verb in verbs:
            server.faults.add(Fault(kind, verb, times=None, probability=0.04))
    for tick, part in enumerate(slices(messages, 6)):
        pipeline.deliver(f"{tick}.jsonl", json_lines(part, layout="wrapped"))
        try:
            pipeline.tick()
        except TransientError:
            continue  # the next tick goes on
    server.faults.clear()
    pipeline.tick()
    assert_mirrored(pipeline, made)
