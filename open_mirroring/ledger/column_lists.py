"""Forgetting column lists that say nothing of a table's rows any more."""

from __future__ import annotations

import hashlib
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from open_mirroring.changes.manifest import Manifest
from open_mirroring.ledger import tables as t


def list_digest(cols: str) -> str:
    """What a column list is known by."""
    return hashlib.sha256(cols.encode()).hexdigest()


def keep_column_lists(db: Connection, row: Any, after_batch: int) -> None:
    """Keep the lists of changes that are published over a load, and what is proved of them; inside a transaction.

    Those are the lists in batches after the hand-over that reach up to ``stream_from``. A batch on the border may keep
    a list of changes that lie below it alone: at worst the table stops again, never does it lack a list.

    Args:
        db: the transaction.
        row: the table's row, its hand-over bound.
        after_batch: the batch of the hand-over.
    """
    b, c, e = t.batch_table.c, t.column_list.c, t.stream_epoch.c
    ordinals = dict(db.execute(sa.select(e.epoch, e.ordinal).where(e.table_id == row.id)).tuples().all())
    found = db.execute(
        sa.select(b.batch, b.epoch, b.max_pos).where(
            b.mirror == row.mirror, b.source == row.source, b.batch > after_batch
        )
    ).tuples()
    begin = (row.stream_epoch, row.stream_from or "") if row.stream_from is not None else (0, "")
    # A stream that nobody accepted yet stops the table by itself; its lists are kept.
    live = {batch for batch, epoch, highest in found if (ordinals.get(epoch, row.stream_epoch + 1), highest) >= begin}
    kept: set[str] = set()
    number = t.log_batch.c.number
    manifests = sa.select(number, t.log_batch.c.manifest).where(
        t.log_batch.c.mirror == row.mirror, number > after_batch
    )
    for batch, manifest in db.execute(manifests).tuples():
        if batch in live:
            kept |= {list_digest(cols) for cols, _, _ in Manifest.from_json(manifest).columns.get(row.source, ())}
    db.execute(t.column_list.delete().where(c.table_id == row.id, c.digest.not_in(kept)))
