"""The protocol that resets one table: requested, folder deleted, table gone, new generation, rebuilt, table back.

A table is dropped at the target and rebuilt when its key, type or folder must change, or when its target holds what
cannot be corrected (F-72, F-75, F-85, F-87, F-89); or it is dropped for good (F-71). Like
:mod:`open_mirroring.protocols.publishing` this is a state machine: :func:`step` is pure, so the runtime drives it and
tests interleave it.

Each arrow has one ledger record, set by compare-and-set, so the next run goes on from the last record. Repeating a step
does no harm: deleting a folder that is gone does nothing, and looking changes nothing. Only a delete that was sent
before and arrives late can do harm, because it hits the folder of the new generation. It deletes that folder's marker,
too, so the publisher stops with INCARNATION_CHANGED and takes nothing for published (I12).

A reset belongs to its request (G-30), which each run gives first. A reset under way is continued, whoever began it. A
reset that has ended is reported, whoever ended it, and never begun again.

The request raises the row's version and abandons an open intent: its sealed objects are deleted with the folder.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from open_mirroring.protocols.driving import Acquire as Acquire
from open_mirroring.protocols.driving import Lost as Lost
from open_mirroring.protocols.driving import Unknown as Unknown

RESET_OPEN = "RESET_OPEN"
"""The table is being reset: nothing else is published for it until it is back."""


class ResetStage(Enum):
    """What the last record of a reset says; in this order."""

    REQUESTED = "RESET_REQUESTED"
    FOLDER_DELETED = "FOLDER_DELETED"
    TABLE_GONE = "TABLE_GONE"
    REBUILDING = "REBUILDING"
    """The new generation has begun: the publish protocol makes its folder and publishes its first files."""
    TABLE_BACK = "TABLE_BACK"
    """The end of a reload; the ledger keeps no reset any more."""
    DROPPED = "DROPPED"
    """The end of a drop; the ledger keeps the table's id and nothing else of it."""


@dataclass(frozen=True, slots=True)
class ResetRow:
    """The ledger's row of a table, as far as its reset needs it; every write compares and raises *version*.

    Attributes:
        version: the row's version.
        stage: None when no reset is open.
        drops: the table shall not come back.
        folders: what has to be deleted: the folders that the table has, or had under an earlier target.
        absent: the target was seen without the table once.
        rebuilt: all that the table begins with is published.
        has_files: a file of the new generation is published, so that the target makes a table of it.
    """

    version: int
    stage: ResetStage | None = None
    drops: bool = False
    folders: tuple[str, ...] = ()
    absent: bool = False
    rebuilt: bool = False
    has_files: bool = False


class Sight(Enum):
    """What a look at the target showed."""

    THERE = "there"
    ABSENT = "absent"
    """Not seen this time: counts when a second look agrees."""
    UNSEEN = "unseen"
    """Nobody can tell."""
    FOLDER_BACK = "folder back"
    """Somebody wrote into the deleted folder: a late upload, or a stranger."""


# --- requests -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Ledger: what became of this request? Reply :class:`Open`, :class:`Answered` or :class:`Unknown`.

    It is recorded at the latest now.
    """

    request: str


@dataclass(frozen=True, slots=True)
class DeleteFolders:
    """Store: delete the folders with all they hold; reply :class:`Deleted`, :class:`InUse` or :class:`Unknown`.

    Not sent when the row's version has moved: then the reply is :class:`Lost`.
    """

    version: int
    folders: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LookForTable:
    """Target: is the table there? Reply :class:`Looked`."""

    row: ResetRow


@dataclass(frozen=True, slots=True)
class Advance:
    """Ledger, compare-and-set: the next record; with :attr:`ResetStage.REBUILDING` the new generation begins."""

    version: int
    to: ResetStage
    absent: bool = False


@dataclass(frozen=True, slots=True)
class Rebuild:
    """Publish what the table begins with: its load, or what the log holds; reply :class:`Rebuilt`."""

    row: ResetRow


@dataclass(frozen=True, slots=True)
class Finished:
    """No further request. *waits_for* says what a later run has to find; empty when the reset is over."""

    waits_for: str = ""


Request = Ask | Acquire | DeleteFolders | LookForTable | Advance | Rebuild | Finished

# --- replies --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Open:
    """The request is under way: it is carried on."""


@dataclass(frozen=True, slots=True)
class Answered:
    """The request came to its end before."""


@dataclass(frozen=True, slots=True)
class Owned:
    """The ledger's row after our write (or acquisition)."""

    row: ResetRow


@dataclass(frozen=True, slots=True)
class Deleted:
    """The folders are gone."""


@dataclass(frozen=True, slots=True)
class InUse:
    """A folder cannot be deleted yet (F-73)."""

    what: str


@dataclass(frozen=True, slots=True)
class Looked:
    """What the look showed."""

    sight: Sight


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The rebuilding ran. The ledger says whether it is complete; *what* names what it still waits for, if anything."""

    what: str = ""


Reply = Open | Answered | Owned | Lost | Unknown | Deleted | InUse | Looked | Rebuilt


@dataclass(frozen=True, slots=True)
class State:
    """Where a run of a reset stands. Plain values only: it can be copied, hashed and resumed."""

    request: Request
    row: ResetRow | None = None
    rebuilt: Rebuilt | None = None
    """This run's rebuilding has been tried: it is not tried again without end."""


def start(request: str = "") -> State:
    """A run that has not asked anything yet; without a *request* it carries on whatever is open."""
    return State(Ask(request) if request else Acquire())


def step(state: State, reply: Reply) -> State:
    """The state after a reply; its ``request`` is what to ask next.

    A write that was lost or whose outcome is unknown begins again at :class:`Acquire`. A delete of unknown outcome
    waits for the next run, which repeats it.
    """
    request = state.request
    match request, reply:
        case Ask(), Open():
            return replace(state, request=Acquire())
        case Ask(), Answered():
            return replace(state, request=Finished())
        case Ask(), Unknown():
            return state
        case (Advance(absent=True), Owned(row)):
            # Two looks without a moment between them are one look.
            return replace(state, row=row, request=Finished("a second look at the target that finds no table"))
        case ((Acquire() | Advance()), Owned(row)):
            return _owning(replace(state, row=row), row)
        case ((Acquire() | Advance() | DeleteFolders()), Lost()) | ((Acquire() | Advance()), Unknown()):
            return replace(state, request=Acquire(), row=None)
        case DeleteFolders(version), Deleted():
            return replace(state, request=Advance(version, ResetStage.FOLDER_DELETED))
        case DeleteFolders(), InUse(what):
            return replace(state, request=Finished(what))
        case DeleteFolders(), Unknown():
            return replace(state, request=Finished("the store to answer"))
        case LookForTable(row), Looked(sight):
            return _after_look(state, row, sight)
        case LookForTable(), Unknown():
            return replace(state, request=Finished("the store to answer"))
        case Rebuild(), Rebuilt():
            return replace(state, request=Acquire(), row=None, rebuilt=reply)
    raise ValueError(f"{type(reply).__name__} is no reply to {type(request).__name__}")


def _owning(state: State, row: ResetRow) -> State:
    """What the ledger's row asks of its owner."""
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
            # Without a file nothing tells the target of a table (F-70, F-92): once a run has looked for rows in vain,
            # there is nothing to wait for.
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
            return replace(state, request=Finished("somebody to say that the table is gone from the target"))
