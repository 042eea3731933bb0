"""Spark job: loads the first rows of every table that has an initial load.

``spark-submit spark_jobs/initial_load.py MIRROR.yaml [--tables a,b]``, or :func:`load` in a running Spark session. Rows
are published as files without row markers, so Fabric inserts all of them. Some tables are loaded into the change log
instead (:mod:`spark_jobs.extract.logged_loads`). The next run continues the loads that a killed run left open. A row
that cannot be loaded stops only its own table.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Engine

from open_mirroring.changes.manifest import BoundRange, LoadChunk
from open_mirroring.config import Mirror, Table
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.ledger.load_ledger import LoadLedger
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.operate.words import pace
from open_mirroring.protocols.verdicts import BACKLOG, LOAD_PENDING, gate
from open_mirroring.reconciliation.inspection import declare_tables, inspect_mirror
from open_mirroring.reconciliation.losses import look
from spark_jobs.dead_letters.healing import settle_outdated_letters
from spark_jobs.dead_letters.open_letters import ensure_counted
from spark_jobs.extract.driver import log_ranges
from spark_jobs.extract.logged_loads import chunks_to_log
from spark_jobs.load.planning import plan_load, refuse_other_load, weight_of
from spark_jobs.load.work import LoadWork
from spark_jobs.publish.driver import PublicationDriver
from spark_jobs.reconcile.lost_ledger import log_ahead
from spark_jobs.runtime.job import TABLES, Job
from spark_jobs.runtime.tasks import THREADS, tasks_wanted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_CHUNKS_PER_CORE = 2
"""Load chunks in one batch, for each core; a killed run has to read at most so many again."""


class Loaded(NamedTuple):
    """The result: rows loaded and new file numbers by table; tables on hold and stopped, with the reason.

    *losses* describes what tables lack, by table, for all tables of the mirror.
    """

    rows: Mapping[str, int]
    files: Mapping[str, Sequence[int]]
    held: Mapping[str, str]
    stopped: Mapping[str, str]
    losses: Mapping[str, str]


def load(
    mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None = None, *, mirroring: bool = True
) -> Loaded:
    """Load every table (only those in *only*, if given) that has an initial load and is not loaded yet.

    *mirroring* is whether Fabric already applies files. If it is False, no table waits until Fabric has applied its
    earlier files (F-42).

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` if *only* names a table that the mirror does not have.
        TransientError: the ledger, the landing zone or a source does not answer. The tables that could be loaded were
            loaded before the error is raised; the next run loads the others.
    """
    declare_tables(mirror, ledger, only)
    if lost := log_ahead(mirror, ledger):
        raise lost
    ensure_counted(mirror, ledger)
    reader = LedgerReader(ledger, mirror.name)
    before = {
        s: t for s, t in reader.tables().items() if t.start.load_state == "pending" and (only is None or s in only)
    }
    findings = inspect_mirror(mirror, ledger) if before else {}
    passed_over = {LOAD_PENDING} if mirroring else {LOAD_PENDING, BACKLOG}
    _, held, stopped = gate({source: findings[source] for source in before if findings[source].code not in passed_over})
    failed: dict[str, MirroringError] = {}
    declared, loads = {table.source: table for table in mirror.tables}, LoadLedger(ledger, mirror.name)
    for source in [source for source in before if source not in {*held, *stopped}]:
        if error := _bind(mirror, declared[source], before[source], reader, loads, spark):
            failed[source] = error
    tables = reader.tables()
    ready = [source for source in before if source not in {*held, *failed, *stopped}]
    logged = [source for source in ready if declared[source].loads_through_log]
    driver = PublicationDriver(mirror, ledger, LoadWork(mirror, reader, spark))
    driver.drive([tables[source] for source in ready if source not in logged])
    failed |= driver.postponed
    rows = _log(mirror, ledger, spark, reader, [declared[source] for source in logged], held) if logged else {}
    after = reader.tables()
    files = {}
    for source, made in driver.made.items():
        found = reader.published(after[source].id, after[source].row.generation, min(made) - 1)
        files[source] = [file for file in found if file.number in made]
    stopped |= {s: f"{after[s].stop_code}: {after[s].stop_what}" for s in before if after[s].stop_code}
    stopped |= {s: str(error) for s, error in failed.items() if isinstance(error, TerminalError)}
    for error in failed.values():
        if isinstance(error, TransientError):
            raise error
    rows |= {source: sum(file.rows for file in found) for source, found in files.items()}
    held = {source: why for source, why in held.items() if source not in stopped}
    settle_outdated_letters(mirror, ledger)
    losses = look(mirror, ledger).lost
    return Loaded(rows, {s: [file.number for file in found] for s, found in files.items()}, held, stopped, losses)


def _log(
    mirror: Mirror,
    ledger: Engine,
    spark: SparkSession,
    reader: LedgerReader,
    loading: Sequence[Table],
    held: dict[str, str],
) -> dict[str, int]:
    """Write loads into the change log; returns the number of rows by table.

    Adds to *held* the reason why a table's load waits for the next run.
    """
    sources, planned = [table.source for table in loading], reader.tables()
    plans = {table.source: planned[table.source].start.load_plan for table in loading}
    size = sum(weight_of(spark, table, plan) for table in loading if (plan := plans[table.source]) is not None)
    at_once = tasks_wanted(spark, size, THREADS, per_core=_CHUNKS_PER_CORE)
    given_back: dict[str, str] = {}
    rows: dict[str, int] = {}
    begun, before = time.monotonic(), _chunks_in_log(reader)

    def find(bound: dict[str, int]) -> Sequence[BoundRange]:
        now = reader.tables()
        states = [now[source] for source in sources if now[source].stop_code is None]
        return chunks_to_log(states, bound | dict.fromkeys(given_back, 1), at_once)

    while (manifest := log_ranges(mirror, ledger, spark, find)) is not None:
        given_back.update(manifest.given_back)
        for file in manifest.files:
            for source, epochs in file["tables"].items():
                rows[source] = rows.get(source, 0) + sum(count for count, _, _ in epochs.values())
        _print_progress(reader, sources, rows, before, time.monotonic() - begun)
    held |= {chunk.source: reason for name, reason in given_back.items() if (chunk := LoadChunk.of(name)) is not None}
    loads, bound, now = LoadLedger(ledger, mirror.name), reader.bound(), reader.tables()
    for source in sources:
        state = now[source]
        if state.start.load_plan is not None and state.stop_code is None and not chunks_to_log([state], bound, 1):
            loads.finish(state.id, state.start.load_plan)
            log.info("%s: its load is in the change log, the next run publishes it", source)
    return rows


def _chunks_in_log(reader: LedgerReader) -> Counter[tuple[str, int]]:
    chunks = (LoadChunk.of(name) for name in reader.bound())
    return Counter((chunk.source, chunk.generation) for chunk in chunks if chunk is not None)


def _print_progress(
    reader: LedgerReader,
    sources: Sequence[str],
    rows: Mapping[str, int],
    before: Mapping[tuple[str, int], int],
    seconds: float,
) -> None:
    logged, tables = _chunks_in_log(reader), reader.tables()
    for source in sources:
        state = tables[source]
        if state.start.load_plan is not None:
            life = source, state.row.generation
            done, of = logged[life], len(state.start.load_plan.chunks)
            read, earlier = rows.get(source, 0), before.get(life, 0)
            log.info(
                "%s: %d of %d chunks in the log, %d rows in this run, %d rows/s%s",
                *(source, done, of, read, read / max(seconds, 0.001)),
                pace(done - earlier, of - earlier, seconds),
            )


def _bind(
    mirror: Mirror, table: Table, state: TableState, reader: LedgerReader, ledger: LoadLedger, spark: SparkSession
) -> MirroringError | None:
    try:
        if state.start.load_plan is None:
            bound = plan_load(mirror, table, state.id, ledger, spark, reader.logged_types(state.id))
            if ledger.bind(state.id, *bound):
                log.info("%s: the load has %d chunks", table.source, len(bound.plan.chunks))
        else:
            refuse_other_load(mirror, table, state.start.load_plan)
    except MirroringError as error:
        log.error("%s cannot be loaded: %s", table.source, error)
        ledger.note_refused(state.id, str(error))
        return error
    if state.start.load_refused is not None:
        ledger.note_refused(state.id, None)
    return None


main = Job(
    "initial_load",
    lambda mirror, ledger, spark, named: load(mirror, ledger, spark, named.tables),
    (TABLES,),
)


if __name__ == "__main__":
    sys.exit(main())
