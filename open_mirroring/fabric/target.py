"""Reads from Fabric the status of a mirrored database and its tables, with two calls for all tables.

No function of this module starts a stopped database (R-07, F-76). A reset has to know when a table is gone, and when it
is back (F-75). If status calls are not possible, a folder of Delta tables can show whether a table exists. Public
source: Microsoft Learn, *Fabric REST APIs: MirroredDatabase*.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple, Protocol

from open_mirroring.config import Mirror
from open_mirroring.config.landing_zone import is_guid
from open_mirroring.config.storage import place_of
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.api import FabricApi, MirroredDatabase
from open_mirroring.fabric.target_status import (
    DatabaseState,
    DatabaseStatus,
    TableMirroringStatus,
    TableMirrorState,
    TargetState,
    TargetStatus,
    entry_of,
    target_status,
)
from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, split_table_folder
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.opening import ZoneAddress
from open_mirroring.storage.object_path import Place

_LOOKS = 2
_PATIENCE_SECONDS = 15.0
"""The timeout of a status call; a later answer is of no use to the gate."""
_DELTA_LOG = "_delta_log"


class _Look(NamedTuple):
    """The result of one request for the status."""

    database: DatabaseStatus
    tables: list[TableMirroringStatus]


class FabricTarget:
    """The mirrored database of a landing zone in OneLake; safe to use from several threads."""

    def __init__(self, zone: OneLakeZone, api: FabricApi | None = None) -> None:
        self._zone = zone
        patience = min(zone.timeout_seconds, _PATIENCE_SECONDS)
        self._api = api or FabricApi(zone.fabric_endpoint, zone.login, patience)
        self._found: MirroredDatabase | None = None
        self._lock = threading.Lock()

    def statuses(self, folders: Iterable[str]) -> dict[str, TargetStatus]:
        """Return the status of the table of each landing zone folder, from one request for all tables (R-04).

        A request without an answer, or with a status word that is unknown here, is repeated once. If the second
        request has the same result, the status is ``UNKNOWN`` (R-02). If Fabric asks to wait, the request is not
        repeated. If Fabric refuses this login or this database, the status is ``REFUSED``.
        """
        look: _Look | None = None
        why = ""
        for _ in range(_LOOKS):
            try:
                look = self._look()
            except TerminalError as error:
                return dict.fromkeys(folders, TargetStatus(TargetState.REFUSED, f"{error.code}: {error.what}"))
            except TransientError as error:
                why = f"{error.code}: {error.what}"
                if error.code == "TARGET_BUSY":
                    break
                continue
            if look is None:
                why = "the API shows this login no such database"
            elif look.database.state is not DatabaseState.UNKNOWN and all(
                table.state is not TableMirrorState.UNKNOWN for table in look.tables
            ):
                break
        if look is None:
            return dict.fromkeys(folders, TargetStatus(TargetState.UNKNOWN, why))
        return {folder: target_status(look.database, entry_of(folder, look.tables)) for folder in folders}

    def prove(self) -> None:
        """Check that this login may request the status of the mirrored database.

        Raises ``PLACE_MISSING`` if the database does not exist, and the API's errors if Fabric refuses the request.
        """
        if self._look() is None:
            raise self._missing()

    def database(self) -> MirroredDatabase:
        """Return the mirrored database with its GUIDs. If the mirror file contains both GUIDs, no call is made.

        Raises ``PLACE_MISSING`` if workspace or database do not exist.
        """
        found = self._database()
        if found is None:
            raise self._missing()
        return found

    def _missing(self) -> TerminalError:
        return TerminalError(
            "PLACE_MISSING",
            "the Fabric API shows this login no such mirrored database",
            where=f"{self._zone.workspace}/{self._zone.item}",
            next_step="correct `landing_zone.workspace` and `landing_zone.item`, or let this identity see the item",
        )

    def sees(self, folder: str) -> bool | None:
        """Whether Fabric lists the table of this landing zone folder; None if that is unknown.

        The result is None if Fabric does not answer or shows no such database, or if the database is neither running
        nor initialized. Raises the API's error if Fabric refuses the request.
        """
        try:
            look = self._look()
        except TransientError:
            return None
        if look is None or look.database.state not in (DatabaseState.RUNNING, DatabaseState.INITIALIZED):
            return None
        return entry_of(folder, look.tables) is not None

    def _look(self) -> _Look | None:
        """One call for the database, one (in pages) for all its tables; None when there is no such database."""
        database = self._database()
        if database is None:
            return None
        try:
            return _Look(self._api.status(database), self._api.table_statuses(database))
        except TerminalError:
            with self._lock:
                self._found = None  # re-created under its name, it has another GUID
            raise

    def _database(self) -> MirroredDatabase | None:
        """The database by its GUID. A name is resolved once per process."""
        with self._lock:
            if self._found is None:
                self._found = self._find()
            return self._found

    def _find(self) -> MirroredDatabase | None:
        workspace, item = self._zone.workspace, self._zone.item
        if is_guid(workspace):
            return MirroredDatabase(workspace, item, item)
        identity = self._api.find_workspace(workspace)
        return None if identity is None else self._api.find_database(identity, item.rpartition(".")[0])


@lru_cache(maxsize=16)
def open_target(zone: OneLakeZone) -> FabricTarget:
    """Return the target of a landing zone.

    A process has one target object for each landing zone, so that all callers share connections, tokens and retry
    budget.
    """
    return FabricTarget(zone)


class TargetWatch(Protocol):
    """The interface for asking whether the target has a table."""

    def sees(self, folder: str) -> bool | None:
        """Whether the target has the table of this landing zone folder; None if that is unknown."""
        ...


class TablesFolder:
    """Shows whether the target has a table, from the Delta tables in a folder or in object storage.

    The Delta table of a table is at ``<schema>/<table>``. A single answer False may come from a table that Fabric is
    replacing at that moment, so callers ask twice.
    """

    def __init__(self, root: Place) -> None:
        self._root = root

    def sees(self, folder: str) -> bool | None:
        """Whether the Delta table exists; None if the folder with the Delta tables of all tables does not exist."""
        if not self._root.is_dir():
            return None
        schema, table = split_table_folder(folder)
        # A table without schema is in the default one, or at the top level if there are no schemas (F-03).
        places = [self._root / DEFAULT_SCHEMA, self._root] if schema is None else [self._root / schema]
        return any((place / table / _DELTA_LOG).is_dir() for place in places)


class NoWatch:
    """Stands for a target whose tables cannot be seen: :meth:`sees` always returns None.

    So an operator must confirm which tables the target has.
    """

    def sees(self, folder: str) -> bool | None:
        return None


def target_watch(mirror: Mirror, zone: ZoneAddress) -> TargetWatch:
    """Choose how the target's tables are seen: in a folder of Delta tables, by status calls, or not at all.

    The folder counts if the mirror file names one. Otherwise status calls are used, unless the landing zone is local or
    the mirror file switches status calls off.
    """
    tables = mirror.landing_zone.tables
    if tables is not None:
        return TablesFolder(place_of(mirror, tables))
    return open_target(zone) if isinstance(zone, OneLakeZone) and mirror.asks_status else NoWatch()
