"""Gathers the status of a mirror from its ledger and the findings of an inspection. It changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.manifest import LoadChunk, is_of_source
from open_mirroring.config import Mirror
from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.ledger.letters import NO_LETTERS
from open_mirroring.ledger.reading import LedgerReader, TableState, Waiting
from open_mirroring.operate.overview import NOT_INSPECTED
from open_mirroring.operate.status import RECENT_BATCHES, BoundOffsets, Marks, MirrorStatus, TableStatus
from open_mirroring.protocols.proving import Proof
from open_mirroring.protocols.table_losses import ANY_TABLE
from open_mirroring.protocols.verdicts import OTHER_WAY_OUT, WAYS_OUT, Finding, Verdict
from open_mirroring.reconciliation.losses import LossReport, look

NO_COMPLETE_POSITION = "none: this source has none"
"""A source tells nowhere that nothing older can come, or nobody asked: transactions are not held back (C-88)."""
_NOT_INSPECTED = "the landing zone was not inspected"


def mirror_status(
    mirror: Mirror,
    reader: LedgerReader,
    stops: Sequence[OpenStop],
    findings: Mapping[str, Finding],
    *,
    now: datetime,
    inspection_failed: str = "",
    proofs: Mapping[str, Proof] | None = None,
) -> MirrorStatus:
    """Gather the status.

    Args:
        mirror: the mirror.
        reader: its ledger.
        stops: what :func:`~open_mirroring.ledger.decisions.open_stops` gives.
        findings: by source table; tables without one are judged from the ledger alone.
        now: the present time, with a zone.
        inspection_failed: why there are no findings.
        proofs: the last proof by table id.
    """
    state, tables = reader.mirror(), reader.tables()
    report = look(mirror, reader.engine)
    recent = reader.batches(above=max(0, state.committed - RECENT_BATCHES))
    counts: Counter[str] = Counter()
    for _, batch_counts, _ in recent:
        counts.update(batch_counts)
    # Chunks of loads that go through the change log, and corrections, are bound beside the source's ranges.
    bound = {name: up_to for name, up_to in reader.bound().items() if is_of_source(name)}
    horizon = reader.mirror_horizon()
    last_commit = recent[-1][2] if recent else None
    by_table = {stop.source: stop for stop in stops}
    offsets = BoundOffsets.of(bound)
    complete = _Complete(reader, state.committed, mirror)
    gathered = _Tables(reader, tables, state.committed, offsets, complete, proofs or {}, report)
    return MirrorStatus(
        mirror=mirror.name,
        taken_at=now,
        committed_batch=state.committed,
        last_commit=last_commit,
        last_commit_age=None if last_commit is None else now - last_commit,
        open_batch=state.open_batch,
        stop=by_table.get(None),
        open_fragments=reader.open_fragment_count(),
        horizon=None if horizon is None else horizon.at,
        dropped_batch=0 if horizon is None else horizon.dropped,
        homeless_rejects=report.letters.without_table.count,
        unread=report.unread,
        letters=report.letters.document(),
        losses=report.lost,
        ignored=report.document()["ignored"],
        at_risk=report.letters.without_table.count > 0 or not report.letters.known,
        recent_batches=len(recent),
        recent=dict(counts),
        inspection_failed=inspection_failed,
        bound_offsets=bound,
        tables=tuple(
            gathered.one(source, findings.get(source), by_table.get(source), inspection_failed) for source in tables
        ),
        notes=report.notes.get(ANY_TABLE, ()),
    )


def table_marks(mirror: Mirror, reader: LedgerReader, table: TableState) -> Marks:
    """The four marks of one table."""
    committed = reader.mirror().committed
    bound = BoundOffsets.of({name: up_to for name, up_to in reader.bound().items() if is_of_source(name)})
    epochs = reader.epochs([table.id]).get(table.id, {})
    complete = _Complete(reader, committed, mirror).of(epochs)
    return Marks(bound, _highest(reader.highest(table.source, committed), epochs), complete, table.row.published_batch)


class _Complete:
    """The complete position of the log, as a person reads it."""

    def __init__(self, reader: LedgerReader, committed: int, mirror: Mirror) -> None:
        self._is_kept = mirror.consistency == "transaction"
        self._known = reader.completeness(committed) if self._is_kept else None
        self._partitions, self._reads = mirror.source.ordered_partitions, mirror.reads

    def of(self, ordinals: Mapping[str, int]) -> str:
        """For a table with these stream incarnations."""
        if not self._is_kept:
            return NO_COMPLETE_POSITION
        position = self._known.position(ordinals) if self._known else None
        if position is None:
            told = self._known.told_at(self._reads) if self._known else {}
            shown = sum(any(majors.values()) for majors in told.values())
            return f"none yet: {shown} of {self._partitions} partitions have shown a commit"
        ordinal, _, major = position.partition(":")
        return f"below {int(ordinal)}:{major}"


class _Tables:
    """What a few queries for all tables together say of each."""

    def __init__(
        self,
        reader: LedgerReader,
        tables: Mapping[str, TableState],
        committed: int,
        bound: BoundOffsets,
        complete: _Complete,
        proofs: Mapping[str, Proof],
        report: LossReport,
    ) -> None:
        self._proofs = proofs
        ids = [table.id for table in tables.values()]
        self._tables, self._bound = tables, bound
        self._complete, self._report = complete, report
        self._waiting = reader.waiting()
        self._epochs = reader.epochs(ids)
        self._seen = reader.highest_of(dict.fromkeys(tables, committed))
        self._unverified = reader.unverified_columns(tables.values())
        self._gone = reader.gone_columns(tables.values())
        self._horizons = reader.horizons(tables.values())
        loading = any(table.load_state == "pending" for table in tables.values())
        chunks = map(LoadChunk.of, reader.bound(committed) if loading else ())
        self._logged = Counter((chunk.source, chunk.generation) for chunk in chunks if chunk is not None)

    def one(self, source: str, finding: Finding | None, stop: OpenStop | None, inspection_failed: str) -> TableStatus:
        table = self._tables[source]
        waiting = self._waiting.get(source, Waiting())
        verdict, code, what, way_out = _verdict(finding, stop, inspection_failed)
        logged = self._logged[source, table.row.generation]
        plan, unverified = table.load_plan, self._unverified.get(table.id, ())
        gone = self._gone.get(table.id, ())
        letters = self._report.letters.tables.get(source, NO_LETTERS)
        return TableStatus(
            source=source,
            folder=table.folder,
            verdict=verdict,
            code=code,
            what=what,
            way_out=way_out,
            since=None if stop is None else stop.since,
            notes=tuple(self._report.notes.get(source, ()) if finding is None else finding.notes),
            marks=Marks(
                self._bound,
                _highest(self._seen.get(source, {}), self._epochs.get(table.id, {})),
                self._complete.of(self._epochs.get(table.id, {})),
                table.row.published_batch,
            ),
            confirmed=table.row.confirmed,
            applied=None if finding is None else finding.applied,
            waiting_batches=waiting.batches,
            waiting_rows=waiting.changes + table.waiting_rows,
            waiting_since=waiting.since,
            backlog_files=0 if finding is None else finding.backlog.files,
            backlog_bytes=0 if finding is None else finding.backlog.bytes,
            backlog_oldest=None if finding is None else finding.backlog.oldest,
            stale_keys=letters.keys,
            letters=letters.document(),
            losses=tuple(map(str, self._report.losses.get(source, ()))),
            load_state=table.load_state,
            load_chunks=None if plan is None else (max(len(plan.done), logged), len(plan.chunks)),
            open_intent=_intent(table),
            reset="" if table.reset is None else str(table.reset),
            unverified_columns=tuple((one.column, one.since) for one in unverified if not one.is_of_rows),
            gone_columns=tuple((column.column, column.place) for column in gone),
            horizon=None if (h := self._horizons.get(table.id)) is None else f"{h.ordinal}:{h.major}",
            proof=None if (proof := self._proofs.get(table.id)) is None else proof.summary(),
        )


def _highest(seen: Mapping[str, str], epochs: Mapping[str, int]) -> str | None:
    known = [LogPosition.parse(epochs[epoch], text) for epoch, text in seen.items() if epochs.get(epoch, -1) >= 0]
    # A stream that nobody accepted yet has no place in the order.
    return f"{max(known).epoch}:{max(known).text}" if known else None


def _verdict(
    finding: Finding | None, stop: OpenStop | None, inspection_failed: str
) -> tuple[str | None, str, str, str]:
    if stop is not None:
        # The ledger's stop goes before anything that the inspection found.
        return Verdict.STOP.value, stop.code, stop.what, WAYS_OUT.get(stop.code, OTHER_WAY_OUT)
    if finding is not None:
        return finding.verdict.value, finding.code, finding.what, finding.way_out
    return None, NOT_INSPECTED, inspection_failed or _NOT_INSPECTED, ""


def _intent(table: TableState) -> str:
    intent = table.row.intent
    if intent is None:
        return ""
    sealed = "not sealed" if intent.manifest is None else f"{len(intent.manifest)} files sealed"
    return f"{intent.work.kind} from number {intent.first_number}, up to batch {intent.work.batch_to}, {sealed}"
