"""The columns of a table over time: which column lists are still valid, and which columns nobody has verified.

`ALTER TABLE … ADD … NOT NULL DEFAULT` gives every row a value and sends no change (G-07). At the target these rows have
NULL until they change. A nullable column without default is equal at once, but the stream cannot distinguish the two.
So a new column is reported as unverified until source and target were compared, or the table was loaded again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.manifest import Manifest
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.tables import upsert


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


class UnverifiedColumn(NamedTuple):
    """A column, the position of the first change that had it, and the batch up to which it was published then."""

    column: str
    since: str
    batch: int
    at: datetime

    @property
    def note(self) -> str:
        """What it means, for people."""
        return (
            f"column {self.column!r} unverified since position {self.since}: rows that did not change since may have a "
            "default at the source, and have NULL at the target"
        )


def note_columns(ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int) -> None:
    """Note columns by the position since which they are there; one that is known, verified or not, stays as it is."""
    now = datetime.now(UTC)
    place = {"table_id": table_id, "generation": generation, "batch": batch, "at": now, "verified": False}
    rows = [{**place, "column": column, "since": position} for column, position in sorted(since.items())]
    if rows:
        with ledger.begin() as db:
            upsert(db, t.unverified_column, rows, keys=["table_id", "generation", "column"], update=[])


def verify_columns(ledger: Engine, table_id: str, columns: Iterable[str] | None = None) -> int:
    """Take columns of a table (all, unless *columns* are given) as verified from now on; how many were not before.

    For whoever compared every row of the table with the source.
    """
    c = t.unverified_column.c
    statement = t.unverified_column.update().where(c.table_id == table_id, c.verified.is_(False))
    if columns is not None:
        statement = statement.where(c.column.in_(list(columns)))
    with ledger.begin() as db:
        return db.execute(statement.values(verified=True)).rowcount


def unverified_columns(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[UnverifiedColumn]]:
    """By table id the columns that are not verified in its present generation, in the order in which they came."""
    c = t.unverified_column.c
    query = sa.select(t.unverified_column).where(c.verified.is_(False)).order_by(c.batch, c.since, c.column)
    found: dict[str, list[UnverifiedColumn]] = {}
    with ledger.connect() as db:
        for row in db.execute(query):
            if generations.get(row.table_id) == row.generation:
                entry = UnverifiedColumn(row.column, row.since, row.batch, row.at)
                found.setdefault(row.table_id, []).append(entry)
    return found
