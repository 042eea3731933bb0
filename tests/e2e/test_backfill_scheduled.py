"""Backfills of the last 24 hours by Airflow's own command while hourly runs go on, with nothing stood in for (I25).

Scheduler, DAG processor, triggerer and API server are Airflow's, each job is a Spark application, a shop goes on
trading, and the emulator applies what is published.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy as sa
import yaml

from demo.airflow_api import AirflowApi
from demo.airflow_server import AirflowServer
from demo.outcome import judge
from demo.place import MIRROR, DemoFolder, claim
from demo.shop import MirroringService
from demo.source_formats import CES
from demo.story import REPLICATE
from open_mirroring.changes.manifest import Scope
from open_mirroring.config import load_mirror
from open_mirroring.ledger import open_ledger, tables
from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main as command_line
from tests.postgres import PostgresServer
from workload_generator.ces_shipping import CaptureShipping
from workload_generator.source import Source
from workload_generator.tables import SHOP_TABLES

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.long]

HOURS, HOUR = 24, timedelta(hours=1)
FIRST, SECOND = (3, 6, 9, 12), (1, 2, 3, 4)
"""The last eight hours trade while the backfills run: each when so many runs have ended. The others did before."""
LATE, LATE_AT = 7, 15
"""An hour of which a partition is copied only when so many runs of the first backfill have ended."""
AHEAD = timedelta(minutes=10)
"""When the schedule falls due, from the beginning: about when the first backfill is done and the other one begins."""
LIMIT = 3600.0
ENDED = ("success", "failed")


class Batch(NamedTuple):
    """A batch of the change log: what it was for, and the source files that it read."""

    purpose: str
    files: frozenset[str]


class Day:
    """The last 24 hours of a shop, as an hourly schedule cuts them that falls due at *due*; each hour trades once."""

    def __init__(self, place: DemoFolder, due: datetime) -> None:
        self.hours = [due - HOUR * before for before in range(HOURS + 1, 1, -1)]
        self._folder, self._aside, self._traded = place.capture, place.root / "aside", 0
        self._source = Source.create(place.source, seed=5, rows=0)

    def trade(self) -> None:
        """Commit what the next hour brings; its files lie in Capture windows of that hour."""
        shipping = CaptureShipping(self._folder, since=self.hours[self._traded] + timedelta(minutes=10))
        self._traded += 1
        # What is withheld comes with the next hour; the last one brings all.
        self._source.run(shipping, transactions=8, hold_back=self._traded < HOURS)

    def hold(self, hour: int) -> frozenset[str]:
        """Take the files of an hour and a partition aside, as if they had not been copied yet."""
        held = frozenset(name for name in self.files() if self.hour_of(name) == hour and Path(name).parts[-7] == "0")
        for name in held:
            _move(self._folder / name, self._aside / name)
        return held

    def deliver(self, held: frozenset[str]) -> None:
        """Bring back what was taken aside."""
        for name in held:
            _move(self._aside / name, self._folder / name)

    def files(self) -> set[str]:
        """All files at the source."""
        return {str(file.relative_to(self._folder)) for file in self._folder.rglob("*.avro")}

    def hour_of(self, name: str) -> int:
        """The hour in which a file's window lies."""
        window = datetime(*map(int, Path(name).with_suffix("").parts[-6:]), tzinfo=UTC)  # type: ignore[misc]
        return (window - self.hours[0]) // HOUR


class Ledger:
    """What the ledger says of the mirror."""

    def __init__(self, mirror_file: Path) -> None:
        self._engine = open_ledger(load_mirror(mirror_file).ledger_url())
        self._reader = LedgerReader(self._engine, MIRROR)

    def batches(self) -> list[Batch]:
        """All batches in order."""
        c = tables.log_batch.c
        with self._engine.connect() as db:
            scopes = [Scope.from_json(text) for text in db.scalars(sa.select(c.ranges).order_by(c.number))]
        return [Batch(scope.purpose, frozenset(bound.name for bound in scope.ranges)) for scope in scopes]

    def bound(self) -> set[str]:
        """The files that were ever bound."""
        return set(self._reader.bound())

    def confirmed(self) -> dict[str, int]:
        """The highest published number of each table."""
        return {table: state.row.confirmed for table, state in self._reader.tables().items()}


class Airflow:
    """A running Airflow with the mirror's DAGs, which follows its schedule."""

    def __init__(self, server: AirflowServer, api: AirflowApi, service: MirroringService) -> None:
        self._server, self._api, self._service = server, api, service

    def runs(self, run_type: str) -> list[dict[str, Any]]:
        """The runs of this type, oldest interval first."""
        runs = [run for run in self._api.runs(REPLICATE) if run["run_type"] == run_type]
        return sorted(runs, key=lambda run: str(run["logical_date"]))

    def wait_for(self, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until something is so, while all that was started lives."""
        give_up = time.monotonic() + LIMIT
        while not is_so():
            self._server.service.check()
            self._service.check()
            assert time.monotonic() < give_up, f"no {what} after {LIMIT:.0f} s: {self.told()}"
            time.sleep(1)

    def backfill(
        self, hours: list[datetime], *words: str, meanwhile: dict[int, Callable[[], None]]
    ) -> list[dict[str, Any]]:
        """``airflow backfill create`` for the intervals that begin at *hours*, to its end; its runs, oldest first.

        Args:
            hours: begins of intervals.
            words: more arguments.
            meanwhile: what else happens, each when so many runs of the backfill have ended.
        """
        span = ("--from-date", hours[0].isoformat(), "--to-date", hours[-1].isoformat())
        program = str(Path(sys.executable).parent / "airflow")
        command = [program, "backfill", "create", "--dag-id", REPLICATE, *span, *words]
        made = subprocess.run(command, env=self._server.environment, capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stdout[-3000:] + made.stderr[-3000:]
        agenda = sorted(meanwhile.items())

        def its_runs() -> list[dict[str, Any]]:
            return [run for run in self.runs("backfill") if _moment(run, "logical_date") in hours]

        def is_done() -> bool:
            ended = sum(run["state"] in ENDED for run in its_runs())
            while agenda and agenda[0][0] <= ended:
                agenda.pop(0)[1]()
            return all(one["completed_at"] for one in self._api.backfills(REPLICATE))

        self.wait_for("end of the backfill", is_done)
        assert not agenda, self.told()
        return its_runs()

    def told(self) -> str:
        """All runs as they are: kind, interval, state, when they were queued, began and ended."""
        runs = sorted(self._api.runs(REPLICATE), key=lambda run: str(run["start_date"]))
        columns = ("run_type", "data_interval_start", "state", "queued_at", "start_date", "end_date")
        return "".join("\n" + "  ".join(str(run[name])[:19] for name in columns) for run in runs)


@contextmanager
def airflow_of(place: DemoFolder, postgres: PostgresServer) -> Iterator[Airflow]:
    """Airflow and the emulator at work on the mirror of a place; at the end every published file is applied."""
    with ExitStack() as ends:
        service = MirroringService(place)
        ends.callback(service.service.stop)
        # SQLite is locked too often for so many writers; Airflow itself advises against it.
        login = f"{postgres.user}:{postgres.password}@127.0.0.1:{postgres.port}"
        database = f"postgresql+psycopg2://{login}/{postgres.database}"
        server = AirflowServer(place, follows_schedules=True, database=database)
        ends.callback(server.service.stop)
        api = server.wait_until_ready(print)
        airflow = Airflow(server, api, service)
        airflow.wait_for("DAG", lambda: REPLICATE in api.dag_ids())
        api.unpause(REPLICATE)
        yield airflow
        print(airflow.told())
        service.wait_until_applied([table.full_name for table in SHOP_TABLES])


def test_backfills_while_the_schedule_goes_on_without_and_with_reread_newest_first(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    """I25: all runs end well, the final state is exact, numbers are unbroken, and a file never bound is in."""
    due = datetime.now(UTC).replace(second=0, microsecond=0) + AHEAD
    with claim(tmp_path / "day") as place:
        _write_mirror(place, schedule=f"{due.minute} * * * *")
        day, ledger = Day(place, due), Ledger(_mirror_file(place))
        for _ in range(HOURS - len(FIRST + SECOND)):
            day.trade()
        late = day.hold(LATE)

        def deliver_late() -> None:
            assert late and late.isdisjoint(ledger.bound())
            day.deliver(late)

        with airflow_of(place, postgres) as airflow:
            # The schedule's own run, of the latest interval, goes on beside the backfill of the others.
            airflow.wait_for("scheduled run", lambda: bool(airflow.runs("scheduled")))
            begins = [datetime.now(UTC)]
            trades = dict.fromkeys(FIRST, day.trade)
            words = ("--run-backwards", "--max-active-runs", "2")
            runs = airflow.backfill(day.hours, *words, meanwhile={**trades, LATE_AT: deliver_late})
            ends = [datetime.now(UTC)]
            assert [run["state"] for run in runs] == ["success"] * (HOURS - 1)
            assert _by_start(runs) == sorted(_by_start(runs), reverse=True), "newest first"
            assert [(run["state"], _moment(run, "logical_date")) for run in airflow.runs("scheduled")][:1] == [
                ("success", day.hours[-1])
            ]
            before = ledger.batches()
            assert {batch.purpose for batch in before} == {"new"}
            assert late <= ledger.bound() == day.files()

            # The other one begins shortly before the schedule falls due.
            airflow.wait_for("next hour", lambda: datetime.now(UTC) > due - timedelta(seconds=40))
            begins.append(datetime.now(UTC))
            trades = dict.fromkeys(SECOND, day.trade)
            words = (*words, "--reprocess-behavior", "completed", "--dag-run-conf", '{"reread": true}')
            runs = airflow.backfill(day.hours, *words, meanwhile=trades)
            ends.append(datetime.now(UTC))
            assert [(run["state"], run["conf"]) for run in runs] == [("success", {"reread": True})] * HOURS
            assert _by_start(runs) == sorted(_by_start(runs), reverse=True), "newest first"
            again = [batch.files for batch in ledger.batches()[len(before) :] if batch.purpose == "reread"]
            assert all(len({day.hour_of(name) for name in files}) == 1 for files in again), "a batch for each interval"
            asked = {name for batch in before for name in batch.files}
            assert asked and asked <= frozenset().union(*again)

            def all_ended() -> bool:
                return all(run["state"] in ENDED for run in airflow.runs("scheduled"))

            airflow.wait_for("end of the scheduled runs", all_ended)
            scheduled = airflow.runs("scheduled")
            assert {run["state"] for run in scheduled} == {"success"}
            [queued] = [_moment(run, "queued_at") for run in scheduled if _moment(run, "data_interval_end") == due]
            assert any(begin < queued < end for begin, end in zip(begins, ends, strict=True)), "beside no backfill"

        assert ledger.bound() == day.files()
        assert [verdict["differences"] for verdict in judge(place) if not verdict["equal"]] == []
        for table, confirmed in ledger.confirmed().items():
            folder = place.landing_zone / "{}.schema/{}".format(*table.split("."))
            files = sorted(file.stem for file in folder.rglob("*.parquet") if file.stem.isdigit())
            assert files == [f"{number:020d}" for number in range(1, confirmed + 1)]
        assert command_line(["reconcile", str(_mirror_file(place))]) == Exit.DONE


def _mirror_file(place: DemoFolder) -> Path:
    return place.mirrors / f"{MIRROR}.yaml"


def _write_mirror(place: DemoFolder, **settings: str) -> None:
    """The demo's mirror without first rows, and patient with files that are copied late."""
    document = yaml.safe_load(CES.mirror_file.read_text())
    document["source"]["gap_timeout_minutes"] = 600
    for table in document["tables"]:
        del table["initial_load"]
    _mirror_file(place).write_text(yaml.safe_dump(document | settings))


def _by_start(runs: list[dict[str, Any]]) -> list[str]:
    """The intervals of runs in the order in which they began."""
    return [run["logical_date"] for run in sorted(runs, key=lambda run: str(run["start_date"]))]


def _moment(run: dict[str, Any], name: str) -> datetime:
    return datetime.fromisoformat(run[name])


def _move(old: Path, new: Path) -> None:
    new.parent.mkdir(parents=True, exist_ok=True)
    old.rename(new)
