"""The rows of the change log: every message as it was read.

One Delta table per mirror holds changes, fragments of split messages and dead letters as *kinds* of rows. It keeps
duplicates and late changes, too; only the plan decides what they mean. Values stay text.
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
"""The log is partitioned by ``batch_block = batch // BATCHES_PER_BLOCK``, so that maintenance drops complete blocks."""

TRANSACTION_COLUMNS = ("committed", "transaction")
"""Time and transaction of a change's commit."""

CODED = ("kind", "tbl", "epoch", "op", "cols", "origin")
"""Columns with few distinct values, which are dictionary-encoded in memory."""

ROW_BYTES = 256
"""The approximate size of a logged change in bytes."""


def image_mark(image: bytes) -> int:
    """A mark of a row image in the log's form: images with different marks differ."""
    return mark_of_escaped(image.replace(b'"', rb"\\\""))


def mark_of_escaped(image: bytes) -> int:
    """The same for an image whose quotes have three backslashes, as in change events.

    Most images come in this form, and computing the mark costs less than removing the backslashes.
    """
    found = adler32(image)
    return (found ^ found >> 16) & 0x7FFF


def bucket_ranges(rows: int, at_most: int) -> list[tuple[int, int]]:
    """Ranges of key buckets (from inclusive, to exclusive) with about *at_most* of a table's *rows* each.

    Their number is a power of two, so borders of few are borders of many, too. Rows without key (-1) are in the first.
    """
    pieces = min(KEY_BUCKETS, 1 << (max(1, -(-rows // at_most)) - 1).bit_length())
    width = KEY_BUCKETS // pieces
    return [(low or -1, low + width) for low in range(0, KEY_BUCKETS, width)]


class LogRow(NamedTuple):
    """One row of the log without its batch, which the writer adds; fields as in :data:`LOG_SCHEMA`."""

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

    *body* is None for a message without one (a tombstone), *key* the message's own key if the transport has keys.
    """

    origin: str
    place: int
    body: bytes | None
    key: bytes | None = None
