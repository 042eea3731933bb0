"""Runs the steps of the demo in order: starts the parts, changes data, runs Airflow, compares."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from demo.airflow_api import AirflowApi
from demo.airflow_server import USER, AirflowServer
from demo.broker import Broker
from demo.failures import DemoFailed
from demo.outcome import Outcome, assess, judge, lags, late_across_batches, proofs, read_changes
from demo.place import MIRROR, DemoFolder
from demo.processes import Service
from demo.shop import TOPIC, MirroringService, Shop
from demo.source_formats import SourceFormat

BROKER_CONNECTION, PARTITIONS = "shop_broker", 3
INITIAL_LOAD, REPLICATE = f"{MIRROR}__initial_load", f"{MIRROR}__replicate"
_DAGS = {INITIAL_LOAD, REPLICATE, f"{MIRROR}__reconcile"}
_BUSY, _QUIET = 100, 25
"""Transactions of the shop between two runs, and while a run is under way."""
_PARSE_LIMIT, _RUN_LIMIT = 120.0, 900.0
_PERIOD = 120.0
"""Seconds between two runs once the demo is over and left running."""


class Story:
    """One demo. Call :meth:`prove`, then perhaps :meth:`go_on`, and always :meth:`end`.

    Args:
        place: an empty demo folder.
        say: prints a line.
        runs: how many replicate runs.
        seed: decides all that happens in the shop.
        source_format: how the changes come.
        keep: whether it will be left running: then Airflow also starts runs by the clock.
        database: the address of Airflow's own database; by default a SQLite file.
    """

    def __init__(
        self,
        place: DemoFolder,
        say: Callable[[str], None],
        *,
        runs: int,
        seed: int,
        source_format: SourceFormat,
        keep: bool,
        database: str | None = None,
    ) -> None:
        self._place, self._say, self._runs, self._seed, self._keep = place, say, runs, seed, keep
        self._format, self._database = source_format, database
        self._shop: Shop | None = None
        self._broker: Broker | None = None
        self._airflow: AirflowServer | None = None
        self._service: MirroringService | None = None

    def prove(self) -> Outcome:
        """Runs the complete demo once, from an empty folder to the comparison of source and mirrored tables.

        Raises:
            DemoFailed: when a part does not do what it should.
        """
        say, source_format = self._say, self._format
        say(f"the source: {source_format.carries}")
        shutil.copy(source_format.mirror_file, self._place.mirrors / f"{MIRROR}.yaml")
        connections = {}
        if source_format.with_broker:
            say("starting a Kafka broker (one process, its own ports)")
            self._broker = Broker(self._place.broker)
            self._broker.create_topic(TOPIC, PARTITIONS)
            connections = {BROKER_CONNECTION: self._broker.connection()}
        say("starting Airflow (standalone, SQLite, its own ports): a minute or two")
        self._airflow = airflow = AirflowServer(
            self._place, follows_schedules=self._keep, connections=connections, database=self._database
        )
        self._shop = shop = Shop(self._place, self._seed, source_format, self._broker.bootstrap if self._broker else "")
        rows = {name: counts["rows"] for name, counts in shop.open()["tables"].items()}
        say(f"the shop opens: {', '.join(f'{name} {number} rows' for name, number in rows.items())}")
        say(shop.hand_over())
        self._trade(shop, _BUSY, hold_back=True)
        self._service = service = MirroringService(self._place)
        say("the mirroring service watches the landing zone")
        api = self._prepare(airflow)

        if source_format.with_export:
            api.unpause(INITIAL_LOAD)
            self._follow(api, INITIAL_LOAD, api.trigger(INITIAL_LOAD), "initial load")
        # Where Airflow follows the clock this starts a run by itself; those triggered queue behind it.
        api.unpause(REPLICATE)
        for number in range(1, self._runs + 1):
            last = number == self._runs
            # The last delivery brings all that was withheld, and the last run reads it: source and log hold the same.
            self._trade(shop, _BUSY, hold_back=not last)
            goes_on = None if last else lambda: self._trade(shop, _QUIET, hold_back=True)
            run_id = api.trigger(REPLICATE)
            self._follow(api, REPLICATE, run_id, f"replicate run {number} of {self._runs}", goes_on)
        say("waiting until the mirroring service has applied every file")
        service.wait_until_applied(list(rows))
        say("judging: source and mirrored tables, cell by cell")
        lag = lags(self._place, rows, shop.last_delivery())
        late = late_across_batches(read_changes(self._place))
        verdicts = judge(self._place)
        say("proving: the product's own `open-mirroring prove`, against an export of the source")
        shop.export_at_the_end()
        return assess(source_format, verdicts, lag, shop.report(), late, proofs(self._place, connections))

    def go_on(self) -> None:
        """Leave it running until it is interrupted; the shop trades and a run starts every two minutes.

        Raises:
            DemoFailed: when Airflow, the mirroring service or the broker ends.
        """
        airflow, service, shop = self._airflow, self._service, self._shop
        if airflow is None or service is None or shop is None:
            raise DemoFailed("nothing is running that could go on")
        broker = self._broker.connection() if self._broker is not None else ""
        by_hand = (
            f"\n  for `open-mirroring tick`: AIRFLOW_CONN_{BROKER_CONNECTION.upper()}='{broker}'" if broker else ""
        )
        print(
            f"\n  Airflow's pages: {airflow.address}\n  user {USER}, password {airflow.password}\n"
            f"  mirror file: {self._place.mirrors / MIRROR}.yaml (for `open-mirroring status`){by_hand}\n"
            f"  The shop goes on, with a replicate run every {_PERIOD:.0f} s. Ctrl-C stops everything.\n",
            flush=True,
        )
        api = AirflowApi(airflow.address, USER, airflow.password)
        due = time.monotonic() + _PERIOD
        while True:
            time.sleep(1)
            airflow.service.check()
            service.service.check()
            if self._broker is not None:
                self._broker.check()
            if time.monotonic() >= due:
                self._trade(shop, _QUIET, hold_back=True)
                run_id = api.trigger(REPLICATE)
                self._say(f"triggered {run_id}")
                due = time.monotonic() + _PERIOD

    def run_once_more(self, transactions: int) -> dict[str, dict[str, Any]]:
        """Makes *transactions* in the shop and runs ``replicate`` again; returns the run's task instances.

        Raises:
            DemoFailed: when the run fails.
        """
        airflow, service, shop = self._airflow, self._service, self._shop
        if airflow is None or service is None or shop is None:
            raise DemoFailed("nothing is running")
        if transactions:
            self._trade(shop, transactions, hold_back=False)
        api = AirflowApi(airflow.address, USER, airflow.password)
        run_id = api.trigger(REPLICATE)
        self._follow(api, REPLICATE, run_id, f"after {transactions} transactions")
        return api.tasks(REPLICATE, run_id)

    def trade_and_wait(self, transactions: int) -> float:
        """Makes *transactions*, if any, and waits until Airflow has run what new messages started by themselves.

        Returns when the newest message was sent, in seconds since 1970.

        Raises:
            DemoFailed: when no run ends well in time.
        """
        airflow, broker, shop = self._airflow, self._broker, self._shop
        if airflow is None or broker is None or shop is None:
            raise DemoFailed("nothing is running")
        sent = time.time()
        if transactions:
            self._trade(shop, transactions, hold_back=False)
            sent = broker.newest(TOPIC, PARTITIONS)
        api = AirflowApi(airflow.address, USER, airflow.password)
        give_up = time.monotonic() + _RUN_LIMIT
        while time.monotonic() < give_up:
            self._check()
            runs = api.runs(REPLICATE)
            started = [
                run for run in runs if run["run_type"] == "asset_triggered" and _moment(run["start_date"]) > sent
            ]
            if started and all(run["state"] == "success" for run in [*started, runs[0]]):
                return sent
            time.sleep(1)
        raise DemoFailed("new messages started no run that ended well", airflow.service.log)

    def end(self) -> None:
        """Stop everything that was started; safe to call at any time.

        Raises:
            DemoFailed: when a process is left behind.
        """
        services: list[Service | Broker] = [one.service for one in (self._service, self._airflow) if one is not None]
        # Last of all, so that no job is left without it.
        services += [] if self._broker is None else [self._broker]
        failures = []
        for service in services:
            self._say(f"stopping {service.name}")
            try:
                killed = service.stop()
            except DemoFailed as failure:
                failures.append(failure)  # the others must be stopped all the same
                continue
            if killed:
                self._say(f"{service.name} did not end by itself; killed: {'; '.join(killed)}")
        if failures:
            raise failures[0]

    def _prepare(self, airflow: AirflowServer) -> AirflowApi:
        """Wait for Airflow and its DAGs, and let them run."""
        api = airflow.wait_until_ready(lambda text: self._say(f"Airflow: {text}"))
        give_up = time.monotonic() + _PARSE_LIMIT
        while missing := _DAGS - api.dag_ids():
            errors = api.import_errors()
            if errors:
                raise DemoFailed(f"Airflow cannot import a DAG file: {errors[0]}", airflow.service.log)
            if time.monotonic() > give_up:
                raise DemoFailed(f"Airflow does not find {', '.join(sorted(missing))}", airflow.service.log)
            time.sleep(1)
        self._say(f"Airflow is ready at {airflow.address}; DAGs: {', '.join(sorted(_DAGS))}")
        return api

    def _trade(self, shop: Shop, transactions: int, *, hold_back: bool) -> None:
        done = shop.trade(transactions, hold_back=hold_back)
        in_files = f" in {done['files']} files" if done["files"] else ""
        self._say(
            f"the shop trades: {done['transactions']} transactions, {done['events']} changes, "
            f"{done['messages']} messages delivered{in_files}, {done['withheld']} kept back to come late"
        )

    def _follow(
        self, api: AirflowApi, dag_id: str, run_id: str, what: str, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Wait for a run to end well and print the state of its tasks; *meanwhile* is called once a task is running."""
        self._say(f"{what}: triggered {dag_id} {run_id}")
        give_up = time.monotonic() + _RUN_LIMIT
        states: dict[str, str | None] = {}
        while True:
            self._check()
            # Asked before the tasks: when it has ended, so have they.
            state = api.run_state(dag_id, run_id)
            tasks = api.tasks(dag_id, run_id)
            for name, task in tasks.items():
                if states.get(name) != task["state"] and task["state"] in _ENDED:
                    self._say(f"  {name}: {task['state']}{_duration(task)}")
                states[name] = task["state"]
            if meanwhile is not None and "running" in states.values():
                meanwhile()
                meanwhile = None
            if state in ("success", "failed"):
                break
            if time.monotonic() > give_up:
                late = f"{what} has not ended after {_RUN_LIMIT:.0f} s: {states}"
                raise DemoFailed(late, self._log_of(dag_id, run_id, states))
            time.sleep(1)
        if meanwhile is not None:
            meanwhile()  # too quick to be seen running
        if state == "failed":
            raise DemoFailed(f"{what} failed: {states}", self._log_of(dag_id, run_id, states))
        self._note(api, dag_id, run_id, what)

    def _note(self, api: AirflowApi, dag_id: str, run_id: str, what: str) -> None:
        answer = api.returned(dag_id, run_id, "reconcile")
        note = answer.get("note") if isinstance(answer, dict) else None
        self._say(f"{what}: {note or 'done'}")

    def _check(self) -> None:
        if self._airflow is not None:
            self._airflow.service.check()
        if self._service is not None:
            self._service.check()
        if self._broker is not None:
            self._broker.check()

    def _log_of(self, dag_id: str, run_id: str, states: dict[str, str | None]) -> Path | None:
        """The log of the first task that failed, or of Airflow itself."""
        if self._airflow is None:
            return None
        for wanted in ("failed", "up_for_retry", "running"):
            for task in sorted(name for name, state in states.items() if state == wanted):
                # The last task fails because of those before it.
                log = self._airflow.task_log(dag_id, run_id, task) if task != "reconcile" else None
                if log is not None:
                    return log
        return self._airflow.task_log(dag_id, run_id, "reconcile") or self._airflow.service.log


_ENDED = ("success", "failed", "skipped", "upstream_failed", "up_for_retry", "deferred")


def _moment(text: str | None) -> float:
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _duration(task: dict[str, Any]) -> str:
    seconds = task.get("duration")
    return "" if seconds is None else f", {seconds:.0f} s"
