"""Gathers the view of a mirror from its ledger: a few queries for all tables together. It changes nothing.

The verdicts are those of an inspection: of one that was just made, or of the last one that was recorded. What it cannot
know, because it came later, is added: a stop of the ledger, and losses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.manifest import LoadChunk, is_of_source
from open_mirroring.config import Mirror
from open_mirroring.config.schedule import next_after
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.decisions import OpenStop, open_stops
from open_mirroring.ledger.letters import NO_LETTERS, settled_counts
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.ledger.reading import LedgerReader, TableState, Waiting
from open_mirroring.ledger.verdict_ledger import RecordedVerdict, recorded_verdicts
from open_mirroring.operate.mirror_view import LOOK_OVERDUE, NOT_INSPECTED, Marks, MirrorView, PartitionLag, TableView
from open_mirroring.protocols.table_losses import Loss
from open_mirroring.protocols.verdicts import OK, Backlog, Finding, Verdict
from open_mirroring.reconciliation.losses import LossReport, look

NO_COMPLETE_POSITION = "none: this source has none"
"""The source does not show that nothing older can come, or it was not asked: transactions are not held back (C-88)."""
RECENT_BATCHES = 100
"""Messages are counted over so many of the newest batches."""
_LOOKS_MISSED = 2
"""So many moments of the schedule may pass before what the last inspection found is doubted."""


def view_mirror(
    mirror: Mirror,
    ledger: Engine,
    now: datetime,
    *,
    findings: Mapping[str, Finding] | None = None,
    not_inspected: str = "",
    stop: OpenStop | None = None,
    closely: Collection[str] | None = (),
) -> MirrorView:
    """Gather the view of a mirror.

    Args:
        mirror: the mirror.
        ledger: its ledger.
        now: the present time, with a zone.
        findings: what an inspection just found, by source table; None: what the last one recorded.
        not_inspected: why tables are not among *findings*.
        stop: a stop of reading that the ledger does not know yet.
        closely: the tables whose marks and totals are wanted, which cost more the longer the history is; None: all.
    """
    report, reader = look(mirror, ledger), LedgerReader(ledger, mirror.name)
    state, tables = reader.mirror(), reader.tables()
    near = {source: table for source, table in tables.items() if closely is None or source in closely}
    stops = {one.source: one for one in open_stops(ledger, mirror.name)}
    recent = reader.batches(above=max(0, state.committed - RECENT_BATCHES))
    counts = Counter[str]()
    for _, of_batch, _ in recent:
        counts.update(of_batch)
    open_fragments, oldest_fragment = reader.open_fragments()
    looks = _Looks(mirror, ledger, now, findings, not_inspected)
    return MirrorView(
        mirror=mirror.name,
        taken_at=now,
        state=state,
        stop=stops.get(None, stop),
        last_commit=recent[-1][2] if recent else None,
        open_fragments=open_fragments,
        oldest_fragment=oldest_fragment,
        horizon=reader.mirror_horizon(),
        recent_batches=len(recent),
        recent=dict(counts),
        report=report,
        settled_letters=settled_counts(ledger, mirror.name),
        partitions=_partitions(ledger, mirror.name),
        # Chunks of loads that go through the change log, and corrections, are bound next to the source's ranges.
        bound_offsets={name: up_to for name, up_to in reader.bound().items() if is_of_source(name)} if near else {},
        next_run=next_after(mirror.schedule, now),
        not_inspected=not_inspected,
        tables=tuple(_tables(mirror, reader, state.committed, tables, near, report, stops, looks)),
    )


class _Looks:
    """What inspections found of tables: the one that was just made, or the last one that was recorded."""

    def __init__(
        self,
        mirror: Mirror,
        ledger: Engine,
        now: datetime,
        findings: Mapping[str, Finding] | None,
        not_inspected: str,
    ) -> None:
        self.now = now
        self._not_inspected = not_inspected or "the landing zone was not inspected yet, or not since a decision"
        self._notes = {source: found.notes for source, found in (findings or {}).items()}
        self._is_overdue = False
        if findings is not None:
            self.found = {source: RecordedVerdict.of(found, now) for source, found in findings.items()}
            return
        self.found = recorded_verdicts(ledger, mirror.name)
        due = max((found.recorded_at for found in self.found.values()), default=None)
        for _ in range(_LOOKS_MISSED):
            due = None if due is None else next_after(mirror.schedule, due)
        self._is_overdue = due is not None and due < now

    def judge(self, source: str, stop: OpenStop | None, losses: Sequence[Loss]) -> tuple[Verdict | None, str, str]:
        """Verdict, code and why; the ledger's stop goes before anything that an inspection found."""
        found = self.found.get(source)
        if stop is not None:
            return Verdict.STOP, stop.code, stop.what
        if found is None:
            return None, NOT_INSPECTED, self._not_inspected
        if self._is_overdue and found.verdict is not Verdict.STOP:
            return None, LOOK_OVERDUE, "no run inspected the landing zone at the last moments of the schedule"
        if found.verdict in (Verdict.STOP, Verdict.HOLD):
            return found.verdict, found.code, found.what
        # Dead letters may have come, or have been settled, since the inspection.
        if losses:
            return Verdict.LOSSES, losses[0].code, losses[0].what
        return Verdict.PASS, OK, found.what if found.verdict is Verdict.PASS else "ledger, folder and target agree"

    def notes(self, source: str, known: Sequence[str]) -> tuple[str, ...]:
        """The notes of the inspection that was just made, which hold the *known* ones; else these."""
        return tuple(self._notes.get(source, known))


def _tables(
    mirror: Mirror,
    reader: LedgerReader,
    committed: int,
    tables: Mapping[str, TableState],
    near: Mapping[str, TableState],
    report: LossReport,
    stops: Mapping[str | None, OpenStop],
    looks: _Looks,
) -> Iterator[TableView]:
    states = tables.values()
    waiting, published, logged = reader.waiting(), reader.published_at(), _logged_chunks(reader, states, committed)
    horizons, proofs = reader.horizons(states), ProofLedger(reader.engine).newest(table.id for table in states)
    unverified, gone = reader.unverified_columns(states), reader.gone_columns(states)
    marks, totals = _marks(mirror, reader, near, committed), reader.totals(near)
    for source, table in tables.items():
        stop, found, losses = stops.get(source), looks.found.get(source), report.losses.get(source, ())
        verdict, code, what = looks.judge(source, stop, losses)
        ahead, backlog = waiting.get(source, Waiting()), Backlog() if found is None else found.backlog
        moments = [moment for moment in (ahead.since, backlog.oldest) if moment is not None]
        plan, horizon, proof = table.load_plan, horizons.get(table.id), proofs.get(table.id)
        done = logged[source, table.row.generation]
        yield TableView(
            state=table,
            verdict=verdict,
            code=code,
            what=what,
            since=None if stop is None else stop.since,
            looked_at=None if found is None else found.recorded_at,
            applied=None if found is None else found.applied,
            lag=max(timedelta(0), looks.now - min(moments, default=looks.now)),
            waiting=ahead._replace(changes=ahead.changes + table.waiting_rows),
            backlog=backlog,
            published_at=published.get(table.id),
            dead_letters=report.letters.tables.get(source, NO_LETTERS),
            losses=losses,
            notes=looks.notes(source, report.notes.get(source, ())),
            load_chunks=None if plan is None else (max(len(plan.done), done), len(plan.chunks)),
            horizon=None if horizon is None else f"{horizon.ordinal}:{horizon.major}",
            unverified_columns=tuple((x.column, x.since) for x in unverified.get(table.id, ()) if not x.is_of_rows),
            gone_columns=tuple((one.column, one.place) for one in gone.get(table.id, ())),
            proof=None if proof is None else proof.proof,
            marks=marks.get(source),
            totals=totals.get(source),
        )


def _logged_chunks(reader: LedgerReader, tables: Collection[TableState], committed: int) -> Counter[tuple[str, int]]:
    """How many chunks of a load are in the change log, by table and generation."""
    is_loading = any(table.load_state == "pending" for table in tables)
    chunks = map(LoadChunk.of, reader.bound(committed) if is_loading else ())
    return Counter((chunk.source, chunk.generation) for chunk in chunks if chunk is not None)


def _marks(mirror: Mirror, reader: LedgerReader, tables: Mapping[str, TableState], committed: int) -> dict[str, Marks]:
    if not tables:
        return {}
    epochs = reader.epochs(table.id for table in tables.values())
    seen = reader.highest_of(dict.fromkeys(tables, committed))
    is_kept = mirror.consistency == "transaction"
    complete = reader.completeness(committed) if is_kept else None
    told = complete.told_at(mirror.reads) if complete else {}
    shown = sum(any(majors.values()) for majors in told.values())
    none_yet = f"none yet: {shown} of {mirror.source.ordered_partitions} partitions have shown a commit"
    found = {}
    for source, table in tables.items():
        ordinals = epochs.get(table.id, {})
        # A stream that was not accepted yet has no place in the order.
        placed = [(ordinals.get(epoch, -1), text) for epoch, text in seen.get(source, {}).items()]
        known = [LogPosition.parse(ordinal, text) for ordinal, text in placed if ordinal >= 0]
        highest = max(known, default=None)
        position = complete.position(ordinals) if complete else None
        below = none_yet if is_kept else NO_COMPLETE_POSITION
        if position is not None:
            at, _, major = position.partition(":")
            below = f"below {int(at)}:{major}"
        newest = None if highest is None else f"{highest.epoch}:{highest.text}"
        found[source] = Marks(newest, below, table.row.published_batch)
    return found


def _partitions(ledger: Engine, mirror: str) -> dict[str, PartitionLag]:
    o, b = t.source_offsets.c, t.bound_range.c
    same = (o.mirror == b.mirror) & (o.name == b.name)
    query = sa.select(o.name, o.first, o.end, o.seen_at, b.bound_to)
    query = query.join_from(t.source_offsets, t.bound_range, same, isouter=True).where(o.mirror == mirror)
    return {
        name: PartitionLag(max(0, end - (bound or 0)), max(0, (bound or 0) - first), seen_at)
        for name, first, end, seen_at, bound in t.rows(ledger, query.order_by(o.name))
    }
