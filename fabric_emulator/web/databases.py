"""The mirrored databases that an emulator holds, by workspace and item."""

from __future__ import annotations

import uuid
from pathlib import Path

from fabric_emulator.service import MirroringService
from fabric_emulator.settings import Settings
from fabric_emulator.web.item_paths import SUFFIX, ItemFolders, is_guid, item_named
from fabric_emulator.web.messages import ApiError

WORKSPACE = "emulator"
DATABASE = "mirror"
_NAMESPACE = uuid.UUID("6f70656e-6d69-7272-6f72-696e67000000")


class MirroredDatabase:
    """One item of a workspace: its names, its folders and the service that mirrors it.

    Args:
        name: display name, without the suffix of its type.
        landing_zone: the folder behind ``Files/LandingZone``; comes into being.
        tables: the folder behind ``Tables``; comes into being.
        settings: the switches of the service.
        identity: GUID; by default the same for the same name.
    """

    def __init__(
        self,
        name: str,
        landing_zone: Path,
        tables: Path,
        settings: Settings | None = None,
        identity: str | None = None,
    ) -> None:
        self.name = name
        self.identity = identity or guid_of(f"database/{name}")
        landing_zone.mkdir(parents=True, exist_ok=True)
        tables.mkdir(parents=True, exist_ok=True)
        self.folders = ItemFolders(landing_zone, tables, tables / "_monitoring", tables / "_files")
        self.folders.files.mkdir(exist_ok=True)
        self.service = MirroringService(landing_zone, tables, settings=settings)

    def store_name(self, *, guid: bool) -> str:
        """The item's folder in the store: its GUID, or its name with the suffix of its type (O-01)."""
        return self.identity if guid else f"{self.name}{SUFFIX}"


class Databases:
    """One workspace and the databases in it.

    Args:
        workspace: display name of the workspace; its GUID follows from it.
    """

    def __init__(self, workspace: str = WORKSPACE) -> None:
        self.workspace = workspace
        self.workspace_id = guid_of(f"workspace/{workspace}")
        self._databases: dict[str, MirroredDatabase] = {}

    def add(self, database: MirroredDatabase) -> None:
        """Take a database into the workspace."""
        self._databases[database.identity] = database

    def all(self) -> list[MirroredDatabase]:
        """The databases in order of their names."""
        return sorted(self._databases.values(), key=lambda database: database.name)

    def check_workspace(self, name: str) -> None:
        """Refuse another workspace.

        Raises:
            ApiError: 404 ``FilesystemNotFound``.
        """
        if name.casefold() not in (self.workspace.casefold(), self.workspace_id):
            raise ApiError(404, "FilesystemNotFound", f"The specified filesystem does not exist: {name}.")

    def find(self, workspace: str, item: str) -> MirroredDatabase:
        """The database that a store path names (O-01).

        Raises:
            ApiError: 404 when there is none; 400 when one is a GUID and the other a name (the code is assumed).
        """
        self.check_workspace(workspace)
        if is_guid(workspace) != is_guid(item):
            raise ApiError(
                400, "FriendlyNameSupportDisabled", "Workspace and item must both be GUIDs, or both be names (O-01)."
            )
        for database in self.all():
            if item.casefold() == database.identity or item_named(item, database.name):
                return database
        raise ApiError(404, "PathNotFound", f"The specified item does not exist: {item}.")


def guid_of(name: str) -> str:
    """A GUID that is the same for the same name."""
    return str(uuid.uuid5(_NAMESPACE, name))
