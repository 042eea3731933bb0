"""Defines what a fast path takes from a block: rows of the log as columns, and the numbers of their messages.

It takes a message only where it proves that the decoder would give the same row. What it leaves costs time only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from open_mirroring.changes.manifest import Facts
from open_mirroring.facts.kind import NO_FACTS
from spark_jobs.changelog.arrow_schema import HELD_SCHEMA
from spark_jobs.changelog.schema import CHANGE, TRANSACTION_COLUMNS
from spark_jobs.sources.contract.decoded import SourceSchema
from spark_jobs.sources.contract.message_blocks import Block

SCHEMA = pa.schema(
    [HELD_SCHEMA.field(name) for name in ("kind", "tbl", "bucket", "epoch", "pos", "op", "key", "cols", "whole")]
    + [HELD_SCHEMA.field(name) for name in ("row", "before", "had", "origin", "place")]
)
"""The columns of a change."""
DATED_SCHEMA = pa.schema([*SCHEMA, *(HELD_SCHEMA.field(name) for name in TRANSACTION_COLUMNS)])
"""The same with commit time and transaction, which the log keeps of tables that have them as columns (G-118)."""


class Taken(NamedTuple):
    """What was taken from a block: rows of the log, one per change, and the numbers of all messages that were taken.

    *images* of the messages that gave no row are before images; the others are of tables that are not mirrored.
    *announces*: among those that were left one may announce a structure, and none behind the first such was taken.
    *schemas* and *facts* are what else was seen.
    """

    rows: pa.Table
    taken: npt.NDArray[np.int64]
    announces: bool = False
    images: int = 0
    schemas: Sequence[SourceSchema] = ()
    facts: Facts = NO_FACTS


class FastDecoder(Protocol):
    """Takes most messages from blocks; it knows what it met, so one is kept for many blocks."""

    def take(self, block: Any) -> Taken:
        """What of a block it proves to read as the decoder does: rows with the columns of :data:`SCHEMA`, in order."""
        ...

    def learn(self, schemas: Iterable[SourceSchema]) -> None:
        """Know structures that were announced besides those known so far."""
        ...


class KnownColumns(NamedTuple):
    """The mirrored table of a row, and its list of columns as the log has it."""

    source: str
    cols: str


Transacted = tuple[bytes | None, bytes | None]
"""When a change was committed, and in which transaction, as its source spells it."""
NOT_ASKED: Transacted = (None, None)

RowFields = tuple[int, int, bytes, str, bytes, int, bool, bytes | None, bytes | None, int | None, Transacted]
"""A proven row: numbers of its message and of its columns among the known ones, position, operation, key, bucket,
whether it is whole, row, row before, mark of an update's row before, commit time and transaction where its table has
them. Texts are UTF-8."""


def rows_table(
    block: Block, rows: Sequence[RowFields], known: Sequence[KnownColumns], epochs: pa.DictionaryArray
) -> pa.Table:
    """Proven rows as a table with the columns of :data:`SCHEMA`, and those of their transactions if any has them."""
    if not rows:
        return SCHEMA.empty_table()
    numbers, codes, positions, operations, keys, buckets, whole, images, before, had, told = zip(*rows, strict=True)
    codes = pa.array(codes, pa.int32())
    constant = pa.array(np.zeros(len(rows), np.int32))
    columns = [
        pa.DictionaryArray.from_arrays(constant, [CHANGE]),
        pa.DictionaryArray.from_arrays(codes, pa.array([one.source for one in known], pa.string())),
        pa.array(buckets, pa.int16()),
        epochs,
        texts(positions),
        pa.array(operations, pa.string()).dictionary_encode(),
        texts(keys),
        pa.DictionaryArray.from_arrays(codes, pa.array([one.cols for one in known], pa.string())),
        pa.array(whole, pa.bool_()),
        texts(images),
        texts(before),
        pa.array(had, pa.int16()),
        pa.DictionaryArray.from_arrays(constant, [block.origin]),
        pa.array(block.places[list(numbers)]),
    ]
    if told.count(NOT_ASKED) < len(told):
        columns += [texts(values) for values in zip(*told, strict=True)]
        return pa.Table.from_arrays(columns, schema=DATED_SCHEMA)
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def texts(values: Sequence[bytes | None]) -> pa.Array:
    """Parts of messages that are UTF-8, cut at ASCII characters, as texts."""
    return pa.array(values, pa.binary()).view(pa.string())
