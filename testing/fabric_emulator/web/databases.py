"""The mirrored databases of an emulator, by workspace and item."""

from __future__ import annotations

import json
import shutil
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from fabric_emulator.service import MirroringService
from fabric_emulator.settings import Settings
from fabric_emulator.state import write_if_changed
from fabric_emulator.table_mirror import Applied
from fabric_emulator.web.item_paths import SUFFIX, ItemFolders, is_guid, item_named
from fabric_emulator.web.messages import ApiError
from fabric_emulator.web.uploads import HIDDEN

WORKSPACE = "emulator"
DATABASE = "mirror"
_NAMESPACE = uuid.UUID("6f70656e-6d69-7272-6f72-696e67000000")
_DOCUMENT = "_item.json"
_MORE = "_databases"


class MirroredDatabase:
    """One item of a workspace: its names, its definition, its folders and the service that mirrors it.

    Args:
        name: display name, without the suffix of its type.
        landing_zone: the folder of ``Files/LandingZone``; created when missing.
        tables: the folder of ``Tables``; created when missing.
        now: the emulator's time in seconds since 1970.
        definition: the document ``mirroring.json`` (R-05), None without one.
    """

    def __init__(
        self,
        name: str,
        landing_zone: Path,
        tables: Path,
        settings: Settings,
        now: Callable[[], float],
        *,
        description: str,
        definition: dict[str, Any] | None,
        identity: str,
    ) -> None:
        self.name = name
        self.identity = identity
        self.description = description
        self._definition = definition
        self._settings = settings
        self._now = now
        self._passing: tuple[str, float] | None = None
        self.folders = ItemFolders(landing_zone, tables, tables / "_monitoring", tables / "_files")
        for folder in (landing_zone, tables, self.folders.monitoring, self.folders.files):
            folder.mkdir(parents=True, exist_ok=True)
        for folder in (landing_zone, self.folders.files):  # remains of an earlier emulator
            shutil.rmtree(folder / HIDDEN, ignore_errors=True)
        self.service = self._new_service()

    @property
    def definition(self) -> dict[str, Any] | None:
        """The document ``mirroring.json``; its default schema is the service's (F-03)."""
        return self._definition

    @definition.setter
    def definition(self, document: dict[str, Any]) -> None:
        self._definition = document
        self.service = self._new_service()
        self.save()

    def save(self) -> None:
        """Store names and definition for the next emulator on the same folders."""
        document = {
            "name": self.name,
            "identity": self.identity,
            "description": self.description,
            "definition": self._definition,
        }
        write_if_changed(self.folders.tables / _DOCUMENT, json.dumps(document, ensure_ascii=False, indent=1))

    @property
    def default_schema(self) -> str:
        """Schema of table folders without a schema level."""
        return default_schema_in(self._definition) or self._settings.default_schema

    def _new_service(self) -> MirroringService:
        settings = replace(self._settings, default_schema=self.default_schema)
        return MirroringService(self.folders.zone, self.folders.tables, settings=settings, clock=self._now)

    def status(self) -> str:
        """The status in ``getMirroringStatus``: the service's, or a temporary one."""
        if self._passing is not None and self._now() < self._passing[1]:
            return self._passing[0]
        return self.service.database_status()

    def pass_through(self, status: str, seconds: float) -> None:
        """Show a temporary status (``Initializing``, ``Starting``, ``Stopping``) for some time."""
        self._passing = (status, self._now() + seconds)

    def poll(self) -> list[Applied]:
        """Let the service poll, unless there is a temporary status."""
        return self.service.poll() if self.status() == "Running" else []

    def store_name(self, *, guid: bool) -> str:
        """The item's folder in the store: its GUID, or its name with the suffix of its type (O-01)."""
        return self.identity if guid else f"{self.name}{SUFFIX}"


class Databases:
    """One workspace and its databases; safe to call from several threads."""

    def __init__(
        self,
        workspace: str,
        landing_zone: Path,
        tables: Path,
        settings: Settings,
        now: Callable[[], float],
    ) -> None:
        self.workspace = workspace
        self.workspace_id = guid_of(f"workspace/{workspace}")
        self._first = _Folders(landing_zone, tables)
        self._settings = settings
        self._now = now
        self._lock = threading.RLock()
        self._databases: dict[str, MirroredDatabase] = {}
        more = tables / _MORE
        for folders in [self._first, *(_Folders.below(more, found.parent) for found in more.glob("*/tables"))]:
            if (document := folders.tables / _DOCUMENT).exists():
                self._open(folders, **json.loads(document.read_text()))

    def create(self, name: str, description: str = "", definition: dict[str, Any] | None = None) -> MirroredDatabase:
        """A new database; the first one gets the emulator's own folders."""
        with self._lock:
            if any(database.name.casefold() == name.casefold() for database in self.all()):
                raise ApiError(409, "ItemDisplayNameAlreadyInUse", f"There is an item {name!r} already.")
            identity = guid_of(f"database/{name}")
            if identity in self._databases:  # one that has another name now
                identity = str(uuid.uuid4())
            folders = self._first
            if any(database.folders.zone == folders.zone for database in self.all()):
                folders = _Folders.below(self._first.tables / _MORE, identity)
            database = self._open(folders, name, identity, description, definition)
            database.save()
            return database

    def rename(self, database: MirroredDatabase, name: str, description: str) -> None:
        """Change the name and description of a database; its GUID and its folders stay."""
        with self._lock:
            database.name, database.description = name, description
            database.save()

    def delete(self, database: MirroredDatabase) -> None:
        """Remove a database with its folders."""
        with self._lock:
            del self._databases[database.identity]
            shutil.rmtree(database.folders.zone)
            for child in database.folders.tables.iterdir():
                if child.is_file():
                    child.unlink()
                elif child.name != _MORE:
                    shutil.rmtree(child)

    def all(self) -> list[MirroredDatabase]:
        """The databases, sorted by name."""
        with self._lock:
            return sorted(self._databases.values(), key=lambda database: database.name)

    def check_workspace(self, name: str) -> None:
        """Refuse another workspace."""
        if name.casefold() not in (self.workspace.casefold(), self.workspace_id):
            raise ApiError(404, "FilesystemNotFound", f"The specified filesystem does not exist: {name}.")

    def find(self, workspace: str, item: str) -> MirroredDatabase:
        """The database in a store path (O-01)."""
        self.check_workspace(workspace)
        if is_guid(workspace) != is_guid(item):
            raise ApiError(
                400, "FriendlyNameSupportDisabled", "Workspace and item must both be GUIDs, or both be names (O-01)."
            )
        for database in self.all():
            if item.casefold() == database.identity or item_named(item, database.name):
                return database
        raise ApiError(404, "PathNotFound", f"The specified item does not exist: {item}.")

    def _open(
        self, folders: _Folders, name: str, identity: str, description: str, definition: dict[str, Any] | None
    ) -> MirroredDatabase:
        database = MirroredDatabase(
            name,
            *folders,
            self._settings,
            self._now,
            description=description,
            definition=definition,
            identity=identity,
        )
        self._databases[database.identity] = database
        return database


class _Folders(NamedTuple):
    zone: Path
    tables: Path

    @classmethod
    def below(cls, root: Path, identity: str | Path) -> _Folders:
        return cls(root / identity / "zone", root / identity / "tables")


def generic_definition(default_schema: str = "dbo") -> dict[str, Any]:
    """The ``mirroring.json`` of an open mirrored database (R-05)."""
    target = {"defaultSchema": default_schema, "format": "Delta"}
    return {
        "properties": {
            "source": {"type": "GenericMirror", "typeProperties": {}},
            "target": {"type": "MountedRelationalDatabase", "typeProperties": target},
        }
    }


def default_schema_in(definition: dict[str, Any] | None) -> str | None:
    """The default schema in a ``mirroring.json``; None when the service decides."""
    target = (definition or {}).get("properties", {}).get("target", {}).get("typeProperties", {})
    found = target.get("defaultSchema")
    return None if found is None else str(found)


def guid_of(name: str) -> str:
    """A GUID that is the same for the same name."""
    return str(uuid.uuid5(_NAMESPACE, name.casefold()))
