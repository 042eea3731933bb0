"""Sums up the state of all tables of a mirror from the ledger alone: a few queries, however long the history is.

The verdicts are those that inspections recorded, never judged anew. What they cannot know, because it came later, is
added: a stop of the ledger, and losses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.config import Mirror
from open_mirroring.config.schedule import next_after
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.decisions import OpenStop, open_stops
from open_mirroring.ledger.letters import NO_LETTERS
from open_mirroring.ledger.reading import LedgerReader, Waiting
from open_mirroring.ledger.verdict_ledger import RecordedVerdict, recorded_verdicts
from open_mirroring.operate.words import SEVERITY
from open_mirroring.protocols.table_losses import ANY_TABLE, WAYS_OUT, Loss
from open_mirroring.protocols.verdicts import OTHER_WAY_OUT, Backlog, Verdict
from open_mirroring.protocols.verdicts import WAYS_OUT as ALL_WAYS_OUT
from open_mirroring.reconciliation.losses import LossReport, look

HOURS = 24
NOT_INSPECTED, LOOK_OVERDUE = "NOT_INSPECTED", "LOOK_OVERDUE"
_LOOKS_MISSED = 2
"""So many moments of the schedule may pass before what the last look found is doubted."""
_BATCHES_PER_HOUR = 60


class LastProof(NamedTuple):
    """The result and the time of a table's last comparison with its source."""

    verdict: str
    at: datetime


@dataclass(frozen=True)
class TableLine:
    """One table in a list of many.

    Attributes:
        verdict: None when nobody looked at it, or not for too long.
        looked_at: when its landing zone was inspected last.
        waiting_since: when the oldest change was logged that is not published.
        published_at: when something of it was published last.
        applied: the highest number that counted as applied at the last look.
        letters: how many dead letters of it are open.
        notes: what may differ at the target though nothing is wrong, and what became of its columns.
    """

    id: str
    source: str
    folder: str
    verdict: Verdict | None
    code: str
    what: str
    way_out: str
    since: datetime | None
    looked_at: datetime | None
    load_state: str
    waiting_batches: int
    waiting_rows: int
    waiting_since: datetime | None
    backlog: Backlog
    applied: int | None
    published_at: datetime | None
    letters: int
    losses: tuple[Loss, ...]
    notes: tuple[str, ...]
    proof: LastProof | None

    def lag(self, now: datetime) -> timedelta:
        """The age of the oldest logged change that is not known to be applied; zero when there is none."""
        since = [moment for moment in (self.waiting_since, self.backlog.oldest) if moment is not None]
        return now - min(since) if since else timedelta(0)


@dataclass(frozen=True)
class MirrorOverview:
    """A mirror and all its tables.

    Attributes:
        stop: the stop of its reading.
        losses: what any of its tables may lack.
        hours: messages that were logged in each of the last hours, the oldest hour first.
        hours_out: rows that were published in each of them.
        letters: how many dead letters are open.
        looked_at: when the landing zone was inspected last.
        next_run: when its schedule runs it next.
        notes: what is worth a look of all of it.
    """

    mirror: str
    taken_at: datetime
    committed: int
    last_commit: datetime | None
    open_batch: int | None
    open_since: datetime | None
    behind: int | None
    stop: OpenStop | None
    losses: tuple[Loss, ...]
    letters: int
    hours: tuple[int, ...]
    hours_out: tuple[int, ...]
    looked_at: datetime | None
    next_run: datetime | None
    tables: tuple[TableLine, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict | None:
        """The worst of its tables' verdicts, and of its own."""
        own = [Verdict.STOP] if self.stop else [Verdict.LOSSES] if self.losses else []
        found = {*own, *(table.verdict for table in self.tables)}
        return next((verdict for verdict in SEVERITY if verdict in found), None)

    @property
    def counts(self) -> dict[Verdict | None, int]:
        """How many tables there are of each verdict, the worst first."""
        counted = Counter(table.verdict for table in self.tables)
        return {verdict: counted[verdict] for verdict in SEVERITY if counted[verdict]}

    @property
    def lag(self) -> timedelta:
        """The longest lag of a table that is not stopped."""
        lags = (table.lag(self.taken_at) for table in self.tables if table.verdict is not Verdict.STOP)
        return max(lags, default=timedelta(0))

    @property
    def proved(self) -> LastProof | None:
        """The oldest of the tables' last proofs; None while some table has none."""
        proofs = [table.proof for table in self.tables]
        known = [proof for proof in proofs if proof is not None]
        worst = [proof for proof in known if proof.verdict != "EQUAL"] or known
        return min(worst, key=lambda proof: proof.at) if known and (len(known) == len(proofs)) else None


def overview(mirror: Mirror, ledger: Engine, now: datetime) -> MirrorOverview:
    """Gather the overview of a mirror at a moment, with its zone."""
    report, stops = look(mirror, ledger), open_stops(ledger, mirror.name)
    recorded = recorded_verdicts(ledger, mirror.name)
    waiting = LedgerReader(ledger, mirror.name).waiting()
    with ledger.connect() as db:
        row = db.execute(sa.select(t.mirror).where(t.mirror.c.name == mirror.name)).one_or_none()
        committed = 0 if row is None else row.committed
        hours, last_commit = _hours(db, mirror.name, committed, now)
        behind = _behind(db, mirror.name)
        out = _hours_out(db, mirror.name, now)
        gathered = _Lines(db, mirror, now, report, recorded, stops)
        lines = gathered.lines(waiting)
    looks = [line.looked_at for line in lines if line.looked_at is not None]
    return MirrorOverview(
        mirror=mirror.name,
        taken_at=now,
        committed=committed,
        last_commit=last_commit,
        open_batch=None if row is None else row.open_number,
        open_since=None if row is None else row.open_bound_at,
        behind=behind,
        stop=next((stop for stop in stops if stop.source is None), None),
        losses=report.losses.get(ANY_TABLE, ()),
        letters=report.letters.count,
        hours=hours,
        hours_out=out,
        looked_at=max(looks, default=None),
        next_run=next_after(mirror.schedule, now),
        tables=lines,
        notes=report.notes.get(ANY_TABLE, ()),
    )


class _Counted(msgspec.Struct):
    """What is wanted of a manifest, which may be large."""

    counts: dict[str, int]


def _hours(db: Connection, mirror: str, committed: int, now: datetime) -> tuple[tuple[int, ...], datetime | None]:
    """Messages per hour, and when the newest batch was committed."""
    c = t.log_batch.c
    newest = sa.select(c.manifest, c.committed_at).where(c.mirror == mirror).order_by(c.number.desc())
    hours = [0] * HOURS
    last: datetime | None = None
    for manifest, at in db.execute(newest.limit(HOURS * _BATCHES_PER_HOUR)).yield_per(HOURS).tuples():
        last = last or at
        ago = int((now - at) / timedelta(hours=1))
        if ago >= HOURS:
            break
        counts = msgspec.json.decode(manifest, type=_Counted).counts
        hours[HOURS - 1 - max(0, ago)] += counts.get("messages", 0)
    return tuple(hours), last


def _behind(db: Connection, mirror: str) -> int | None:
    """Messages at the source that are not bound yet, where a broker tells; else None."""
    o, b = t.source_offsets.c, t.bound_range.c
    query = sa.select(o.end, b.bound_to).join_from(
        t.source_offsets, t.bound_range, (o.mirror == b.mirror) & (o.name == b.name), isouter=True
    )
    behind = [max(0, end - (bound or 0)) for end, bound in db.execute(query.where(o.mirror == mirror)).tuples()]
    return sum(behind) if behind else None


def published_since(db: Connection, mirror: str, since: datetime) -> list[tuple[int, int, datetime]]:
    """What was published since a moment: behind which batch, to which, and when its newest file was confirmed."""
    c = t.published_file.c
    query = sa.select(c.batch_from, c.batch_to, sa.func.max(c.confirmed_at)).where(_of_mirror(mirror, since))
    return [tuple(row) for row in db.execute(query.group_by(c.batch_from, c.batch_to))]


def _hours_out(db: Connection, mirror: str, now: datetime) -> tuple[int, ...]:
    """Rows per hour, summed up by minutes in the database."""
    c = t.published_file.c
    minute = sa.func.substr(sa.cast(c.confirmed_at, sa.String), 1, len("2026-01-05 10:00"))
    newest, rows = sa.func.max(c.confirmed_at), sa.func.sum(c.rows)
    query = sa.select(newest, rows).where(_of_mirror(mirror, now - timedelta(hours=HOURS)))
    hours = [0] * HOURS
    for at, count in db.execute(query.group_by(minute)).tuples():
        ago = int((now - at) / timedelta(hours=1))
        if ago < HOURS:
            hours[HOURS - 1 - max(0, ago)] += int(count)
    return tuple(hours)


def _of_mirror(mirror: str, since: datetime) -> sa.ColumnElement[bool]:
    m, p = t.mirrored_table.c, t.published_file.c
    mine = sa.select(m.id).where(m.mirror == mirror)
    # As an expression the table is no way in: by it, a database would read the whole history of each.
    return (p.confirmed_at >= since) & sa.func.coalesce(p.table_id, "").in_(mine)


class _Lines:
    """What a few queries for all tables together say of each."""

    def __init__(
        self,
        db: Connection,
        mirror: Mirror,
        now: datetime,
        report: LossReport,
        recorded: Mapping[str, RecordedVerdict],
        stops: Sequence[OpenStop],
    ) -> None:
        self._db, self._mirror, self._now, self._report, self._recorded = db, mirror, now, report, recorded
        self._stops = {stop.source: stop for stop in stops}
        looks = [found.recorded_at for found in recorded.values()]
        due = max(looks, default=None)
        for _ in range(_LOOKS_MISSED):
            due = None if due is None else next_after(mirror.schedule, due)
        self._overdue = due is not None and due < now

    def lines(self, waiting: Mapping[str, Waiting]) -> tuple[TableLine, ...]:
        m = t.mirrored_table.c
        wanted = (m.id, m.source, m.folder, m.generation, m.load_state, m.waiting_rows)
        rows = self._db.execute(sa.select(*wanted).where(m.mirror == self._mirror.name).order_by(m.source)).all()
        proofs = self._proofs()
        published = self._published_at()
        lines = []
        for row in rows:
            verdict, code, what, way_out = self._verdict(row.source)
            stop, found = self._stops.get(row.source), self._recorded.get(row.source)
            ahead = waiting.get(row.source, Waiting())
            lines.append(
                TableLine(
                    id=row.id,
                    source=row.source,
                    folder=row.folder,
                    verdict=verdict,
                    code=code,
                    what=what,
                    way_out=way_out,
                    since=None if stop is None else stop.since,
                    looked_at=None if found is None else found.recorded_at,
                    load_state=row.load_state,
                    waiting_batches=ahead.batches,
                    waiting_rows=ahead.changes + (row.waiting_rows or 0),
                    waiting_since=ahead.since,
                    backlog=Backlog() if found is None else found.backlog,
                    applied=None if found is None else found.applied,
                    published_at=published.get(row.id),
                    letters=self._report.letters.tables.get(row.source, NO_LETTERS).count,
                    losses=self._report.losses.get(row.source, ()),
                    notes=self._report.notes.get(row.source, ()),
                    proof=proofs.get(row.id),
                )
            )
        return tuple(lines)

    def _verdict(self, source: str) -> tuple[Verdict | None, str, str, str]:
        stop, found = self._stops.get(source), self._recorded.get(source)
        if stop is not None:
            return Verdict.STOP, stop.code, stop.what, ALL_WAYS_OUT.get(stop.code, OTHER_WAY_OUT)
        if found is None:
            return None, NOT_INSPECTED, "the landing zone was not inspected yet, or not since a decision", ""
        if self._overdue and found.verdict is not Verdict.STOP:
            what = "no run looked at the landing zone although the schedule named several moments since"
            way_out = "see why the scheduler does not run the mirror, or run `open-mirroring tick`"
            return None, LOOK_OVERDUE, what, way_out
        if found.verdict in (Verdict.STOP, Verdict.HOLD):
            return found.verdict, found.code, found.what, ALL_WAYS_OUT.get(found.code, OTHER_WAY_OUT)
        # Letters may have been settled, or have come, since the look; the rule is that of the inspection.
        if losses := self._report.losses.get(source, ()):
            return Verdict.LOSSES, losses[0].code, losses[0].what, WAYS_OUT.get(losses[0].code, "")
        return Verdict.PASS, "OK", "ledger, folder and target agree", ""

    def _published_at(self) -> dict[str, datetime]:
        m, p = t.mirrored_table.c, t.publication.c
        q = t.publication.alias()
        newest = sa.select(sa.func.max(q.c.version)).where(q.c.table_id == m.id, q.c.generation == m.generation)
        of_newest = (p.table_id == m.id) & (p.generation == m.generation) & (p.version == newest.scalar_subquery())
        query = sa.select(m.id, p.confirmed_at).join_from(t.mirrored_table, t.publication, of_newest)
        return dict(self._db.execute(query.where(m.mirror == self._mirror.name)).tuples().all())

    def _proofs(self) -> dict[str, LastProof]:
        m, p = t.mirrored_table.c, t.proof.c
        of_table = (p.table_id == m.id) & (p.generation == m.generation)
        query = sa.select(p.table_id, p.verdict, p.proved_at).join_from(t.mirrored_table, t.proof, of_table)
        query = query.where(m.mirror == self._mirror.name).order_by(p.proved_at)
        # The last one of each table wins.
        return {id_: LastProof(verdict, at) for id_, verdict, at in self._db.execute(query).tuples()}
