"""The address of a landing zone, as a value for workers, and the store that belongs to it."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import LandingZoneStore


class LocalZone(NamedTuple):
    """A landing zone in a local folder."""

    path: Path


ZoneAddress = LocalZone | OneLakeZone
"""The address of a landing zone. It may hold secrets, so workers get it in the function they run, never in their data.
"""


def open_store(address: ZoneAddress) -> LandingZoneStore:
    """The store of a landing zone; its folder is created with the first object.

    A process has one store per zone in OneLake: connections, tokens and the retry budget are shared.
    """
    return _onelake_store(address) if isinstance(address, OneLakeZone) else LocalStore(address.path)


@lru_cache(maxsize=16)
def _onelake_store(zone: OneLakeZone) -> OneLakeStore:
    return OneLakeStore(zone)
