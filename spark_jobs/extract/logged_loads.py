"""Reads initial loads into the change log, for tables that cannot be loaded straight into the landing zone.

An initial load goes through the change log if changes contain only some columns and are completed from earlier rows, or
if the landing zone's files are delimited text. Chunks of the initial load become batches by the extract protocol; the
table is published once its last chunk is in the change log (G-04). All rows are logged as INSERTs at one position in a
separate epoch, below every change: so a chunk that is read twice changes nothing, and a key with two different rows is
a conflict (G-02, G-08).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pyarrow as pa
from sqlalchemy import Engine

from open_mirroring.changes.log_position import load_epoch, position_text
from open_mirroring.changes.manifest import BoundRange, LoadChunk
from open_mirroring.changes.row_key import encode_key, key_bucket
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import split_source_name
from open_mirroring.config.storage import log_place
from open_mirroring.config.tables import ExportLoad, JdbcLoad
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.facts.full_loads import SHORTEST_VALUES
from open_mirroring.facts.kind import NewFacts
from open_mirroring.facts.unreadable import READING_STOPS
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.reading import LedgerReader, TableState
from spark_jobs.changelog.schema import CHANGE, INSERT, LogRow
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import LogTarget
from spark_jobs.load.planning import OTHER_SETTINGS, export_of, pace_of, part_of, pieces_of, settings_of
from spark_jobs.load.task import Rows, measured
from spark_jobs.load.work import is_fixable
from spark_jobs.runtime.tasks import run_job
from spark_jobs.sources.exports.files import Export, ExportRows, Piece
from spark_jobs.sources.jdbc.tables import JdbcRows, JdbcTable
from spark_jobs.sources.sql_server.chosen_types import type_of_landed
from spark_jobs.sources.sql_server.types import canonical_text, type_of_landed_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE_POSITION = position_text("-", "0", 1)
"""The position of loaded rows; as text it sorts below every position of a source."""


class BaseTarget(NamedTuple):
    """The table, columns and types of rows of an initial load, and where they are logged; *origin* names the chunk."""

    source: str
    generation: int
    keys: tuple[str, ...]
    columns: tuple[LoadColumn, ...]
    schema: pa.Schema
    origin: str
    log: LogTarget


BaseTask = tuple[tuple[Piece, ...], BaseTarget]
"""The pieces of one chunk of an export, to be logged by one worker."""


class BaseChunk(NamedTuple):
    """The result of a chunk: its part of the manifest, or the error, which a worker returns instead of raising."""

    origin: str
    part: Part
    error: MirroringError | None = None


def log_export_chunk(exports: Mapping[str, Export], task: BaseTask) -> BaseChunk:
    """Read one chunk of an export into the change log's files; an error is returned, not raised.

    Logins are in *exports*, which Spark sends with the function, and not in *task*, because Spark stores tasks in
    files.
    """
    pieces, target = task
    return log_chunk(ExportRows(exports[target.source], pieces, target.columns, target.schema), target)


def log_chunk(rows: Rows, target: BaseTarget) -> BaseChunk:
    """Write the rows of one chunk into the change log's files; an error is returned, not raised.

    After an error, nothing refers to the files that were already written.
    """
    writer, read, shortest = target.log.writer(), 0, dict[str, int]()
    try:
        for table in measured(rows, target.columns, shortest):
            writer.add(base_rows(table, target, read))
            read += table.num_rows
    except MirroringError as error:
        return BaseChunk(target.origin, Part(), error)
    facts: NewFacts = {}
    for name, length in shortest.items():
        SHORTEST_VALUES.add(facts, length, table=target.source, name=name)
    return BaseChunk(target.origin, Part(writer.finish(), facts, counts={"loaded": read}))


def base_rows(table: pa.Table, target: BaseTarget, above: int = 0) -> Iterator[LogRow]:
    """Convert rows of an initial load to rows of the change log; *above* is the number of earlier rows of the chunk."""
    types = {column.name: type_of_landed_key(column.type) for column in target.columns}
    typed = [[column.name, type_of_landed(column), at] for at, column in enumerate(target.columns)]
    cols = msgspec.json.encode(typed).decode()
    # A typed value's one spelling reads back as that value: nothing is lost on the way through the log.
    texts = {
        name: [None if value is None else canonical_text(kind, value) for value in table[name].to_pylist()]
        for name, kind in types.items()
    }
    epoch = load_epoch(target.generation)
    for at in range(table.num_rows):
        key = encode_key([texts[name][at] or "" for name in target.keys])
        row = msgspec.json.encode({name: texts[name][at] for name in types}).decode()
        yield LogRow(
            CHANGE,
            target.origin,
            above + at,
            target.source,
            key_bucket(key),
            epoch,
            BASE_POSITION,
            INSERT,
            key,
            cols,
            True,
            row,
        )


log = logging.getLogger(__name__)


def chunks_to_log(tables: Iterable[TableState], bound: Mapping[str, int], at_most: int) -> list[BoundRange]:
    """The next chunks (at most *at_most*) that belong to no batch yet; each chunk is one range."""
    found = [
        BoundRange(name, 0, 1)
        for state in tables
        if state.start.load_plan is not None
        for chunk in range(len(state.start.load_plan.chunks))
        if (name := LoadChunk(state.source, state.row.generation, chunk).name) not in bound
    ]
    return found[:at_most]


class _Chunk(NamedTuple):
    """A bound chunk of a load, with its table and settings."""

    name: str
    number: int
    state: TableState
    plan: LoadPlan
    load: ExportLoad | JdbcLoad


def log_loads(
    mirror: Mirror, ledger: Engine, spark: SparkSession, batch: int, attempt: str, ranges: Sequence[BoundRange]
) -> list[Part]:
    """Read the chunks of initial loads in *ranges* into the change log, and return the parts of the batch's manifest.

    A chunk that cannot be read does not delay the others: a later batch reads the chunk again, or its table stops if
    the error cannot be fixed. A chunk of an earlier generation of the table is skipped.
    """
    tables = LedgerReader(ledger, mirror.name).tables()
    declared = {table.source: table for table in mirror.tables}
    tasks, read, parts, sources = [], list[BaseChunk](), list[Part](), dict[str, str]()
    by_table: dict[str, list[tuple[_Chunk, BaseTarget]]] = {}
    exports, root = dict[str, Export](), log_place(mirror)
    for at, bound in enumerate(ranges):
        chunk = _chunk(bound.name, tables, declared)
        if not isinstance(chunk, _Chunk):
            parts.append(chunk)
            continue
        target, sources[chunk.name] = _target(chunk, LogTarget(root, batch, attempt, at)), chunk.state.source
        if isinstance(chunk.load, ExportLoad):
            exports[chunk.state.source] = export_of(mirror, chunk.load)
            tasks.append((pieces_of(chunk.plan.chunks[chunk.number]), target))
        else:
            by_table.setdefault(chunk.state.source, []).append((chunk, target))
    for asked in by_table.values():
        read += _read_jdbc(spark, asked)
    size = sum(piece.weight for pieces, _ in tasks for piece in pieces)
    read += run_job(spark, f"log {len(tasks)} chunks of loads", partial(log_export_chunk, exports), tasks, size)
    return [*parts, *(_part(one, sources[one.origin]) for one in read)]


def _read_jdbc(spark: SparkSession, asked: Sequence[tuple[_Chunk, BaseTarget]]) -> list[BaseChunk]:
    """Read chunks of one table in parallel; if its database does not answer, all of them fail."""
    chunk, targets = asked[0][0], [target for _, target in asked]
    load = chunk.load
    assert isinstance(load, JdbcLoad)
    parts = [part_of(one.plan.chunks[one.number]) for one, _ in asked]

    # It refers to plain values only, so that it can be sent to workers.
    def work(part: int, batches: Iterable[pa.RecordBatch]) -> BaseChunk:
        target = targets[part]
        return log_chunk(JdbcRows(batches, target.columns, target.schema, target.origin), target)

    try:
        source = JdbcTable(spark, load.connection, split_source_name(load.table or chunk.state.source))
        ranges = [part for _, part in parts]
        return source.read(chunk.plan.columns, parts[0][0], ranges, work, pace_of(load))
    except MirroringError as error:
        return [BaseChunk(target.origin, Part(), error) for target in targets]


def _chunk(name: str, tables: Mapping[str, TableState], declared: Mapping[str, Table]) -> _Chunk | Part:
    """The chunk with this name; if there is nothing to read, the finished part of the manifest instead."""
    bound = LoadChunk.of(name)
    if bound is None:
        raise ValueError(f"{name!r} is no chunk of a load, and bound with some")
    state, table = tables.get(bound.source), declared.get(bound.source)
    if state is None or state.start.load_plan is None or state.row.generation != bound.generation:
        log.info("%s: the table was reset or dropped since it was bound", name)
        return Part()
    plan = state.start.load_plan
    if table is None or table.initial_load is None or settings_of(table) != plan.settings:
        return Part(given_back={name: OTHER_SETTINGS})
    return _Chunk(name, bound.number, state, plan, table.initial_load)


def _target(chunk: _Chunk, target: LogTarget) -> BaseTarget:
    columns = [column.landing for column in chunk.plan.columns]
    schema = file_schema(columns, chunk.state.keys, marker=False)
    of_table = chunk.state.source, chunk.state.row.generation, chunk.state.keys
    return BaseTarget(*of_table, chunk.plan.columns, schema, chunk.name, target)


def _part(read: BaseChunk, source: str) -> Part:
    if read.error is None:
        return read.part
    log.error("%s: %s", read.origin, read.error)
    facts: NewFacts = {}
    if isinstance(read.error, TerminalError) and not is_fixable(read.error):
        where = f" ({read.error.where})" if read.error.where else ""
        READING_STOPS.add(facts, (read.error.code, f"{read.error.what}{where}"), table=source)
    return Part(facts=facts, given_back={read.origin: str(read.error)})
