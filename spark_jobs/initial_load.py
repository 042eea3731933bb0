"""Spark job: snapshot every table that has an initial load into marker-free files of the landing zone.

``spark-submit spark_jobs/initial_load.py MIRROR.yaml [--tables a,b]``, or :func:`load` in a running session. A load
is a series of intents of some chunks each, published by the same protocol as changes; a run that was killed is resumed
by the next one, and a table that is loaded is left alone. A load is all or nothing: a row that cannot be loaded stops
its table, never another one.
"""

from __future__ import annotations

import argparse
import logging
import pickle
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlalchemy import Engine

from open_mirroring import publishing as protocol
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import split_source_name
from open_mirroring.config.tables import ExportLoad, JdbcLoad
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.inspection import declare_tables, inspect_mirror, zone_address
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.opening import open_store
from open_mirroring.ledger.load_ledger import LoadLedger, LoadPlan, chunk_text, chunks_of
from open_mirroring.ledger.publish_ledger import StagedDetails
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.verdicts import LOAD_PENDING, Verdict
from spark_jobs.job import job_main, run_job
from spark_jobs.load_planning import export_of, part_of, pieces_of, plan_load, settings_of
from spark_jobs.load_task import (
    ExportTask,
    LoadedChunk,
    LoadTarget,
    duplicate_key,
    load_chunk,
    load_export_chunk,
    stage_no_rows,
)
from spark_jobs.publication_driver import PublicationDriver, StagedWork, Staging
from spark_jobs.sources.jdbc import JdbcRows, JdbcTable
from spark_jobs.unique_keys import find_duplicate, key_columns

log = logging.getLogger(__name__)

_CHUNKS_PER_CORE = 2
"""Chunks of one table in one intent, for each core: what a killed run may have to read again."""
_MENDABLE = ("EXPORT_CHANGED", "SOURCE_", "CONNECTION_")
"""Codes (or beginnings of them) of what can be put back as it was: the load waits for it. A bad row ends the load."""


class Loaded(NamedTuple):
    """What a run did: rows loaded and new file numbers per table; tables on hold and stopped, with the reason."""

    rows: Mapping[str, int]
    files: Mapping[str, Sequence[int]]
    held: Mapping[str, str]
    stopped: Mapping[str, str]


def load(mirror: Mirror, ledger: Engine, spark: SparkSession, only: Sequence[str] | None = None) -> Loaded:
    """Load every table (of *only*, if given) that has an initial load and is not loaded yet.

    Raises:
        TerminalError: ``TABLE_UNKNOWN`` for a name in *only* that the mirror does not have.
        TransientError: ledger, store or a source do not answer; everything else was done first, and the next run
            goes on where this one stopped.
    """
    ids = declare_tables(mirror, ledger)
    unknown = sorted(set(only or ()) - ids.keys())
    if unknown:
        raise TerminalError(
            "TABLE_UNKNOWN", f"the mirror has no tables {unknown}", way_out=f"choose from {sorted(ids)}"
        )
    reader = LedgerReader(ledger, mirror.name)
    before = {s: t for s, t in reader.tables().items() if t.load_state == "pending" and (only is None or s in only)}
    findings = inspect_mirror(mirror, ledger) if before else {}
    held: dict[str, str] = {}
    failed: dict[str, MirroringError] = {}
    stopped: dict[str, str] = {}
    declared = {table.source: table for table in mirror.tables}
    for source in before:
        finding = findings[source]
        if finding.verdict is Verdict.STOP:
            stopped[source] = f"{finding.code}: {finding.what}"
        elif finding.verdict is Verdict.HOLD and finding.code != LOAD_PENDING:
            held[source] = f"{finding.code}: {finding.what}"
        elif error := _bind(mirror, declared[source], before[source], LoadLedger(ledger, mirror.name), spark):
            failed[source] = error
    tables = reader.tables()
    driver = PublicationDriver(mirror, ledger, _LoadWork(mirror, reader, spark))
    driver.drive([tables[source] for source in before if source not in {*held, *failed, *stopped}])
    failed |= driver.postponed
    after = reader.tables()
    files = {
        source: reader.published(state.id, after[source].row.generation, state.row.confirmed)
        for source, state in before.items()
        if after[source].row.confirmed > state.row.confirmed
    }
    stopped |= {s: f"{after[s].stop_code}: {after[s].stop_what}" for s in before if after[s].stop_code}
    stopped |= {s: str(error) for s, error in failed.items() if isinstance(error, TerminalError)}
    for error in failed.values():
        if isinstance(error, TransientError):
            raise error
    rows = {source: sum(file.rows for file in found) for source, found in files.items()}
    return Loaded(rows, {s: [file.number for file in found] for s, found in files.items()}, held, stopped)


def _bind(
    mirror: Mirror, table: Table, state: TableState, ledger: LoadLedger, spark: SparkSession
) -> MirroringError | None:
    """Bind a plan where there is none yet; what hinders it."""
    try:
        if table.initial_load is None:
            what = "the mirror file has no `initial_load` for it any more"
            raise TerminalError("LOAD_CHANGED", what, way_out="put it back, or reset the table")
        if state.load_plan is None:
            bound = plan_load(mirror, table, ledger, spark)
            if ledger.bind(state.id, bound.plan, bound.stream_from):
                log.info("%s: the load has %d chunks", table.source, len(bound.plan.chunks))
        elif LoadPlan.from_document(state.load_plan).settings != settings_of(table):
            what = "the settings of its initial load are not those with which the load began"
            raise TerminalError("LOAD_CHANGED", what, way_out="put them back as they were, or reset the table")
    except MirroringError as error:
        log.error("%s cannot be loaded: %s", table.source, error)
        return error
    return None


class _LoadWork:
    """Publishing initial loads: what is next is the chunks that are not published yet."""

    kind: Literal["load"] = "load"

    def __init__(self, mirror: Mirror, reader: LedgerReader, spark: SparkSession) -> None:
        self._mirror = mirror
        self._reader = reader
        self._spark = spark
        self._declared = {table.source: table for table in mirror.tables}
        self._zone = zone_address(mirror)
        self._at_once = _CHUNKS_PER_CORE * spark.sparkContext.defaultParallelism

    def find(
        self, tables: Mapping[str, TableState], rows: Mapping[str, protocol.TableRow]
    ) -> Mapping[str, protocol.Work]:
        """The next chunks of every table whose load is not complete."""
        now = self._reader.tables()
        found: dict[str, protocol.Work] = {}
        for table_id, state in tables.items():
            fresh = now[state.source]
            if fresh.load_state != "pending" or fresh.load_plan is None:
                continue
            plan = LoadPlan.from_document(fresh.load_plan)
            chunks = plan.remaining if plan.together else plan.remaining[: self._at_once]
            found[table_id] = protocol.Work("load", plan.hand_over_batch, chunk_text(chunks))
        return found

    def stage(self, tables: Mapping[str, TableState], intents: Mapping[str, protocol.Intent]) -> Mapping[str, Staging]:
        """Read, type and stage the chunks of the intents in the workers: all exports together, then each database."""
        now = self._reader.tables()
        loads: dict[str, _Intended] = {}
        for table_id, intent in intents.items():
            state = now[tables[table_id].source]
            if state.load_plan is None:
                raise ValueError(f"{state.source} has a load intent and no load plan")
            loads[table_id] = _Intended(
                state, self._declared[state.source], LoadPlan.from_document(state.load_plan), intent
            )
        begun = time.monotonic()
        chunks = self._stage_exports({t: one for t, one in loads.items() if one.export is not None})
        for table_id, one in loads.items():
            if isinstance(one.table.initial_load, JdbcLoad):
                chunks[table_id] = self._stage_jdbc(one, one.table.initial_load)
        return {t: self._staged(one, chunks[t], time.monotonic() - begun) for t, one in loads.items()}

    def _stage_exports(self, loads: Mapping[str, _Intended]) -> dict[str, list[LoadedChunk]]:
        tasks = [
            (t, ExportTask(c, export_of(self._mirror, one.export), pieces_of(one.plan.chunks[c]), self._target(one)))
            for t, one in loads.items()
            if one.export is not None
            for c in one.chunks
        ]
        chunks: dict[str, list[LoadedChunk]] = {t: [] for t in loads}
        loaded = run_job(self._spark, f"load {len(loads)} tables", load_export_chunk, [task for _, task in tasks])
        for (table_id, _), chunk in zip(tasks, loaded, strict=True):
            chunks[table_id].append(chunk)
        return chunks

    def _stage_jdbc(self, one: _Intended, load: JdbcLoad) -> list[LoadedChunk]:
        parts = [part_of(one.plan.chunks[chunk]) for chunk in one.chunks]
        work = _jdbc_work(one.state.source, one.chunks, self._target(one))
        try:
            source = JdbcTable(self._spark, load.connection, split_source_name(load.table or one.table.source))
            answers = source.read(one.plan.columns, parts[0][0], [part for _, part in parts], work)
        except MirroringError as error:
            return [LoadedChunk(one.chunks[0], error=error)]
        return [pickle.loads(answer) for answer in answers]

    def _target(self, one: _Intended) -> LoadTarget:
        state, intent = one.state, one.intent
        batches = (intent.batch_from, intent.work.batch_to)
        footer = Footer(self._mirror.name, state.id, state.row.generation, intent.first_number, *batches, "load")
        max_rows = self._mirror.publish.max_rows_per_file
        return LoadTarget(self._zone, state.folder, state.keys, one.plan.columns, max_rows, footer)

    def _staged(self, one: _Intended, chunks: Sequence[LoadedChunk], seconds: float) -> Staging:
        error = next((chunk.error for chunk in chunks if chunk.error is not None), None)
        files = [file for chunk in chunks for file in chunk.files]
        target = self._target(one)
        try:
            if error is not None:
                raise error
            if one.plan.together and len(chunks) > 1:
                self._prove_unique(one, chunks)
            if not files and one.is_last and not one.state.row.confirmed:
                files = [stage_no_rows(target)]
        except TerminalError as stop:
            if stop.code.startswith(_MENDABLE):
                return stop
            return protocol.CannotStage(stop.code, f"{stop.what} ({stop.where})" if stop.where else stop.what)
        except MirroringError as later:
            return later
        rows = sum(file.rows for file in files)
        done = len(one.plan.done) + len(one.chunks)
        log.info(
            "%s: %d of %d chunks staged, %d rows, %d rows/s",
            *(one.state.source, done, len(one.plan.chunks), rows, rows / max(seconds, 0.001)),
        )
        return StagedWork(protocol.Staged(tuple(files)), StagedDetails(one.plan.schema, {"loaded": rows}))

    def _prove_unique(self, one: _Intended, chunks: Sequence[LoadedChunk]) -> None:
        """Over all chunks of a table whose keys do not tell the chunk: read back what was staged."""
        store = open_store(self._zone)
        names = [(chunk.chunk, file) for chunk in chunks for file in chunk.files]
        files = [store.fetch(file.object_name) for _, file in names]
        there = [file for file in files if file is not None]
        if len(there) != len(files):
            raise TransientError("STAGED_GONE", "a staged object is not there as created", way_out="run again")
        schema = self._target(one).schema
        keys = pa.schema([schema.field(key) for key in one.state.keys])
        twice = find_duplicate(key_columns(there, one.state.keys), keys)
        if twice is not None:
            raise duplicate_key(*(_staged_place(names, row) for row in twice))


class _Intended(NamedTuple):
    """A table with an open load intent."""

    state: TableState
    table: Table
    plan: LoadPlan
    intent: protocol.Intent

    @property
    def chunks(self) -> tuple[int, ...]:
        return chunks_of(self.intent.work.chunk)

    @property
    def is_last(self) -> bool:
        return set(self.plan.remaining) == set(self.chunks)

    @property
    def export(self) -> ExportLoad | None:
        load = self.table.initial_load
        return load if isinstance(load, ExportLoad) else None


def _jdbc_work(
    source: str, chunks: Sequence[int], target: LoadTarget
) -> Callable[[int, Iterable[pa.RecordBatch]], bytes]:
    """What a worker does with the texts of a part: a function of plain values, as it travels to the workers."""

    def work(part: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        chunk = chunks[part]
        rows = JdbcRows(batches, target.columns, target.schema, f"{source}, chunk {chunk + 1}")
        return pickle.dumps(load_chunk(chunk, rows, target))

    return work


def _staged_place(names: Sequence[tuple[int, protocol.StagedFile]], row: int) -> str:
    for chunk, file in names:
        if row < file.rows:
            return f"chunk {chunk + 1}, row {row + 1} as read"
        row -= file.rows
    raise ValueError("the row is in none of the files")


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tables", help="only these source tables, separated by commas")


def main(argv: Sequence[str] | None = None) -> int:
    """Entry for ``spark-submit``; exit code 3 says that some tables are stopped while the others are done."""

    def work(mirror: Mirror, ledger: Engine, spark: SparkSession, arguments: argparse.Namespace) -> Loaded:
        return load(mirror, ledger, spark, arguments.tables.split(",") if arguments.tables else None)

    return job_main("initial_load", argv, work, _add_arguments)


if __name__ == "__main__":
    sys.exit(main())
