"""Bytes that were appended and not yet flushed."""

from __future__ import annotations

import os
import shutil
import threading
import uuid
from pathlib import Path

from fabric_emulator.web.messages import ApiError

HIDDEN = "_$emulator"
"""The folder at the root of a tree for files that are not, or no longer, part of it."""


class Upload:
    """The content of a file after its next flush, as a hidden object.

    Appends may come in any order and in parallel; a repeated append at one position replaces the earlier one.
    """

    def __init__(self, path: Path, committed: Path) -> None:
        self._path = path
        shutil.copyfile(committed, path)
        self._descriptor = os.open(path, os.O_WRONLY)
        self._committed = os.fstat(self._descriptor).st_size
        self._blocks: dict[int, int] = {}
        self._lock = threading.Lock()
        self._closed = False

    def append(self, position: int, content: bytes) -> None:
        """Store *content* at this position, in bytes from the beginning of the file."""
        with self._lock:
            if self._closed:  # flushed, overwritten or deleted by a faster request
                return
            written = 0
            while written < len(content):
                written += os.pwrite(self._descriptor, memoryview(content)[written:], position + written)
            self._blocks[position] = len(content)

    def complete(self, position: int) -> Path:
        """The object, cut at *position*, if its bytes are without gaps up to there."""
        with self._lock:
            reached = self._committed
            while reached < position and (length := self._blocks.get(reached)):
                reached += length
        if reached != position:
            raise ApiError(
                400,
                "InvalidFlushPosition",
                "The uploaded data is not contiguous or the position query parameter value is not equal to the length "
                "of the file after appending the uploaded data.",
            )
        os.ftruncate(self._descriptor, position)
        return self._path

    def close(self) -> None:
        """Delete the object, unless it was moved to its place."""
        with self._lock:
            self._closed = True
            os.close(self._descriptor)
            self._path.unlink(missing_ok=True)


def hidden_path(root: Path) -> Path:
    """A fresh path in the hidden folder of a tree."""
    folder = root / HIDDEN
    folder.mkdir(parents=True, exist_ok=True)
    return folder / uuid.uuid4().hex
