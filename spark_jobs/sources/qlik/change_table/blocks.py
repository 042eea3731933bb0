"""Cuts rows of change tables into columnar blocks; a before image usually stays in the block of its UPDATE."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.contract.message_blocks import Places, RowBlock
from spark_jobs.sources.qlik.change_table.rows import SEQUENCE, ChangeRow, Structure, header_places

_MOST_TOGETHER = 100
_MOST_BYTES = 64 * 2**20
"""A ``change_seq`` has few rows. If it has more, or larger ones, it is split like any others."""


@dataclass(frozen=True)
class TextBlock(RowBlock):
    """Rows of a change table, with a column of strings for each column of the table's structure.

    The first row of the block is row number *place* of *origin*, a file or range.
    """

    origin: str
    place: int
    structure: Structure
    texts: pa.RecordBatch

    @property
    def size(self) -> int:
        return int(self.texts.num_rows)

    def messages(self, numbers: Places) -> list[ChangeRow]:
        if not len(numbers):
            return []
        chosen = self.texts if len(numbers) == self.texts.num_rows else self.texts.take(pa.array(numbers))
        values = zip(*(column.to_pylist() for column in chosen.columns), strict=True)
        places = (numbers + self.place).tolist()
        return [ChangeRow(self.origin, at, self.structure, row) for at, row in zip(places, values, strict=True)]


def cut_blocks(
    origin: str, structure: Structure, prefix: str, take: Callable[[TextBlock], None]
) -> Callable[[pa.RecordBatch | None], None]:
    """Returns a function that cuts batches of rows, sorted by ``change_seq``, into blocks and passes them to *take*.

    Call the function with each batch, and with None at the end. It keeps the rows of the last ``change_seq`` of a
    batch for the next block. So a before image stays with its UPDATE (T-11), unless one ``change_seq`` has more rows
    than this module's limits allow.
    """
    sequence = header_places(structure, prefix).get(SEQUENCE)
    held: pa.RecordBatch | None = None
    place = 0

    def hand_on(texts: pa.RecordBatch) -> None:
        nonlocal place
        if texts.num_rows:
            take(TextBlock(origin, place, structure, texts))
            place += texts.num_rows

    def add(batch: pa.RecordBatch | None) -> None:
        nonlocal held
        if batch is None:
            if held is not None:
                hand_on(held)
            held = None
            return
        texts = batch if held is None else pa.concat_batches([held, batch])
        end = texts.num_rows if sequence is None else _start_of_last_sequence(texts.column(sequence))
        if texts.slice(end).nbytes > _MOST_BYTES:
            end = texts.num_rows
        hand_on(texts.slice(0, end))
        held = pa.concat_batches([texts.slice(end)]) if end < texts.num_rows else None

    return add


def _start_of_last_sequence(sequences: pa.Array) -> int:
    """The index at which the rows of the last ``change_seq`` begin; the end if they are many, or have none."""
    size = len(sequences)
    last = sequences.slice(max(0, size - _MOST_TOGETHER))
    if not size or not last[-1].is_valid:
        return size
    others = np.flatnonzero(~pc.equal(last, last[-1]).fill_null(False).to_numpy(zero_copy_only=False))
    return size - len(last) + int(others[-1]) + 1 if len(others) else (size if size > _MOST_TOGETHER else 0)
