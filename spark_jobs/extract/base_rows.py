"""Turns rows of an initial load into rows of the change log; later partial changes are completed from them.

A base row is an INSERT in an incarnation of its own, below every stream of its table. Each generation of the table has
another one, so rows of an earlier load do not come back. All rows of a load stand at one position: a key that the load
holds twice with two contents is found as a conflict, and a chunk that is read twice changes nothing (G-02, G-04, G-08).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import pyarrow as pa

from open_mirroring.changes.log_position import load_epoch, position_text
from open_mirroring.changes.row_key import encode_key, key_bucket
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.load_ledger import LoadColumn
from spark_jobs.changelog.schema import CHANGE, INSERT, LogRow
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import LogTarget
from spark_jobs.load.task import MeasuredRows, Rows
from spark_jobs.sources.exports.files import Export, ExportRows, Piece
from spark_jobs.sources.sql_server.chosen_types import type_of_landed
from spark_jobs.sources.sql_server.types import canonical_text, type_of_landed_key

BASE_POSITION = position_text("-", "0", 1)
"""The text sorts below every position that a source gives."""


class BaseTarget(NamedTuple):
    """Whose rows they are, how they are typed, and where they are logged; *origin* is the bound range."""

    source: str
    generation: int
    keys: tuple[str, ...]
    columns: tuple[LoadColumn, ...]
    schema: pa.Schema
    origin: str
    log: LogTarget


class BaseTask(NamedTuple):
    """One chunk of the export of the table *source*, to be logged by one worker."""

    source: str
    pieces: tuple[Piece, ...]
    target: BaseTarget


class BaseChunk(NamedTuple):
    """The result of a chunk: its part of the manifest, or the error that a worker cannot raise through Spark."""

    origin: str
    part: Part
    error: MirroringError | None = None


def log_export_chunk(exports: Mapping[str, Export], task: BaseTask) -> BaseChunk:
    """Log one chunk of an export; an error comes back as a value.

    The exports, which may hold logins, come with the function: Spark keeps tasks in a file for a moment.
    """
    return log_chunk(
        ExportRows(exports[task.source], task.pieces, task.target.columns, task.target.schema), task.target
    )


def log_chunk(rows: Rows, target: BaseTarget) -> BaseChunk:
    """Log the rows of one chunk; an error comes back as a value, and nothing refers to files written before it."""
    writer, read, measured = target.log.writer(), 0, MeasuredRows(rows, target.columns)
    try:
        for table in measured:
            writer.add(base_rows(table, target, read))
            read += table.num_rows
    except MirroringError as error:
        return BaseChunk(target.origin, Part(), error)
    shortest = {target.source: measured.shortest}
    return BaseChunk(target.origin, Part(writer.finish(), counts={"loaded": read}, shortest=shortest))


def base_rows(table: pa.Table, target: BaseTarget, above: int = 0) -> Iterator[LogRow]:
    """Typed rows of a load as log rows; *above* is how many rows of the chunk come before them."""
    types = {column.name: type_of_landed_key(column.type) for column in target.columns}
    told = [[column.name, type_of_landed(column), at] for at, column in enumerate(target.columns)]
    cols = msgspec.json.encode(told).decode()
    texts = {name: _texts(table[name], types[name]) for name in types}
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


def _texts(values: pa.ChunkedArray, sql_type: str) -> Sequence[str | None]:
    # A typed value's one spelling reads back as that value: nothing is lost on the way through the log.
    return [None if value is None else canonical_text(sql_type, value) for value in values.to_pylist()]
