"""The requests and replies of the publish protocol (:mod:`~open_mirroring.protocols.publishing`), as frozen values.

A *request* goes to the ledger (compare-and-set on the row's version), to the store, or to the part that computes and
stages rows. A *reply* says what is known of its outcome.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from open_mirroring.protocols.driving import Acquire as Acquire
from open_mirroring.protocols.driving import Lost as Lost
from open_mirroring.protocols.driving import Unknown as Unknown


@dataclass(frozen=True, slots=True)
class StagedFile:
    """One staged object: where it lies, which bytes (*etag*) and which rows (*digest*) it holds."""

    object_name: str
    etag: str
    digest: str
    rows: int = 0
    size: int = 0
    first_position: str = ""
    last_position: str = ""


@dataclass(frozen=True, slots=True)
class Work:
    """What the next intent shall carry: changes up to a log batch, or some chunks of an initial load.

    Where transactions are held back, the changes are those from above *position_from* up to *position_to*; None is a
    set without an end.
    """

    kind: Literal["changes", "load"]
    batch_to: int
    chunk: str = ""
    position_from: str | None = None
    position_to: str | None = None


@dataclass(frozen=True, slots=True)
class Intent:
    """The one open intent of a table. *manifest* is None until sealed; its file *i* has number ``first_number + i``."""

    first_number: int
    batch_from: int
    work: Work
    manifest: tuple[StagedFile, ...] | None = None


@dataclass(frozen=True, slots=True)
class TableRow:
    """The ledger's row of a table, as far as the protocol needs it; every write compares and raises *version*.

    *marker_etag* is the marker object that the table was established with; empty until then. Of the batches up to
    *published_batch* the target has the changes up to *published_position*; None: all of them. *resetting* says that a
    reset is under way whose new generation has not begun: nothing may be published.
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


# --- requests -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateMarker:
    """Store: create ``_incarnation.json`` if absent; repeated while unknown, then read back."""

    incarnation: str


@dataclass(frozen=True, slots=True)
class ReadMarker:
    """Store: reply :class:`Marker` or :class:`Unknown`."""


@dataclass(frozen=True, slots=True)
class CreateMetadata:
    """Store: create ``_metadata.json`` if absent; repeated while unknown, then read back."""


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Store: reply :class:`Metadata` or :class:`Unknown`."""


@dataclass(frozen=True, slots=True)
class Establish:
    """Ledger, compare-and-set: folder, marker and metadata are in place; only this marker object is ours."""

    version: int
    marker_etag: str


@dataclass(frozen=True, slots=True)
class FindWork:
    """Ask gate and ledger for the next work of this row; reply :class:`WorkFound`."""

    row: TableRow


@dataclass(frozen=True, slots=True)
class Intend:
    """Ledger, compare-and-set: open this intent."""

    version: int
    intent: Intent


@dataclass(frozen=True, slots=True)
class Stage:
    """Compute the intent's rows and create its staged objects; reply :class:`Staged` or :class:`CannotStage`."""

    row: TableRow


@dataclass(frozen=True, slots=True)
class Seal:
    """Ledger, compare-and-set: bind the staged objects to the intent's numbers."""

    version: int
    manifest: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class Rename:
    """Store: rename the sealed object to its number, conditional on its ETag and on the number being free."""

    number: int
    file: StagedFile


class FilePlace(Enum):
    """Where a file can be, in the order in which it travels; probes follow this order (never backwards)."""

    SOURCE = "staging"
    FINAL = "final"
    PROCESSED = "_ProcessedFiles"
    READY_TO_DELETE = "_FilesReadyToDelete"


@dataclass(frozen=True, slots=True)
class Probe:
    """Store: point read of a number (or of a sealed object) at a place; reply :class:`Seen` or :class:`Unknown`."""

    place: FilePlace
    number: int
    file: StagedFile


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ledger, compare-and-set: all files of the open intent were seen; K and the published batch move on."""

    version: int


@dataclass(frozen=True, slots=True)
class Sweep:
    """Store: remove staged objects of confirmed numbers; any reply, safety needs no cleaning."""

    generation: int
    confirmed: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ledger, compare-and-set: stop the table with a code and its evidence until somebody decides."""

    version: int
    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Finished:
    """No further request: nothing to do, or the table is stopped."""

    stopped: str | None = None


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
    """The ledger's row after our write (or acquisition)."""

    row: TableRow


@dataclass(frozen=True, slots=True)
class Answered:
    """A best-effort request is over; what came of it is read back, or does not matter."""


@dataclass(frozen=True, slots=True)
class Marker:
    """The incarnation id in the table's folder and the ETag of the object that holds it; None without a marker."""

    incarnation: str | None
    etag: str = ""


@dataclass(frozen=True, slots=True)
class Metadata:
    """Whether ``_metadata.json`` is there and names our keys in our order."""

    matches: bool


@dataclass(frozen=True, slots=True)
class WorkFound:
    """The next work; None when there is none or the gate does not pass."""

    work: Work | None


@dataclass(frozen=True, slots=True)
class Staged:
    """The staged and validated objects, in file order; empty when the plan publishes nothing."""

    files: tuple[StagedFile, ...]


@dataclass(frozen=True, slots=True)
class CannotStage:
    """The rows cannot be published as they are: the table has to stop."""

    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Renamed:
    """The store says the rename was done by this request."""


@dataclass(frozen=True, slots=True)
class RenameRefused:
    """The store refused the condition of the rename."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A point read: the ETag and the digest found at the place, both None when nothing is there."""

    etag: str | None = None
    digest: str | None = None

    @property
    def there(self) -> bool:
        """Whether anything is at the place."""
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
