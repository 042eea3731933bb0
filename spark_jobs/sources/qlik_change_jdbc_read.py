"""Bound ranges of change tables in a database, decoded into log files by Spark's workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from open_mirroring.errors import MirroringError
from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.read_task import Decoding, LogTarget
from spark_jobs.sources.decoded import MirroredTable
from spark_jobs.sources.formats import Reading
from spark_jobs.sources.qlik_change_jdbc import ChangeTablePlace, slice_of
from spark_jobs.sources.qlik_change_jdbc_table import Slice
from spark_jobs.sources.qlik_change_table_rows import ChangeRow


def read_batch(
    spark: SparkSession,
    place: ChangeTablePlace,
    ranges: Sequence[BoundRange],
    reading: Reading,
    tables: Mapping[str, MirroredTable],
    target: LogTarget,
) -> list[dict[str, Any]]:
    """Read, decode and log the ranges of a batch: one part of its manifest for each, in no particular order.

    Each table is one Spark job, each range of it one task. Nothing is kept of a job that fails: files that a worker
    wrote before are named by no part.

    Args:
        spark: the session.
        place: the source.
        ranges: what the ledger bound.
        reading: how rows are decoded.
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
    parts: list[dict[str, Any]] = []
    for source, wanted in by_table.items():
        table = place.open(spark, source)
        work = _work([one for _, one in wanted], reading, tables)
        for answer in table.read_slices(table.structure(), [one for one, _ in wanted], work):
            part = pickle.loads(answer)
            if isinstance(part, MirroringError):
                raise part
            parts.append(part)
    return parts


def _work(
    targets: Sequence[LogTarget], reading: Reading, tables: Mapping[str, MirroredTable]
) -> Callable[[int, Iterator[ChangeRow]], bytes]:
    """What a worker does with the rows of a range: a function of plain values, as it travels to the workers."""

    def work(part: int, rows: Iterator[ChangeRow]) -> bytes:
        # Spark may try a task again: every try has names of its own.
        decoding = Decoding(reading, tables, (), replace(targets[part], attempt=uuid4().hex))
        try:
            decoding.take(rows)
            return pickle.dumps(decoding.finish())
        except MirroringError as error:
            return pickle.dumps(error)

    return work
