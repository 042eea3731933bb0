"""Publishes initial loads by the publish protocol: workers read chunks of a table and stage them as files."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

import pyarrow as pa

from open_mirroring.codes import Trait, having, next_step_of
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import split_source_name
from open_mirroring.config.tables import ExportLoad, JdbcLoad
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.landing_zone.data_file import Footer
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.salt import Salt
from open_mirroring.ledger.load_ledger import LoadPlan, chunk_text, chunks_of
from open_mirroring.ledger.publish_ledger import StagedDetails
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.operate.words import pace
from open_mirroring.protocols import publishing as protocol
from open_mirroring.reconciliation.inspection import zone_address
from spark_jobs.load.planning import export_of, pace_of, part_of, pieces_of, refuse_handed_over, weight_of
from spark_jobs.load.task import (
    ExportTask,
    LoadedChunk,
    LoadTarget,
    duplicate_in,
    duplicate_key,
    load_chunk,
    load_export_chunk,
    stage_no_rows,
)
from spark_jobs.publish.driver import StagedWork, Staging
from spark_jobs.runtime.tasks import THREADS, run_job, tasks_wanted
from spark_jobs.sources.exports.files import Export
from spark_jobs.sources.jdbc.tables import JdbcRows, JdbcTable
from spark_jobs.sources.sql_server.types import filled_length

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_CHUNKS_PER_CORE = 2
"""Chunks of one table in one publication, for each core; a killed run has to read at most so many again."""


def is_fixable(error: TerminalError) -> bool:
    """Whether an operator can fix the cause of an error, such as a setting, so that the load waits for the fix."""
    return error.code in having(Trait.WAITED_FOR)


class LoadWork:
    """Publishes initial loads: what a table has to publish next are its chunks that are not published yet."""

    kind: Literal["load"] = "load"

    def __init__(self, mirror: Mirror, reader: LedgerReader, spark: SparkSession) -> None:
        self._mirror = mirror
        self._reader = reader
        self._spark = spark
        self._declared = {table.source: table for table in mirror.tables}
        self._zone, self._salt = zone_address(mirror), mirror.salt()

    def find(
        self, tables: Mapping[str, TableState], rows: Mapping[str, protocol.TableRow]
    ) -> Mapping[str, protocol.Work]:
        """The next chunks of every table whose load is not complete."""
        now = self._reader.tables()
        found: dict[str, protocol.Work] = {}
        for table_id, state in tables.items():
            fresh = now[state.source]
            if fresh.start.load_state != "pending" or fresh.start.load_plan is None:
                continue
            plan = fresh.start.load_plan
            chunks = plan.remaining
            if not plan.together:
                size = weight_of(self._spark, self._declared[state.source], plan)
                chunks = chunks[: tasks_wanted(self._spark, size, THREADS, per_core=_CHUNKS_PER_CORE)]
            found[table_id] = protocol.Work("load", plan.hand_over_batch, chunk_text(chunks))
        return found

    def stage(self, tables: Mapping[str, TableState], intents: Mapping[str, protocol.Intent]) -> Mapping[str, Staging]:
        """Read the chunks in workers and stage them as files.

        The exports of all tables are read first, in one Spark job; then each table of a database is read.
        """
        now = self._reader.tables()
        loads: dict[str, _Intended] = {}
        for table_id, intent in intents.items():
            state = now[tables[table_id].source]
            if state.start.load_plan is None:
                raise ValueError(f"{state.source} has a load intent and no load plan")
            loads[table_id] = _Intended(state, self._declared[state.source], state.start.load_plan, intent)
        begun = time.monotonic()
        chunks = self._stage_exports(loads)
        for table_id, one in loads.items():
            if isinstance(one.table.initial_load, JdbcLoad):
                chunks[table_id] = self._stage_jdbc(one, one.table.initial_load)
        return {t: self._staged(one, chunks[t], time.monotonic() - begun) for t, one in loads.items()}

    def _stage_exports(self, loads: Mapping[str, _Intended]) -> dict[str, list[LoadedChunk]]:
        tasks: list[ExportTask] = []
        tables: list[str] = []
        exports: dict[str, Export] = {}
        chunks: dict[str, list[LoadedChunk]] = {}
        for table_id, one in loads.items():
            source, load = one.state.source, one.table.initial_load
            if isinstance(load, ExportLoad):
                exports[source], target = export_of(self._mirror, load), self._target(one)
                tasks += [ExportTask(c, source, pieces_of(one.plan.chunks[c]), target) for c in one.chunks]
                tables += [table_id] * len(one.chunks)
                chunks[table_id] = []
        work = partial(load_export_chunk, self._zone, self._salt, exports)
        size = sum(piece.weight for task in tasks for piece in task.pieces)
        loaded = run_job(self._spark, f"load {len(exports)} tables", work, tasks, size)
        for table_id, chunk in zip(tables, loaded, strict=True):
            chunks[table_id].append(chunk)
        return chunks

    def _stage_jdbc(self, one: _Intended, load: JdbcLoad) -> list[LoadedChunk]:
        log.info(
            "%s: reading %d chunks, %d of %d are loaded",
            *(one.state.source, len(one.chunks), len(one.plan.done), len(one.plan.chunks)),
        )
        parts = [part_of(one.plan.chunks[chunk]) for chunk in one.chunks]
        work = _jdbc_work(self._zone, self._salt, one.state.source, one.chunks, self._target(one))
        try:
            name, where = split_source_name(load.table or one.table.source), one.table.row_filter
            source = JdbcTable(self._spark, load.connection, name, where)
            chunks = source.read(one.plan.columns, parts[0][0], [part for _, part in parts], work, pace_of(load))
            # Checked after reading: changes that are logged at this time may be in the rows.
            logged = self._reader.highest(one.state.source, self._reader.mirror().committed)
            refuse_handed_over(one.table, one.state.row.generation, max(logged.values(), default=None))
        except MirroringError as error:
            return [LoadedChunk(one.chunks[0], error=error)]
        return chunks

    def _target(self, one: _Intended) -> LoadTarget:
        state, intent = one.state, one.intent
        batches = (intent.batch_from, intent.work.batch_to)
        footer = Footer(self._mirror.name, state.id, state.row.generation, intent.first_number, *batches, "load")
        settings = self._mirror.publish
        max_rows, compression = settings.max_rows_per_file, settings.compression
        plan, source = one.plan, state.source
        written = max_rows, footer, compression, plan.extra, source, one.table.row_filter
        return LoadTarget(state.folder, state.keys, plan.columns, *written)

    def _staged(self, one: _Intended, chunks: Sequence[LoadedChunk], seconds: float) -> Staging:
        error = next((chunk.error for chunk in chunks if chunk.error is not None), None)
        files = [file for chunk in chunks for file in chunk.files]
        target = self._target(one)
        shortest: dict[str, int] = {}
        for chunk in chunks:
            shortest |= {name: min(n, shortest.get(name, n)) for name, n in chunk.shortest.items()}
        try:
            if error is not None:
                raise error
            if isinstance(one.table.initial_load, ExportLoad):
                _refuse_unfilled(one.plan, shortest)
            if one.plan.together and len(chunks) > 1:
                self._prove_unique(one, chunks)
            is_last = set(one.plan.remaining) == set(one.chunks)
            is_empty = is_last and not files and not one.state.row.confirmed
            if is_empty and self._mirror.publish.empty_tables == "create":
                files = [stage_no_rows(self._zone, target)]
        except TerminalError as stop:
            if is_fixable(stop):
                return stop
            return protocol.CannotStage(stop.code, f"{stop.what} ({stop.where})" if stop.where else stop.what)
        except MirroringError as later:
            return later
        rows = sum(file.rows for file in files)
        so_far = rows + sum(file.rows for file in self._reader.published(one.state.id, one.state.row.generation))
        done = len(one.plan.done) + len(one.chunks)
        log.info(
            "%s: %d of %d chunks staged, %d rows, %d rows/s, %d rows so far%s",
            *(one.state.source, done, len(one.plan.chunks), rows, rows / max(seconds, 0.001), so_far),
            pace(len(one.chunks), len(one.chunks) + len(one.plan.chunks) - done, seconds),
        )
        details = StagedDetails(one.plan.schema, {"loaded": rows}, shortest=shortest)
        return StagedWork(protocol.Staged(tuple(files)), details)

    def _prove_unique(self, one: _Intended, chunks: Sequence[LoadedChunk]) -> None:
        """Check keys over all staged chunks, if the split column is no key: then a key may be in several."""
        store = open_store(self._zone)
        names = [(chunk.chunk, file) for chunk in chunks for file in chunk.files]
        with ExitStack() as fetched:
            files = [fetched.enter_context(store.fetch(file.object_name)) for _, file in names]
            there = [file for file in files if file is not None]
            if len(there) != len(files):
                raise TransientError(
                    "CHANGED_MEANWHILE", "a staged object is not there as created", next_step="run again"
                )
            target = self._target(one)
            twice = duplicate_in(there, target.key_schema)
        if twice is not None:
            raise duplicate_key(*(_staged_place(names, row) for row in twice))


def _refuse_unfilled(plan: LoadPlan, shortest: Mapping[str, int]) -> None:
    """Refuse an export with values shorter than their fixed-length type: trailing blanks or zeros were cut (G-86)."""
    for column in plan.columns:
        length = filled_length(column.sql_type or "")
        if length is not None and shortest.get(column.name, length) < length:
            what = f"the column {column.name!r} is {column.sql_type}, and has a value of {shortest[column.name]} bytes"
            said = f"{what}: the export cut what the source fills it up with"
            raise TerminalError("VALUE_INVALID", said, next_step=next_step_of("VALUE_INVALID"))


class _Intended(NamedTuple):
    state: TableState
    table: Table
    plan: LoadPlan
    intent: protocol.Intent

    @property
    def chunks(self) -> tuple[int, ...]:
        return chunks_of(self.intent.work.chunk)


def _jdbc_work(
    zone: ZoneAddress, salt: Salt | None, source: str, chunks: Sequence[int], target: LoadTarget
) -> Callable[[int, Iterable[pa.RecordBatch]], LoadedChunk]:
    """The function that stages a chunk in a worker. It refers to plain values only, so that it can be sent there."""

    def work(part: int, batches: Iterable[pa.RecordBatch]) -> LoadedChunk:
        chunk = chunks[part]
        rows = JdbcRows(batches, target.columns, target.schema, f"{source}, chunk {chunk + 1}")
        return load_chunk(zone, salt, chunk, rows, target)

    return work


def _staged_place(names: Sequence[tuple[int, protocol.StagedFile]], row: int) -> str:
    for chunk, file in names:
        if row < file.rows:
            return f"chunk {chunk + 1}, row {row + 1} as read"
        row -= file.rows
    raise ValueError("the row is in none of the files")
