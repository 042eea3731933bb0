"""The protocol that publishes one table: intend, stage, seal, rename, confirm.

The protocol is a state machine: :func:`step` takes a state and the reply to the last request, and returns the next
state with the next request. It does no I/O and reads no clock. So the runtime runs the protocol for many tables in
parallel, and the explorer, a test, runs every interleaving of several writers through the same function.

A *request* goes to the ledger (compare-and-set on the row's version), to the store of the landing zone, or to the part
that computes and stages rows. A *reply* is what is known of the outcome of a request.

Why the protocol is safe:

* The *seal*, a compare-and-set, binds the content to its file numbers before the first rename.
* A rename consumes the staged object, and only the sealed object, named with its ETag, can become the file with the
  number.
* File numbers follow each other without a gap, so a higher number proves a lower one.
* Staged objects are inside the table's folder and are deleted with the folder.
* The next owner of the ledger row finishes what a crashed process began. Staged objects of a process that lost the row
  are garbage that nothing refers to.
* The table's folder is known by the id in its marker and, once the table is established, by the marker's ETag. A
  request to create the marker that arrives late can put our id into a new folder, but can never make the same object.
* A table is established only when its first files are staged. So no folder with metadata waits without a data file
  (F-92), and a publication without files writes nothing to the store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from open_mirroring.protocols.driving import Acquire as Acquire
from open_mirroring.protocols.driving import Finished as Finished
from open_mirroring.protocols.driving import Lost as Lost
from open_mirroring.protocols.driving import Stop as Stop
from open_mirroring.protocols.driving import Unknown as Unknown
from open_mirroring.protocols.resetting import RESET_OPEN

CONFLICT = "CONFLICT"
"""A number is visible with content other than was sealed."""
AMBIGUOUS = "AMBIGUOUS"
"""A sealed object is gone and its number is nowhere: published and purged, or lost."""
INCARNATION_CHANGED = "INCARNATION_CHANGED"
"""The table's folder is not the one we created: its marker is missing or has another id, or is another object."""
METADATA_CHANGED = "METADATA_CHANGED"
"""The table's ``_metadata.json`` has other keys than ours."""


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One staged object: its name, the ETag of its bytes, and the digest of its rows."""

    object_name: str
    etag: str
    digest: str
    rows: int = 0
    size: int = 0
    first_position: str = ""
    last_position: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What an intent is going to publish: changes up to a batch of the change log, or some chunks of an initial load.

    If transactions are held back until they are complete, the changes are those above *position_from* and up to
    *position_to*; None means no limit.
    """

    kind: Literal["changes", "load"]
    batch_to: int
    chunk: str = ""
    position_from: str | None = None
    position_to: str | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """What a table publishes next, recorded before any file is made; a table has at most one intent.

    *manifest* is None until the intent is sealed, that is, until its files are fixed. File *i* of the manifest gets the
    number ``first_number + i``.
    """

    first_number: int
    batch_from: int
    work: Work
    manifest: tuple[StagedFile, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """The columns of a table's ledger row that the protocol needs; every write checks *version* and increments it.

    *established* is True once the folder in the landing zone was created; *marker_etag* is the ETag that its marker
    object then had. *confirmed* is the highest published file number. If *published_position* is None, the target has
    all changes of the batches up to *published_batch*; if not, only those up to that position. *resetting* is True
    while a reset is open and the next generation of the table has not begun, so that nothing may be published.
    """

    version: int
    generation: int
    incarnation: str
    established: bool
    confirmed: int
    published_batch: int
    intent: Intent | None = None
    stop: str | None = None
    marker_etag: str = ""
    published_position: str | None = None
    resetting: bool = False

    @property
    def intended(self) -> int:
        """The highest file number that may be visible.

        An intent that is not sealed does not count, because nothing was renamed.
        """
        sealed = () if self.intent is None else self.intent.manifest or ()
        return self.confirmed + len(sealed)


# --- requests -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateMarker:
    """Request to the store: create ``_incarnation.json`` unless it exists.

    The request is repeated while its outcome is unknown; then the file is read back.
    """

    incarnation: str


@dataclass(frozen=True, slots=True)
class ReadMarker:
    """Request to the store: read ``_incarnation.json`` of the table's folder.

    The reply is :class:`Marker` or :class:`Unknown`.
    """


@dataclass(frozen=True, slots=True)
class CreateMetadata:
    """Request to the store: create ``_metadata.json`` unless it exists.

    The request is repeated while its outcome is unknown; then the file is read back.
    """


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Request to the store: compare ``_metadata.json`` of the table's folder with ours.

    The reply is :class:`Metadata` or :class:`Unknown`.
    """


@dataclass(frozen=True, slots=True)
class Establish:
    """Request to the ledger, by compare-and-set: record that folder, marker and metadata exist.

    From then on, only a folder with exactly this marker object is ours. The staged files of the open intent are sealed
    next.
    """

    version: int
    marker_etag: str


@dataclass(frozen=True, slots=True)
class FindWork:
    """Ask the gate (may the table publish?) and the ledger for the table's next work.

    The reply is :class:`WorkFound` or :class:`CannotStage`.
    """

    row: TableRow


@dataclass(frozen=True, slots=True)
class Intend:
    """Request to the ledger, by compare-and-set: record *intent* as the table's open intent."""

    version: int
    intent: Intent


@dataclass(frozen=True, slots=True)
class Stage:
    """Request to compute the intent's rows and create its staged objects.

    The reply is :class:`Staged` or :class:`CannotStage`.
    """

    row: TableRow


@dataclass(frozen=True, slots=True)
class Seal:
    """Request to the ledger, by compare-and-set: bind the staged objects to the intent's file numbers."""

    version: int
    manifest: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class Rename:
    """Request to the store: rename the sealed object to its number, if the ETag matches and the number is free."""

    number: int
    file: StagedFile


class FilePlace(Enum):
    """The places of a file in the order in which the file moves; probes follow this order, never backwards."""

    SOURCE = "staging"
    FINAL = "final"
    PROCESSED = "_ProcessedFiles"
    READY_TO_DELETE = "_FilesReadyToDelete"


@dataclass(frozen=True, slots=True)
class Probe:
    """Request to the store: look for a file number (or a sealed object) at one place.

    The reply is :class:`Seen` or :class:`Unknown`.
    """

    place: FilePlace
    number: int
    file: StagedFile


@dataclass(frozen=True, slots=True)
class Confirm:
    """Request to the ledger, by compare-and-set: record that all files of the open intent were seen.

    The highest confirmed file number and the published batch advance.
    """

    version: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Request to the store: remove staged objects of confirmed numbers.

    Any reply is accepted, because safety does not depend on this cleaning.
    """

    generation: int
    confirmed: int


Request = (
    Acquire
    | CreateMarker
    | ReadMarker
    | CreateMetadata
    | ReadMetadata
    | Establish
    | FindWork
    | Intend
    | Stage
    | Seal
    | Rename
    | Probe
    | Confirm
    | Sweep
    | Stop
    | Finished
)

# --- replies --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Owned:
    """Reply: the ledger row after a write or :class:`Acquire` by this process, which owns the row."""

    row: TableRow


@dataclass(frozen=True, slots=True)
class Answered:
    """Reply to a request whose outcome does not matter, or is read back by the next request."""


@dataclass(frozen=True, slots=True)
class Marker:
    """Reply to :class:`ReadMarker`: the id in the folder's marker and the marker's ETag; both None without a marker."""

    incarnation: str | None
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Reply to :class:`ReadMetadata`: whether ``_metadata.json`` exists and names our key columns in our order."""

    matches: bool


@dataclass(frozen=True, slots=True)
class WorkFound:
    """Reply to :class:`FindWork`: the next work; None if there is none, or the gate does not let the table publish."""

    work: Work | None


@dataclass(frozen=True, slots=True)
class Staged:
    """Reply to :class:`Stage`: the staged and validated objects in file order; empty if there is nothing to publish."""

    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class CannotStage:
    """Reply: the new rows, or rows of the target, cannot be published as they are, so the table has to stop."""

    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """Reply to :class:`Rename`: the store reports that this request did the rename."""


@dataclass(frozen=True, slots=True)
class RenameRefused:
    """Reply to :class:`Rename`: the store refused; the staged object has another ETag, or the number is taken."""


@dataclass(frozen=True, slots=True)
class Seen:
    """Reply to :class:`Probe`: ETag and digest of the object at the place; both None if no object is there."""

    etag: str | None = None
    digest: str | None = None

    @property
    def there(self) -> bool:
        """Whether an object is at the place."""
        return self.etag is not None


Reply = (
    Owned
    | Lost
    | Unknown
    | Answered
    | Marker
    | Metadata
    | WorkFound
    | Staged
    | CannotStage
    | Renamed
    | RenameRefused
    | Seen
)


@dataclass(frozen=True, slots=True)
class State:
    """The state of the protocol for one table. It has plain values only, so it can be copied, hashed and resumed."""

    request: Request
    row: TableRow | None = None
    staged: tuple[StagedFile, ...] = ()
    at: int = 0
    """Index in the manifest of the file being renamed or probed."""
    higher: int = 0
    """Index of the higher file probed as evidence for ``at``; 0 while probing ``at`` itself."""
    source_there: bool = False
    marker_etag: str = ""
    """ETag of the marker that was read while establishing the table, after its first files were staged."""


def start() -> State:
    """The initial state of the protocol: its first request is :class:`Acquire`."""
    return State(Acquire())


def step(state: State, reply: Reply) -> State:
    """Compute the state after a reply; its ``request`` is the next request.

    If another process owns the row now, or the outcome of a ledger write is unknown, the next request is
    :class:`Acquire`. The new version of the row then makes a late write fail. A rename with unknown outcome is probed;
    a read or create with unknown outcome is repeated.
    """
    request = state.request
    match request, reply:
        case Establish(), Owned(row):
            # The marker was read after these files were staged, as it is for every later seal.
            return replace(state, request=Seal(row.version, state.staged), row=row)
        case ((Acquire() | Intend() | Seal() | Confirm() | Stop()), Owned(row)):
            return _owning(row, swept=not isinstance(request, Confirm))
        case ((Acquire() | Establish() | Intend() | Seal() | Confirm() | Stop()), (Lost() | Unknown())):
            return start()
        case ((CreateMarker() | CreateMetadata() | ReadMarker() | ReadMetadata() | Probe()), Unknown()):
            return state  # retry: a creation that never happened must not look like a folder that another writer took
        case CreateMarker(), _:
            return replace(state, request=ReadMarker())
        case CreateMetadata(), _:
            return replace(state, request=ReadMetadata())
        case Sweep(), _:
            return replace(state, request=FindWork(_row(state)))
        case FindWork(), WorkFound(work):
            return _after_work(state, work)
        case Stage(), Staged(files):
            return _after_staging(replace(state, staged=files))
        case FindWork() | Stage(), CannotStage(code, what):
            return _stopping(state, code, what)
        case ReadMarker(), Marker():
            return _after_marker(state, reply)
        case ReadMetadata(), Metadata(matches):
            row = _row(state)
            if not matches:
                return _stopping(state, METADATA_CHANGED, "_metadata.json names other key columns than the mirror file")
            return replace(state, request=Establish(row.version, state.marker_etag))
        case Rename(), Renamed():
            return _renaming(state, state.at + 1)
        case Rename(), (RenameRefused() | Unknown()):
            return _probing(state, FilePlace.SOURCE)
        case Probe(place=place), Seen():
            return _after_probe(state, place, reply)
    raise ValueError(f"{type(reply).__name__} is not a reply to {type(request).__name__}")


def _owning(row: TableRow, *, swept: bool) -> State:
    state = State(Acquire(), row=row)
    if row.stop is not None:
        return replace(state, request=Finished(row.stop))
    if row.resetting:
        return replace(state, request=Finished(RESET_OPEN))
    if row.intent is None:
        return replace(state, request=FindWork(row) if swept else Sweep(row.generation, row.confirmed))
    if row.intent.manifest is None:
        return replace(state, request=Stage(row))
    return _renaming(state, 0)


def _after_work(state: State, work: Work | None) -> State:
    row = _row(state)
    if work is None:
        return replace(state, request=Finished())
    intent = Intent(first_number=row.confirmed + 1, batch_from=row.published_batch, work=work)
    return replace(state, request=Intend(row.version, intent))


def _after_staging(state: State) -> State:
    row = _row(state)
    if row.established:
        return replace(state, request=ReadMarker())
    if not state.staged:
        # No number is used, so nothing needs the folder yet.
        return replace(state, request=Seal(row.version, ()))
    return replace(state, request=CreateMarker(row.incarnation))


def _after_marker(state: State, marker: Marker) -> State:
    row = _row(state)
    if marker.incarnation != row.incarnation:
        return _stopping(state, INCARNATION_CHANGED, "_incarnation.json in the folder is missing, or of another mirror")
    if not row.established:
        return replace(state, request=CreateMetadata(), marker_etag=marker.etag)
    if marker.etag != row.marker_etag:
        return _stopping(state, INCARNATION_CHANGED, "the folder's _incarnation.json was replaced by another object")
    if row.intent is not None and row.intent.manifest is not None:
        file = row.intent.manifest[state.at]
        number = row.intent.first_number + state.at
        return _stopping(
            state, AMBIGUOUS, f"the staged {file.object_name} of number {number} is missing, and no file has the number"
        )
    return replace(state, request=Seal(row.version, state.staged))


def _renaming(state: State, at: int) -> State:
    row = _row(state)
    manifest = _manifest(row)
    if at == len(manifest):
        return replace(state, request=Confirm(row.version), at=at, higher=0)
    number = _intent(row).first_number + at
    return replace(state, request=Rename(number, manifest[at]), at=at, higher=0, source_there=False)


def _probing(state: State, place: FilePlace, higher: int = 0) -> State:
    row = _row(state)
    index = higher or state.at
    probe = Probe(place, _intent(row).first_number + index, _manifest(row)[index])
    return replace(state, request=probe, higher=higher)


def _after_probe(state: State, place: FilePlace, seen: Seen) -> State:
    row = _row(state)
    manifest = _manifest(row)
    if place is FilePlace.SOURCE:
        there = seen.etag == manifest[state.at].etag
        return _probing(replace(state, source_there=there), FilePlace.FINAL)
    index = state.higher or state.at
    if seen.there and seen.digest == manifest[index].digest:
        # A higher number is sent only after the lower was seen, so it proves `at` published as well.
        return _renaming(state, index + 1)
    if seen.there:
        number = _intent(row).first_number + index
        return _stopping(state, CONFLICT, f"number {number} exists with other content than was staged")
    if place is FilePlace.FINAL:
        return _probing(state, FilePlace.PROCESSED, state.higher)
    if place is FilePlace.PROCESSED:
        return _probing(state, FilePlace.READY_TO_DELETE, state.higher)
    if state.source_there:
        return _renaming(state, state.at)
    if index + 1 < len(manifest):
        return _probing(state, FilePlace.FINAL, index + 1)
    return replace(state, request=ReadMarker())


def _stopping(state: State, code: str, what: str) -> State:
    return replace(state, request=Stop(_row(state).version, code, what))


def _row(state: State) -> TableRow:
    if state.row is None:
        raise ValueError("no row was acquired yet")
    return state.row


def _intent(row: TableRow) -> Intent:
    if row.intent is None:
        raise ValueError("the row has no open intent")
    return row.intent


def _manifest(row: TableRow) -> tuple[StagedFile, ...]:
    manifest = _intent(row).manifest
    if manifest is None:
        raise ValueError("the open intent is not sealed")
    return manifest
