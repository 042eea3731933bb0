"""Says which store holds a landing zone, as a value that can be sent to a worker, and opens that store."""

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
"""Where a landing zone is. It may hold secrets: it goes to workers in the function they run, never in their data."""


def open_store(address: ZoneAddress) -> LandingZoneStore:
    """The store of a landing zone; its folder comes into being with the first object.

    A process has one store for each zone in OneLake, so that connections, tokens and the budget of repetitions are
    shared.
    """
    return _onelake_store(address) if isinstance(address, OneLakeZone) else LocalStore(address.path)


@lru_cache(maxsize=16)
def _onelake_store(zone: OneLakeZone) -> OneLakeStore:
    return OneLakeStore(zone)
