"""The status of a mirror: how far each table is, what holds or stops it, and what to do about it.

It shows four marks, which one single "watermark" would confuse: what was read (bound offsets), the newest change seen
(highest position), the position below which no change can come any more (complete position), and what the target has
(published batch).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.protocols.verdicts import Verdict

RECENT_BATCHES = 100
"""Counts of messages are given over so many of the newest batches."""
_SEQUENCE = 10**30
"""Numbers from here on are change sequences, of 35 digits (T-10)."""


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
    """The status of one table.

    Attributes:
        verdict: PASS, LOSSES, HOLD or STOP; None when the landing zone was not inspected and the ledger holds no stop.
        since: when the ledger's stop was set; None for a verdict of the inspection, which is of now.
        confirmed: K, the highest number that is published for certain; *applied* of these count as applied.
        waiting_batches: log batches with changes of the table above its published batch.
        waiting_rows: changes in them, and those of published batches that wait for the end of their transactions.
        waiting_since: when the oldest of these batches was committed.
        backlog_files: confirmed files that the target has not applied, their bytes, and when the oldest came.
        stale_keys: rows that open dead letters are known to leave out of date.
        letters: its open dead letters, as :meth:`~open_mirroring.ledger.letters.OpenLetters.document` lists them.
        losses: what it lacks, or may lack, each as ``CODE: what``, whatever the verdict.
        load_state: ``none``, ``pending`` or ``loaded``; *load_chunks* is (done, all) while there is a plan: done is
            published, or in the change log where the load goes through it.
        open_intent: what a run left unfinished and the next one finishes; empty when there is none.
        reset: the reset under way, its last record, who asked for it and why; empty when there is none.
        unverified_columns: columns that came after rows were published, each with the first position that has it; no
            change shows whether those rows have a default at the source (G-07). Rows as a whole are told by *notes*.
        gone_columns: columns that the source has dropped, each with the first known place of a row without it: rows
            written since have NULL in them (G-60).
        horizon: a change of this transaction (``epoch ordinal:major``) or an earlier one stops the table (G-05); None
            while there is no such place.
        proof: the result of its last comparison with the source, without the keys; None when there was none.
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
    letters: Mapping[str, Any]
    losses: tuple[str, ...]
    load_state: str
    load_chunks: tuple[int, int] | None
    open_intent: str
    reset: str
    horizon: str | None
    unverified_columns: tuple[tuple[str, str], ...] = ()
    gone_columns: tuple[tuple[str, str], ...] = ()
    proof: Mapping[str, Any] | None = None
    waiting_since: datetime | None = None


@dataclass(frozen=True)
class MirrorStatus:
    """The status of a mirror and its tables.

    Attributes:
        committed_batch: newest batch in the change log; *last_commit* ago by *last_commit_age*.
        open_batch: the batch that a run left unfinished and the next one finishes; None when there is none.
        stop: the stop of its extraction; None when it is not stopped.
        horizon: sources are not read again from before this moment (G-05); None while maintenance set none.
        dropped_batch: the change log's rows of batches up to this one may be gone.
        homeless_rejects: dead letters without a table, as *letters* counts them.
        unread: what of the source never came (G-113), or is there and not read (G-62), by code.
        letters: every open dead letter, as :meth:`~open_mirroring.ledger.letters.LetterCounts.document` lists them.
        losses: what the mirror's tables lack, or may lack, by table.
        ignored: tables that are not mirrored, with the messages that were ignored of each.
        at_risk: dead letters without a table exist, or were not counted, so any table may lack a change.
        recent: messages by disposition in the newest batches, at most :data:`RECENT_BATCHES`.
        inspection_failed: why the landing zone could not be inspected; empty when it was.
        notes: what is worth a look of the mirror as a whole.
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
    unread: Mapping[str, str]
    letters: Mapping[str, Any]
    losses: Mapping[str, str]
    ignored: Mapping[str, Any]
    at_risk: bool
    recent_batches: int
    recent: Mapping[str, int]
    inspection_failed: str
    bound_offsets: Mapping[str, int]
    tables: tuple[TableStatus, ...]
    notes: tuple[str, ...] = ()

    @property
    def stopped(self) -> tuple[str, ...]:
        """What an operator has to decide about: the mirror's extraction, tables."""
        tables = [table.source for table in self.tables if table.verdict == Verdict.STOP.value]
        return (*([self.mirror] if self.stop else []), *tables)

    def document(self) -> dict[str, Any]:
        """The status as plain JSON values; times in ISO form, ages in seconds."""
        document: dict[str, Any] = plain(self)
        return document


def plain(value: Any) -> Any:
    """Times in ISO form, lengths of time in seconds, records as objects."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value
