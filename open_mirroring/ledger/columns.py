"""Keeps the column lists of a table's changes, and where rows with each list were seen."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_history import BEHIND
from open_mirroring.changes.manifest import ListSeen, Manifest, PlacesSeen, merged
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.column_notes import forget_taken
from open_mirroring.ledger.tables import upsert


class ColumnList(NamedTuple):
    """A column list that changes of a table carried, and whether one row proved it to be whole.

    *seen* says by stream incarnation where rows with it are.
    """

    cols: str
    whole: bool
    first_pos: str
    seen: Mapping[str, PlacesSeen]

    @property
    def names(self) -> set[str]:
        """The names of its columns."""
        return {name for name, *_ in json.loads(self.cols)}


def column_lists(db: Connection, table_ids: Iterable[str]) -> dict[str, list[ColumnList]]:
    """The column lists of tables in the order of their first position: the one place where they are read."""
    c, r, ids = t.column_list.c, t.column_range.c, list(table_ids)
    places: dict[tuple[str, str], dict[str, PlacesSeen]] = {}
    for row in db.execute(sa.select(t.column_range).where(r.table_id.in_(ids))):
        seen = PlacesSeen(row.first, row.last, row.whole_first, row.whole_last)
        places.setdefault((row.table_id, row.digest), {})[row.epoch] = seen
    query = sa.select(t.column_list).where(c.table_id.in_(ids)).order_by(c.first_pos, c.digest)
    return t.grouped(
        (x.table_id, ColumnList(x.cols, x.whole, x.first_pos, places.get((x.table_id, x.digest), {})))
        for x in db.execute(query)
    )


def forget_column_lists(db: Connection, table_id: str) -> None:
    """Drop the column lists of a table: none of the rows that had them counts any longer."""
    db.execute(t.column_range.delete().where(t.column_range.c.table_id == table_id))
    db.execute(t.column_list.delete().where(t.column_list.c.table_id == table_id))


def list_digest(cols: str) -> str:
    """The digest by which the ledger knows a column list."""
    return hashlib.sha256(cols.encode()).hexdigest()


def record_columns(db: Connection, table_id: str, lists: Sequence[ListSeen], *, of_reading: bool) -> bool:
    """Record the column lists that a batch brought of a table; *of_reading* as in its manifest.

    Returns whether a row proved for the first time that a known list is whole.

    With *of_reading* a list counts behind everything that was read of the table before (G-60): a row that is late, or
    read again, has the columns of now, not those of the time when it changed.
    """
    c, r = t.column_list.c, t.column_range.c
    proved = False
    for one in lists:
        digest, whole = list_digest(one.cols), one.is_whole
        known_as = db.scalar(sa.select(c.whole).where(c.table_id == table_id, c.digest == digest))
        proved = proved or (whole and known_as is False)
        row = {"table_id": table_id, "digest": digest, "cols": one.cols, "whole": whole, "first_pos": one.first}
        upsert(db, t.column_list, [row], keys=["table_id", "digest"], update=["whole"] if whole else [])
        # A late row may be older than all that had this list before.
        late = (c.table_id == table_id) & (c.digest == digest) & (c.first_pos > one.first)
        db.execute(t.column_list.update().where(late).values(first_pos=one.first))
        for epoch, seen in one.seen.items():
            here = (r.table_id == table_id) & (r.epoch == epoch)
            if of_reading:
                seen = _as_read(seen, db.scalar(sa.select(sa.func.max(r.last)).where(here, r.digest != digest)))
            known = db.execute(sa.select(r.first, r.last, r.whole_first, r.whole_last).where(here, r.digest == digest))
            before = known.one_or_none()
            places = seen if before is None else merged(PlacesSeen(*before), seen)
            values = {"table_id": table_id, "digest": digest, "epoch": epoch, **places._asdict()}
            key = ["table_id", "digest", "epoch"]
            upsert(db, t.column_range, [values], keys=key, update=list(PlacesSeen._fields))
    return proved


def _as_read(seen: PlacesSeen, others: str | None) -> PlacesSeen:
    """The places at which a list of the time of reading counts: behind *others*, the highest place of all others."""
    if others is None:
        return seen
    at = seen.last if seen.last > others else f"{others}{BEHIND}"
    return PlacesSeen(at, at, *((at, at) if seen.whole_last else ()))


def keep_column_lists(db: Connection, row: Any, after_batch: int) -> None:
    """Drop the column lists of changes that a load replaced, and keep those that are published over it.

    Kept are the lists of batches after the hand-over whose changes reach up to ``stream_from``. A batch that lies on
    both sides may keep a list that only changes below have. Then the table may stop once more than needed, but it never
    lacks a list. Call it inside a transaction.

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
    # Rows that were read before a column was taken, and that are published over the load, lack it still (G-141).
    forget_taken(db, row.id, min(live, default=sys.maxsize))
    kept: set[str] = set()
    number = t.log_batch.c.number
    manifests = sa.select(number, t.log_batch.c.manifest).where(
        t.log_batch.c.mirror == row.mirror, number > after_batch
    )
    db.execute(t.column_range.delete().where(t.column_range.c.table_id == row.id))
    for batch, text in db.execute(manifests.order_by(number)).tuples():
        if batch in live:
            manifest = Manifest.from_json(text)
            lists = [ListSeen.of(entry) for entry in manifest.columns.get(row.source, ())]
            kept |= {list_digest(one.cols) for one in lists}
            above = [one._replace(seen=_above(one.seen, ordinals, begin, row.stream_epoch + 1)) for one in lists]
            reached = [one for one in above if one.seen]
            record_columns(db, row.id, reached, of_reading=manifest.lists_of_reading)
    db.execute(t.column_list.delete().where(c.table_id == row.id, c.digest.not_in(kept)))


def _above(
    seen: Mapping[str, PlacesSeen], ordinals: Mapping[str, int], begin: tuple[int, str], unknown: int
) -> dict[str, PlacesSeen]:
    """The places from *begin* on. What lies on both sides of it is known by its end alone."""
    found: dict[str, PlacesSeen] = {}
    for epoch, places in seen.items():
        at = ordinals.get(epoch, unknown)
        if (at, places.last) < begin:
            continue
        first = places.first if (at, places.first) >= begin else places.last
        whole = places.whole_last if places.whole_last and (at, places.whole_last) >= begin else ""
        whole_first = places.whole_first if whole and (at, places.whole_first) >= begin else whole
        found[epoch] = PlacesSeen(first, places.last, whole_first, whole)
    return found


def columns_of_whole_rows(ledger: Engine, mirror: str, sources: Collection[str]) -> dict[str, set[str]]:
    """By source table the columns that the target or any change has, for tables of which a whole row came."""
    m, found = t.mirrored_table.c, dict[str, set[str]]()
    query = sa.select(m.id, m.source, m.columns).where(m.mirror == mirror, m.source.in_(sources))
    with ledger.connect() as db:
        tables = db.execute(query).tuples().all() if sources else ()
        lists = column_lists(db, [id_ for id_, *_ in tables])
    for id_, source, columns in tables:
        if any(one.whole for one in lists.get(id_, ())):
            found[source] = {name for name, *_ in json.loads(columns)}.union(*(one.names for one in lists[id_]))
    return found
