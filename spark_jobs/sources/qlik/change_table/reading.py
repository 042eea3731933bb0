"""Reads bound ranges of change tables in a database; Spark's workers, or this process, decode them into log files.

PostgreSQL is read by its own client, other databases through Spark's JDBC reader. Both give the same texts in the same
order.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from open_mirroring.config.connections import Connection
from open_mirroring.config.names import SourceName
from open_mirroring.errors import MirroringError
from spark_jobs.changelog.schema import ROW_BYTES
from spark_jobs.runtime.tasks import THREADS, run_job
from spark_jobs.sources.contract.source import BlockLog
from spark_jobs.sources.jdbc.dialects import dialect_of
from spark_jobs.sources.jdbc.postgres_client import rows_of
from spark_jobs.sources.qlik.change_table.blocks import cut_blocks
from spark_jobs.sources.qlik.change_table.jdbc_table import ChangeTable, Slice
from spark_jobs.sources.qlik.change_table.rows import Structure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class SliceTask:
    """A bound range of one change table, read and decoded by one worker."""

    bound: Slice
    at: int
    structure: Structure
    prefix: str
    log: Callable[[int], BlockLog]

    def take(self, batches: Iterable[pa.RecordBatch]) -> Any:
        """Decode and log the texts of its rows; return what was written and seen."""
        decoding = self.log(self.at)
        add = cut_blocks(self.bound.origin, self.structure, self.prefix, decoding.take_block)
        for batch in batches:
            add(batch)
        add(None)
        return decoding.finish()


@dataclass(frozen=True)
class CopyTask:
    """A slice that the worker queries itself: the query, and the change table for errors."""

    slice: SliceTask
    query: str
    name: SourceName


class WantedSlices(NamedTuple):
    """An open change table, its name, and the slices to read, each with its place among all ranges.

    *rows* is how many rows the slices have, if that is known before they are read.
    """

    table: ChangeTable
    name: SourceName
    slices: Sequence[tuple[Slice, int]]
    rows: int | None


def read_slices(
    spark: SparkSession,
    connection: Connection,
    wanted: Iterable[WantedSlices],
    prefix: str,
    log: Callable[[int], BlockLog],
    job: str,
) -> list[Any]:
    """Read, decode and log slices, as :meth:`QueriedTransport.read`.

    Each slice is one task: all of them in one job from PostgreSQL, else one Spark job for each table.
    """
    copies: list[CopyTask] = []
    parts: list[Any] = []
    size = 0
    for table, name, slices, rows in wanted:
        structure = table.structure()
        tasks = [SliceTask(one, at, structure, prefix, log) for one, at in slices]
        if dialect_of(connection).copies:
            copies += [CopyTask(one, table.slice_query(structure, one.bound), name) for one in tasks]
            size += min(table.size(), sys.maxsize if rows is None else rows * ROW_BYTES)
        else:
            answers = table.read_slices(structure, [one for one, _ in slices], _work(tasks))
            parts += map(_part, answers)
    # The connection may hold secrets, so it is part of the function: Spark briefly stores tasks in a file.
    return parts + run_job(spark, job, partial(_copy, connection), copies, size, THREADS)


def _copy(connection: Connection, task: CopyTask) -> Any:
    return task.slice.take(rows_of(connection, task.query, task.name))


def _work(tasks: Sequence[SliceTask]) -> Callable[[int, Iterable[pa.RecordBatch]], bytes]:
    def work(part: int, batches: Iterable[pa.RecordBatch]) -> bytes:
        texts = (batch.cast(pa.schema([(name, pa.string()) for name in batch.schema.names])) for batch in batches)
        try:
            return pickle.dumps(tasks[part].take(texts))
        except MirroringError as error:
            return pickle.dumps(error)

    return work


def _part(answer: bytes) -> Any:
    part = pickle.loads(answer)
    if isinstance(part, MirroringError):
        raise part
    return part
