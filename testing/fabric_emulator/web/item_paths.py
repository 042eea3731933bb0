"""Maps ``<workspace>/<item>/<path>`` to a path in the local folders.

O-01 (Microsoft Learn): the first folder below a workspace is an item; names with type suffix or both GUIDs, never
mixed. O-03: the item and its ``Files`` and ``Tables`` are fixed; below ``Files`` everything may be written, the
mirrored ``Tables`` only read.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fabric_emulator.web.messages import ApiError
from fabric_emulator.web.uploads import HIDDEN

SUFFIX = ".MirroredDatabase"


@dataclass(frozen=True)
class ItemFolders:
    """The local folders of one mirrored database.

    *zone* is ``Files/LandingZone``, *monitoring* ``Files/Monitoring``, *files* other ``Files``, *tables* ``Tables``.
    """

    zone: Path
    tables: Path
    monitoring: Path
    files: Path


class ItemPath(NamedTuple):
    """The local place of a path in an item.

    *local* is None for a folder that exists by definition without a local folder; *root* is the tree that contains
    *local*.
    """

    local: Path | None
    root: Path
    writable: bool


def split_path(path: str) -> list[str]:
    """The names of a path."""
    names = [name for name in path.split("/") if name]
    for name in names:
        if name in (".", "..", HIDDEN) or "\0" in name or "\\" in name:
            raise ApiError(400, "InvalidUri", f"The requested URI does not represent any resource: {name!r}.")
        if len(name.encode()) > 255:
            raise ApiError(400, "InvalidResourceName", "A name of the path is longer than 255 bytes.")
    return names


def place_of(folders: ItemFolders, names: list[str]) -> ItemPath:
    """The local place of ``<names>`` inside an item."""
    match names:
        case []:
            return ItemPath(None, folders.files, writable=False)
        case ["Files"]:
            return ItemPath(folders.files, folders.files, writable=False)
        case ["Tables", *rest]:
            if rest and rest[0].startswith("_"):  # the emulator's own folders next to the tables
                raise path_not_found()
            return ItemPath(folders.tables.joinpath(*rest), folders.tables, writable=False)
        case ["Files", "Monitoring", *rest]:
            return ItemPath(folders.monitoring.joinpath(*rest), folders.monitoring, writable=False)
        case ["Files", "LandingZone", *rest]:
            return ItemPath(folders.zone.joinpath(*rest), folders.zone, writable=True)
        case ["Files", *rest]:
            return ItemPath(folders.files.joinpath(*rest), folders.files, writable=True)
    raise path_not_found()


def path_not_found() -> ApiError:
    """The answer for a missing path."""
    return ApiError(404, "PathNotFound", "The specified path does not exist.")


def is_guid(name: str) -> bool:
    """Whether a name is a GUID in its usual form."""
    try:
        return str(uuid.UUID(name)) == name.casefold()
    except ValueError:
        return False


def item_named(name: str, display_name: str) -> bool:
    """Whether *name* is ``<display name>.MirroredDatabase`` (O-01; the suffix in any case, assumed)."""
    return name.casefold() == f"{display_name}{SUFFIX}".casefold()
