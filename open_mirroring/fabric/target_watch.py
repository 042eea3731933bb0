"""Looks whether a table is at the target. A reset waits for that before and after it rebuilds the table (F-75)."""

from __future__ import annotations

from typing import Protocol

from open_mirroring.config import Mirror
from open_mirroring.config.storage import folder_place
from open_mirroring.fabric.target import open_target
from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, split_table_folder
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.storage.object_path import Place

_DELTA_LOG = "_delta_log"


class TargetWatch(Protocol):
    """Answers whether the target has a table."""

    def sees(self, folder: str) -> bool | None:
        """Whether the table of this landing zone folder is at the target; None when that is not known."""
        ...


class TablesFolder:
    """The target's tables as Delta tables in a folder or in object storage, at ``<schema>/<table>``.

    A table that is not seen once may be between two looks of the service: callers look twice.
    """

    def __init__(self, root: Place) -> None:
        self._root = root

    def sees(self, folder: str) -> bool | None:
        """Whether there is a Delta table; None when the folder of all tables is not there."""
        if not self._root.is_dir():
            return None
        schema, table = split_table_folder(folder)
        # A table without schema comes into the default one, or lies at the top where there are no schemas (F-03).
        places = [self._root / DEFAULT_SCHEMA, self._root] if schema is None else [self._root / schema]
        return any((place / table / _DELTA_LOG).is_dir() for place in places)


class NoWatch:
    """The watch where neither tables nor status calls can be read: an operator has to say what the target has."""

    def sees(self, folder: str) -> bool | None:
        """Always None: it is not known."""
        return None


def target_watch(mirror: Mirror, zone: ZoneAddress) -> TargetWatch:
    """The watch that a mirror allows: the folder of tables that its file names, else the target's status calls."""
    tables = mirror.landing_zone.tables
    if tables is not None:
        return TablesFolder(folder_place(mirror, tables))
    return open_target(zone) if isinstance(zone, OneLakeZone) and mirror.asks_status else NoWatch()
