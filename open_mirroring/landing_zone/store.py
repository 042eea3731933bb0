"""The interface to the storage of a landing zone, as few methods that behave alike in each storage.

Local folder and OneLake must also fail alike. Paths are relative to the zone's root; only
:mod:`open_mirroring.landing_zone.layout` builds paths. Every method may raise TransientError when its outcome is
unknown: the operation may have happened, may happen later, or never (O-08). The caller then checks the outcome or
repeats the identical request, and never assumes an outcome.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone import layout

_UNPLAIN = re.compile(r"[\\\x00-\x1f\x7f]")


class ObjectInfo(NamedTuple):
    """One object of the zone. If the object is created again, its *etag* changes."""

    path: str
    size: int
    etag: str


class Content(NamedTuple):
    """The bytes of a small object, and the ETag that the object had when it was read."""

    data: bytes
    etag: str


class RenameOutcome(Enum):
    """The result of a conditional rename whose outcome is known; a rename with unknown outcome raises an error."""

    DONE = "done"
    REFUSED = "refused"
    """The target exists, the source is gone, or the source is not the object with the given ETag."""


class LandingZoneStore(Protocol):
    """The storage of one landing zone."""

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        """Create an object from bytes or a local file, with its parent folders; None when the name is taken.

        The object is complete and durable when the method returns. Before, readers may see a part of the object, which
        is why only :meth:`rename` makes final names.
        """
        ...

    def read(self, path: str) -> Content | None:
        """Return the content of a small object with its ETag; None when the object does not exist."""
        ...

    def fetch(self, path: str) -> AbstractContextManager[Path | None]:
        """A context with a local file that has the object's content; None when the object does not exist."""
        ...

    def stat(self, path: str) -> ObjectInfo | None:
        """Return the current state of an object; None when the object does not exist."""
        ...

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        """Move *source* to *target* in one step, only if *source* has this ETag and *target* does not exist."""
        ...

    def list(self, folder: str, skipped: Collection[str] = ()) -> Iterable[ObjectInfo]:
        """Every object below a folder, recursively, in no particular order; none when the folder is missing.

        A store may leave out what is below subfolders with one of the *skipped* names, if that is cheaper.
        """
        ...

    def delete(self, path: str) -> None:
        """Remove an object, if the object exists."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with its content, if the folder exists.

        After the return nothing of the folder is visible, and a rename from or into the folder is refused (F-71).
        Raises ``CHANGED_MEANWHILE`` while another call uses the folder (F-73); part of the content may be deleted
        then.
        """
        ...


def create_complete(store: LandingZoneStore, path: str, content: bytes, *, staged: str) -> bool:
    """Create a file in one step, by renaming a staged file. Return False if the name *path* is taken.

    *staged* is the name of the staged file, and is used once. After a crash only the staged file may remain. Raises
    ``CHANGED_MEANWHILE`` if a file of the name *staged* exists already.
    """
    info = store.create(staged, content)
    if info is None:
        raise TransientError("CHANGED_MEANWHILE", f"{staged!r} is there already", next_step="another name is tried")
    if store.rename(staged, path, source_etag=info.etag) is RenameOutcome.DONE:
        return True
    store.delete(staged)
    return False


class FoundMarker(NamedTuple):
    """The marker file of a table's folder. If the folder has none, *incarnation* is None and *etag* is empty.

    *incarnation* is also None if the marker file contains no id of ours. *mirror* is the mirror that owns the folder,
    and empty if the owner is unknown.
    """

    incarnation: str | None
    etag: str
    mirror: str = ""


def read_marker(store: LandingZoneStore, folder: str) -> FoundMarker:
    """Read the marker file of a table's folder: the folder's id, its owner, and the ETag of the marker file.

    If id or ETag differs from the ledger's, the folder was re-created or copied.
    """
    found = store.read(f"{folder}/{layout.INCARNATION_FILE}")
    if found is None:
        return FoundMarker(None, "")
    incarnation, mirror = layout.incarnation_of(found.data)
    return FoundMarker(incarnation, found.etag, mirror)


def why_unsafe(path: str) -> str:
    """Why a path is not relative, plain and inside the zone; empty if the path is safe."""
    if not path or path.startswith("/"):
        return "is not relative to the zone"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, '.' or '..' part"
    if _UNPLAIN.search(path):
        return "contains a backslash or a control character"
    return ""
