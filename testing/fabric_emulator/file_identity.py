"""Distinguishes a file or folder from a later one of the same name, as the service does by ETags.

An inode number is not enough, because common file systems reuse it at once; inode and creation time together are. The
modification time of a folder does not identify it, because every new file in it changes that time. F-72 (Microsoft
Learn).
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path
from typing import Any

_AT_FDCWD = -100
_STATX_BTIME = 0x800
_STATX_SIZE = 256
_BTIME_OFFSET = 80


def folder_identity(folder: Path) -> str | None:
    """An identity that changes when this folder is re-created; None when there is no folder.

    On a file system without creation times it is the inode number.
    """
    try:
        found = folder.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return f"{found.st_dev}:{found.st_ino}:{_born(folder, found)}"


def content_identity(path: Path) -> str | None:
    """An identity that changes when a file is replaced: size, modification time, inode; None when there is no file."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return f"{found.st_size}:{found.st_mtime_ns}:{found.st_ino}"


def _born(path: Path, found: os.stat_result) -> str:
    # Python 3.11 has the creation time on macOS and the BSDs only; on Linux a system call is needed.
    known = getattr(found, "st_birthtime", None)
    if known is not None:
        return repr(known)
    statx = _statx()
    if statx is None:
        return "unknown"
    answer = ctypes.create_string_buffer(_STATX_SIZE)
    if statx(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, answer) != 0:
        return "unknown"
    (mask,) = struct.unpack_from("=I", answer, 0)
    if not mask & _STATX_BTIME:
        return "unknown"
    seconds, nanoseconds = struct.unpack_from("=qI", answer, _BTIME_OFFSET)
    return f"{seconds}.{nanoseconds:09d}"


def _statx() -> Any | None:
    try:
        return ctypes.CDLL(None, use_errno=True).statx
    except (AttributeError, OSError):
        return None
