"""The marker that tells one life of a table's folder from the next, as it lies in a store (I12)."""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.errors import TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.store import LandingZoneStore

_LOOKS = 3


class FoundMarker(NamedTuple):
    """What is under the marker's name. *incarnation* is None and *etag* empty when nothing is there.

    An object that does not hold an id of ours has an ETag and no incarnation.
    """

    incarnation: str | None
    etag: str


def read_marker(store: LandingZoneStore, folder: str) -> FoundMarker:
    """The marker of a table's folder: an id and the ETag of the very object that holds it.

    Raises:
        TransientError: ``MARKER_MOVED`` when the object kept changing while it was read.
    """
    path = f"{folder}/{layout.INCARNATION_FILE}"
    for _ in range(_LOOKS):
        before = store.stat(path)
        content = store.read(path)
        # The store offers no read that tells the ETag: content and ETag belong together when both sides agree.
        if before != store.stat(path) or (before is None) != (content is None):
            continue
        if before is None or content is None:
            return FoundMarker(None, "")
        return FoundMarker(layout.incarnation_of(content), before.etag)
    raise TransientError("MARKER_MOVED", f"{path!r} changed while it was read", way_out="it is read again")
