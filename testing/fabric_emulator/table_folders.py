"""Finds tables and their files in a landing zone.

Rules: F-02, F-03 folders; F-04 a new folder is a new table; F-05 underscore names are ignored; F-31 numbered names
(Microsoft Learn: landing zone format and best practices).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from open_mirroring.landing_zone.layout import file_number

_SCHEMA_SUFFIX = ".schema"


class TableFolder(NamedTuple):
    """One table of the zone: *name* is its folder relative to the zone, *schema* None without a schema level."""

    name: str
    path: Path
    schema: str | None
    table: str


def table_folders(zone: Path) -> list[TableFolder]:
    """All table folders of the zone in order of their names, with or without a schema level.

    Raises:
        FileNotFoundError: the zone itself does not exist.
    """
    found: list[TableFolder] = []
    for child in _folders(zone):
        if not child.name.casefold().endswith(_SCHEMA_SUFFIX):
            found.append(TableFolder(child.name, child, None, child.name))
            continue
        schema = child.name[: -len(_SCHEMA_SUFFIX)]
        try:
            below = list(_folders(child))
        except FileNotFoundError:  # deleted since it was listed, with its tables
            continue
        found += [TableFolder(f"{child.name}/{t.name}", t, schema, t.name) for t in below if schema]
    return sorted(found)


def numbered_files(folder: Path, extension: str) -> dict[int, Path]:
    """The data files directly in a folder, by number; nothing when there is no such folder.

    Other names are not data (F-31): staged objects, files of another extension and part files of Spark are skipped.
    """
    try:
        entries = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    numbers = ((_number(entry.name, extension), entry) for entry in entries)
    return {number: entry for number, entry in numbers if number is not None and entry.is_file()}


def timed_files(folder: Path, extension: str, taken: Sequence[str]) -> dict[int, Path]:
    """The data files of a folder by their places in the order of their times (F-43), after those *taken* before.

    Names are free except for a leading underscore. Files of the same time have no order (assumed: by name).
    """
    try:
        entries = [entry for entry in folder.iterdir() if entry.name.endswith(f".{extension}")]
        times = {entry: entry.stat().st_mtime_ns for entry in entries if entry.name[0] != "_" and entry.is_file()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    known = {name: number for number, name in enumerate(taken, 1)}
    new = sorted((time, entry.name, entry) for entry, time in times.items() if entry.name not in known)
    there = {known[entry.name]: entry for entry in times if entry.name in known}
    return there | {number: entry for number, (*_, entry) in enumerate(new, len(taken) + 1)}


def _number(name: str, extension: str) -> int | None:
    stem, _, ending = name.rpartition(".")
    return file_number(f"{stem}.parquet") if ending == extension else None


def _folders(parent: Path) -> Iterator[Path]:
    for child in parent.iterdir():
        if not child.name.startswith("_") and child.is_dir():
            yield child
