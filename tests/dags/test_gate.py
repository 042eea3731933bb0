"""The gate: one question for sensor and trigger, a wait that ends, an answer that never fails a run (AF-07, AF-16)."""

from __future__ import annotations

import asyncio
import importlib
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import TaskDeferred
from airflow.triggers.base import TriggerEvent

from fabric_emulator.web.faults import Fault
from open_mirroring.config import load_mirror
from open_mirroring.config.names import SourceName
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.fabric.target import open_target
from open_mirroring.landing_zone import opening
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger.declaring import JoinedTable, Joining, join
from open_mirroring.reconciliation.inspection import declaration
from open_mirroring_airflow import triggers
from open_mirroring_airflow.connections import landing_zone, named_connections
from open_mirroring_airflow.dag_factory import build_dags
from open_mirroring_airflow.gate import GateEvent, error_event, event_error, gate_event, is_settled
from open_mirroring_airflow.job_operator import tables_listed
from open_mirroring_airflow.run_params import checked_tables
from open_mirroring_airflow.sensors import GateSensor
from open_mirroring_airflow.triggers import GateTrigger
from tests.onelake import CLIENTS, connection_variable, emulator

pytestmark = pytest.mark.airflow

CUSTOMERS, ORDERS = "dbo.customers", "dbo.orders"
# A table whose initial load is pending is on hold, until it is loaded.
LOAD = "initial_load: {format: parquet, path: export, stream_from: beginning}"
MIRROR = """
mirror: shop
source: {{format: sqlserver-ces, transport: capture, path: capture}}
landing_zone: {{store: local, path: zone}}
ledger: sqlite:///ledger.db
change_log: log
gate: {{timeout_minutes: 7}}
tables:
  - {{source: dbo.customers, target: dbo/customers, key: [customer_id], {customers}}}
  - {{source: dbo.orders, target: dbo/orders, key: [order_id], {orders}}}
"""
PASSING = GateEvent(passing=[ORDERS], held={}, stopped={}, note="")
HOLDING = GateEvent(
    passing=[], held={ORDERS: "BACKLOG: 9 files"}, stopped={}, note="HOLD: dbo.orders: BACKLOG: 9 files"
)


@pytest.fixture
def mirror_with(write_mirror: Callable[..., Path]) -> Callable[..., Path]:
    def write(customers: str = "", orders: str = "") -> Path:
        return write_mirror(MIRROR.format(customers=customers, orders=orders).replace(", }", "}"))

    return write


def _ask(file: Path, *tables: str) -> GateEvent:
    mirror = load_mirror(file)
    return gate_event(mirror, mirror.ledger_url(), tables or (CUSTOMERS, ORDERS))


def _foreign_item(file: Path, table: str) -> None:
    folder = file.parent.parent / "zone" / "dbo.schema" / table
    folder.mkdir(parents=True)
    (folder / "stray.txt").write_text("of somebody else")


def test_tables_are_sorted_by_ledger_and_landing_zone(mirror_with: Callable[..., Path]) -> None:
    file = mirror_with(customers=LOAD)
    event = _ask(file)
    assert event["passing"] == [ORDERS] and list(event["held"]) == [CUSTOMERS] and event["stopped"] == {}
    assert event["note"].startswith("HOLD: dbo.customers: LOAD_PENDING")
    _foreign_item(file, "orders")
    event = _ask(file)
    assert event["passing"] == [] and list(event["stopped"]) == [ORDERS]
    assert event["stopped"][ORDERS].startswith("FOREIGN_ITEM")
    assert "dbo.orders" not in event["note"], "nobody waits for a stopped table"


def test_a_history_passes_by_itself_and_is_meant_by_the_name_of_its_table(mirror_with: Callable[..., Path]) -> None:
    """G-194: while its table is stopped, a run of all tables publishes it, as a tick does."""
    file = mirror_with(orders="history: {target: dbo/orders_history}")
    history = f"{ORDERS} (history)"
    assert _ask(file)["passing"] == [CUSTOMERS, ORDERS, history]
    assert _ask(file, CUSTOMERS)["passing"] == [CUSTOMERS]
    _foreign_item(file, "orders")
    event = _ask(file)
    assert event["passing"] == [CUSTOMERS, history] and list(event["stopped"]) == [ORDERS]
    mirror = load_mirror(file)
    assert tables_listed(mirror, checked_tables(mirror, event["passing"])) == f"{CUSTOMERS},{history}"
    assert tables_listed(mirror, checked_tables(mirror, [CUSTOMERS, ORDERS, history])) == ""
    assert checked_tables(mirror, None) == [CUSTOMERS, ORDERS]


def test_the_target_is_asked_with_the_schedulers_own_connection(
    tmp_path: Path, write_mirror: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """I24, R-04: in a task and in the triggerer alike, the status comes by the login that Airflow keeps."""
    with emulator(tmp_path, clients=CLIENTS) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        zone = f"{{store: onelake, workspace: {server.workspace_id}, item: {server.database_id}, connection: lake}}"
        text = MIRROR.format(customers="", orders="").replace(", }", "}")
        file = write_mirror(text.replace("{store: local, path: zone}", zone))
        mirror = load_mirror(file)
        address = landing_zone(mirror)
        monkeypatch.delenv("AIRFLOW_CONN_LAKE")
        tables = [CUSTOMERS, ORDERS]
        assert gate_event(mirror, mirror.ledger_url(), tables, address)["passing"] == tables
        server.service.pause()
        event = gate_event(mirror, mirror.ledger_url(), tables, address)
        assert not is_settled(event) and event["held"][ORDERS].startswith("PAUSED")
        server.faults.add(Fault("forbidden", "status"))
        event = gate_event(mirror, mirror.ledger_url(), tables, address)
        assert not is_settled(event) and event["held"][ORDERS].startswith("STATUS_REFUSED")
        server.service.stop()
        event = gate_event(mirror, mirror.ledger_url(), tables, address)
        assert is_settled(event) and event["stopped"][ORDERS].startswith("TARGET_FAILED")
    opening._onelake_store.cache_clear()
    open_target.cache_clear()


@pytest.mark.parametrize(
    ("event", "settled"),
    [
        (PASSING, True),
        (HOLDING, False),
        (PASSING | HOLDING | {"passing": [CUSTOMERS]}, True),
        (HOLDING | {"stopped": {CUSTOMERS: "FILE_MISSING: x"}}, False),
        (HOLDING | {"held": {}, "stopped": {CUSTOMERS: "FILE_MISSING: x"}}, True),
    ],
)
def test_the_gate_waits_only_while_waiting_may_let_a_first_table_pass(event: GateEvent, settled: bool) -> None:
    assert is_settled(event) is settled


def _sensor(file: Path) -> GateSensor:
    return GateSensor(task_id="gate", mirror_file=str(file))


def test_the_sensor_answers_at_once_when_a_table_passes(
    mirror_with: Callable[..., Path], task_context: dict[str, Any]
) -> None:
    event = _sensor(mirror_with(customers=LOAD)).execute(task_context)
    assert event["passing"] == [ORDERS] and "HOLD" in event["note"]


def test_the_sensor_defers_for_the_mirrors_time_when_none_passes(
    mirror_with: Callable[..., Path], task_context: dict[str, Any]
) -> None:
    file = mirror_with(customers=LOAD, orders=LOAD)
    before = datetime.now(UTC)
    with pytest.raises(TaskDeferred) as caught:
        _sensor(file).execute(task_context)
    deferred = caught.value
    path, arguments = deferred.trigger.serialize()
    assert path == "open_mirroring_airflow.triggers.GateTrigger"
    assert (arguments["mirror_file"], arguments["tables"]) == (str(file), [CUSTOMERS, ORDERS])
    limit = datetime.fromisoformat(arguments["until"]) - before
    assert timedelta(minutes=7) <= limit < timedelta(minutes=7, seconds=30)
    assert deferred.method_name == "execute_complete"
    assert deferred.timeout > timedelta(minutes=7), "the trigger's own end comes before Airflow's, which would fail"


def test_the_sensor_asks_about_chosen_tables_only(
    mirror_with: Callable[..., Path], task_context: dict[str, Any]
) -> None:
    task_context["params"]["tables"] = [CUSTOMERS]
    with pytest.raises(TaskDeferred):
        _sensor(mirror_with(customers=LOAD)).execute(task_context)
    task_context["params"]["tables"] = ["dbo.nothing"]
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        _sensor(mirror_with()).execute(task_context)


def test_nothing_passing_in_the_end_is_an_answer_and_no_failure(mirror_with: Callable[..., Path]) -> None:
    assert _sensor(mirror_with()).execute_complete({}, dict(HOLDING)) == HOLDING  # type: ignore[typeddict-item]


@pytest.mark.parametrize("error", [TransientError("UNREACHABLE", "a", where="b"), TerminalError("X", "a")])
def test_an_error_of_the_trigger_is_raised_in_the_task_as_itself(
    mirror_with: Callable[..., Path], error: MirroringError
) -> None:
    assert event_error(dict(HOLDING)) is None
    with pytest.raises(type(error)) as caught:
        _sensor(mirror_with()).execute_complete({}, error_event(error))  # type: ignore[typeddict-item]
    assert str(caught.value) == str(error)


def _trigger(file: Path, seconds: float, poll_interval: float = 0.01) -> GateTrigger:
    until = datetime.now(UTC) + timedelta(seconds=seconds)
    return GateTrigger(str(file), [CUSTOMERS, ORDERS], until.isoformat(), poll_interval)


def _events(trigger: GateTrigger) -> list[TriggerEvent]:
    async def collect() -> list[TriggerEvent]:
        return [event async for event in trigger.run()]

    return asyncio.run(asyncio.wait_for(collect(), 30))


def _answers(monkeypatch: pytest.MonkeyPatch, *answers: GateEvent | MirroringError) -> list[int]:
    """The gate answers these, one after the other, the last one for ever; the list counts the questions."""
    asked: list[int] = []

    def answer(*_: object) -> GateEvent:
        asked.append(1)
        found = answers[min(len(asked), len(answers)) - 1]
        if isinstance(found, MirroringError):
            raise found
        return found

    monkeypatch.setattr(triggers, "gate_event", answer)
    return asked


def test_the_trigger_comes_back_from_its_serialisation(mirror_with: Callable[..., Path]) -> None:
    trigger = _trigger(mirror_with(), 60)
    path, arguments = trigger.serialize()
    module, _, name = path.rpartition(".")
    again = getattr(importlib.import_module(module), name)(**arguments)
    assert type(again) is GateTrigger and again.serialize() == (path, arguments)


GONE, OTHER = TransientError("UNREACHABLE", "it does not answer"), TerminalError("TABLE_REDECLARED", "other keys")


@pytest.mark.parametrize(
    ("answers", "seconds", "poll_interval", "event", "times"),
    [
        ([HOLDING, HOLDING, PASSING], 3600, 0.01, PASSING, {3}),
        ([HOLDING], 0.2, 0.01, HOLDING, range(2, 1000)),
        ([HOLDING], -60, 3600, HOLDING, {1}),
        ([GONE, PASSING], 3600, 0.01, PASSING, {2}),
        ([GONE], 0.1, 0.01, error_event(GONE), range(1, 1000)),
        ([OTHER], 3600, 0.01, error_event(OTHER), {1}),
    ],
    ids=["a table passes", "time is over", "restarted after its time", "answers again", "never answers", "terminal"],
)
def test_the_trigger_asks_until_something_is_settled_and_sends_one_event(
    mirror_with: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    answers: list[Any],
    seconds: float,
    poll_interval: float,
    event: Any,
    times: Any,
) -> None:
    asked = _answers(monkeypatch, *answers)
    assert [one.payload for one in _events(_trigger(mirror_with(), seconds, poll_interval))] == [event]
    assert len(asked) in times


def test_trigger_and_sensor_see_the_same(mirror_with: Callable[..., Path], task_context: dict[str, Any]) -> None:
    """AF-16: one predicate, here with the real ledger and landing zone."""
    file = mirror_with(customers=LOAD)
    [event] = _events(_trigger(file, 3600))
    assert event.payload == _sensor(file).execute(task_context)


def test_the_trigger_keeps_the_event_loop_free_while_the_zone_is_slow(
    mirror_with: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, release = threading.Event(), threading.Event()

    def slow(*_: object) -> GateEvent:
        asked.set()
        assert release.wait(300), "the event loop was blocked by the question"
        return PASSING

    monkeypatch.setattr(triggers, "gate_event", slow)

    async def both() -> Any:
        fired = asyncio.create_task(anext(aiter(_trigger(mirror_with(), 3600).run())))
        while not asked.is_set():
            await asyncio.sleep(0.01)
        release.set()
        return (await fired).payload

    assert asyncio.run(asyncio.wait_for(both(), 30)) == PASSING


def test_tables_that_joined_by_a_pattern_are_asked_about_g70(
    write_mirror: Callable[..., Path], task_context: dict[str, Any]
) -> None:
    """G-70: before the first one there is nothing to wait for; the forms of the mirror take its name."""
    text = MIRROR.format(customers="", orders="").replace(", }", "}")
    file = write_mirror(text[: text.index("tables:")] + 'tables: [{source: "dbo.*"}]\n')
    assert _sensor(file).execute(task_context) == GateEvent(passing=[], held={}, stopped={}, note="")
    mirror = load_mirror(file)
    pattern = mirror.pattern_of(SourceName("dbo", "orders"))
    assert pattern is not None
    table = pattern.table(SourceName("dbo", "orders"), ORDERS, ("id",))
    joined = JoinedTable(ORDERS, "dbo", "orders", ("id",), {}, 1)
    assert join(open_ledger(mirror.ledger_url()), mirror.name, [Joining(joined, declaration(table))]) == [ORDERS]
    assert _sensor(file).execute(task_context)["passing"] == [ORDERS]
    task_context["params"]["tables"] = ["dbo.nothing"]
    with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
        _sensor(file).execute(task_context)
    dags = {dag.dag_id: dag for dag in build_dags(mirror)}
    params = dags["shop__reload_table"].params
    assert params.get_param("table").resolve(ORDERS) == ORDERS
    assert dags["shop__replicate"].params.get_param("tables").resolve([ORDERS]) == [ORDERS]


def test_a_job_gets_the_connections_that_a_pattern_names_g70(write_mirror: Callable[..., Path]) -> None:
    text = MIRROR.format(customers="", orders="").replace(", }", "}")
    load, proof = ({"format": "jdbc", "connection": name} for name in ("shop_load", "shop_proof"))
    pattern = {"source": "dbo.*", "initial_load": load, "prove": proof}
    file = write_mirror(text[: text.index("tables:")] + f"tables: [{json.dumps(pattern)}]\n")
    assert named_connections(load_mirror(file)) == ["shop_load", "shop_proof"]
