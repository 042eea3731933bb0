"""Looking at the target: is a table there? What a reset waits for before and after it builds a table anew (F-75)."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from open_mirroring.config import Mirror

_DEFAULT_SCHEMA = "dbo"
_DELTA_LOG = "_delta_log"


class TargetWatch(Protocol):
    """What can tell whether the target has a table."""

    def sees(self, folder: str) -> bool | None:
        """Whether the table of this landing zone folder is at the target; None when that cannot be told."""
        ...


class TablesFolder:
    """The target's tables as Delta tables in a folder, at ``<schema>/<table>``.

    A table that is not seen once may be between two looks of the service: callers look twice.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def sees(self, folder: str) -> bool | None:
        """Whether there is a Delta table; None when the folder of all tables is not there."""
        if not self._root.is_dir():
            return None
        schema, _, table = folder.rpartition("/")
        # A table without schema comes into the default one, or lies at the top where there are no schemas (F-03).
        places = [schema.removesuffix(".schema")] if schema else [_DEFAULT_SCHEMA, "."]
        return any((self._root / place / table / _DELTA_LOG).is_dir() for place in places)


class NoWatch:
    """Nothing tells what the target has: an operator has to."""

    def sees(self, folder: str) -> bool | None:
        """Nobody knows."""
        return None


def target_watch(mirror: Mirror) -> TargetWatch:
    """What the mirror file says can be looked at."""
    tables = mirror.landing_zone.tables
    return NoWatch() if tables is None else TablesFolder(mirror.resolve(tables))
