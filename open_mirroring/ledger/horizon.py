"""Stores the horizons of a mirror and its tables: the positions up to which changes are published and final.

The change log may drop batches whose changes are all at or below the horizon.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.changes.horizon import MirrorHorizon, TableHorizon
from open_mirroring.changes.manifest import Manifest
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.documents import Documents

MIRROR_HORIZON = Documents[MirrorHorizon]("horizon", MirrorHorizon)
TABLE_HORIZON = Documents[tuple[int, TableHorizon]]("table_horizon", tuple[int, TableHorizon])
"""Of a table: the generation for which its horizon was set, and the horizon."""


def newest_dropped(mirror: str) -> sa.ColumnElement[int]:
    """SQL expression for the newest batch up to which the change log may have dropped rows; 0 if none was dropped."""
    c = t.mirror.c
    return sa.func.coalesce(sa.select(c.dropped).where(c.name == mirror).scalar_subquery(), 0)


def move_horizon(
    ledger: Engine,
    mirror: str,
    committed: int,
    horizon: MirrorHorizon,
    tables: Iterable[tuple[str, int, TableHorizon]],
    in_reset: Collection[str] = (),
) -> bool:
    """Set the horizons of a mirror and of tables in one transaction. Returns whether they were set.

    *tables* has id, generation and horizon of each table. Nothing is set if a batch above *committed* is open or in the
    change log, because the batch may contain changes below the new horizon. Nothing is set either if a table outside
    *in_reset* is being reset, because its reset may need batches that would be dropped.
    """
    with ledger.begin() as db:
        c, m = t.mirror.c, t.mirrored_table.c
        # A request for a reset locks this row, too: it comes before this check, or after this transaction.
        db.execute(sa.select(c.name).where(c.name == mirror).with_for_update())
        asked = sa.select(m.id).where(m.mirror == mirror, m.reset.is_not(None), m.id.not_in(in_reset)).limit(1)
        if db.scalar(asked) is not None:
            return False
        free = t.mirror.update().where(c.name == mirror, c.committed == committed, c.open_number.is_(None))
        if db.execute(free.values(version=c.version + 1, dropped=horizon.dropped)).rowcount != 1:
            return False
        MIRROR_HORIZON.put(db, mirror, {"": horizon})
        for table_id, generation, of_table in tables:
            TABLE_HORIZON.put(db, table_id, {"": (generation, of_table)})
    return True


def forget(ledger: Engine, mirror: str, *, dropped: int, audit_before: datetime) -> int:
    """Delete what concerns dropped batches of the change log, and old audit entries and proofs.

    Returns the number of changed rows. *dropped* is the newest dropped batch. A dropped batch keeps its number, times
    and counts, so that totals still add up (I1).
    """
    with ledger.begin() as db:
        letters = t.settled_letter
        gone = db.execute(letters.delete().where(letters.c.mirror == mirror, letters.c.batch <= dropped)).rowcount
        # What is still open there is about tables that are not mirrored: nothing else lets a batch be dropped.
        c = t.open_letter.c
        gone += db.execute(t.open_letter.delete().where(c.mirror == mirror, c.batch <= dropped)).rowcount
        audit = t.audit
        gone += db.execute(audit.delete().where(audit.c.mirror == mirror, audit.c.at < audit_before)).rowcount
        p, newer, m = t.proof, t.proof.alias().c, t.mirrored_table.c
        ours = p.c.table_id.in_(sa.select(m.id).where(m.mirror == mirror)) & (p.c.proved_at < audit_before)
        is_newer = sa.exists().where(newer.table_id == p.c.table_id, newer.proved_at > p.c.proved_at)
        gone += db.execute(p.delete().where(ours, is_newer)).rowcount
        c = t.log_batch.c
        full = sa.select(c.number, c.manifest).where(c.mirror == mirror, c.number <= dropped, c.ranges != "[]")
        for number, text in db.execute(full).tuples().all():
            counts = Manifest(files=[], counts=json.loads(text)["counts"]).to_json()
            one = t.log_batch.update().where(c.mirror == mirror, c.number == number)
            gone += db.execute(one.values(ranges="[]", manifest=counts)).rowcount
    return gone
