"""Defines the interface of fast paths, which decode many messages at once into columns of change log rows.

A fast path decodes a message only if it can prove that the decoder would give the same row. The slower decoder then
reads the messages that the fast path left.
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
"""The columns of the change log that a fast path fills."""
DATED_SCHEMA = pa.schema([*SCHEMA, *(HELD_SCHEMA.field(name) for name in TRANSACTION_COLUMNS)])
""":data:`SCHEMA` with commit time and transaction, for tables that mirror these as columns (G-118)."""


class Taken(NamedTuple):
    """What a fast path decoded of a block; the decoder has to read the block's other messages.

    *rows* are rows of the change log, one per change. *taken* are the numbers, in the block, of all decoded messages,
    also of those without a row. *announces*: the fast path ended early, because the next message may announce a
    structure. *images* is the number of decoded before images, which have no row. All other decoded messages without a
    row are of tables that are not mirrored. *schemas* and *facts* are structures and observations, as in
    :class:`Decoded`.
    """

    rows: pa.Table
    taken: npt.NDArray[np.int64]
    announces: bool = False
    images: int = 0
    schemas: Sequence[SourceSchema] = ()
    facts: Facts = NO_FACTS


class FastDecoder(Protocol):
    """Decodes most messages of blocks.

    A fast decoder caches the column lists and ids in messages, so use one instance for many blocks.
    """

    def take(self, block: Any) -> Taken:
        """Decodes the messages of a block of which it is certain that the exact decoder would return the same rows.

        The other messages are left to the exact decoder. Rows are in the order of the messages.
        """
        ...

    def learn(self, schemas: Iterable[SourceSchema]) -> None:
        """Adds table structures that messages announced, for the blocks that are decoded next."""
        ...


class KnownColumns(NamedTuple):
    """The mirrored table of a row, and the row's column list as stored in the change log's column ``cols``."""

    source: str
    cols: str


Transacted = tuple[bytes | None, bytes | None]
"""Commit time and transaction id of a change, both as the source spells them."""
NOT_ASKED: Transacted = (None, None)

RowFields = tuple[int, int, bytes, str, bytes, int, bool, bytes | None, bytes | None, int | None, Transacted]
"""A decoded row: number of its message in the block, index into the :class:`KnownColumns`, position, operation, key,
bucket, whether it has all columns, row, row before, hash of an update's row before, commit time with transaction. Texts
are UTF-8."""


def rows_table(
    block: Block, rows: Sequence[RowFields], known: Sequence[KnownColumns], epochs: pa.DictionaryArray
) -> pa.Table:
    """Rows as an Arrow table with the columns of :data:`SCHEMA`.

    If any row has a commit time or a transaction, the table has the columns of :data:`DATED_SCHEMA`.
    """
    if not rows:
        return SCHEMA.empty_table()
    numbers, codes, positions, operations, keys, buckets, whole, images, before, had, transacted = zip(
        *rows, strict=True
    )
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
    if transacted.count(NOT_ASKED) < len(transacted):
        columns += [texts(values) for values in zip(*transacted, strict=True)]
        return pa.Table.from_arrays(columns, schema=DATED_SCHEMA)
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def texts(values: Sequence[bytes | None]) -> pa.Array:
    """Converts bytes that are known to be valid UTF-8 to an Arrow string column, without checking them again."""
    return pa.array(values, pa.binary()).view(pa.string())
