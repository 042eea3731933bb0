"""Walks through the folders of a source or an export, equally on disks and in object storage (G-62)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from open_mirroring.errors import TerminalError
from open_mirroring.storage.object_path import ObjectPath, Place
from open_mirroring.storage.object_store import ObjectStat

_OF_TOOLS = (
    *("_delta_log", "_spark_metadata", "__macosx", ".appledouble", ".git", ".hg", ".svn", ".idea", ".vscode"),
    *(".ipynb_checkpoints", ".snapshot", ".snapshots", ".trash", ".trashes"),
)
"""Folders that tools keep for themselves. They contain nothing of a source, though some names look like it."""
_VISIBLE, _LINKED, _HIDDEN = range(3)
_KINDS = {stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}


class SourceFile(NamedTuple):
    """A file as it was listed.

    *unread* is why the file cannot be read; empty if it can. *version* changes if the file may have been written.
    """

    name: str
    size: int
    version: str = ""
    unread: str = ""

    @classmethod
    def of(cls, path: Place, name: str) -> SourceFile:
        """The current state of the file *path*, under the name *name*."""
        if isinstance(path, ObjectPath):
            known = path.stat()
            return cls(name, known.st_size, known.version)
        return cls.found(name, path.stat())

    @classmethod
    def found(cls, name: str, status: os.stat_result) -> SourceFile:
        """A file on a disk, from its *status*."""
        return cls(name, status.st_size, f"{status.st_size}:{status.st_mtime_ns}")


class Below(NamedTuple):
    """The files and folders below a folder, in no order; hidden folders and their files are included."""

    files: list[SourceFile]
    folders: list[str]


def files_below(root: Place, folder: str = "", *, follow: bool = True) -> Below:
    """Everything below *folder*, which is a folder below *root*.

    Each folder is read once: under its own name or, if this name hides the folder, under the name of the first link to
    it. So links that form a loop end, and a hidden folder can be read through a link.
    """
    if isinstance(root, ObjectPath):
        return _objects_below(root, root.store.objects(_key(root, folder)))
    return _walked(root, folder, follow)


def files_in(root: Place, folder: str) -> tuple[list[str], list[SourceFile]]:
    """The visible folders in a folder, and the files directly in the folder and in its hidden folders.

    A link to a folder is listed as a file that is not read.
    """
    if isinstance(root, ObjectPath):
        keys, objects = root.store.folders(_key(root, folder))
        folders = [root.relative(key) for key in keys]
        files = _objects_below(root, objects, {*keys}).files
    else:
        level = _entries(root / folder, f"{folder}/" if folder else "")
        folders, files = level.folders, [*level.files, *map(_unfollowed, level.links)]
    hidden = [files_below(root, one, follow=False).files for one in folders if hides(one) and not _is_of_tool(one)]
    return [one for one in folders if not hides(one)], [*files, *chain.from_iterable(hidden)]


class _Level(NamedTuple):
    folders: list[str]
    links: list[str]
    files: list[SourceFile]
    linked: list[str]


def _walked(root: Path, folder: str, follow: bool) -> Below:
    """Walk through local folders: first visible ones, then links, then hidden ones."""
    found, read, real_root = Below([], []), set[str](), os.path.realpath(root)
    first = _HIDDEN if is_in_hidden(f"{folder}/") else _VISIBLE
    ahead = [(first, folder, os.path.realpath(root / folder))]
    while ahead:
        turn, name, real = heappop(ahead)
        if real in read:
            continue
        read.add(real)
        try:
            level = _entries(root / name, f"{name}/" if name else "")
        except TerminalError:
            if turn == _HIDDEN:
                continue  # only its owner knows its purpose
            raise
        found.folders.extend(level.folders)
        for below in level.folders:
            if not _is_of_tool(below):
                real_below = f"{real.rstrip('/')}/{below.rpartition('/')[2]}"
                heappush(ahead, (_HIDDEN if hides(below) else turn, below, real_below))
        for link in level.links:
            if _is_of_tool(link):
                continue
            target = os.path.realpath(root / link)
            is_loop = any(f"{around}/".startswith(f"{target.rstrip('/')}/") for around in (real, real_root))
            if not follow:
                found.files.append(_unfollowed(link))
            elif not is_loop:
                heappush(ahead, (_HIDDEN if hides(link) else max(turn, _LINKED), link, target))
        if turn == _HIDDEN:
            found.files.extend(one for one in level.files if os.path.realpath(root / one.name) not in read)
        else:
            read.update(os.path.realpath(root / one) for one in level.linked)
            found.files.extend(level.files)
    return found


def _unfollowed(link: str) -> SourceFile:
    return SourceFile(link, 0, unread="a link to a folder")


def _entries(path: Path, prefix: str) -> _Level:
    level = _Level([], [], [], [])
    try:
        # It was removed between the two looks.
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
            for entry in entries:
                name = prefix + entry.name
                try:
                    if entry.is_dir():
                        (level.links if entry.is_symlink() else level.folders).append(name)
                        continue
                    status = entry.stat()
                except OSError as error:
                    if entry.is_symlink():
                        why = "target missing" if isinstance(error, FileNotFoundError) else error.strerror
                        level.files.append(SourceFile(name, 0, unread=f"a link that cannot be followed: {why}"))
                    elif not isinstance(error, FileNotFoundError):
                        raise
                    continue
                unread = "" if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
                level.files.append(SourceFile.found(name, status)._replace(unread=unread))
                if entry.is_symlink():
                    level.linked.append(name)
    except PermissionError as error:
        raise TerminalError(
            "ACCESS_DENIED",
            f"the folder {str(path)!r} may not be read: {error.strerror}",
            next_step="give the user of the jobs the right to list and read it, or take it out of the source's folder",
        ) from error
    return level


def _objects_below(root: ObjectPath, objects: Iterable[ObjectStat], folders: Iterable[str] = ()) -> Below:
    found = list(objects)
    # Some services keep a folder as an object of its own.
    known = {*folders, *(name.rpartition("/")[0] for name, *_ in found)}
    files = [SourceFile(root.relative(f.name), f.size, f.version) for f in found if f.size or f.name not in known]
    around = {folder for file in files for folder in folders_around(file.name)}
    return Below([f for f in files if not any(map(_is_of_tool, folders_around(f.name)))], sorted(around))


def folders_around(name: str) -> list[str]:
    """The folders that contain the file *name*, the outermost first."""
    parts = name.split("/")[:-1]
    return ["/".join(parts[: at + 1]) for at in range(len(parts))]


def hides(name: str) -> bool:
    """Whether the last part of the name begins with a dot or an underscore, which hides a file or folder."""
    return name.rpartition("/")[2][:1] in (".", "_")


def _is_of_tool(folder: str) -> bool:
    return folder.rpartition("/")[2].casefold() in _OF_TOOLS


def is_in_hidden(name: str) -> bool:
    """Whether the file *name* is in a hidden folder."""
    return any(map(hides, folders_around(name)))


def _key(root: ObjectPath, folder: str) -> str:
    return (root / folder).key if folder else root.key
