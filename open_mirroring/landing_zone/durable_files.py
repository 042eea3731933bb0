"""Writes files that are on disk when the call returns, and the rename that the publish protocol needs.

Linux only: one step must consume the source and refuse an existing target, which is ``renameat2(2)`` with
``RENAME_NOREPLACE``. Link and unlink would be wrong: a crash between the two leaves the sealed object beside its
number; the mirror then moves the number away, and the next owner publishes the object a second time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import time
from io import BytesIO
from pathlib import Path

from open_mirroring.errors import TerminalError

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_COPY_BYTES = 1 << 20


def write_new(local: str, content: bytes | Path) -> os.stat_result:
    """Create a file that must not exist, durably, with the present time to the nanosecond; what it is then."""
    descriptor = os.open(local, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with (
        open(descriptor, "wb") as out,
        open(content, "rb") if isinstance(content, Path) else BytesIO(content) as source,
    ):
        shutil.copyfileobj(source, out, _COPY_BYTES)
        out.flush()
        now = time.time_ns()
        os.utime(out.fileno(), ns=(now, now))
        os.fsync(out.fileno())
        found = os.fstat(out.fileno())
    if found.st_mtime_ns != now:
        raise _unfit("does not keep modification times to the nanosecond", local)
    return found


def rename_no_replace(source: str, target: str) -> bool:
    """Move a file or folder in one step; False when the source or the target's folder is gone or the target exists."""
    try:
        call = _LIBC.renameat2
    except AttributeError as error:
        raise _unfit("offers no renameat2 (glibc 2.28 or newer)", target) from error
    if call(_AT_FDCWD, os.fsencode(source), _AT_FDCWD, os.fsencode(target), _RENAME_NOREPLACE) == 0:
        return True
    code = ctypes.get_errno()
    if code in (errno.EEXIST, errno.ENOENT):
        return False
    if code in (errno.ENOSYS, errno.EINVAL, errno.EXDEV, errno.ENOTSUP):
        raise _unfit(f"cannot rename without replacing ({os.strerror(code)})", target)
    raise OSError(code, os.strerror(code), source, None, target)


def make_folders(folder: str) -> None:
    """Create a folder and its parents, each durably: a file is only as durable as the entry that leads to it."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folders(parent)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return  # another writer was first; what is no folder fails at the next step
    sync_folder(parent)


def sync_folder(folder: str) -> None:
    """Make durable which names a folder holds; nothing happens when it is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # deleted meanwhile with all it held
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(local: str) -> None:
    """Remove a file; nothing happens when it is not there."""
    try:
        os.unlink(local)
    except FileNotFoundError:
        return


def _unfit(reason: str, local: str) -> TerminalError:
    return TerminalError(
        "STORE_UNFIT",
        f"the filesystem {reason}",
        where=os.path.dirname(local),
        way_out="put the landing zone on a local Linux filesystem with renameat2 (ext4, XFS, btrfs, tmpfs)",
    )
