"""Reads recent history from the ledger: files, dead letters, decisions, and counts per hour for the page's charts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.changes.manifest import LetterPlace, counts_of
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.ledger.reading import PublishedFile, TableState
from open_mirroring.operate.words import rest

SHOWN = 50
HOURS = 24
WEEK = 7 * HOURS
_BATCHES_PER_HOUR = 60
_HOUR = timedelta(hours=1)


class Letter(NamedTuple):
    """An open dead letter.

    An entry with *place* -1 stands for *letters* dead letters that are counted but not listed. *is_untyped* means that
    the message could be read, but one of its values does not fit the type of its column.
    """

    batch: int
    origin: str
    place: int
    source: str | None
    code: str
    reason: str
    key: str | None
    position: str | None
    letters: int
    is_untyped: bool

    @property
    def at(self) -> LetterPlace:
        """The place of the dead letter in the change log."""
        return LetterPlace(self.batch, self.origin, self.place)


class Decision(NamedTuple):
    """An entry of the audit table; *who* and *why* are empty unless a person made the decision."""

    at: datetime
    event: str
    who: str
    why: str
    detail: Mapping[str, Any]


def open_letters(ledger: Engine, mirror: str, source: str | None, limit: int = SHOWN) -> list[Letter]:
    """Return the oldest open dead letters of the table *source*, at most *limit*.

    With *source* None, the result has the dead letters that name no table.
    """
    o, r, m, s = t.open_letter.c, t.rejected_change.c, t.mirrored_table.c, t.settled_letter.c
    unreadable = sa.select(t.open_letter).where(o.mirror == mirror, o.source == source)
    settled = sa.exists().where(s.mirror == mirror, s.batch == r.batch, s.origin == r.origin, s.place == r.place)
    untyped = sa.select(t.rejected_change).join(t.mirrored_table, r.table_id == m.id)
    untyped = untyped.where(m.mirror == mirror, m.source == source, ~settled)
    found: list[Letter] = []
    with ledger.connect() as db:
        for row in db.execute(unreadable.order_by(o.batch, o.origin, o.place).limit(limit)):
            known = (row.source, row.code, row.reason, row.key, _position(row), row.letters, False)
            found.append(Letter(row.batch, row.origin, row.place, *known))
        if source is not None:
            for row in db.execute(untyped.order_by(r.batch, r.origin, r.place).limit(limit)):
                known = (source, row.code, row.reason, row.key, _position(row), 1, True)
                found.append(Letter(row.batch, row.origin, row.place, *known))
    return sorted(found, key=lambda letter: letter.at)[:limit]


def decisions(ledger: Engine, mirror: str, source: str | None) -> tuple[Decision, ...]:
    """Return the newest audit entries of the table *source*, the newest first; with *source* None, of the mirror."""
    c = t.audit.c
    query = sa.select(c.at, c.event, c.detail).where(c.mirror == mirror, c.source == source)
    found = []
    for at, event, text in t.rows(ledger, query.order_by(c.id.desc()).limit(SHOWN)):
        detail = json.loads(text)
        who = str(detail.pop("who", "") or detail.pop("approved_by", ""))
        found.append(Decision(at, event, who, str(detail.pop("why", "") or ""), detail))
    return tuple(found)


def _position(row: Any) -> str | None:
    return None if row.pos is None else f"{row.epoch or '?'} {row.pos}"


def newest_files(ledger: Engine, state: TableState) -> list[PublishedFile]:
    """The newest published files of a table, the newest first."""
    c = t.published_file.c
    query = sa.select(*(c[name] for name in PublishedFile._fields))
    query = query.where(c.table_id == state.id, c.generation == state.row.generation)
    return [PublishedFile(*row) for row in t.rows(ledger, query.order_by(c.number.desc()).limit(SHOWN))]


def load_left(ledger: Engine, state: TableState) -> timedelta | None:
    """Return the time left until a table's initial load ends, if the load goes on as fast as until now.

    The result is None if the initial load is over, or its speed is not known yet.
    """
    plan, c = state.start.load_plan, t.published_file.c
    if plan is None or len(plan.done) == len(plan.chunks):
        return None
    mine = (c.table_id == state.id) & (c.generation == state.row.generation) & (c.kind == "load")
    ((first, last),) = t.rows(ledger, sa.select(sa.func.min(c.confirmed_at), sa.func.max(c.confirmed_at)).where(mine))
    # The speed is measured from the end of the first chunk, because the start of the load is not known.
    return None if first == last else rest(len(plan.done) - 1, len(plan.chunks) - 1, last - first)


def logged_per_hour(
    ledger: Engine, mirror: str, now: datetime, *, what: str = "changes", hours: int = HOURS
) -> list[int]:
    """Return how much was logged in each of the last *hours*, the oldest hour first.

    *what* says what is counted: ``changes`` or ``messages``. Only the newest batches are read, at most 60 times
    *hours*.
    """
    c, counted = t.log_batch.c, [0] * hours
    newest = sa.select(c.manifest, c.committed_at).where(c.mirror == mirror).order_by(c.number.desc())
    with ledger.connect() as db:
        for manifest, at in db.execute(newest.limit(hours * _BATCHES_PER_HOUR)).yield_per(HOURS).tuples():
            ago = int((now - at) / _HOUR)
            if ago >= hours:
                break
            counted[hours - 1 - max(0, ago)] += counts_of(manifest).get(what, 0)
    return counted


def rows_per_hour(ledger: Engine, mirror: str, now: datetime) -> list[int]:
    """The number of rows published in each of the last 24 hours, the oldest hour first."""
    c, counted = t.published_file.c, [0] * HOURS
    query = sa.select(sa.func.max(c.confirmed_at), sa.func.sum(c.rows)).where(_of_mirror(mirror, now - HOURS * _HOUR))
    for at, count in t.rows(ledger, query.group_by(_minute(c.confirmed_at))):
        ago = int((now - at) / _HOUR)
        if ago < HOURS:
            counted[HOURS - 1 - max(0, ago)] += int(count)
    return counted


def lag_per_hour(
    ledger: Engine, mirror: str, now: datetime, waiting: Iterable[datetime], *, hours: int = WEEK
) -> list[float]:
    """Return, for each of the last *hours*, the longest time in seconds that a logged change was unpublished.

    The oldest hour is first. *waiting* has, for each change that is still unpublished, the time since which it waits.
    Publications within one minute count as one. The rebuild of a table from the change log does not count, because the
    age of its old changes is not a delay.
    """
    c, m, b = t.published_file.c, t.mirrored_table.c, t.batch_table.c
    of_file = (b.mirror == mirror, b.source == m.source, b.batch > c.batch_from, b.batch <= c.batch_to)
    first = sa.select(sa.func.min(b.batch)).where(*of_file).correlate(t.published_file, t.mirrored_table)
    query = (
        sa.select(sa.func.max(c.confirmed_at), sa.func.min(first.scalar_subquery()))
        .join(t.mirrored_table, sa.func.coalesce(c.table_id, "") == m.id)
        .where(m.mirror == mirror, c.confirmed_at >= now - hours * _HOUR, (c.batch_from > 0) | (c.generation == 1))
        .group_by(_minute(c.confirmed_at))
    )
    published = [(until, batch) for until, batch in t.rows(ledger, query) if batch is not None]
    log = t.log_batch.c
    logged_at = sa.select(log.number, log.committed_at).where(log.mirror == mirror)
    logged = dict(t.rows(ledger, logged_at.where(log.number.in_({batch for _, batch in published}))))
    found = [0.0] * hours
    for since, until in [*((logged[batch], until) for until, batch in published), *((one, now) for one in waiting)]:
        for ago in range(max(0, int((now - until) / _HOUR)), min(hours, int((now - since) / _HOUR) + 1)):
            lag = (min(until, now - ago * _HOUR) - since).total_seconds()
            found[hours - 1 - ago] = max(found[hours - 1 - ago], lag)
    return found


def verified_per_hour(ledger: Engine, tables: Collection[TableState], now: datetime) -> tuple[list[float], int]:
    """Return the share of rows (0 to 1) proved equal at each hour of a week, oldest hour first.

    Each hour counts the newest proof of each table up to this hour. The second value is the number of tables that have
    a proof.
    """
    moments = [now - ago * _HOUR for ago in reversed(range(WEEK))]
    found = ProofLedger(ledger).since(moments[0], [table.id for table in tables])
    proofs = t.grouped((one.table_id, one.proof) for one in found if one.proof.rows)
    rows = {table: max(one.rows for one in known) for table, known in proofs.items()}
    equal = [0.0] * WEEK
    for table, known in proofs.items():
        for hour, moment in enumerate(moments):
            newest = next((one for one in reversed(known) if one.proved_at and one.proved_at <= moment), None)
            if newest is not None:
                # A proof of a part found how many rows are not equal; the others were equal when they were compared.
                equal[hour] += max(0, rows[table] - (newest.rows - newest.equal))
    every = sum(rows.values())
    return [share / every for share in equal] if every else [], len(rows)


def _of_mirror(mirror: str, since: datetime) -> sa.ColumnElement[bool]:
    m, p = t.mirrored_table.c, t.published_file.c
    mine = sa.select(m.id).where(m.mirror == mirror)
    # coalesce() keeps the database from using the index on table_id, which would read each table's complete history.
    return (p.confirmed_at >= since) & sa.func.coalesce(p.table_id, "").in_(mine)


def _minute(moment: sa.ColumnElement[datetime]) -> sa.ColumnElement[str]:
    return sa.func.substr(sa.cast(moment, sa.String), 1, len("2026-01-05 10:00"))
