"""Groups the objects of a landing zone by table, and determines whether each is staged, published or applied."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from open_mirroring.landing_zone.layout import (
    PARQUET,
    PROCESSED_FOLDER,
    PROCESSED_FOLDERS,
    READY_TO_DELETE_FOLDER,
    file_number,
    staging_folder,
)
from open_mirroring.landing_zone.store import LandingZoneStore, ObjectInfo


class FileStage(Enum):
    """How far a file has come: staged, published, or applied by Fabric.

    A data file never goes back to an earlier stage.
    """

    STAGING = "staging"
    FINAL = "final"
    PROCESSED = PROCESSED_FOLDER
    READY_TO_DELETE = READY_TO_DELETE_FOLDER
    FOREIGN = "foreign"
    """Not ours, but visible to the service: in the table's folder, without underscore, and not a numbered data file."""


class ListedItem(NamedTuple):
    """One object in the folders of a table.

    *name* is the file name; for a foreign object, the path inside the table's folder.
    """

    name: str
    stage: FileStage
    size: int
    etag: str
    extension: str = PARQUET

    @property
    def number(self) -> int | None:
        """The number of a data file; None for staged files and foreign objects."""
        return None if self.stage in (FileStage.STAGING, FileStage.FOREIGN) else file_number(self.name, self.extension)


def list_tables(
    store: LandingZoneStore, folders: Iterable[str], *, processed: bool = True
) -> dict[str, dict[str, ObjectInfo]]:
    """Return the objects by table folder and path, from one listing of the landing zone (F-36).

    If *processed* is not set, a local folder is listed without its folders of processed files. Then the listing does
    not grow with the files that Fabric applied in the last days.
    """
    found: dict[str, dict[str, ObjectInfo]] = {folder: {} for folder in folders}
    for info in store.list("", () if processed else PROCESSED_FOLDERS):
        first, _, rest = info.path.partition("/")
        inside = rest if first in PROCESSED_FOLDERS else info.path
        parts = inside.split("/", 2)
        # The folder of a table has one part, or two with a schema (F-03).
        for folder in ("/".join(parts[:2]), parts[0]):
            if folder in found:
                found[folder][info.path] = info
                break
    return found


def split_listing(
    folder: str, objects: Iterable[ObjectInfo], generation: int, extension: str = PARQUET
) -> tuple[ListedItem, ...]:
    """Sort the listed objects of the table at *folder* into staged, published, applied and foreign objects.

    Data files have the table's *extension*; a numbered file with another extension is foreign. Processed folders are
    searched inside the table's folder and at the zone's root (F-36). Names that begin with an underscore are left out,
    except staged files of this *generation* (F-05).
    """
    staging = f"{staging_folder(folder, generation)}/"
    items = (_item(folder, staging, info, extension) for info in objects)
    return tuple(item for item in items if item is not None)


def _item(folder: str, staging: str, info: ObjectInfo, extension: str) -> ListedItem | None:
    name = info.path.rpartition("/")[2]
    for processed in PROCESSED_FOLDERS:
        if info.path.startswith((f"{folder}/{processed}/", f"{processed}/{folder}/")):
            numbered = file_number(name, extension)
            return ListedItem(name, FileStage(processed), info.size, info.etag, extension) if numbered else None
    if info.path.startswith(staging):
        return ListedItem(name, FileStage.STAGING, info.size, info.etag, extension)
    inside = info.path.removeprefix(f"{folder}/")
    if inside == info.path or inside.startswith("_"):
        return None
    stage = FileStage.FINAL if file_number(inside, extension) else FileStage.FOREIGN
    return ListedItem(inside, stage, info.size, info.etag, extension)
