"""A landing zone in a local folder: for trials, for tests, and where another program uploads the files.

Linux only: publishing needs a rename that removes the old name and refuses an existing target in one step, which is
``renameat2(2)`` with ``RENAME_NOREPLACE``. A link followed by an unlink would be wrong. After a crash between the two
steps, the file has both its staged name and its numbered name. Fabric may move away the file under the numbered name.
The next run would then publish the staged file a second time.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from open_mirroring.errors import TerminalError, TransientError, disk_error
from open_mirroring.landing_zone.store import Content, ObjectInfo, RenameOutcome, why_unsafe

_DELETED = "_deleted-"
"""The prefix of a folder that is being deleted. The underscore hides it from the service (F-05)."""
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_COPY_BYTES = 1 << 20


class LocalStore:
    """:class:`~open_mirroring.landing_zone.store.LandingZoneStore` over a folder; safe for several processes.

    Every call returns only when its result is on disk (fsync of file and folder). An object appears under its name
    complete or not at all, even if the machine stops. After a crash a partial file ``<name>.partial-<token>`` may
    remain in the same folder.

    The ETag consists of inode, modification time and size. A rename keeps the ETag. A re-created object has another
    ETag: the store sets the modification time in nanoseconds, because the kernel's own clock repeats a time for some
    milliseconds.

    Every method raises ``FOREIGN_ITEM`` for a path that is not relative, plain and inside the root, or that cannot be
    used. Every method raises ``STORE_UNFIT`` when the filesystem lacks what the protocol needs, ``ACCESS_DENIED``
    without permission, and ``DISK_FULL`` when the disk is full. It raises ``CHANGED_MEANWHILE`` while the operating
    system reports that a file or folder is busy. For any other error of the operating system it raises ``UNREACHABLE``.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        with _store_errors(root, ""):
            root.mkdir(parents=True, exist_ok=True)
            self._real_root = os.path.realpath(root)

    def create(self, path: str, content: bytes | Path) -> ObjectInfo | None:
        """Create an object; None when the name is taken. Readers never see a part of the object."""
        target = self._local(path)
        with _store_errors(self.root, path):
            if os.path.lexists(target):
                return None
            make_folders(os.path.dirname(target))
            partial = f"{target}.partial-{secrets.token_hex(8)}"
            try:
                written = write_new(partial, content)
                if rename_no_replace(partial, target):
                    sync_folder(os.path.dirname(target))
                    return _info(path, written)
            except BaseException:
                remove(partial)
                raise
            remove(partial)
            if not os.path.lexists(target):
                raise FileNotFoundError(errno.ENOENT, "the folder went away while an object was created in it")
            return None

    def read(self, path: str) -> Content | None:
        if self.stat(path) is None:
            return None
        with _store_errors(self.root, path):
            try:
                with open(self._local(path), "rb") as file:
                    # The ETag of the open file, even if its name has been reused.
                    return Content(file.read(), _info(path, os.fstat(file.fileno())).etag)
            except FileNotFoundError:  # moved away since
                return None

    @contextmanager
    def fetch(self, path: str) -> Iterator[Path | None]:
        """A context with the path of the object's own file, not a copy; None when the object does not exist.

        Do not write to the file. Another program may move the file away at any time.
        """
        yield Path(self._local(path)) if self.stat(path) is not None else None

    def stat(self, path: str) -> ObjectInfo | None:
        local = self._local(path)
        with _store_errors(self.root, path):
            try:
                found = os.lstat(local)
            except FileNotFoundError:
                return None
            if stat.S_ISLNK(found.st_mode):
                raise _unsafe(path, "is a symbolic link")
            return None if stat.S_ISDIR(found.st_mode) else _info(path, found)

    def rename(self, source: str, target: str, *, source_etag: str) -> RenameOutcome:
        """Move *source* to *target* in one step, if *source* has this ETag and *target* does not exist.

        The ETag is compared before the move, not in the same step. This is safe because a staging name is used once,
        so no other writer replaces *source* between comparison and move.
        """
        found = self.stat(source)
        local_source, local_target = self._local(source), self._local(target)
        if found is None or found.etag != source_etag:
            return RenameOutcome.REFUSED
        with _store_errors(self.root, f"{source} to {target}"):
            if not rename_no_replace(local_source, local_target):
                return RenameOutcome.REFUSED
            for folder in {os.path.dirname(local_target), os.path.dirname(local_source)}:
                sync_folder(folder)
            return RenameOutcome.DONE

    def list(self, folder: str, skipped: Collection[str] = ()) -> Iterable[ObjectInfo]:
        """List every object below a folder, except in subfolders with one of the *skipped* names.

        A folder's own objects are listed before those in its subfolders. Files move only from a folder into its
        subfolders, so a moving file may be listed twice but is never missed. Symbolic links are listed as objects and
        never followed.
        """
        return self._walk(folder, skipped)

    def delete(self, path: str) -> None:
        local = self._local(path)
        with _store_errors(self.root, path):
            remove(local)

    def delete_folder(self, folder: str) -> None:
        """Remove a folder with its content, if the folder exists.

        The folder is first renamed, then emptied: a file that another process moves into the folder is deleted with
        it, or the move fails. After a crash a folder ``_deleted-…`` remains in the zone; the next call removes it.
        """
        local = self._local(folder)
        with _store_errors(self.root, folder):
            if os.path.islink(local):
                raise _unsafe(folder, "is a symbolic link")
            if os.path.lexists(local) and not os.path.isdir(local):
                raise _unsafe(folder, "is not a folder")
            gone = f"{self._real_root}/{_DELETED}{secrets.token_hex(8)}"
            if rename_no_replace(local, gone):
                for parent in (os.path.dirname(local), self._real_root):
                    sync_folder(parent)
            for entry in list(os.scandir(self._real_root)):
                if entry.name.startswith(_DELETED) and entry.is_dir(follow_symlinks=False):
                    # Another process may be emptying it, too, so a missing entry is no failure.
                    shutil.rmtree(entry.path, onerror=_unless_gone)

    def _walk(self, folder: str, skipped: Collection[str]) -> Iterator[ObjectInfo]:
        local = self._local(folder) if folder else self._real_root
        with _store_errors(self.root, folder):
            if os.path.islink(local):
                raise _unsafe(folder, "is a symbolic link")
            subfolders = []
            try:
                entries = list(os.scandir(local))
            except FileNotFoundError:
                return
            for entry in entries:
                name = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in skipped:
                        subfolders.append(name)
                    continue
                try:
                    yield _info(name, entry.stat(follow_symlinks=False))
                except FileNotFoundError:  # moved away since
                    continue
        for name in subfolders:
            yield from self._walk(name, skipped)

    def _local(self, path: str) -> str:
        """The absolute name of an object; refused if it is not below the root."""
        if reason := why_unsafe(path):
            raise _unsafe(path, reason)
        parent, _, name = f"{self._real_root}/{path}".rpartition("/")
        with _store_errors(self.root, path):
            real = os.path.realpath(parent) if self._has_link(parent) else parent
        if real != self._real_root and not real.startswith(f"{self._real_root}/"):
            raise _unsafe(path, "leaves the zone through a symbolic link")
        return f"{real}/{name}"

    def _has_link(self, folder: str) -> bool:
        """Whether a folder below the root is, or is below, a symbolic link."""
        while folder != self._real_root:
            if os.path.islink(folder):
                return True
            folder = os.path.dirname(folder)
        return False


def _info(path: str, found: os.stat_result) -> ObjectInfo:
    return ObjectInfo(path, found.st_size, f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}")


def _unless_gone(_function: object, _path: str, raised: tuple[type, BaseException, object]) -> None:
    if not isinstance(raised[1], FileNotFoundError):
        raise raised[1]


@contextmanager
def _store_errors(root: Path, path: str) -> Iterator[None]:
    """Convert errors of the operating system into ours, with the path and the fix."""
    try:
        yield
    except OSError as error:
        where = f"{root}: {path}" if path else str(root)
        what = error.strerror or str(error)
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise TerminalError(
                "ACCESS_DENIED",
                what,
                where=where,
                next_step="give the user of the jobs write access to the landing zone",
            ) from error
        if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG):
            raise _unsafe(path, f"cannot be used: {what}") from error
        if error.errno in (errno.EBUSY, errno.ETXTBSY):
            raise TransientError(
                "CHANGED_MEANWHILE", what, where=where, next_step="run again, or end the program that uses the folder"
            ) from error
        raise disk_error(error, where) or TransientError(
            "UNREACHABLE", what, where=where, next_step="it is tried again; if the error stays, check disk and mount"
        ) from error


def _unsafe(path: str, reason: str) -> TerminalError:
    return TerminalError(
        "FOREIGN_ITEM",
        f"the path {path!r} {reason}",
        next_step="find out who put a link or a file at this path, and move it away",
    )


def write_new(local: str, content: bytes | Path) -> os.stat_result:
    """Create a file that must not exist, durably (fsync), and return the file's status.

    The modification time is set in nanoseconds. Raises ``STORE_UNFIT`` if the filesystem does not keep nanoseconds.
    """
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
    """Move a file or folder in one step.

    Return False when *source* or the folder of *target* is missing, or *target* exists.
    """
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
    """Create a folder and its parents durably (fsync), so that a power cut loses neither folder nor files in it."""
    if os.path.isdir(folder):
        return
    parent = os.path.dirname(folder)
    make_folders(parent)
    try:
        os.mkdir(folder)
    except FileExistsError:
        return  # another writer was first; anything but a folder fails at the next step
    sync_folder(parent)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable (fsync); does nothing if the folder no longer exists."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # deleted meanwhile with its content
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove(local: str) -> None:
    """Remove a file, if it exists."""
    try:
        os.unlink(local)
    except FileNotFoundError:
        return


def _unfit(reason: str, local: str) -> TerminalError:
    return TerminalError(
        "STORE_UNFIT",
        f"the filesystem {reason}",
        where=os.path.dirname(local),
        next_step="put the landing zone on a local Linux filesystem with renameat2 (ext4, XFS, btrfs, tmpfs)",
    )
