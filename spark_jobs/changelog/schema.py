"""The rows of the change log: every message as it was read.

One Delta table per mirror holds changes, fragments of split messages and dead letters as *kinds* of rows, so one
commit makes all of them visible. The log keeps duplicates and late changes too; only the plan decides what they mean.
Values stay text; publishing types them.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from open_mirroring.changes.log_position import LOAD_MAJOR as LOAD_MAJOR
from open_mirroring.changes.row_key import KEY_BUCKETS

CHANGE, FRAGMENT, REJECTED = "change", "fragment", "rejected"

INSERT, UPDATE, DELETE, KEY_LEFT = "I", "U", "D", "K"
"""Operations of a change. ``KEY_LEFT`` is the DELETE half of a key change (G-03); its UPSERT half is an ``UPDATE``."""

BATCHES_PER_BLOCK = 100
"""The log is partitioned by ``batch_block = batch // BATCHES_PER_BLOCK``, so that maintenance drops whole blocks."""

LOG_SCHEMA = pa.schema(
    [
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        # Source table as the mirror file names it (`schema.table`); null where a rejected message did not tell.
        pa.field("tbl", pa.string()),
        # Key bucket, crc32 of the key's UTF-8 bytes modulo KEY_BUCKETS; -1 where there is no key.
        pa.field("bucket", pa.int16(), nullable=False),
        # Log position: the epoch's own name (guid, load) and `major:minor:sub`.
        pa.field("epoch", pa.string()),
        pa.field("pos", pa.string()),
        pa.field("op", pa.string()),
        # Canonical key text (open_mirroring.changes.row_key.encode_key); null for a table without key.
        pa.field("key", pa.string()),
        # The columns the message carries, as compact JSON [[name, source type, index], ...] in source order.
        pa.field("cols", pa.string()),
        # True: the list in `cols` is proven to be the whole row; false: it may be only what changed.
        pa.field("whole", pa.bool_()),
        # Row images as compact JSON objects, name -> text or null; `row` after (I, U), `before` for D and K.
        pa.field("row", pa.string()),
        pa.field("before", pa.string()),
        # Coordinates of the message: file or topic partition, and line, sequence number or offset in it.
        pa.field("origin", pa.string(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        # Fragments: identity (logicalid), 0- or 1-based index as sent, whether it is the last, total if announced.
        pa.field("fragment_of", pa.string()),
        pa.field("piece", pa.int32()),
        pa.field("last_piece", pa.bool_()),
        pa.field("pieces", pa.int32()),
        # Rejected: stable code and reason. `raw` holds the message's bytes for rejected rows and fragments.
        pa.field("code", pa.string()),
        pa.field("reason", pa.string()),
        pa.field("raw", pa.binary()),
        # When the change was committed and in which transaction, as its source spells it (G-118); null: nobody asked.
        pa.field("committed", pa.string()),
        pa.field("transaction", pa.string()),
    ]
)

TRANSACTION_COLUMNS = ("committed", "transaction")
"""When a change was committed, and in which transaction."""

CODED = ("kind", "tbl", "epoch", "op", "cols", "origin")
"""Columns of few different values: while they are held in memory, rows have codes for them."""

HELD_SCHEMA = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in CODED else field
        for field in LOG_SCHEMA
        if field.name != "batch"
    ]
)
"""Rows of the log before they are written: without their batch, and with :data:`CODED` dictionary-encoded."""


def bucket_ranges(rows: int, at_most: int) -> list[tuple[int, int]]:
    """Ranges of key buckets (from included, to excluded) that hold about *at_most* of a table's *rows* each.

    Their number is a power of two, so the borders of few ranges are borders of many ranges too. Rows
    without key (bucket -1) belong to the first range.
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
    """One message as a transport hands it over: its coordinates and its untouched bytes.

    *body* is None for a message without one (a tombstone), *key* the message's own key where the transport has keys.
    """

    origin: str
    place: int
    body: bytes | None
    key: bytes | None = None
