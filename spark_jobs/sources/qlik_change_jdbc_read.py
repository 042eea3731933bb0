"""Bound ranges of change tables in a database, decoded into log files by Spark's workers."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from pyspark.sql import SparkSession

from open_mirroring.errors import MirroringError
from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.read_task import LogTarget, _Rejects
from spark_jobs.sources.qlik_change_jdbc import ChangeTablePlace, slice_of
from spark_jobs.sources.qlik_change_jdbc_table import Slice
from spark_jobs.sources.qlik_change_table import QlikChangeTableDecoder
from spark_jobs.sources.qlik_change_table_rows import ChangeRow

_ROWS_AT_ONCE = 20_000


def read_batch(
    spark: SparkSession,
    place: ChangeTablePlace,
    ranges: Sequence[BoundRange],
    decoder: QlikChangeTableDecoder,
    target: LogTarget,
) -> list[dict[str, Any]]:
    """Read, decode and log the ranges of a batch: one part of its manifest for each, in no particular order.

    Each table is one Spark job, each range of it one task. Nothing is kept of a job that fails: files that a worker
    wrote before are named by no part.

    Args:
        spark: the session.
        place: the source.
        ranges: what the ledger bound.
        decoder: decodes the rows of all tables.
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
        work = _work([one for _, one in wanted], decoder)
        for answer in table.read_slices(table.structure(), [one for one, _ in wanted], work):
            part = pickle.loads(answer)
            if isinstance(part, MirroringError):
                raise part
            parts.append(part)
    return parts


def write_decoded(decoder: QlikChangeTableDecoder, messages: Iterable[Any], target: LogTarget) -> dict[str, Any]:
    """Decode messages into log files: files, counts by disposition, fragments and rejects seen."""
    writer, counts, notes = target.writer(), Counter[str](), _Rejects(decoder.tables)
    for chunk in decoder.cut(messages, _ROWS_AT_ONCE):
        decoded = decoder.decode(chunk)
        counts.update(decoded.counts._asdict())
        counts.update(decoded.notices._asdict())
        notes.take(decoded.rows)
        writer.add(decoded.rows)
    return {**writer.finish(), "counts": dict(counts), **notes.to_dict()}


def _work(targets: Sequence[LogTarget], decoder: QlikChangeTableDecoder) -> Callable[[int, Iterator[ChangeRow]], bytes]:
    """What a worker does with the rows of a range: a function of plain values, as it travels to the workers."""

    def work(part: int, rows: Iterator[ChangeRow]) -> bytes:
        # Spark may try a task again: every try has names of its own.
        target = replace(targets[part], attempt=uuid4().hex)
        try:
            return pickle.dumps(write_decoded(decoder, rows, target))
        except MirroringError as error:
            return pickle.dumps(error)

    return work
