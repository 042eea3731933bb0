"""Files that transports read: which there are, and opening one that was bound."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from open_mirroring.errors import TerminalError
from open_mirroring.ledger.extract_ledger import BoundRange, FileVersion

MAX_RAW = 2**20
"""How much of a damaged file a dead letter keeps."""
_LOOKED_AT = 2**16


class SourceFile(NamedTuple):
    """A file as it was listed.

    Args:
        name: its name relative to the root, with ``/`` between parts.
        size: in bytes.
        version: another text whenever it may have been written to.
    """

    name: str
    size: int
    version: str = ""

    @classmethod
    def of(cls, path: Path, name: str) -> SourceFile:
        """The file as it is now."""
        found = path.stat()
        return cls(name, found.st_size, f"{found.st_size}:{found.st_mtime_ns}")


UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".filepart", ".inprogress", ".crdownload", ".swp", "~")
"""How the names of files end that a copying program is still writing: it gives them their own names when it is done."""


class Listing(NamedTuple):
    """Files in the order of their names.

    Args:
        files: those to read.
        waiting: those without a byte yet, which may be filled later.
        unknown: those whose ending says nothing that is read here. Whoever lists a source has to tell of them.
    """

    files: list[SourceFile]
    waiting: list[str]
    unknown: Sequence[SourceFile] = ()


def list_source_files(root: Path, suffixes: tuple[str, ...]) -> Listing:
    """All files below a folder, those to read being the ones whose names end in one of *suffixes*, in any case.

    A name with a part that begins with a dot or an underscore is hidden, and one that ends as in :data:`UNFINISHED` is
    still being written: neither is listed.

    Raises:
        TerminalError: ``SOURCE_FOLDER_MISSING``.
    """
    if not root.is_dir():
        raise TerminalError(
            "SOURCE_FOLDER_MISSING",
            f"the folder {str(root)!r} does not exist",
            way_out="correct `source.path` in the mirror file, or mount the storage",
        )
    files, waiting, unknown = [], [], []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name[0] not in "._"]
        for name in names:
            ending = name.casefold()
            if name[0] in "._" or ending.endswith(UNFINISHED):
                continue
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            file = SourceFile.of(path, relative)
            if not ending.endswith(suffixes):
                unknown.append(file)
            elif file.size:
                files.append(file)
            else:
                waiting.append(relative)
    return Listing(sorted(files), sorted(waiting), sorted(unknown))


def bound_so_far(where: Path, name: str, size: int, bound: Mapping[str, int]) -> int:
    """Up to where a file is bound that now has *size* bytes.

    Raises:
        TerminalError: ``SOURCE_SHRUNK`` when it is shorter than that.
    """
    start = bound.get(name, 0)
    if size < start:
        raise TerminalError(
            "SOURCE_SHRUNK",
            f"{name!r} has {size} bytes, but {start} were bound of it",
            where=str(where),
            way_out="source files are append-only; restore the file, or move it away and deliver under a new name",
        )
    return start


def is_rewritten(root: Path, file: SourceFile, start: int, seen: Mapping[str, FileVersion] | None) -> bool:
    """Whether what was bound of a file, up to byte *start*, is not what stands there now (G-32).

    Only a file whose version is not the one *seen* is looked into.

    Raises:
        TerminalError: ``SOURCE_FILE_MISSING``.
    """
    known = (seen or {}).get(file.name)
    return known is not None and known.version != file.version and known.digest != _digest(root / file.name, start)


def versions_of(
    root: Path,
    files: Iterable[SourceFile],
    bound: Mapping[str, int],
    ranges: Iterable[BoundRange],
    seen: Mapping[str, FileVersion] | None,
) -> dict[str, FileVersion]:
    """What is to be remembered of files that are bound, or will be with *ranges*; nothing where *seen* is None.

    Raises:
        TerminalError: ``SOURCE_FILE_MISSING``.
    """
    if seen is None:
        return {}
    new = {one.name: one.end for one in ranges}
    ends = {**bound, **new}
    changed = (f for f in files if f.name in new or (f.name in bound and seen.get(f.name, ("",))[0] != f.version))
    return {f.name: FileVersion(f.version, _digest(root / f.name, ends[f.name])) for f in changed}


def gone_unread(
    files: Iterable[SourceFile], bound: Mapping[str, int], seen: Mapping[str, FileVersion] | None
) -> list[BoundRange]:
    """Of files that are gone and held more when they were seen last than was bound of them, an empty range each."""
    there = {file.name for file in files}
    gone = (name for name in (seen or {}).keys() - there if size_of((seen or {})[name]) > bound[name])
    return [BoundRange(name, bound[name], bound[name]) for name in sorted(gone)]


def size_of(seen: FileVersion) -> int:
    """The bytes of a file when it was seen."""
    return int(seen.version.partition(":")[0])


def _digest(path: Path, size: int) -> str:
    """Of the first *size* bytes their beginning and end: so many that writing a file anew changes them."""
    with open_source(path) as file:
        digest = hashlib.sha256(file.read(min(size, _LOOKED_AT)))
        file.seek(max(0, size - _LOOKED_AT))
        digest.update(file.read(min(size, _LOOKED_AT)))
    return digest.hexdigest()


def open_source(path: Path) -> IO[bytes]:
    """A bound file, opened for reading.

    Raises:
        TerminalError: ``SOURCE_FILE_MISSING``.
    """
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise TerminalError(
            "SOURCE_FILE_MISSING",
            f"the file {str(path)!r} was bound and is not there any more",
            way_out="restore the file: a bound range must stay readable until its batch is committed",
        ) from error
