"""Defines the address of a landing zone as a value that can be sent to workers, and opens the storage at an address."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from open_mirroring.landing_zone.local_store import LocalStore
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.onelake_store import OneLakeStore
from open_mirroring.landing_zone.store import LandingZoneStore


class LocalZone(NamedTuple):
    """The address of a landing zone in a local folder."""

    path: Path


ZoneAddress = LocalZone | OneLakeZone
"""The address of a landing zone.

It may contain secrets, so workers get it in the function they run, never in the data of a job."""


def open_store(address: ZoneAddress) -> LandingZoneStore:
    """Return the storage of the landing zone at an address.

    For OneLake, a process has one storage object for each zone, so that all callers share connections, tokens and the
    retry budget.
    """
    return _onelake_store(address) if isinstance(address, OneLakeZone) else LocalStore(address.path)


@lru_cache(maxsize=16)
def _onelake_store(zone: OneLakeZone) -> OneLakeStore:
    return OneLakeStore(zone)
