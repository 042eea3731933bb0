"""The state of a mirror and its tables at one moment, which `status`, the page, the metrics and Airflow show.

Four marks show the progress of a table. Bound offsets: how far the source was read. Highest position: the newest change
that was read. Complete position: no older change can arrive below this position. Published batch: the newest batch of
the change log that the target has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

from open_mirroring.changes.horizon import MirrorHorizon
from open_mirroring.changes.manifest import OpenFragment
from open_mirroring.codes import next_step_of
from open_mirroring.ledger.dead_letters import NO_LETTERS, OpenLetters
from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.ledger.proofs import RecordedProof
from open_mirroring.ledger.reading import CommittedBatch, MirrorState, TableState, Waiting
from open_mirroring.operate.words import SEVERITY, verdict_name
from open_mirroring.protocols.coverage import Verified
from open_mirroring.protocols.proving import Proof, ProofVerdict
from open_mirroring.protocols.table_losses import ANY_TABLE, Loss
from open_mirroring.protocols.verdicts import Backlog, Finding, Verdict
from open_mirroring.reconciliation.losses import LossReport

NOT_INSPECTED = "NOT_INSPECTED"
_RUN_IT = "see why the scheduler does not run the mirror, or run `open-mirroring tick`"
_SEQUENCE = 10**30
"""Offsets from here on are Qlik change sequences, which have 35 digits (T-10), not byte counts or offsets."""


class BoundOffsets(NamedTuple):
    """How far the source was read: the number of files or partitions, and their bytes or offsets in total.

    *total* leaves out files and partitions that are read by Qlik change sequence, because a change sequence is not a
    length.
    """

    places: int
    total: int

    @classmethod
    def of(cls, bound: Mapping[str, int]) -> BoundOffsets:
        """Compute the sums from the ledger's bound ranges.

        Entries with ``#`` in the name and offset 0 are left out, because they only identify a topic.
        """
        read = [up_to for name, up_to in bound.items() if up_to or "#" not in name]
        return cls(len(read), sum(up_to for up_to in read if up_to < _SEQUENCE))


class Marks(NamedTuple):
    """How far one table is.

    *highest_position* is ``epoch:major:minor:sub``, where *epoch* is the stream: one enabling of streaming or one Qlik
    full load. *highest_position* is None before the first change. *complete_position* is ``below epoch:major`` if
    changes wait for complete transactions (C-34). If there is no complete position, *complete_position* contains the
    reason.
    """

    highest_position: str | None
    complete_position: str
    published_batch: int


class PartitionLag(NamedTuple):
    """How far a topic partition was read when the broker was last asked, and how near a loss of messages was.

    *behind* is the number of messages not read yet. *until_loss* is the number of messages between the oldest message
    that the broker keeps and the next message to be read. At 0 the broker deletes messages before they are read (I28).
    """

    behind: int
    until_loss: int
    seen_at: datetime


class Judgement(NamedTuple):
    """The current verdict on a table, with its code and reason; *since* is when a stop was recorded.

    *verdict* is None if no stop is recorded, and the last inspection is missing, too old, or from before an operator's
    decision.
    """

    verdict: Verdict | None
    code: str
    what: str
    since: datetime | None = None


@dataclass(frozen=True)
class TableView:
    """The state of one table.

    *found* is the result of the last inspection; None if the table was never inspected, or not since an operator's last
    decision on a stop. *lag* is the age of the oldest logged change that is not known to be applied. *waiting* counts
    logged changes that are not published. *load_chunks* is the number of loaded chunks and of all chunks of an initial
    load. A change at or before the transaction *horizon* stops the table (G-05). *unverified_columns* and
    *gone_columns* contain pairs of column and position (G-07, G-60). *recorded* is the last proof of the table.
    *verified* combines the proofs of parts of the table. *marks* and *totals* are None unless they were requested.
    """

    state: TableState
    judgement: Judgement
    found: Finding | None
    lag: timedelta
    waiting: Waiting
    published_at: datetime | None
    report: LossReport
    load_chunks: tuple[int, int] | None
    horizon: str | None
    unverified_columns: tuple[tuple[str, str], ...]
    gone_columns: tuple[tuple[str, str], ...]
    recorded: RecordedProof | None
    verified: Verified | None
    marks: Marks | None
    totals: Mapping[str, int] | None

    @property
    def proof(self) -> Proof | None:
        """The result of the table's last proof; None if there is none."""
        return None if self.recorded is None else self.recorded.proof

    @property
    def verdict(self) -> Verdict | None:
        return self.judgement.verdict

    @property
    def code(self) -> str:
        return self.judgement.code

    @property
    def what(self) -> str:
        return self.judgement.what

    @property
    def since(self) -> datetime | None:
        """When the stop in the ledger was set."""
        return self.judgement.since

    @property
    def looked_at(self) -> datetime | None:
        """When the table's landing zone folder was last inspected; *applied* and *backlog* are of this time."""
        return None if self.found is None else self.found.at

    @property
    def applied(self) -> int | None:
        """The highest file number that the target had applied at the last inspection."""
        return None if self.found is None else self.found.applied

    @property
    def backlog(self) -> Backlog:
        """The published files that the target had not applied at the last inspection."""
        return Backlog() if self.found is None else self.found.backlog

    @property
    def dead_letters(self) -> OpenLetters:
        return self.report.letters.tables.get(self.source, NO_LETTERS)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """The losses of this table, shown whatever the verdict on the table is."""
        return self.report.losses.get(self.source, ())

    @property
    def notes(self) -> tuple[str, ...]:
        """What may differ at the target although nothing is wrong, and what happened to the table's columns."""
        return (self.found and self.found.notes) or self.report.notes.get(self.source, ())

    @property
    def source(self) -> str:
        """The table's name, as the mirror file spells it."""
        return self.state.source

    @property
    def next_step(self) -> str:
        """What an operator has to do about the table; empty if nothing has to be done."""
        if self.verdict is None:
            return _RUN_IT if self.code == NOT_INSPECTED else ""
        return "" if self.verdict is Verdict.PASS else next_step_of(self.code)

    @property
    def open_intent(self) -> str:
        """A publication that a killed run began and the next run will finish; empty if there is none."""
        intent = self.state.row.intent
        if intent is None:
            return ""
        sealed = "not sealed" if intent.manifest is None else f"{len(intent.manifest)} files sealed"
        return f"{intent.work.kind} from number {intent.first_number}, up to batch {intent.work.batch_to}, {sealed}"

    @property
    def reset(self) -> str:
        """The table's reset under way: its stage, who asked for it and why; empty if there is none."""
        return "" if self.state.reset is None else str(self.state.reset)

    def document(self) -> dict[str, Any]:
        state = self.state
        more = {
            "folder": state.folder,
            "generation": state.row.generation,
            "keys": state.keys,
            "confirmed": state.row.confirmed,
            "load_state": state.start.load_state,
        }
        return {**plain({name: getattr(self, name) for name in _SHOWN_OF_TABLE}), **plain(more)}


_SHOWN_OF_TABLE = (
    *("source", "verdict", "code", "what", "next_step", "since", "looked_at", "applied", "lag", "waiting", "backlog"),
    *("published_at", "dead_letters", "losses", "notes", "load_chunks", "horizon", "unverified_columns"),
    *("gone_columns", "proof", "verified", "marks", "totals", "open_intent", "reset"),
)
"""The attributes of a table that its JSON contains."""


@dataclass(frozen=True)
class MirrorView:
    """The state of a mirror and its tables.

    *stop* is a stop of reading the source. *batches* are the newest batches of the change log. *fragments* are split
    messages whose other pieces have not arrived. Changes from before *horizon* are not read again (G-05).
    *bound_offsets* is empty unless details were requested. *next_run* is when the schedule starts the next run; with
    *runs_on_new_data*, new data may start a run earlier. *not_inspected* is why the landing zone was not inspected.
    """

    mirror: str
    taken_at: datetime
    state: MirrorState
    stop: OpenStop | None
    batches: Sequence[CommittedBatch]
    fragments: Sequence[OpenFragment]
    horizon: MirrorHorizon | None
    report: LossReport
    settled_letters: Mapping[str, int]
    partitions: Mapping[str, PartitionLag]
    bound_offsets: Mapping[str, int]
    next_run: datetime | None
    runs_on_new_data: bool
    not_inspected: str
    tables: tuple[TableView, ...]

    @property
    def last_commit(self) -> datetime | None:
        """When the newest batch of the change log was committed; None if there is no batch."""
        return self.batches[-1][2] if self.batches else None

    @property
    def recent(self) -> Mapping[str, int]:
        """The number of messages in the newest batches, by what became of the message."""
        counts = Counter[str]()
        for _, of_batch, _ in self.batches:
            counts.update(of_batch)
        return counts

    @property
    def oldest_fragment(self) -> datetime | None:
        """Since when the oldest split message waits for its other pieces; None if no split message waits."""
        return min((fragment.since for fragment in self.fragments), default=None)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """Losses that may concern any table, such as a dead letter that names no table."""
        return self.report.losses.get(ANY_TABLE, ())

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the mirror that belong to no single table."""
        return self.report.notes.get(ANY_TABLE, ())

    @property
    def at_risk(self) -> bool:
        """Whether any table may lack a change: dead letters that name no table are open, or could not be counted."""
        return self.report.letters.without_table.count > 0 or not self.report.letters.known

    @property
    def stopped(self) -> tuple[str, ...]:
        """The names of what is stopped: the mirror's name if reading the source is stopped, then the stopped tables."""
        tables = [table.source for table in self.tables if table.verdict is Verdict.STOP]
        return (*([self.mirror] if self.stop else []), *tables)

    @property
    def verdict(self) -> Verdict | None:
        """The worst of the tables' verdicts, a stop of reading the source, and losses of the mirror."""
        own = [Verdict.STOP] if self.stop else [Verdict.LOSSES] if self.losses else []
        found = {*own, *(table.verdict for table in self.tables)}
        return next((verdict for verdict in SEVERITY if verdict in found), None)

    @property
    def counts(self) -> dict[Verdict | None, int]:
        """The number of tables with each verdict, the worst verdict first."""
        counted = Counter(table.verdict for table in self.tables)
        return {verdict: counted[verdict] for verdict in SEVERITY if counted[verdict]}

    @property
    def lag(self) -> timedelta:
        """The longest lag among the tables that are not stopped."""
        return max((one.lag for one in self.tables if one.verdict is not Verdict.STOP), default=timedelta(0))

    @property
    def behind(self) -> int | None:
        """The number of messages at the source that are not read yet; None if the source does not show the number."""
        return sum(lag.behind for lag in self.partitions.values()) if self.partitions else None

    @property
    def looked_at(self) -> datetime | None:
        """When the landing zone was last inspected."""
        return max((table.looked_at for table in self.tables if table.looked_at), default=None)

    @property
    def proved(self) -> Proof | None:
        """The oldest of the tables' last proofs; a proof with another result than EQUAL takes precedence.

        The result is None while a table has no proof.
        """
        known = [table.proof for table in self.tables if table.proof is not None]
        worst = [proof for proof in known if proof.verdict is not ProofVerdict.EQUAL] or known
        return min(worst, key=lambda proof: str(proof.proved_at)) if known and len(known) == len(self.tables) else None

    def document(self) -> dict[str, Any]:
        of_ledger = {
            "open_fragments": len(self.fragments),
            "recent_batches": len(self.batches),
            "committed_batch": self.state.committed,
            "open_batch": self.state.open_batch,
            "open_since": self.state.open_since,
            "horizon": None if self.horizon is None else self.horizon.at,
            "dropped_batch": 0 if self.horizon is None else self.horizon.dropped,
        }
        counts = {verdict_name(verdict): count for verdict, count in self.counts.items()}
        own = {name: getattr(self, name) for name in _SHOWN_OF_MIRROR}
        return {**plain({**own, **of_ledger, "counts": counts}), **self.report.document()}


_SHOWN_OF_MIRROR = (
    *("mirror", "taken_at", "stop", "last_commit", "oldest_fragment", "recent", "settled_letters", "partitions"),
    *("bound_offsets", "next_run", "runs_on_new_data", "not_inspected", "verdict", "lag", "behind", "looked_at"),
)
"""The attributes of a mirror that its JSON contains."""


def plain(value: Any) -> Any:
    """Convert a value for JSON: times to ISO strings, durations to seconds, records to objects."""
    if hasattr(value, "document"):
        return value.document()
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, timedelta) else value
