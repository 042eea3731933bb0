"""Shows object storage to Arrow as a file system, so that Arrow reads Parquet files there like local files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSystem, FileSystemHandler, FileType, PyFileSystem

from open_mirroring.storage.object_path import ObjectPath, Place
from open_mirroring.storage.object_store import StorageRoot

_AT_ONCE = 2**22
"""Smaller files are read by a single request, because a request costs more than transferring a megabyte."""


def arrow_path(place: Place) -> str:
    """Return the path of a file, in the form that the file system of :func:`arrow_files` expects."""
    return str(place) if isinstance(place, Path) else place.key


def arrow_files(place: Place) -> FileSystem | None:
    """Return the Arrow file system for a place in object storage; None for a local path."""
    return None if isinstance(place, Path) else PyFileSystem(_Objects(place.root))


class _Objects(FileSystemHandler):  # type: ignore[misc]
    """Reads objects of a container, each in the version that was opened. Writing and listing are not supported."""

    def __init__(self, root: StorageRoot) -> None:
        self._root = root

    def get_type_name(self) -> str:
        return f"open_mirroring+{self._root.address.service}"

    def normalize_path(self, path: str) -> str:
        return path

    def get_file_info(self, paths: list[str]) -> list[FileInfo]:
        found = []
        for path in paths:
            try:
                found.append(FileInfo(path, FileType.File, size=ObjectPath(self._root, path).stat().st_size))
            except FileNotFoundError:
                found.append(FileInfo(path, FileType.NotFound))
        return found

    def open_input_file(self, path: str) -> pa.NativeFile:
        place = ObjectPath(self._root, path)
        held = place.look(0, _AT_ONCE)
        if held.stat.size == len(held.content):
            return pa.BufferReader(held.content)
        return pa.PythonFile(place.holding(held).open(), mode="r")

    def open_input_stream(self, path: str) -> pa.NativeFile:
        return self.open_input_file(path)

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("objects are read this way, and nothing else")

    copy_file = create_dir = delete_dir = delete_dir_contents = delete_file = delete_root_dir_contents = _refuse
    get_file_info_selector = move = open_append_stream = open_output_stream = _refuse
