"""Path operations of ADLS Gen2 with a hierarchical namespace, on local files and folders.

Rules: O-04 a rename overwrites unless a condition forbids it, O-05 its conditions, O-07 a file exists with zero bytes
from its creation to its flush. ETags change with every creation and flush and survive a rename.
"""

from __future__ import annotations

import os
import shutil
import stat
import threading
from pathlib import Path
from typing import NamedTuple

from fabric_emulator.web.item_paths import ItemPath, path_not_found
from fabric_emulator.web.messages import ApiError
from fabric_emulator.web.path_conditions import Conditions, Stamps, file_etag, folder_etag
from fabric_emulator.web.uploads import HIDDEN, Upload, hidden_path


class PathEntry(NamedTuple):
    """One file or folder: *modified* in nanoseconds since 1970, *size* in bytes, *etag* without quotes."""

    is_directory: bool
    size: int
    etag: str
    modified: int


class PathStore:
    """The operations on the local folders; safe to call from several threads.

    Operations are atomic for each other and for listings. The mirroring service may work in the same folders at the
    same time. Refused operations raise :class:`ApiError` with the codes of the REST reference and change nothing.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._stamps = Stamps()
        self._uploads: dict[tuple[int, int], Upload] = {}

    def close(self) -> None:
        """Discard everything that was appended and not flushed."""
        with self._lock:
            for upload in self._uploads.values():
                upload.close()
            self._uploads.clear()

    def create_file(self, place: ItemPath, conditions: Conditions) -> PathEntry:
        """Create an empty file, or replace an existing one; parent folders are created."""
        target = _writable(place)
        with self._lock:
            self._check_target(target, conditions)
            if target.is_dir():
                raise _conflict()
            fresh = hidden_path(place.root)
            fresh.touch()
            self._stamps.renew(fresh)
            self._forget_upload(fresh)
            if target.exists():
                self._forget_upload(target)
            _make_parents(target)
            fresh.replace(target)
            return _entry(target)

    def create_directory(self, place: ItemPath, conditions: Conditions) -> PathEntry:
        """Create a folder; an existing one is unchanged."""
        target = _writable(place)
        with self._lock:
            self._check_target(target, conditions)
            if target.exists() and not target.is_dir():
                raise _conflict()
            _make_parents(target)
            target.mkdir(exist_ok=True)
            return _entry(target)

    def append(self, place: ItemPath, position: int, content: bytes) -> None:
        """Store bytes for the next flush, invisible until then."""
        target = _writable(place)
        with self._lock:
            found = _file_stat(target)
            key = (found.st_dev, found.st_ino)
            upload = self._uploads.get(key)
            if upload is None:
                upload = self._uploads[key] = Upload(hidden_path(place.root), target)
        upload.append(position, content)

    def flush(self, place: ItemPath, position: int, conditions: Conditions) -> PathEntry:
        """Make the appended bytes up to *position* the content of the file, in one step."""
        target = _writable(place)
        with self._lock:
            found = _file_stat(target)
            conditions.check(file_etag(found))
            upload = self._uploads.get((found.st_dev, found.st_ino))
            if upload is not None:
                complete = upload.complete(position)
                self._stamps.renew(complete)
                self._forget_upload(complete)
                complete.replace(target)
                self._uploads.pop((found.st_dev, found.st_ino)).close()
            elif position != found.st_size:
                raise ApiError(400, "InvalidFlushPosition", f"The file has {found.st_size} bytes and none appended.")
            else:
                self._stamps.renew(target)
            return _entry(target)

    def rename(self, source: ItemPath, target: ItemPath, on_source: Conditions, on_target: Conditions) -> PathEntry:
        """Move a file, or a folder with its content; overwrites unless a condition forbids it (O-04, O-05)."""
        old, new = _writable(source), _writable(target)
        with self._lock:
            try:
                moved = _entry(old)
            except ApiError as error:
                raise ApiError(404, "SourcePathNotFound", "The source path for a rename does not exist.") from error
            on_source.check(moved.etag, code="SourceConditionNotMet")
            self._check_target(new, on_target)
            if not new.parent.is_dir():
                raise ApiError(
                    404,
                    "RenameDestinationParentPathNotFound",
                    "The parent directory of the destination does not exist.",
                )
            if new.is_relative_to(old) and new != old:
                raise ApiError(409, "InvalidRenameSourcePath", "The source directory must not hold the destination.")
            if new.exists():
                if new.is_dir() != moved.is_directory:
                    raise ApiError(
                        409,
                        "InvalidSourceOrDestinationResourceType",
                        "The source and destination resource type must be identical.",
                    )
                if moved.is_directory and new != old and any(new.iterdir()):
                    raise ApiError(409, "DirectoryNotEmpty", "The destination directory is not empty.")
                if not moved.is_directory and new != old:
                    self._forget_upload(new)
            old.rename(new)
            return _entry(new)

    def properties(self, place: ItemPath, conditions: Conditions) -> PathEntry:
        """The properties of a path."""
        with self._lock:
            entry = _entry(place.local) if place.local is not None else PathEntry(True, 0, "0x1", 0)
        conditions.check(entry.etag, reading=True)
        return entry

    def read(
        self, place: ItemPath, wanted: tuple[int, int | None] | None, conditions: Conditions
    ) -> tuple[PathEntry, bytes]:
        """The flushed content of a file: all, or the *wanted* bytes from the first to the last (None: to the end)."""
        if place.local is None:
            raise _conflict()
        first, last = wanted or (0, None)
        try:
            with place.local.open("rb") as file:  # an open file does not change: flushes replace the file
                found = os.fstat(file.fileno())
                entry = PathEntry(False, found.st_size, file_etag(found), found.st_mtime_ns)
                conditions.check(entry.etag, reading=True)
                if wanted is not None and first >= entry.size:
                    size = {"Content-Range": f"bytes */{entry.size}"}
                    raise ApiError(416, "InvalidRange", "The range specified is invalid for the current size.", size)
                file.seek(first)
                return entry, file.read() if last is None else file.read(max(last - first + 1, 0))
        except (FileNotFoundError, NotADirectoryError):
            raise path_not_found() from None
        except IsADirectoryError:
            raise _conflict() from None

    def delete(self, place: ItemPath, conditions: Conditions, *, recursive: bool, limit: int | None = None) -> bool:
        """Remove a file, or a folder with its content.

        A folder is removed at once; with *limit* only this many of its paths, the last ones first.

        Returns:
            Whether everything is gone.
        """
        target = _writable(place)
        with self._lock:
            entry = _entry(target)
            conditions.check(entry.etag)
            if not entry.is_directory:
                self._forget_upload(target)
                target.unlink()
                return True
            if not recursive and any(target.iterdir()):
                raise ApiError(409, "DirectoryNotEmpty", "The recursive query parameter value must be true.")
            inside = list(self.children(place, recursive=True).items()) if limit is not None else []
            if limit is not None and len(inside) > limit:
                for name, found in inside[::-1][:limit]:
                    (Path.rmdir if found.is_directory else Path.unlink)(target / name)
                return False
            if target == place.root:
                shutil.rmtree(target)
                return True
            gone = hidden_path(place.root)
            target.rename(gone)
        shutil.rmtree(gone)
        return True

    def children(self, place: ItemPath, *, recursive: bool) -> dict[str, PathEntry]:
        """The content of a folder, by relative path, sorted."""
        if place.local is None:
            return {}
        with self._lock:
            if not _entry(place.local).is_directory:
                raise path_not_found()
            found: dict[str, PathEntry] = {}
            _walk(place.local, "", recursive, found)
        return dict(sorted(found.items()))

    def _check_target(self, target: Path, conditions: Conditions) -> None:
        etag = _etag(target)
        if conditions.only_if_absent and etag is not None:
            raise ApiError(409, "PathAlreadyExists", "The specified path already exists.")
        conditions.check(etag)

    def _forget_upload(self, path: Path) -> None:
        # Inode numbers are reused: bytes appended to a file must not outlive it.
        found = path.stat()
        upload = self._uploads.pop((found.st_dev, found.st_ino), None)
        if upload is not None:
            upload.close()


def _walk(folder: Path, prefix: str, recursive: bool, found: dict[str, PathEntry]) -> None:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except FileNotFoundError:  # the service removed it meanwhile
        return
    for entry in entries:
        if entry.name == HIDDEN:
            continue
        path = Path(entry.path)
        try:
            found[prefix + entry.name] = _entry(path)
        except ApiError:  # moved by the service since it was listed
            continue
        if recursive and entry.is_dir(follow_symlinks=False):
            _walk(path, f"{prefix}{entry.name}/", recursive, found)


def _entry(path: Path) -> PathEntry:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise path_not_found() from None
    if stat.S_ISDIR(found.st_mode):
        return PathEntry(True, 0, folder_etag(path) or "", found.st_mtime_ns)
    return PathEntry(False, found.st_size, file_etag(found), found.st_mtime_ns)


def _etag(path: Path) -> str | None:
    try:
        return _entry(path).etag
    except ApiError:
        return None


def _file_stat(path: Path) -> os.stat_result:
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise path_not_found() from None
    if stat.S_ISDIR(found.st_mode):
        raise _conflict()
    return found


def _make_parents(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (NotADirectoryError, FileExistsError):
        raise _conflict() from None


def _writable(place: ItemPath) -> Path:
    if place.local is None or not place.writable:
        # O-03 has the rule; the code is the emulator's (assumed).
        raise ApiError(403, "OperationNotAllowedOnThisPath", "OneLake lets clients write below Files only.")
    return place.local


def _conflict() -> ApiError:
    return ApiError(
        409,
        "PathConflict",
        "The specified path, or an element of the path, exists and its resource type is invalid for this operation.",
    )
