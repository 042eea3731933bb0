"""The interface to the storage of a landing zone. It has few methods, because folder and OneLake must fail alike.

Paths are relative to the zone's root; only :mod:`open_mirroring.landing_zone.layout` builds them. Every method may
raise TransientError when its outcome is unknown: it may have happened, may happen later, or never (O-08). The caller
checks, or repeats the identical request; it never assumes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import AbstractContextManager
from enum import Enum
from pathlib import Path
from typing import NamedTuple, Protocol

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone import layout

_UNPLAIN = re.compile(r"[\\\x00-\x1f\x7f]")


class ObjectInfo(NamedTuple):
    """One object of the zone. Re-creating it changes its *etag*."""

    path: str
    size: int
    etag: str


class Content(NamedTuple):
    """The bytes of a small object and the ETag of the object they were read from."""

    data: bytes
    etag: str


class RenameOutcome(Enum):
    """The answer to a conditional rename; any other outcome is unknown and raises."""

    DONE = "done"
    REFUSED = "refused"
    """The target exists, the source is gone, or the source is not the object with the given ETag."""


class LandingZoneStore(Protocol):
    """The storage of one landing zone."""

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        """Create an object from bytes or a local file, with its parent folders; None when the name is taken.

        The object is complete and durable when this returns. Readers may see a part of it before, which is why only
        :meth:`rename` makes final names.
        """
        ...

    def read(self, path: str) -> Content | None:
        """The content of a small object with its ETag; None when there is none."""
        ...

    def fetch(self, path: str) -> AbstractContextManager[Path | None]:
        """A context with a local file that holds the object's content; None when there is none."""
        ...

    def stat(self, path: str) -> ObjectInfo | None:
        """The current state of an object; None when it does not exist."""
        ...

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        """Move *source* to *target* in one step, only if *source* has that ETag and *target* does not exist."""
        ...

    def list(self, folder: str) -> Iterable[ObjectInfo]:
        """Every object below a folder, recursively, in no particular order; nothing when the folder is missing."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object, if it exists."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with its content, if it exists.

        Then nothing of it is visible any more, and a rename from or into it is refused (F-71). Raises
        ``CHANGED_MEANWHILE`` while the folder is in use (F-73); part of it may be gone then.
        """
        ...


def create_complete(store: LandingZoneStore, path: str, content: bytes, *, staged: str) -> bool:
    """Create a file atomically, through a *staged* name that is used once. False if the name is taken.

    After a crash only the staged file may remain. Raises ``CHANGED_MEANWHILE`` if the staged name exists already.
    """
    info = store.create(staged, content)
    if info is None:
        raise TransientError("CHANGED_MEANWHILE", f"{staged!r} is there already", next_step="another name is tried")
    if store.rename(staged, path, source_etag=info.etag) is RenameOutcome.DONE:
        return True
    store.delete(staged)
    return False


class FoundMarker(NamedTuple):
    """The marker file of a table's folder. Without one, *incarnation* is None and *etag* is empty.

    *incarnation* is also None if the file contains no id of ours. *mirror* is the mirror that owns the folder; empty if
    unknown.
    """

    incarnation: str | None
    etag: str
    mirror: str = ""


def read_marker(store: LandingZoneStore, folder: str) -> FoundMarker:
    """Read the marker file of a table's folder: its id, its owner, and its ETag.

    Another id or ETag than the ledger's shows that the folder was re-created or copied.
    """
    found = store.read(f"{folder}/{layout.INCARNATION_FILE}")
    if found is None:
        return FoundMarker(None, "")
    incarnation, mirror = layout.incarnation_of(found.data)
    return FoundMarker(incarnation, found.etag, mirror)


def why_unsafe(path: str) -> str:
    """Why a path is not relative, plain and inside the zone; empty if it is."""
    if not path or path.startswith("/"):
        return "is not relative to the zone"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, '.' or '..' part"
    if _UNPLAIN.search(path):
        return "contains a backslash or a control character"
    return ""
