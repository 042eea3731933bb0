"""The protocol that publishes one table: intend, stage, seal, rename, confirm.

It is a state machine: :func:`step` takes a state and the reply to the last request, and returns the next state with
the next request. It does no I/O and reads no clock. So the runtime drives many tables side by side, and the explorer
drives every interleaving of several writers through the same function.

Why it is safe:

* A compare-and-set *seal* binds the content to its numbers before the first rename.
* A rename consumes its source, and only the sealed object, named with its ETag, can become the number.
* Numbers follow each other, so a higher number proves a lower one.
* Staging lies inside the table's folder and is deleted with it.
* The next owner of the row finishes any crash. Staged objects of a loser are garbage that nothing refers to.
* The folder is known by its marker's id and, once established, by the marker's ETag. A creation that arrives late can
  put our id into another folder, but never the same object.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from open_mirroring.protocols.publish_messages import (
    Acquire,
    Answered,
    CannotStage,
    Confirm,
    CreateMarker,
    CreateMetadata,
    Establish,
    FilePlace,
    FindWork,
    Finished,
    Intend,
    Intent,
    Lost,
    Marker,
    Metadata,
    Owned,
    Probe,
    ReadMarker,
    ReadMetadata,
    Rename,
    Renamed,
    RenameRefused,
    Reply,
    Request,
    Seal,
    Seen,
    Stage,
    Staged,
    StagedFile,
    Stop,
    Sweep,
    TableRow,
    Unknown,
    Work,
    WorkFound,
)
from open_mirroring.protocols.resetting import RESET_OPEN

__all__ = [
    "AMBIGUOUS",
    "CONFLICT",
    "INCARNATION_CHANGED",
    "METADATA_CHANGED",
    "Acquire",
    "Answered",
    "CannotStage",
    "Confirm",
    "CreateMarker",
    "CreateMetadata",
    "Establish",
    "FilePlace",
    "FindWork",
    "Finished",
    "Intend",
    "Intent",
    "Lost",
    "Marker",
    "Metadata",
    "Owned",
    "Probe",
    "ReadMarker",
    "ReadMetadata",
    "Rename",
    "RenameRefused",
    "Renamed",
    "Reply",
    "Request",
    "Seal",
    "Seen",
    "Stage",
    "Staged",
    "StagedFile",
    "State",
    "Stop",
    "Sweep",
    "TableRow",
    "Unknown",
    "Work",
    "WorkFound",
    "start",
    "step",
]

CONFLICT = "CONFLICT"
"""A number is visible with other content than was sealed."""
AMBIGUOUS = "AMBIGUOUS"
"""A sealed object is gone and its number is nowhere: published and purged, or lost."""
INCARNATION_CHANGED = "INCARNATION_CHANGED"
"""The table's folder is not the one we created: its marker is missing, another, or another object with our id."""
METADATA_CHANGED = "METADATA_CHANGED"
"""The table's ``_metadata.json`` names other keys than ours."""


@dataclass(frozen=True, slots=True)
class State:
    """Where a publisher of one table stands. Plain values only: it can be copied, hashed and resumed."""

    request: Request
    row: TableRow | None = None
    staged: tuple[StagedFile, ...] = ()
    at: int = 0
    """Index in the manifest of the file being renamed or probed."""
    higher: int = 0
    """Index of the higher file probed as evidence for ``at``; 0 while probing ``at`` itself."""
    source_there: bool = False
    marker_etag: str = ""
    """ETag of the marker that was read while establishing the table."""


def start() -> State:
    """A publisher that has not asked anything yet: its first request is :class:`Acquire`."""
    return State(Acquire())


def step(state: State, reply: Reply) -> State:
    """The state after a reply; its ``request`` is what to ask next.

    A ledger write that was lost or whose outcome is unknown begins again at :class:`Acquire`, whose new version
    makes a late write fail. An unknown rename is probed; an unknown read or create-if-absent is repeated.
    """
    request = state.request
    match request, reply:
        case ((Acquire() | Establish() | Intend() | Seal() | Confirm() | Stop()), Owned(row)):
            return _owning(row, swept=not isinstance(request, Confirm))
        case ((Acquire() | Establish() | Intend() | Seal() | Confirm() | Stop()), (Lost() | Unknown())):
            return start()
        case ((CreateMarker() | CreateMetadata() | ReadMarker() | ReadMetadata() | Probe()), Unknown()):
            return state  # repeated: a creation that never happened must not read as a folder lost to somebody
        case CreateMarker(), _:
            return replace(state, request=ReadMarker())
        case CreateMetadata(), _:
            return replace(state, request=ReadMetadata())
        case Sweep(), _:
            return replace(state, request=FindWork(_row(state)))
        case FindWork(), WorkFound(work):
            return _after_work(state, work)
        case Stage(), Staged(files):
            return replace(state, request=ReadMarker(), staged=files)
        case Stage(), CannotStage(code, what):
            return _stopping(state, code, what)
        case ReadMarker(), Marker():
            return _after_marker(state, reply)
        case ReadMetadata(), Metadata(matches):
            row = _row(state)
            if not matches:
                return _stopping(state, METADATA_CHANGED, "the folder's _metadata.json names other keys than ours")
            return replace(state, request=Establish(row.version, state.marker_etag))
        case Rename(), Renamed():
            return _renaming(state, state.at + 1)
        case Rename(), (RenameRefused() | Unknown()):
            return _probing(state, FilePlace.SOURCE)
        case Probe(place=place), Seen():
            return _after_probe(state, place, reply)
    raise ValueError(f"{type(reply).__name__} is no reply to {type(request).__name__}")


def _owning(row: TableRow, *, swept: bool) -> State:
    """What the ledger's row asks of its owner."""
    state = State(Acquire(), row=row)
    if row.stop is not None:
        return replace(state, request=Finished(row.stop))
    if row.resetting:
        return replace(state, request=Finished(RESET_OPEN))
    if not row.established:
        return replace(state, request=CreateMarker(row.incarnation))
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


def _after_marker(state: State, marker: Marker) -> State:
    row = _row(state)
    if marker.incarnation != row.incarnation:
        return _stopping(state, INCARNATION_CHANGED, "the folder's _incarnation.json is missing or not ours")
    if not row.established:
        return replace(state, request=CreateMetadata(), marker_etag=marker.etag)
    if marker.etag != row.marker_etag:
        return _stopping(
            state, INCARNATION_CHANGED, "the folder's _incarnation.json is not the object it was established with"
        )
    if row.intent is not None and row.intent.manifest is not None:
        file = row.intent.manifest[state.at]
        number = row.intent.first_number + state.at
        return _stopping(
            state, AMBIGUOUS, f"the sealed object {file.object_name} of number {number} is gone and no number tells why"
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
        return _stopping(state, CONFLICT, f"number {number} is visible with other content than was sealed")
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
