"""Which store holds a landing zone, as a value that a worker can be given."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.store import LandingZoneStore


class ZoneAddress(NamedTuple):
    """Where a landing zone is. It names no secret: credentials come from the environment of whoever opens it."""

    store: Literal["local"]
    path: Path


def open_store(address: ZoneAddress) -> LandingZoneStore:
    """The store of a landing zone; its folder comes into being with the first object."""
    return LocalStore(address.path)
