"""The protocol that extracts one batch into the change log: bind, write, seal, commit.

It is a state machine over plain values (:func:`step`; no I/O, no clock), so that a test, the explorer, can run every
order of events through the same code as the jobs. A batch number is bound to exact source ranges before anything is
read. Workers write files under names used once. A compare-and-set in the ledger seals the file list of one attempt, and
one commit adds exactly these files to the change log. So a killed attempt leaves only files that nothing refers to, and
no change is logged twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from open_mirroring.protocols.driving import Acquire as Acquire
from open_mirroring.protocols.driving import Finished as Finished
from open_mirroring.protocols.driving import Lost as Lost
from open_mirroring.protocols.driving import Stop as Stop
from open_mirroring.protocols.driving import Unknown as Unknown

LOG_CONFLICT = "LOG_CONFLICT"
"""The change log holds the batch with other files than the ledger sealed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The open batch of a mirror: *ranges* and *manifest* are opaque documents; *manifest* is None until sealed."""

    number: int
    ranges: str
    manifest: str | None = None


@dataclass(frozen=True, slots=True)
class MirrorRow:
    """The columns of a mirror's ledger row that the protocol needs; every write checks *version* and increments it."""

    version: int
    committed: int
    batch: Batch | None = None
    stop: str | None = None


@dataclass(frozen=True, slots=True)
class FindRanges:
    """List the source for ranges that were never bound; reply :class:`RangesFound`."""

    row: MirrorRow


@dataclass(frozen=True, slots=True)
class Bind:
    """Ledger, compare-and-set: the next batch number stands for exactly these ranges."""

    version: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class Write:
    """Read the bound ranges, decode, and write the batch's files under unused names; reply :class:`Written`."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Seal:
    """Ledger, compare-and-set: exactly these files are the batch; those of other attempts are ignored."""

    version: int
    manifest: str


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Change log: open its newest state and look for the batch; reply :class:`LogOpened`."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class CommitLog:
    """Change log: add the manifest's files in one commit on top of the opened state, which must still be the newest."""

    batch: Batch
    snapshot: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Ledger, compare-and-set: the batch was seen in the log."""

    version: int


Request = Acquire | FindRanges | Bind | Write | Seal | OpenLog | CommitLog | Complete | Stop | Finished


@dataclass(frozen=True, slots=True)
class Owned:
    """The ledger's row after our write or acquisition: this process owns the row."""

    row: MirrorRow


@dataclass(frozen=True, slots=True)
class RangesFound:
    """New source ranges; None when everything was bound before."""

    ranges: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """The manifest of one complete attempt: files with rows, size and statistics, and what became of each message."""

    manifest: str


@dataclass(frozen=True, slots=True)
class LogOpened:
    """The log's newest state: its version, and the manifest of the batch if it holds it (None if not)."""

    snapshot: int
    manifest: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """The log reports that this request did the commit; the protocol still reads it back."""


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """Another commit was added to the log since it was opened, so nothing was written."""


Reply = Owned | Lost | Unknown | RangesFound | Written | LogOpened | Committed | CommitRefused


@dataclass(frozen=True, slots=True)
class State:
    """The state of a mirror's extractor. Plain values only: it can be copied, hashed and resumed."""

    request: Request
    row: MirrorRow | None = None


def start() -> State:
    """The initial state of an extractor."""
    return State(Acquire())


def step(state: State, reply: Reply) -> State:
    """The state after a reply; its ``request`` is the next request.

    A commit is never trusted: the log is opened again until it shows the batch. A commit that is skipped looks like
    success, and one whose answer was lost looks like failure.
    """
    match state.request, reply:
        case ((Acquire() | Bind() | Seal() | Complete() | Stop()), Owned(row)):
            return _owning(row)
        case ((Acquire() | Bind() | Seal() | Complete() | Stop()), (Lost() | Unknown())):
            return start()
        case FindRanges(row), RangesFound(ranges):
            if ranges is None:
                return replace(state, request=Finished())
            return replace(state, request=Bind(row.version, Batch(row.committed + 1, ranges)))
        case Write(), Written(manifest):
            return replace(state, request=Seal(_row(state).version, manifest))
        case OpenLog(batch), LogOpened(snapshot, manifest):
            row = _row(state)
            if manifest is None:
                return replace(state, request=CommitLog(batch, snapshot))
            if manifest != batch.manifest:
                what = (
                    f"the change log holds batch {batch.number} with other files than the ledger sealed: "
                    "another ledger or mirror writes into this log, or log and ledger were restored from other times"
                )
                return replace(state, request=Stop(row.version, LOG_CONFLICT, what))
            return replace(state, request=Complete(row.version))
        case OpenLog(), Unknown():
            return state
        case CommitLog(batch), (Committed() | CommitRefused() | Unknown()):
            return replace(state, request=OpenLog(batch))
    raise ValueError(f"{type(reply).__name__} is not a reply to {type(state.request).__name__}")


def _owning(row: MirrorRow) -> State:
    state = State(Acquire(), row=row)
    if row.stop is not None:
        return replace(state, request=Finished(row.stop))
    if row.batch is None:
        return replace(state, request=FindRanges(row))
    if row.batch.manifest is None:
        return replace(state, request=Write(row.batch))
    return replace(state, request=OpenLog(row.batch))


def _row(state: State) -> MirrorRow:
    if state.row is None:
        raise ValueError("no row was acquired yet")
    return state.row
