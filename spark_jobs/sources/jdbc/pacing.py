"""Limits how hard a source database is read: connections side by side, and rows per second of them together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa


class Pace(NamedTuple):
    """The limits of one table's reading; None is none."""

    connections: int | None = None
    rows_per_second: int | None = None

    def share(self, readers: int) -> float | None:
        """Rows per second of each of so many readers."""
        return None if self.rows_per_second is None else self.rows_per_second / readers


def paced(
    batches: Iterable[pa.RecordBatch],
    rows_per_second: float | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """The batches as they come, but on the average since the first was asked for no faster than *rows_per_second*."""
    begun, rows = clock(), 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if rows_per_second is not None and (ahead := rows / rows_per_second - (clock() - begun)) > 0:
            sleep(ahead)
