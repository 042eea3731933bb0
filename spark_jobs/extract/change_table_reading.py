"""Reads bound ranges of change tables in a database; Spark's workers decode them into log files.

From PostgreSQL a worker reads by COPY itself, from other databases through Spark's JDBC reader. Both give the same
texts in the same order.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.config.connections import Connection, resolve
from open_mirroring.config.names import SourceName
from open_mirroring.errors import MirroringError
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import Decoding, LogTarget
from spark_jobs.runtime.tasks import run_job
from spark_jobs.sources.contract.decoded import MirroredTable
from spark_jobs.sources.jdbc.dialects import dialect_of
from spark_jobs.sources.jdbc.postgres_client import copy_out
from spark_jobs.sources.qlik.change_table.blocks import cut_blocks
from spark_jobs.sources.qlik.change_table.format import ChangeTableFormat
from spark_jobs.sources.qlik.change_table.jdbc import ChangeTables, slice_of
from spark_jobs.sources.qlik.change_table.jdbc_table import Slice
from spark_jobs.sources.qlik.change_table.rows import Structure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SliceTask:
    """A bound range of one change table, to be read and decoded by one worker."""

    bound: Slice
    structure: Structure
    format: ChangeTableFormat
    tables: Mapping[str, MirroredTable]
    target: LogTarget

    def log(self, read: Callable[[Callable[[pa.RecordBatch | None], None]], None]) -> Part:
        """Decode and log what *read* yields; what was written and seen."""
        # Spark may try a task again: every try has names of its own.
        decoding = Decoding(self.format, self.tables, (), replace(self.target, attempt=uuid4().hex))
        add = cut_blocks(self.bound.origin, self.structure, self.format.settings.prefix, decoding.take_block)
        read(add)
        add(None)
        return decoding.finish()


@dataclass(frozen=True)
class CopyTask:
    """A slice that the worker queries itself: the query, and the change table to name in errors."""

    slice: SliceTask
    query: str
    name: SourceName


def read_batch(
    spark: SparkSession,
    place: ChangeTables,
    ranges: Sequence[BoundRange],
    format: ChangeTableFormat,
    tables: Mapping[str, MirroredTable],
    target: LogTarget,
) -> list[Part]:
    """Read, decode and log the ranges of a batch: one part of its manifest for each, in no particular order.

    Each range is one task: all of them in one Spark job by COPY, else one job for each table. Nothing is kept of a job
    that fails: files that a worker wrote before are named by no part.

    Args:
        spark: the session.
        place: the source.
        ranges: what the ledger bound.
        format: how rows are decoded.
        tables: the mirrored tables by their name at the source.
        target: where log files go; its task number is that of the first range, the others follow.

    Raises:
        TerminalError: ``RANGE_UNKNOWN``, ``TYPE_UNSUPPORTED``, ``HEADER_MISSING``, ``SOURCE_REFUSED``, and what a
            connection may raise.
        TransientError: ``SOURCE_UNREACHABLE`` when the database did not answer to the end; ``CHUNK_LOST``.
    """
    by_table: dict[str, list[tuple[Slice, LogTarget]]] = {}
    for at, bound in enumerate(ranges):
        one = slice_of(place, bound)
        by_table.setdefault(one.source, []).append((one, replace(target, task=target.task + at)))
    connection = resolve(place.connection)
    copies: list[CopyTask] = []
    parts: list[Part] = []
    for source, wanted in by_table.items():
        table = place.open(spark, source)
        structure = table.structure()
        tasks = [SliceTask(one, structure, format, tables, to) for one, to in wanted]
        if dialect_of(connection).copies:
            name = place.change_table(source)
            copies += [CopyTask(one, table.slice_query(structure, one.bound), name) for one in tasks]
        else:
            answers = table.read_slices(structure, [one for one, _ in wanted], _work(tasks))
            parts += map(_part, answers)
    # The connection, which may hold secrets, goes with the function: Spark keeps tasks in a file for a moment.
    # How much a range holds is known when it is read.
    return parts + run_job(spark, f"extract batch {target.batch}", partial(_copy, connection), copies, sys.maxsize)


def _copy(connection: Connection, task: CopyTask) -> Part:
    columns = len(task.slice.structure.columns)
    return task.slice.log(lambda add: copy_out(connection, task.query, columns, add, task.name))


def _work(tasks: Sequence[SliceTask]) -> Callable[[int, Iterable[pa.RecordBatch]], bytes]:
    """What a worker does with the texts of a range: a function of plain values, as it travels to the workers."""

    def work(part: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        def read(add: Callable[[pa.RecordBatch | None], None]) -> None:
            for batch in batches:
                add(batch.cast(pa.schema([(name, pa.string()) for name in batch.schema.names])))

        try:
            return pickle.dumps(tasks[part].log(read))
        except MirroringError as error:
            return pickle.dumps(error)

    return work


def _part(answer: bytes) -> Part:
    part: Part | MirroringError = pickle.loads(answer)
    if isinstance(part, MirroringError):
        raise part
    return part
