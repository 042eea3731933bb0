"""Reads the state of a mirror from its ledger, with a few queries for all tables together. Nothing is changed.

The verdicts are those of the last inspection. Stops and losses that were recorded after this inspection override them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import Engine

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.manifest import LoadChunk, is_of_source
from open_mirroring.config import Mirror
from open_mirroring.config.schedule import next_after
from open_mirroring.ledger.dead_letters import settled_counts
from open_mirroring.ledger.decisions import OpenStop, open_stops
from open_mirroring.ledger.documents import FRAGMENTS, OFFSETS
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.ledger.reading import LedgerReader, TableState, Waiting
from open_mirroring.ledger.verdict_ledger import recorded_verdicts
from open_mirroring.operate.mirror_view import NOT_INSPECTED, Judgement, Marks, MirrorView, PartitionLag, TableView
from open_mirroring.protocols.coverage import Verified
from open_mirroring.protocols.table_losses import Loss
from open_mirroring.protocols.verdicts import OK, Finding, Verdict
from open_mirroring.reconciliation.losses import look

NO_COMPLETE_POSITION = "none: this source has none"
"""Shown if changes do not wait for complete transactions: by the setting, or as the source cannot show it (C-88)."""
RECENT_BATCHES = 100
"""Messages are counted over this many of the newest batches."""
_LOOKS_MISSED = 2
"""After so many scheduled runs without an inspection, the last one counts as out of date."""


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
    """Read the state of a mirror and its tables.

    *findings* are the results of an inspection that just ended, by source table; with None, the last recorded results
    are used. *not_inspected* is why tables are missing in *findings*. *stop* is a stop of reading the source that the
    ledger has not recorded yet. For the tables in *closely* (None: all tables) positions and totals are read, too; the
    longer the history of the tables is, the longer this takes.
    """
    reader = LedgerReader(ledger, mirror.name)
    state, tables = reader.mirror(), reader.tables()
    report = look(mirror, ledger, tables=tables)
    near = {source: table for source, table in tables.items() if closely is None or source in closely}
    stops = {one.source: one for one in open_stops(ledger, mirror.name)}
    with ledger.connect() as db:
        fragments = [*FRAGMENTS.of(db, mirror.name).values()]
    if findings is None:
        looked = recorded_verdicts(ledger, mirror.name)
    else:
        looked = {source: replace(found, at=now) for source, found in findings.items()}
    is_overdue = findings is None and _is_overdue(mirror, looked, now)

    waiting, published = reader.waiting(), reader.published_at()
    logged = _logged_chunks(reader, tables, state.committed)
    horizons, proofs = reader.horizons(tables.values()), ProofLedger(ledger).newest(one.id for one in tables.values())
    unverified, gone = reader.unverified_columns(tables.values()), reader.gone_columns(tables.values())
    marks, totals = _marks(mirror, reader, near, state.committed), reader.totals(near)

    def viewed(source: str, table: TableState) -> TableView:
        found, losses, ahead = looked.get(source), report.losses.get(source, ()), waiting.get(source, Waiting())
        waits = (ahead.since, None if found is None else found.backlog.oldest)
        since = min((moment for moment in waits if moment is not None), default=now)
        plan, at = table.start.load_plan, (source, table.row.generation)
        horizon, proof = horizons.get(table.id), proofs.get(table.id)
        return TableView(
            state=table,
            judgement=_judged(stops.get(source), found, losses, not_inspected, is_overdue=is_overdue),
            found=found,
            lag=max(timedelta(0), now - since),
            waiting=ahead._replace(changes=ahead.changes + table.waiting_rows),
            published_at=published.get(table.id),
            report=report,
            load_chunks=None if plan is None else (max(len(plan.done), logged[at]), len(plan.chunks)),
            horizon=None if horizon is None else f"{horizon.ordinal}:{horizon.major}",
            unverified_columns=tuple((n.column, n.since) for n in unverified.get(table.id, ()) if not n.is_of_rows),
            gone_columns=tuple((one.column, one.place) for one in gone.get(table.id, ())),
            recorded=proof,
            verified=Verified.of(
                proof and proof.coverage, now, mirror.prove.cover_in_days, mirror.prove.alert_after_days
            ),
            marks=marks.get(source),
            totals=totals.get(source),
        )

    return MirrorView(
        mirror=mirror.name,
        taken_at=now,
        state=state,
        stop=stops.get(None, stop),
        batches=reader.batches(above=max(0, state.committed - RECENT_BATCHES)),
        fragments=fragments,
        horizon=reader.mirror_horizon(),
        report=report,
        settled_letters=settled_counts(ledger, mirror.name),
        partitions=_partitions(ledger, mirror.name),
        # Chunks of loads that go through the change log, and corrections, are bound next to the source's ranges.
        bound_offsets={name: up_to for name, up_to in reader.bound().items() if is_of_source(name)} if near else {},
        next_run=next_after(mirror.cron, now),
        runs_on_new_data=mirror.on_new_data is not None,
        not_inspected=not_inspected,
        tables=tuple(viewed(source, table) for source, table in tables.items()),
    )


def _judged(
    stop: OpenStop | None, found: Finding | None, losses: Sequence[Loss], not_inspected: str, *, is_overdue: bool
) -> Judgement:
    """The current verdict; a stop in the ledger counts more than the inspection."""
    if stop is not None:
        return Judgement(Verdict.STOP, stop.code, stop.what, stop.since)
    if found is None:
        what = not_inspected or "the landing zone was not inspected yet, or not since a decision"
        return Judgement(None, NOT_INSPECTED, what)
    if is_overdue and found.verdict is not Verdict.STOP:
        return Judgement(None, NOT_INSPECTED, "no run inspected the landing zone at the last moments of the schedule")
    if found.verdict in (Verdict.STOP, Verdict.HOLD):
        return Judgement(found.verdict, found.code, found.what)
    # Dead letters may have come, or have been settled, since the inspection.
    if losses:
        return Judgement(Verdict.LOSSES, losses[0].code, losses[0].what)
    what = found.what if found.verdict is Verdict.PASS else "ledger, folder and target agree"
    return Judgement(Verdict.PASS, OK, what)


def _is_overdue(mirror: Mirror, looked: Mapping[str, Finding], now: datetime) -> bool:
    due = max((found.at for found in looked.values() if found.at is not None), default=None)
    for _ in range(_LOOKS_MISSED):
        due = None if due is None else next_after(mirror.cron, due)
    return due is not None and due < now


def _logged_chunks(reader: LedgerReader, tables: Mapping[str, TableState], committed: int) -> Counter[tuple[str, int]]:
    """The number of initial load chunks in the change log, by table and generation."""
    is_loading = any(table.start.load_state == "pending" for table in tables.values())
    chunks = map(LoadChunk.of, reader.bound(committed) if is_loading else ())
    return Counter((chunk.source, chunk.generation) for chunk in chunks if chunk is not None)


def _marks(mirror: Mirror, reader: LedgerReader, tables: Mapping[str, TableState], committed: int) -> dict[str, Marks]:
    if not tables:
        return {}
    epochs = reader.epochs(table.id for table in tables.values())
    seen = reader.highest_of(dict.fromkeys(tables, committed))
    is_kept = mirror.consistency == "transaction"
    complete = reader.completeness(committed) if is_kept else None
    majors_seen = complete.highest_at(mirror.reads) if complete else {}
    shown = sum(any(majors.values()) for majors in majors_seen.values())
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
    with ledger.connect() as db:
        offsets = OFFSETS.of(db, mirror)
    bound = LedgerReader(ledger, mirror).bound() if offsets else {}
    return {
        name: PartitionLag(max(0, one.end - bound.get(name, 0)), max(0, bound.get(name, 0) - one.first), one.seen_at)
        for name, one in offsets.items()
    }
