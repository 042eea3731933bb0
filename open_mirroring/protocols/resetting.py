"""The protocol that resets one table: requested, folder deleted, table gone, new generation, rebuilt, table back.

A table is dropped at the target and rebuilt if its key, type or folder must change, or if the table cannot be corrected
(F-72, F-75, F-85, F-87, F-89). A table may also be dropped for good (F-71). :func:`step` is pure, so that the same code
runs in a job and in tests with every order of events.

Each stage has one ledger record, set by compare-and-set, so the next run continues from the last recorded stage.
Repeating a step is safe. Only a delete that arrives late does harm: it also deletes the marker of the new generation,
so publishing stops with INCARNATION_CHANGED and considers nothing published (I12).

A reset belongs to the request that began it (G-30). A reset that is open is continued, no matter which run began it. A
request whose reset is finished never begins another one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from open_mirroring.protocols.driving import Acquire as Acquire
from open_mirroring.protocols.driving import Lost as Lost
from open_mirroring.protocols.driving import Unknown as Unknown

RESET_OPEN = "RESET_OPEN"
"""The table is being reset: nothing else is published for it until the reset ends."""


class ResetStage(Enum):
    """The stages of a reset, in this order; the ledger has the last stage that was reached."""

    REQUESTED = "RESET_REQUESTED"
    FOLDER_DELETED = "FOLDER_DELETED"
    TABLE_GONE = "TABLE_GONE"
    REBUILDING = "REBUILDING"
    """The new generation has begun: the publish protocol creates its folder and publishes its first files."""
    TABLE_BACK = "TABLE_BACK"
    """The end of a reload; the ledger removes the reset."""
    DROPPED = "DROPPED"
    """The end of a drop; the ledger keeps only the table's id."""


@dataclass(frozen=True, slots=True)
class ResetRow:
    """The columns of a table's ledger row that its reset needs; every write checks *version* and increments it.

    *drops* is True if the table is dropped for good. *absent* is True if one look showed the target without the table.
    *rebuilt* is True once the first rows are all published. *has_files* is True once at least one file of the new
    generation is published, from which Fabric creates the target table.
    """

    version: int
    stage: ResetStage | None = None
    drops: bool = False
    folders: tuple[str, ...] = ()
    absent: bool = False
    rebuilt: bool = False
    has_files: bool = False


class Sight(Enum):
    """Reply to :class:`LookForTable`: whether the target has the table."""

    THERE = "there"
    ABSENT = "absent"
    """Not found this time; counts when a second look agrees."""
    UNSEEN = "unseen"
    """Unknown: the target cannot be asked."""
    FOLDER_BACK = "folder back"
    """The deleted folder exists again: a late upload, or another writer."""


# --- requests -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Request to the ledger: look up the state of the operator's request.

    The reply is :class:`Answer` or :class:`Unknown`.
    """

    request: str


@dataclass(frozen=True, slots=True)
class DeleteFolders:
    """Request to the store: delete the table's landing zone folders with their content.

    The reply is :attr:`Answer.DELETED`, :class:`InUse` or :class:`Unknown`. If the version of the ledger row has
    changed, nothing is deleted and the reply is :class:`Lost`.
    """

    version: int
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LookForTable:
    """Request to the target: does the table exist there? The reply is :class:`Sight`."""

    row: ResetRow


@dataclass(frozen=True, slots=True)
class Advance:
    """Request to the ledger, by compare-and-set: record the next stage.

    With :attr:`ResetStage.REBUILDING` the new generation of the table begins.
    """

    version: int
    to: ResetStage
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Request to publish the table's first rows, from its initial load or the change log.

    The reply is :class:`Rebuilt`.
    """

    row: ResetRow


@dataclass(frozen=True, slots=True)
class Finished:
    """The run is done with the reset. *waits_for* is what a later run waits for; empty when the reset is over."""

    waits_for: str = ""


Request = Ask | Acquire | DeleteFolders | LookForTable | Advance | Rebuild | Finished

# --- replies --------------------------------------------------------------------------------------------------


class Answer(Enum):
    """Replies without further content."""

    OPEN = "open"
    """The request is open and continues."""
    ENDED = "ended"
    """The request had ended before."""
    DELETED = "deleted"
    """The folders are gone."""


@dataclass(frozen=True, slots=True)
class InUse:
    """Reply to :class:`DeleteFolders`: a folder cannot be deleted yet.

    In most cases Fabric still uses the folder (F-73). *what* is the text of the error.
    """

    what: str


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """Reply to :class:`Rebuild`: rebuilding was tried; the ledger shows whether it is complete.

    *what* is what rebuilding still waits for; empty if it waits for nothing.
    """

    what: str = ""


Reply = Answer | ResetRow | Lost | Unknown | InUse | Sight | Rebuilt
"""A ResetRow is the ledger's row after our write or acquisition."""


@dataclass(frozen=True, slots=True)
class State:
    """The state of one run of a reset. It has plain values only, so it can be copied, hashed and resumed."""

    request: Request
    row: ResetRow | None = None
    rebuilt: Rebuilt | None = None
    """The result of this run's attempt to rebuild, which is not repeated."""


def start(request: str = "") -> State:
    """The initial state of a run. Without a *request* id, the run continues the reset that is open."""
    return State(Ask(request) if request else Acquire())


def step(state: State, reply: Reply) -> State:
    """Compute the state after a reply; its ``request`` is the next request.

    If another process owns the ledger row now, or the outcome of a write is unknown, the next request is
    :class:`Acquire`. If the outcome of a delete is unknown, this run ends, and the next run repeats the delete.
    """
    request = state.request
    match request, reply:
        case Ask(), Answer.OPEN:
            return replace(state, request=Acquire())
        case Ask(), Answer.ENDED:
            return replace(state, request=Finished())
        case Ask(), Unknown():
            return state
        case (Advance(absent=True), ResetRow() as row):
            # Two looks without time between them count as one.
            return replace(state, row=row, request=Finished("a second look at the target that finds no table"))
        case ((Acquire() | Advance()), ResetRow() as row):
            return _owning(replace(state, row=row), row)
        case ((Acquire() | Advance() | DeleteFolders()), Lost()) | ((Acquire() | Advance()), Unknown()):
            return replace(state, request=Acquire(), row=None)
        case DeleteFolders(version), Answer.DELETED:
            return replace(state, request=Advance(version, ResetStage.FOLDER_DELETED))
        case DeleteFolders(), InUse(what):
            return replace(state, request=Finished(what))
        case DeleteFolders(), Unknown():
            return replace(state, request=Finished("the store to answer"))
        case LookForTable(row), Sight() as sight:
            return _after_look(state, row, sight)
        case LookForTable(), Unknown():
            return replace(state, request=Finished("the store to answer"))
        case Rebuild(), Rebuilt():
            return replace(state, request=Acquire(), row=None, rebuilt=reply)
    raise ValueError(f"{type(reply).__name__} is no reply to {type(request).__name__}")


def _owning(state: State, row: ResetRow) -> State:
    match row.stage:
        case ResetStage.REQUESTED:
            return replace(state, request=DeleteFolders(row.version, row.folders))
        case ResetStage.FOLDER_DELETED:
            return replace(state, request=LookForTable(row))
        case ResetStage.TABLE_GONE:
            return replace(
                state, request=Advance(row.version, ResetStage.DROPPED if row.drops else ResetStage.REBUILDING)
            )
        case ResetStage.REBUILDING if row.rebuilt and (row.has_files or state.rebuilt == Rebuilt()):
            # Without a file the target has no table (F-70, F-92): once a run has looked for rows in vain, there is
            # nothing to wait for.
            request = LookForTable(row) if row.has_files else Advance(row.version, ResetStage.TABLE_BACK)
            return replace(state, request=request)
        case ResetStage.REBUILDING:
            if state.rebuilt is None:
                return replace(state, request=Rebuild(row))
            return replace(state, request=Finished(state.rebuilt.what or "the table to be rebuilt"))
        case _:
            return replace(state, request=Finished())


def _after_look(state: State, row: ResetRow, sight: Sight) -> State:
    if row.stage is ResetStage.REBUILDING:
        back = sight is Sight.THERE
        request: Request = Finished("the target to show the table again")
        return replace(state, request=Advance(row.version, ResetStage.TABLE_BACK) if back else request)
    match sight:
        case Sight.FOLDER_BACK:
            return replace(state, request=Advance(row.version, ResetStage.REQUESTED))
        case Sight.ABSENT if row.absent:
            return replace(state, request=Advance(row.version, ResetStage.TABLE_GONE))
        case Sight.ABSENT:
            return replace(state, request=Advance(row.version, ResetStage.FOLDER_DELETED, absent=True))
        case Sight.THERE if row.absent:
            return replace(state, request=Advance(row.version, ResetStage.FOLDER_DELETED))
        case Sight.THERE:
            return replace(state, request=Finished("the table to be gone from the target"))
        case Sight.UNSEEN:
            return replace(state, request=Finished("an operator to confirm that the table is gone from the target"))
