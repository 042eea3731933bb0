"""Counts what was logged and what was published by time: graphs of the page, and which batch came through when."""

from __future__ import annotations

from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.manifest import counts_of
from open_mirroring.ledger import tables as t

HOURS = 24
_BATCHES_PER_HOUR = 60


def messages_per_hour(ledger: Engine, mirror: str, now: datetime, hours: int = HOURS) -> list[int]:
    """Messages that were logged in each of the last hours, the oldest hour first."""
    c, counted = t.log_batch.c, [0] * hours
    newest = sa.select(c.manifest, c.committed_at).where(c.mirror == mirror).order_by(c.number.desc())
    with ledger.connect() as db:
        for manifest, at in db.execute(newest.limit(hours * _BATCHES_PER_HOUR)).yield_per(HOURS).tuples():
            ago = int((now - at) / timedelta(hours=1))
            if ago >= hours:
                break
            counted[hours - 1 - max(0, ago)] += counts_of(manifest).get("messages", 0)
    return counted


def rows_per_hour(ledger: Engine, mirror: str, now: datetime) -> list[int]:
    """Rows that were published in each of the last hours, summed up by minutes in the database."""
    c, counted = t.published_file.c, [0] * HOURS
    minute = sa.func.substr(sa.cast(c.confirmed_at, sa.String), 1, len("2026-01-05 10:00"))
    newest, rows = sa.func.max(c.confirmed_at), sa.func.sum(c.rows)
    query = sa.select(newest, rows).where(_of_mirror(mirror, now - timedelta(hours=HOURS)))
    for at, count in t.rows(ledger, query.group_by(minute)):
        ago = int((now - at) / timedelta(hours=1))
        if ago < HOURS:
            counted[HOURS - 1 - max(0, ago)] += int(count)
    return counted


def published_since(db: Connection, mirror: str, since: datetime) -> list[tuple[int, int, datetime]]:
    """What was published since a moment: behind which batch, to which, and when its newest file was confirmed."""
    c = t.published_file.c
    query = sa.select(c.batch_from, c.batch_to, sa.func.max(c.confirmed_at)).where(_of_mirror(mirror, since))
    return [tuple(row) for row in db.execute(query.group_by(c.batch_from, c.batch_to))]


def _of_mirror(mirror: str, since: datetime) -> sa.ColumnElement[bool]:
    m, p = t.mirrored_table.c, t.published_file.c
    mine = sa.select(m.id).where(m.mirror == mirror)
    # As an expression the table is no way in: by it, a database would read the whole history of each.
    return (p.confirmed_at >= since) & sa.func.coalesce(p.table_id, "").in_(mine)
