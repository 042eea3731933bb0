"""A mirror and its tables at one moment: what `status`, the page, the metrics and Airflow show is read from here.

Four marks show how far a table is: what was read (bound offsets), the newest change seen (highest position), the
position below which no change can come any more (complete position), and what the target has (published batch).
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
from open_mirroring.codes import next_step
from open_mirroring.ledger.decisions import OpenStop
from open_mirroring.ledger.letters import NO_LETTERS, OpenLetters
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
"""Numbers from here on are change sequences, of 35 digits (T-10)."""


class BoundOffsets(NamedTuple):
    """How many places were read, and up to which sum of bytes or offsets; a change sequence is no length."""

    places: int
    total: int

    @classmethod
    def of(cls, bound: Mapping[str, int]) -> BoundOffsets:
        """From the ledger, where a topic's identity is an empty range next to its partitions."""
        read = [up_to for name, up_to in bound.items() if up_to or "#" not in name]
        return cls(len(read), sum(up_to for up_to in read if up_to < _SEQUENCE))


class Marks(NamedTuple):
    """The marks of a table next to the bound offsets of its mirror.

    *highest_position* is ``epoch ordinal:major:minor:sub``, None before any change. *complete_position* is ``below
    epoch ordinal:major`` where transactions are held back (C-34), else why there is none.
    """

    highest_position: str | None
    complete_position: str
    published_batch: int


class PartitionLag(NamedTuple):
    """A topic partition when it was last looked at: messages that are not bound, and that retention keeps below.

    *until_loss* falls as retention catches up; messages that are not bound by then are lost (I28).
    """

    behind: int
    until_loss: int
    seen_at: datetime


class Judgement(NamedTuple):
    """The verdict on a table as it is now, and why; *since* is when the ledger's stop was set.

    *verdict* is None when its landing zone was not inspected, or too long ago, and the ledger has no stop.
    """

    verdict: Verdict | None
    code: str
    what: str
    since: datetime | None = None


@dataclass(frozen=True)
class TableView:
    """One table.

    *found* is what the last inspection found, if any since a decision. *lag* is the age of the oldest logged change
    that is not known to be applied. *waiting* is what is logged above its published batch. *load_chunks* is (done,
    all). A change of the transaction *horizon* or an earlier one stops the table (G-05). Columns come with a place
    (G-07, G-60). *recorded* is its last proof, *verified* what the proofs of its parts add up to. *marks* and *totals*
    are None unless it was looked at closely.
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
        """The result of its last proof."""
        return None if self.recorded is None else self.recorded.proof

    @property
    def verdict(self) -> Verdict | None:
        """Its verdict now."""
        return self.judgement.verdict

    @property
    def code(self) -> str:
        """The code of its verdict."""
        return self.judgement.code

    @property
    def what(self) -> str:
        """Why it has this verdict."""
        return self.judgement.what

    @property
    def since(self) -> datetime | None:
        """When the ledger's stop was set."""
        return self.judgement.since

    @property
    def looked_at(self) -> datetime | None:
        """When its landing zone was inspected; *applied* and *backlog* are as found then."""
        return None if self.found is None else self.found.at

    @property
    def applied(self) -> int | None:
        """The highest number that counted as applied."""
        return None if self.found is None else self.found.applied

    @property
    def backlog(self) -> Backlog:
        """The files that the target had not applied."""
        return Backlog() if self.found is None else self.found.backlog

    @property
    def dead_letters(self) -> OpenLetters:
        """Its open dead letters."""
        return self.report.letters.tables.get(self.source, NO_LETTERS)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What it lacks, or may lack, whatever the verdict."""
        return self.report.losses.get(self.source, ())

    @property
    def notes(self) -> tuple[str, ...]:
        """What may differ at the target although nothing is wrong, and what became of its columns."""
        return (self.found and self.found.notes) or self.report.notes.get(self.source, ())

    @property
    def source(self) -> str:
        """Its name, as the mirror file spells it."""
        return self.state.source

    @property
    def way_out(self) -> str:
        """What to do about its verdict; empty when nothing has to be done."""
        if self.verdict is None:
            return _RUN_IT if self.code == NOT_INSPECTED else ""
        return "" if self.verdict is Verdict.PASS else next_step(self.code)

    @property
    def open_intent(self) -> str:
        """What a run left unfinished and the next one finishes; empty when there is nothing."""
        intent = self.state.row.intent
        if intent is None:
            return ""
        sealed = "not sealed" if intent.manifest is None else f"{len(intent.manifest)} files sealed"
        return f"{intent.work.kind} from number {intent.first_number}, up to batch {intent.work.batch_to}, {sealed}"

    @property
    def reset(self) -> str:
        """The reset under way: its last record, who asked for it and why; empty when there is none."""
        return "" if self.state.reset is None else str(self.state.reset)

    def document(self) -> dict[str, Any]:
        """Plain JSON values."""
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
    *("source", "verdict", "code", "what", "way_out", "since", "looked_at", "applied", "lag", "waiting", "backlog"),
    *("published_at", "dead_letters", "losses", "notes", "load_chunks", "horizon", "unverified_columns"),
    *("gone_columns", "proof", "verified", "marks", "totals", "open_intent", "reset"),
)
"""What JSON shows of a table under the same name."""


@dataclass(frozen=True)
class MirrorView:
    """A mirror and its tables; *stop* is that of its reading, *batches* the newest ones of the change log.

    *fragments* are split messages that wait for pieces. Sources are not read again from before *horizon* (G-05).
    *bound_offsets* is empty unless tables were looked at closely; *not_inspected* is why the zone was not.
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
    not_inspected: str
    tables: tuple[TableView, ...]

    @property
    def last_commit(self) -> datetime | None:
        """When the newest batch of the change log was committed."""
        return self.batches[-1][2] if self.batches else None

    @property
    def recent(self) -> Mapping[str, int]:
        """Messages by disposition in the newest batches."""
        counts = Counter[str]()
        for _, of_batch, _ in self.batches:
            counts.update(of_batch)
        return counts

    @property
    def oldest_fragment(self) -> datetime | None:
        """Since when the oldest split message waits for its pieces."""
        return min((fragment.since for fragment in self.fragments), default=None)

    @property
    def losses(self) -> tuple[Loss, ...]:
        """What any of its tables may lack."""
        return self.report.losses.get(ANY_TABLE, ())

    @property
    def notes(self) -> tuple[str, ...]:
        """What is worth a look and concerns no table alone."""
        return self.report.notes.get(ANY_TABLE, ())

    @property
    def at_risk(self) -> bool:
        """Dead letters without a table exist, or were not counted, so any table may lack a change."""
        return self.report.letters.without_table.count > 0 or not self.report.letters.known

    @property
    def stopped(self) -> tuple[str, ...]:
        """What an operator has to decide about: the mirror's reading, tables."""
        tables = [table.source for table in self.tables if table.verdict is Verdict.STOP]
        return (*([self.mirror] if self.stop else []), *tables)

    @property
    def verdict(self) -> Verdict | None:
        """The worst of its tables' verdicts, and of its own."""
        own = [Verdict.STOP] if self.stop else [Verdict.LOSSES] if self.losses else []
        found = {*own, *(table.verdict for table in self.tables)}
        return next((verdict for verdict in SEVERITY if verdict in found), None)

    @property
    def counts(self) -> dict[Verdict | None, int]:
        """How many tables have each verdict, the worst first."""
        counted = Counter(table.verdict for table in self.tables)
        return {verdict: counted[verdict] for verdict in SEVERITY if counted[verdict]}

    @property
    def lag(self) -> timedelta:
        """The longest lag of a table that is not stopped."""
        return max((one.lag for one in self.tables if one.verdict is not Verdict.STOP), default=timedelta(0))

    @property
    def behind(self) -> int | None:
        """Messages at the source that are not bound yet, where a broker shows them; else None."""
        return sum(lag.behind for lag in self.partitions.values()) if self.partitions else None

    @property
    def looked_at(self) -> datetime | None:
        """When the landing zone was last inspected."""
        return max((table.looked_at for table in self.tables if table.looked_at), default=None)

    @property
    def proved(self) -> Proof | None:
        """The oldest of the tables' last proofs, one that is not EQUAL first; None while a table has none."""
        known = [table.proof for table in self.tables if table.proof is not None]
        worst = [proof for proof in known if proof.verdict is not ProofVerdict.EQUAL] or known
        return min(worst, key=lambda proof: str(proof.proved_at)) if known and len(known) == len(self.tables) else None

    def document(self) -> dict[str, Any]:
        """The mirror without its tables as plain JSON values."""
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
    *("bound_offsets", "next_run", "not_inspected", "verdict", "lag", "behind", "looked_at"),
)
"""What JSON shows of a mirror under the same name."""


def plain(value: Any) -> Any:
    """Plain JSON values: times in ISO form, lengths of time in seconds, records as objects or as their document."""
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
