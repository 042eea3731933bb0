"""Files that transports read: which there are, and opening one that was bound."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from open_mirroring.errors import TerminalError

MAX_RAW = 2**20
"""How much of a damaged file a dead letter keeps."""


class SourceFile(NamedTuple):
    """A file to read: its name relative to the root, with ``/`` between parts, and its size in bytes when listed."""

    name: str
    size: int


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
            size = path.stat().st_size
            if not ending.endswith(suffixes):
                unknown.append(SourceFile(relative, size))
            elif size:
                files.append(SourceFile(relative, size))
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
