"""Reads the marker that distinguishes one life of a table's folder from the next (I12)."""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.store import LandingZoneStore


class FoundMarker(NamedTuple):
    """What is under the marker's name. *incarnation* is None and *etag* empty when nothing is there.

    An object that does not hold an id of ours has an ETag and no incarnation.
    """

    incarnation: str | None
    etag: str


def read_marker(store: LandingZoneStore, folder: str) -> FoundMarker:
    """The marker of a table's folder: an id and the ETag of the very object that holds it."""
    found = store.read(f"{folder}/{layout.INCARNATION_FILE}")
    return FoundMarker(None, "") if found is None else FoundMarker(layout.incarnation_of(found.data), found.etag)
