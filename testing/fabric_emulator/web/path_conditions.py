"""ETags, and the conditions of a request."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from fabric_emulator.file_identity import folder_identity
from fabric_emulator.web.messages import ApiError


class Conditions(NamedTuple):
    """``If-Match`` and ``If-None-Match`` (or their ``x-ms-source-`` variants) of a request, None if missing."""

    if_match: str | None = None
    if_none_match: str | None = None

    @property
    def only_if_absent(self) -> bool:
        """Whether the path must not exist (O-05)."""
        return self.if_none_match == "*"

    def check(self, etag: str | None, *, code: str = "ConditionNotMet", reading: bool = False) -> None:
        """Check the conditions against an existing path's ETag (None: there is no path)."""
        message = "The condition specified using HTTP conditional header(s) is not met."
        if self.if_match is not None and (etag is None or (self.if_match != "*" and _bare(self.if_match) != etag)):
            raise ApiError(412, code, message)
        if self.if_none_match not in (None, "*") and etag == _bare(self.if_none_match or ""):
            raise ApiError(304 if reading else 412, code, message)


class Stamps:
    """Modification times that never repeat, so that every new content gets a new ETag.

    The ETag of a file is its modification time and its inode. Both survive any rename and a restart of the emulator.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def renew(self, path: Path) -> None:
        """Give a file a modification time that no file had before."""
        with self._lock:
            self._last = stamp = max(time.time_ns(), self._last + 1)
        os.utime(path, ns=(stamp, stamp))


def file_etag(found: os.stat_result) -> str:
    """The ETag of a file, without quotes."""
    return f"0x{found.st_mtime_ns:X}{found.st_ino:X}"


def folder_etag(folder: Path) -> str | None:
    """The ETag of a folder, without quotes, constant for its life (assumed); None without a folder."""
    identity = folder_identity(folder)
    return None if identity is None else "0x" + "".join(part for part in identity if part.isalnum()).upper()


def _bare(etag: str) -> str:
    return etag.strip().removeprefix("W/").strip('"')
