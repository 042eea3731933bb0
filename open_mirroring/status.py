"""The status of a mirror: how far each table is, what holds or stops it, and what to do about it.

Gathered from the ledger and the findings of :mod:`~open_mirroring.reconciliation.inspection`; it looks only, and says
the four marks apart that a single "watermark" would mix up: what was read (bound offsets), the newest change seen
(highest position), the position below which nothing can come any more (complete position), and what the target has
(published batch).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from open_mirroring.config import Mirror
from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.ledger.load_ledger import LoadChunk
from open_mirroring.ledger.reading import BatchContents, LedgerReader, TableState
from open_mirroring.log_position import LogPosition
from open_mirroring.reconciliation.verdicts import WAYS_OUT, Finding, Verdict

RECENT_BATCHES = 100
"""Counts of messages are given over so many of the newest batches."""
NO_COMPLETE_POSITION = "none: this source has none"
"""A source tells nowhere that nothing older can come, or nobody asked: transactions are not held back (C-88)."""
_SEQUENCE = 10**30
"""Numbers from here on are change sequences, of 35 digits (T-10)."""
_RESUME = "mend the cause that the message names, then `open-mirroring resume`"
_NOT_INSPECTED = "the landing zone was not inspected"


@dataclass(frozen=True)
class BoundOffsets:
    """What we have read: how many files, topic partitions or change tables, and up to which sum of bytes or offsets.

    A change sequence is no length: those of change tables without partitions count as places only.
    """

    places: int
    total: int

    @classmethod
    def of(cls, bound: Mapping[str, int]) -> BoundOffsets:
        """From the ledger, where a topic's identity is an empty range beside its partitions."""
        read = [up_to for name, up_to in bound.items() if up_to or "#" not in name]
        return cls(len(read), sum(up_to for up_to in read if up_to < _SEQUENCE))


@dataclass(frozen=True)
class Marks:
    """The four marks of a table.

    *highest_position* is ``epoch ordinal:major:minor:sub``, None before any change. *complete_position* is
    ``below epoch ordinal:major`` where transactions are held back (C-34), else it says why there is none.
    """

    bound_offsets: BoundOffsets
    highest_position: str | None
    complete_position: str
    published_batch: int


@dataclass(frozen=True)
class TableStatus:
    """One table.

    Attributes:
        verdict: PASS, HOLD or STOP; None when the landing zone was not inspected and the ledger holds no stop.
        since: when the ledger's stop was set; None for a verdict of the inspection, which is of now.
        confirmed: K, the highest number that is published for certain; *applied* of these count as applied.
        waiting_batches: log batches with changes of the table above its published batch.
        waiting_rows: changes in them, and those of published batches that wait for the end of their transactions.
        backlog_files: confirmed files that the target has not applied, their bytes, and when the oldest came.
        stale_keys: keys with a change that could not be typed; a later good change may have healed some since.
        load_state: ``none``, ``pending`` or ``loaded``; *load_chunks* is (done, all) while there is a plan: done is
            published, or in the change log where the load goes through it.
        open_intent: what a run left unfinished and the next one finishes; empty when there is none.
        reset: the reset under way, its last record, who asked for it and why; empty when there is none.
        horizon: a change of this transaction (``epoch ordinal:major``) or an earlier one stops the table (G-05); None
            while there is no such place.
    """

    source: str
    folder: str
    verdict: str | None
    code: str
    what: str
    way_out: str
    since: datetime | None
    notes: tuple[str, ...]
    marks: Marks
    confirmed: int
    applied: int | None
    waiting_batches: int
    waiting_rows: int
    backlog_files: int
    backlog_bytes: int
    backlog_oldest: datetime | None
    stale_keys: int
    load_state: str
    load_chunks: tuple[int, int] | None
    open_intent: str
    reset: str
    horizon: str | None


@dataclass(frozen=True)
class MirrorStatus:
    """A mirror and its tables.

    Attributes:
        committed_batch: newest batch in the change log; *last_commit* ago by *last_commit_age*.
        open_batch: the batch that a run left unfinished and the next one finishes; None when there is none.
        stop: the stop of its extraction; None when it is not stopped.
        horizon: sources are not read again from before this moment (G-05); None while maintenance set none.
        dropped_batch: the change log's rows of batches up to this one may be gone.
        at_risk: dead letters whose table is unknown exist, so any table may lack a change.
        recent: messages by disposition in the newest batches, at most :data:`RECENT_BATCHES`.
        inspection_failed: why the landing zone could not be inspected; empty when it was.
    """

    mirror: str
    taken_at: datetime
    committed_batch: int
    last_commit: datetime | None
    last_commit_age: timedelta | None
    open_batch: int | None
    stop: OpenStop | None
    open_fragments: int
    horizon: datetime | None
    dropped_batch: int
    homeless_rejects: int
    at_risk: bool
    recent_batches: int
    recent: Mapping[str, int]
    inspection_failed: str
    bound_offsets: Mapping[str, int]
    tables: tuple[TableStatus, ...]

    @property
    def stopped(self) -> tuple[str, ...]:
        """What somebody has to decide about: the mirror's extraction, tables."""
        tables = [table.source for table in self.tables if table.verdict == Verdict.STOP.value]
        return (*([self.mirror] if self.stop else []), *tables)

    def document(self) -> dict[str, Any]:
        """The status as plain JSON values; times in ISO form, ages in seconds."""
        plain: dict[str, Any] = _plain(asdict(self))
        if self.stop is not None:
            plain["stop"] = _plain(self.stop._asdict())
        return plain


def mirror_status(
    mirror: Mirror,
    reader: LedgerReader,
    stops: Sequence[OpenStop],
    findings: Mapping[str, Finding],
    *,
    now: datetime,
    inspection_failed: str = "",
) -> MirrorStatus:
    """Gather the status.

    Args:
        mirror: the mirror.
        reader: its ledger.
        stops: what :func:`~open_mirroring.ledger.decisions.open_stops` gives.
        findings: by source table; tables without one are told from the ledger alone.
        now: the present time, with a zone.
        inspection_failed: why there are no findings.
    """
    state, tables = reader.mirror(), reader.tables()
    recent = reader.batches(above=max(0, state.committed - RECENT_BATCHES))
    counts: Counter[str] = Counter()
    for _, batch_counts, _ in recent:
        counts.update(batch_counts)
    # Chunks of loads that go through the change log are bound beside the source's ranges.
    bound = {name: up_to for name, up_to in reader.bound().items() if LoadChunk.of(name) is None}
    horizon = reader.mirror_horizon()
    last_commit = recent[-1][2] if recent else None
    by_table = {stop.source: stop for stop in stops}
    offsets = BoundOffsets.of(bound)
    complete = _Complete(reader, state.committed, mirror)
    gathered = _Tables(reader, tables, state.committed, offsets, complete)
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
        homeless_rejects=state.homeless_rejects,
        at_risk=state.homeless_rejects > 0,
        recent_batches=len(recent),
        recent=dict(counts),
        inspection_failed=inspection_failed,
        bound_offsets=bound,
        tables=tuple(
            gathered.one(source, findings.get(source), by_table.get(source), inspection_failed) for source in tables
        ),
    )


class _Complete:
    """The complete position of the log, as a person reads it."""

    def __init__(self, reader: LedgerReader, committed: int, mirror: Mirror) -> None:
        self._is_kept = mirror.consistency == "transaction"
        self._known = reader.completeness(committed) if self._is_kept else None
        self._partitions = mirror.source.ordered_partitions

    def of(self, ordinals: Mapping[str, int]) -> str:
        """For a table with these stream incarnations."""
        if not self._is_kept:
            return NO_COMPLETE_POSITION
        position = self._known.position(ordinals) if self._known else None
        if position is None:
            told = len(self._known.told) if self._known else 0
            return f"none yet: {told} of {self._partitions} partitions have shown a commit"
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
    ) -> None:
        ids = [table.id for table in tables.values()]
        self._reader, self._tables, self._committed, self._bound = reader, tables, committed, bound
        self._complete = complete
        published = {source: table.row.published_batch for source, table in tables.items()}
        self._waiting = reader.contents(published, committed)
        self._epochs, self._rejected = reader.epochs(ids), reader.rejected(ids)
        self._horizons = reader.horizons(tables.values())
        loading = any(table.load_state == "pending" for table in tables.values())
        chunks = map(LoadChunk.of, reader.bound(committed) if loading else ())
        self._logged = Counter((chunk.source, chunk.generation) for chunk in chunks if chunk is not None)

    def one(self, source: str, finding: Finding | None, stop: OpenStop | None, inspection_failed: str) -> TableStatus:
        table = self._tables[source]
        waiting: Sequence[BatchContents] = self._waiting.get(source, ())
        verdict, code, what, way_out = _verdict(finding, stop, inspection_failed)
        plan = table.load_plan
        return TableStatus(
            source=source,
            folder=table.folder,
            verdict=verdict,
            code=code,
            what=what,
            way_out=way_out,
            since=None if stop is None else stop.since,
            notes=() if finding is None else finding.notes,
            marks=Marks(
                self._bound,
                self._highest(table),
                self._complete.of(self._epochs.get(table.id, {})),
                table.row.published_batch,
            ),
            confirmed=table.row.confirmed,
            applied=None if finding is None else finding.applied,
            waiting_batches=len({part.batch for part in waiting}),
            waiting_rows=sum(part.rows for part in waiting) + table.waiting_rows,
            backlog_files=0 if finding is None else finding.backlog.files,
            backlog_bytes=0 if finding is None else finding.backlog.bytes,
            backlog_oldest=None if finding is None else finding.backlog.oldest,
            stale_keys=len({reject["key"] for reject in self._rejected.get(table.id, ())}),
            load_state=table.load_state,
            load_chunks=None if plan is None else (self._chunks_done(table, plan), len(plan["chunks"])),
            open_intent=_intent(table),
            reset="" if table.reset is None else str(table.reset),
            horizon=None if (h := self._horizons.get(table.id)) is None else f"{h.ordinal}:{h.major}",
        )

    def _chunks_done(self, table: TableState, plan: Mapping[str, Any]) -> int:
        return max(len(plan["done"]), self._logged[table.source, table.row.generation])

    def _highest(self, table: TableState) -> str | None:
        seen = self._reader.highest(table.source, self._committed)
        epochs = self._epochs.get(table.id, {})
        known = [LogPosition.parse(epochs[epoch], text) for epoch, text in seen.items() if epochs.get(epoch, -1) >= 0]
        # A stream that nobody accepted yet has no place in the order.
        return f"{max(known).epoch}:{max(known).text}" if known else None


def _verdict(
    finding: Finding | None, stop: OpenStop | None, inspection_failed: str
) -> tuple[str | None, str, str, str]:
    if stop is not None:
        # The ledger's stop goes before anything that the inspection found.
        return Verdict.STOP.value, stop.code, stop.what, WAYS_OUT.get(stop.code, _RESUME)
    if finding is not None:
        return finding.verdict.value, finding.code, finding.what, finding.way_out
    return None, "NOT_INSPECTED", inspection_failed or _NOT_INSPECTED, ""


def _intent(table: TableState) -> str:
    intent = table.row.intent
    if intent is None:
        return ""
    sealed = "not sealed" if intent.manifest is None else f"{len(intent.manifest)} files sealed"
    return f"{intent.work.kind} from number {intent.first_number}, up to batch {intent.work.batch_to}, {sealed}"


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
