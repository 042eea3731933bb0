"""The Arrow schema of the change log's files; a separate module, because importing Arrow is slow."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.changelog.schema import CODED

LOG_SCHEMA = pa.schema(
    [
        pa.field("batch", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        # Source table as in the mirror file (`schema.table`); null if a rejected message does not contain it.
        pa.field("tbl", pa.string()),
        # Key bucket, crc32 of the key's UTF-8 bytes modulo KEY_BUCKETS; -1 without a key.
        pa.field("bucket", pa.int16(), nullable=False),
        # Log position: the epoch's own name (guid, load) and `major:minor:sub`.
        pa.field("epoch", pa.string()),
        pa.field("pos", pa.string()),
        pa.field("op", pa.string()),
        # Canonical key text (open_mirroring.changes.row_key.encode_key); null for a table without key.
        pa.field("key", pa.string()),
        # The columns of the message, as compact JSON [[name, source type, index], ...] in source order.
        pa.field("cols", pa.string()),
        # True: the list in `cols` is provably the complete row; false: it may be only what changed.
        pa.field("whole", pa.bool_()),
        # Row images as compact JSON objects, name -> text or null; `row` after (I, U), `before` for D and K.
        pa.field("row", pa.string()),
        pa.field("before", pa.string()),
        # For an update that kept its key: `image_mark` of the row before it; null if the source does not send one.
        pa.field("had", pa.int16()),
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
        # Time and transaction of the commit, in the source's form (G-118); null if not requested.
        pa.field("committed", pa.string()),
        pa.field("transaction", pa.string()),
    ]
)

HELD_SCHEMA = pa.schema(
    [
        field.with_type(pa.dictionary(pa.int32(), pa.string())) if field.name in CODED else field
        for field in LOG_SCHEMA
        if field.name != "batch"
    ]
)
"""Rows of the change log before they are written: without the batch, and with :data:`CODED` dictionary-encoded."""
