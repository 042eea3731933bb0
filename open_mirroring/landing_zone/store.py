"""The interface of a store that holds a landing zone.

It has few methods, because the local folder and OneLake must fail in the same ways. Paths are relative to the zone's
root, with ``/`` between parts. Only :mod:`open_mirroring.landing_zone.layout` builds them.

Every method may raise :class:`~open_mirroring.errors.TransientError` when its outcome is unknown: it may have
happened, may happen later, or never (O-08). The caller looks, or repeats the identical request; it never assumes.
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
    """One object of the zone. *etag* changes whenever the content is created anew."""

    path: str
    size: int
    etag: str


class Content(NamedTuple):
    """The bytes of a small object, and the ETag of the very object that they were read from."""

    data: bytes
    etag: str


class RenameOutcome(Enum):
    """What a conditional rename answered; anything else is an unknown outcome and raises."""

    DONE = "done"
    REFUSED = "refused"
    """The target exists, the source is gone, or the source is another object than the one named."""


class LandingZoneStore(Protocol):
    """Storage of one landing zone."""

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        """Create an object with the bytes, or the bytes of a local file; None when the name is taken.

        Parent folders come into being. The object is complete and durable when this returns; a reader may see a
        partial object under this name before, which is why final names are only ever made by :meth:`rename`.
        """
        ...

    def read(self, path: str) -> Content | None:
        """The whole content of a small object with its ETag; None when there is none."""
        ...

    def fetch(self, path: str) -> AbstractContextManager[Path | None]:
        """A local file with the object's content, for as long as it is entered; None when there is none."""
        ...

    def stat(self, path: str) -> ObjectInfo | None:
        """A point read: the object as it is now, None when it is not there."""
        ...

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        """Move *source* to *target* in one step, only if *source* still has that etag and *target* does not exist."""
        ...

    def list(self, folder: str) -> Iterable[ObjectInfo]:
        """Every object below a folder, recursively, in no particular order; nothing when the folder is missing."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object; nothing happens when it is not there."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with all it holds; nothing happens when it does not exist.

        When this returns, nothing of the folder is visible any more, and a rename whose source or target lay in it is
        refused (F-71). Whatever is created there later belongs to another folder.

        Raises:
            TransientError: ``CHANGED_MEANWHILE`` while the folder is in use (F-73): part of it may be gone; repeat the
                call.
        """
        ...


def create_whole(store: LandingZoneStore, path: str, content: bytes, *, staged: str) -> bool:
    """Create a file if its name is free, by way of a staging name used once; False when the name was taken.

    What a crash leaves behind lies under the staging name and is never taken for the file.

    Raises:
        TransientError: ``CHANGED_MEANWHILE`` when the staging name is not new; what the store raises.
    """
    info = store.create(staged, content)
    if info is None:
        raise TransientError("CHANGED_MEANWHILE", f"{staged!r} is there already", way_out="another name is tried")
    if store.rename(staged, path, source_etag=info.etag) is RenameOutcome.DONE:
        return True
    store.delete(staged)
    return False


class FoundMarker(NamedTuple):
    """What is under the marker's name. *incarnation* is None and *etag* empty when nothing is there.

    An object that does not hold an id of ours has an ETag and no incarnation. *mirror* is empty where none is named.
    """

    incarnation: str | None
    etag: str
    mirror: str = ""


def read_marker(store: LandingZoneStore, folder: str) -> FoundMarker:
    """The marker of a table's folder: an id and the ETag of the very object that holds it."""
    found = store.read(f"{folder}/{layout.INCARNATION_FILE}")
    if found is None:
        return FoundMarker(None, "")
    incarnation, mirror = layout.incarnation_of(found.data)
    return FoundMarker(incarnation, found.etag, mirror)


def why_unsafe(path: str) -> str:
    """Why a path is not relative, plain and inside the zone; empty when it is."""
    if not path or path.startswith("/"):
        return "is not relative to the zone"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty, '.' or '..' part"
    if _UNPLAIN.search(path):
        return "contains a backslash or a control character"
    return ""
