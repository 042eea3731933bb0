"""Spark job: publish what the log holds of every table that its gate lets pass, all tables in one application.

``spark-submit spark_jobs/publish_changes.py MIRROR.yaml [--tables a,b]``, or :func:`publish` in a running session.
Each table follows the publish protocol; the driver drives all of them in rounds, so that ledger writes of many
tables share a transaction and their rows are computed by one Spark job.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from pyspark.sql import SparkSession
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from open_mirroring import publishing as protocol
from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fault_points import reach
from open_mirroring.gating import gate
from open_mirroring.inspection import declare_tables, inspect_mirror, zone_address
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.ledger.publish_ledger import PublishLedger, StagedDetails
from open_mirroring.ledger.reading import LedgerReader, TableState
from spark_jobs.job import job_main, run_job
from spark_jobs.planning import PlanStop, TablePlan
from spark_jobs.publication import Preparation, Prepared
from spark_jobs.staging import StagedTable, StageTarget, StageTask, stage
from spark_jobs.zone_ports import ZonePorts

log = logging.getLogger(__name__)

_MAX_UNKNOWN = 5
_TASKS_PER_CORE = 3


class Published(NamedTuple):
    """What a run did: new file numbers per table, tables on hold and stopped with the reason."""

    files: Mapping[str, Sequence[int]]
    held: Mapping[str, str]
    stopped: Mapping[str, str]


def publish(mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None = None) -> Published:
    """Publish every table (of *only*, if given) that passes its gate; finish what an earlier run left open.

    A table that has to stop does not hinder the others.

    Raises:
        TransientError: ledger or store do not answer; what is half done is finished by the next run.
    """
    ids = declare_tables(mirror, ledger)
    unknown = sorted(set(only or ()) - ids.keys())
    if unknown:
        raise TerminalError(
            "TABLE_UNKNOWN", f"the mirror has no tables {unknown}", way_out=f"choose from {sorted(ids)}"
        )
    reader = LedgerReader(ledger, mirror.name)
    before = reader.tables()
    chosen = [source for source in ids if only is None or source in only]
    verdict = gate({s: f for s, f in inspect_mirror(mirror, ledger).items() if s in chosen})
    # An open intent is finished on hold too: its numbers are sealed or will be abandoned by nobody.
    open_ones = [s for s in verdict.held if before[s].row.intent is not None]
    run = _Publication(mirror, ledger, spark, verdict.passing)
    run.drive([before[source] for source in (*verdict.passing, *open_ones)])
    after = reader.tables()
    files = {
        source: [file.number for file in reader.published(state.id, state.row.generation, before[source].row.confirmed)]
        for source, state in after.items()
        if source in chosen and state.row.confirmed > before[source].row.confirmed
    }
    stopped = {s: f"{t.stop_code}: {t.stop_what}" for s, t in after.items() if t.stop_code and s in chosen}
    return Published(files, verdict.held, {**verdict.stopped, **stopped})


class _Publication:
    """Answers the protocol's requests of many tables, round by round, with the real ledger, store and workers."""

    def __init__(self, mirror: Mirror, ledger: Engine, spark: SparkSession, passing: Sequence[str]) -> None:
        self._mirror = mirror
        self._spark = spark
        self._ledger = PublishLedger(ledger, mirror.name)
        self._reader = LedgerReader(ledger, mirror.name)
        declared = {table.source: table for table in mirror.tables}
        self._preparation = Preparation(mirror.name, self._reader, declared, mirror.publish.max_rows_per_file)
        self._zone = zone_address(mirror)
        self._ports = ZonePorts(open_store(self._zone))
        self._passing = set(passing)
        self._tables: dict[str, TableState] = {}
        self._details: dict[str, StagedDetails] = {}

    def drive(self, tables: Sequence[TableState]) -> None:
        """Run every table's protocol to its end."""
        self._tables = {state.id: state for state in tables}
        states = {state.id: protocol.start() for state in tables}
        unknowns = 0
        while states:
            replies = self._round({table_id: state.request for table_id, state in states.items()})
            unknowns += any(isinstance(reply, protocol.Unknown) for reply in replies.values())
            if unknowns > _MAX_UNKNOWN:
                raise TransientError("STORE_UNREACHABLE", "ledger or store do not answer", way_out="try again later")
            stepped = {table_id: protocol.step(states[table_id], reply) for table_id, reply in replies.items()}
            states = {t: s for t, s in stepped.items() if not isinstance(s.request, protocol.Finished)}

    def _round(self, requests: Mapping[str, protocol.Request]) -> dict[str, protocol.Reply]:
        replies: dict[str, protocol.Reply] = {}
        by_kind: dict[type, dict[str, Any]] = {}
        for table_id, request in requests.items():
            by_kind.setdefault(type(request), {})[table_id] = request
        for kind, group in by_kind.items():
            replies |= self._answer(kind, group)
        return replies

    def _answer(self, kind: type, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        if kind in self._LEDGER:
            try:
                return self._LEDGER[kind](self, group)
            except OperationalError as error:
                log.warning("the ledger did not answer: %s", type(error.orig).__name__)
                return dict.fromkeys(group, protocol.Unknown())
        if kind is protocol.FindWork:
            return self._find_work(group)
        if kind is protocol.Stage:
            return self._stage(group)
        return {t: self._ports.answer(self._tables[t], request) for t, request in group.items()}

    # --- ledger ---------------------------------------------------------------------------------------------

    def _acquire(self, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        return self._ledger.acquire(group)

    def _establish(self, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        return self._ledger.establish({t: request.version for t, request in group.items()})

    def _intend(self, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        replies = self._ledger.intend({t: (request.version, request.intent) for t, request in group.items()})
        reach("publish.intended")
        return replies

    def _seal(self, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        replies = self._ledger.seal({t: (r.version, r.manifest, self._details[t]) for t, r in group.items()})
        reach("publish.sealed")
        return replies

    def _confirm(self, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        reach("publish.all_renamed")
        replies = self._ledger.confirm({t: request.version for t, request in group.items()})
        reach("publish.confirmed")
        return replies

    def _stop(self, group: Mapping[str, Any]) -> Mapping[str, protocol.Reply]:
        for table_id, request in group.items():
            log.error("%s stops: %s: %s", self._tables[table_id].source, request.code, request.what)
        return self._ledger.stop({t: (r.version, r.code, r.what) for t, r in group.items()})

    _LEDGER: Mapping[type, Callable[[_Publication, Mapping[str, Any]], Mapping[str, protocol.Reply]]] = {
        protocol.Acquire: _acquire,
        protocol.Establish: _establish,
        protocol.Intend: _intend,
        protocol.Seal: _seal,
        protocol.Confirm: _confirm,
        protocol.Stop: _stop,
    }

    # --- work -----------------------------------------------------------------------------------------------

    def _find_work(self, group: Mapping[str, protocol.FindWork]) -> Mapping[str, protocol.Reply]:
        committed = self._reader.mirror().committed
        ready = {
            self._tables[t].source: request.row.published_batch
            for t, request in group.items()
            if self._tables[t].source in self._passing and self._tables[t].load_state != "pending"
        }
        active = self._reader.contents(ready, committed)
        return {
            t: protocol.WorkFound(protocol.Work("changes", committed) if self._tables[t].source in active else None)
            for t in group
        }

    def _stage(self, group: Mapping[str, protocol.Stage]) -> Mapping[str, protocol.Reply]:
        intents = {t: request.row.intent for t, request in group.items()}
        fresh = {state.id: state for state in self._reader.tables().values()}
        prepared = self._preparation.prepare([(fresh[t], intent) for t, intent in intents.items() if intent])
        tasks = self._cut([p for p in prepared.values() if isinstance(p, Prepared)])
        log.info("staging %d tables in %d tasks", len(prepared), len(tasks))
        staged: dict[str, list[StagedTable]] = {}
        for results in run_job(self._spark, f"stage {len(prepared)} tables", stage, tasks):
            for result in results:
                staged.setdefault(result.table_id, []).append(result)
        reach("publish.staged")
        return {t: self._staged(t, prepared[t], staged.get(t, [])) for t in group}

    def _staged(
        self, table_id: str, prepared: Prepared | PlanStop, parts: Sequence[StagedTable]
    ) -> protocol.Staged | protocol.CannotStage:
        if isinstance(prepared, PlanStop):
            return protocol.CannotStage(prepared.code, prepared.what)
        for part in parts:
            if part.stop is not None:
                return protocol.CannotStage(*part.stop)
        counts: dict[str, int] = {}
        for part in parts:
            for name, count in part.counts.items():
                counts[name] = counts.get(name, 0) + count
        rejected = [reject for part in parts for reject in part.rejected]
        self._details[table_id] = StagedDetails(prepared.schema, counts, rejected)
        return protocol.Staged(tuple(file for part in parts for file in part.files))

    def _cut(self, prepared: Sequence[Prepared]) -> list[StageTask]:
        """Large tables by ranges of key buckets, small ones together: about as many rows in each task."""
        cores = self._spark.sparkContext.defaultParallelism
        share = max(1, sum(p.rows for p in prepared) // (_TASKS_PER_CORE * cores))
        groups: list[tuple[tuple[TablePlan, StageTarget], ...]] = []
        together: list[tuple[TablePlan, StageTarget]] = []
        weight = 0
        for one in sorted(prepared, key=lambda p: -p.rows):
            if len(one.plans) > 1:
                groups.extend((plan,) for plan in one.plans)
                continue
            together += one.plans
            weight += one.rows
            if weight >= share:
                groups.append(tuple(together))
                together, weight = [], 0
        if together:
            groups.append(tuple(together))
        root, attempt = self._mirror.resolve(self._mirror.change_log), uuid4().hex
        return [StageTask(root, self._zone, attempt, index, tables) for index, tables in enumerate(groups)]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tables", help="only these source tables, separated by commas")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry for ``spark-submit``; exit code 3 says that some tables are stopped while the others are done."""

    def work(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Published:
        return publish(mirror, ledger, spark, arguments.tables.split(",") if arguments.tables else None)

    return job_main("publish_changes", argv, work, _add_arguments)


if __name__ == "__main__":
    sys.exit(main())
