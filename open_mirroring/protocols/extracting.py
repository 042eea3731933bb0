"""The protocol that extracts one batch into the change log: bind, write, seal, commit.

The protocol is a state machine over plain values (:func:`step`). It does no I/O and reads no clock, so the explorer, a
test, can run every order of events through the same code as the jobs. A batch number is bound to exact source ranges
before anything is read. Workers write files under names that are used only once. A compare-and-set in the ledger seals
(fixes) the file list of one attempt, and one commit adds exactly these files to the change log. So a killed attempt
leaves only files that nothing refers to, and no change is logged twice.
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
    """The open batch of a mirror. The protocol does not look into *ranges* and *manifest*.

    *manifest* is None until the batch is sealed, that is, until its files are fixed.
    """

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
    """Request to the source: list the ranges that were never bound; the reply is :class:`RangesFound`."""

    row: MirrorRow


@dataclass(frozen=True, slots=True)
class Bind:
    """Request to the ledger, by compare-and-set: assign exactly these source ranges to the next batch number."""

    version: int
    batch: Batch


@dataclass(frozen=True, slots=True)
class Write:
    """Request to the workers: read and decode the bound ranges, and write the batch's files under unused names.

    The reply is :class:`Written`.
    """

    batch: Batch


@dataclass(frozen=True, slots=True)
class Seal:
    """Request to the ledger, by compare-and-set: the batch consists of exactly these files.

    Files of other attempts are ignored from then on.
    """

    version: int
    manifest: str


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Request to the change log: open its newest state and look for the batch; the reply is :class:`LogOpened`."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class CommitLog:
    """Request to the change log: add the manifest's files in one commit, if the opened state is still the newest."""

    batch: Batch
    snapshot: int


@dataclass(frozen=True, slots=True)
class Complete:
    """Request to the ledger, by compare-and-set: record that the batch was seen in the change log."""

    version: int


Request = Acquire | FindRanges | Bind | Write | Seal | OpenLog | CommitLog | Complete | Stop | Finished


@dataclass(frozen=True, slots=True)
class Owned:
    """Reply: the ledger row after a write or :class:`Acquire` by this process, which owns the row."""

    row: MirrorRow


@dataclass(frozen=True, slots=True)
class RangesFound:
    """Reply to :class:`FindRanges`: the new source ranges; None if every range was bound before."""

    ranges: str | None


@dataclass(frozen=True, slots=True)
class Written:
    """Reply to :class:`Write`: the manifest of one complete attempt.

    The manifest has the files with rows, size and statistics, and what became of each message.
    """

    manifest: str


@dataclass(frozen=True, slots=True)
class LogOpened:
    """Reply to :class:`OpenLog`: the version of the change log, and the manifest of the batch.

    The manifest is None if the batch is not in the change log.
    """

    snapshot: int
    manifest: str | None


@dataclass(frozen=True, slots=True)
class Committed:
    """Reply to :class:`CommitLog`: the change log reports that the commit was done.

    The protocol still reads the batch back.
    """


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """Reply to :class:`CommitLog`: nothing was written, because another commit came since the change log was opened."""


Reply = Owned | Lost | Unknown | RangesFound | Written | LogOpened | Committed | CommitRefused


@dataclass(frozen=True, slots=True)
class State:
    """The state of the protocol for one mirror. It has plain values only, so it can be copied, hashed and resumed."""

    request: Request
    row: MirrorRow | None = None


def start() -> State:
    """The initial state of the protocol."""
    return State(Acquire())


def step(state: State, reply: Reply) -> State:
    """Compute the state after a reply; its ``request`` is the next request.

    The reply to a commit is never trusted: the change log is opened again until it shows the batch. A commit that was
    skipped looks like success, and a commit whose reply was lost looks like failure.
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
                    f"the change log contains batch {batch.number} with other files than the ledger sealed: "
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
