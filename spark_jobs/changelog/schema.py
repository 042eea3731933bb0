"""Defines the rows of the change log, which keep every message as it was read.

One Delta table per mirror holds changes, fragments of split messages and dead letters as *kinds* of rows. The table
keeps duplicates and late changes too; only publishing decides which changes count. Values are stored as strings, as the
source wrote them.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import adler32

from open_mirroring.changes.log_position import LOAD_MAJOR as LOAD_MAJOR
from open_mirroring.changes.row_key import KEY_BUCKETS

CHANGE, FRAGMENT, REJECTED = "change", "fragment", "rejected"

INSERT, UPDATE, DELETE, KEY_LEFT = "I", "U", "D", "K"
"""Operations of a change. ``KEY_LEFT`` is the DELETE half of a key change (G-03); its UPSERT half is an ``UPDATE``."""

BATCHES_PER_BLOCK = 100
"""The change log is partitioned by ``batch_block = batch // BATCHES_PER_BLOCK``: maintenance drops complete blocks."""

BLOCK = "batch_block"
"""The partition column of the change log."""

TRANSACTION_COLUMNS = ("committed", "transaction")
"""The columns with time and id of a change's transaction; NULL unless the mirror asks for them."""

CODED = ("kind", "tbl", "epoch", "op", "cols", "origin")
"""Columns with few distinct values, which are dictionary-encoded in memory."""

ROW_BYTES = 256
"""The approximate size of a logged change in bytes."""


def file_path(batch: int, attempt: str, index: int, one_try: str) -> str:
    """The path of file *index* of an attempt to write *batch*, relative to the change log's folder.

    *one_try* makes the names of each repetition of a task different.
    """
    return f"{BLOCK}={batch // BATCHES_PER_BLOCK}/{batch:012d}-{attempt}-{index:05d}-{one_try}.parquet"


def image_mark(image: bytes) -> int:
    """A 15-bit checksum of a row image as the change log stores it; images with different checksums differ."""
    return mark_of_escaped(image.replace(b'"', rb"\\\""))


def mark_of_escaped(image: bytes) -> int:
    """The checksum :func:`image_mark` of a row image whose quotes are still escaped by three backslashes.

    Most images in change events are escaped like that, and this function is faster than removing the backslashes first.
    """
    found = adler32(image)
    return (found ^ found >> 16) & 0x7FFF


def bucket_ranges(rows: int, at_most: int) -> list[tuple[int, int]]:
    """Split the key buckets into ranges (from inclusive, to exclusive) of about *at_most* of a table's *rows*.

    The number of ranges is a power of two, so that the borders of a coarse split are also borders of a finer split.
    Rows without a key (bucket -1) are in the first range.
    """
    pieces = min(KEY_BUCKETS, 1 << (max(1, -(-rows // at_most)) - 1).bit_length())
    width = KEY_BUCKETS // pieces
    return [(low or -1, low + width) for low in range(0, KEY_BUCKETS, width)]


class LogRow(NamedTuple):
    """One row of the change log, with the fields of :data:`LOG_SCHEMA` except the batch, which the writer adds."""

    kind: str
    origin: str
    place: int
    tbl: str | None = None
    bucket: int = -1
    epoch: str | None = None
    pos: str | None = None
    op: str | None = None
    key: str | None = None
    cols: str | None = None
    whole: bool | None = None
    row: str | None = None
    before: str | None = None
    had: int | None = None
    fragment_of: str | None = None
    piece: int | None = None
    last_piece: bool | None = None
    pieces: int | None = None
    code: str | None = None
    reason: str | None = None
    raw: bytes | None = None
    committed: str | None = None
    transaction: str | None = None


class RawMessage(NamedTuple):
    """One message from a transport: its coordinates and its unchanged bytes.

    *body* is None for a message without a body (a tombstone); *key* is the message's own key if the transport has keys.
    """

    origin: str
    place: int
    body: bytes | None
    key: bytes | None = None
