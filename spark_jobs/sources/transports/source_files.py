"""Lists the files that transports read, and opens a file in the version that was bound."""

from __future__ import annotations

import hashlib
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import IO, NamedTuple, TypeVar

from open_mirroring.changes.manifest import BoundFile, BoundRange, FileVersion
from open_mirroring.errors import TerminalError
from open_mirroring.protocols.backfilling import Interval
from open_mirroring.source_places.source_folders import SourceFile, files_below, folders_around, hides
from open_mirroring.storage.object_path import Held, ObjectPath, Place
from open_mirroring.storage.object_store import ObjectReplaced
from spark_jobs.sources.contract.source import Chosen, longest

Item = TypeVar("Item")
Looked = TypeVar("Looked")

MAX_RAW = 2**20
"""The part of a damaged file that a dead letter keeps, in bytes."""
_LOOKED_AT = 2**16
_LOOKED_THROUGH = 2**24
_SMALL = 2**20
"""Files up to this size are fetched by one request."""
_AT_ONCE = 16
"""The number of parallel requests about single objects."""
_WHOLE = "all:"
"""The prefix of digests of all bytes; digests of beginning and end only have none."""


UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".filepart", ".inprogress", ".crdownload", ".swp", "~")
"""Endings of names of files that are still being copied."""
_FORGOTTEN_SECONDS = 86_400
"""A file that is hidden or unfinished for this long will not be renamed any more."""
_IN_PROGRESS = ("tmp", "temp", "stag", "partial", "progress")
"""Parts of the names of hidden folders in which programs write files before they move them."""
_WINDOW = re.compile(r"(?:.+/)?(\d{4})/(\d\d)/(\d\d)/(\d\d)/(\d\d)/(\d\d)\.avro")
"""The name of a Capture file; time only selects files for a backfill, the order comes from positions (G-01)."""
_LEFT_SECONDS = 60
"""A writer that writes to another file for this long has finished the previous one."""


class Listing(NamedTuple):
    """The files of a source, in the order of their names.

    *waiting* files are empty, *unknown* files have a name of another kind, *unfinished* files are still being written.
    *begun* maps a folder to the name after which its files were listed. *unread* are files and folders that an
    operator has to change before they are read, with the reason.
    """

    files: list[SourceFile]
    waiting: list[str]
    unknown: Sequence[SourceFile] = ()
    unfinished: Sequence[str] = ()
    begun: Mapping[str, str] = MappingProxyType({})
    unread: Sequence[str] = ()


def list_source_files(root: Place, suffixes: tuple[str, ...], *, was_read: bool = False) -> Listing:
    """All files below a folder; those to read have names that end in one of *suffixes*, in any case.

    A file is hidden if its name, or that of a folder above it, begins with a dot or an underscore. A hidden file, and
    a file whose name ends as in :data:`UNFINISHED`, is not read; it is reported if it would be read under its finished
    name (G-62). If the source *was_read* before, the folder may be empty or missing now.
    """
    if isinstance(root, Path) and not root.is_dir():
        raise TerminalError(
            "PLACE_MISSING",
            f"the folder {str(root)!r} {'is neither a folder nor a file' if root.exists() else 'does not exist'}",
            next_step="correct `source.path` in the mirror file, or mount the storage",
        )
    found = files_below(root).files
    if isinstance(root, ObjectPath) and not (found or was_read) and root.key:
        # In object storage a wrong path looks like an empty one (S-07).
        raise TerminalError(
            "PLACE_MISSING",
            f"nothing is below {str(root)!r}",
            next_step="correct the path in the mirror file; or, if it is right, run again once its first file is there",
        )
    return sorted_out(root, found, suffixes)


def is_read(name: str, suffixes: tuple[str, ...]) -> bool:
    """Whether the name of a file shows that the file is complete and of a known kind."""
    return name == finished_name(name) and name.casefold().endswith(suffixes)


def why_unread(name: str, suffixes: tuple[str, ...]) -> str:
    """Why :func:`is_read` is False for the file *name*."""
    if name != finished_name(name):
        return "the file's name says since a day that it is hidden, or still being written"
    return f"the file's name ends in none of {', '.join(suffixes)}"


def finished_name(name: str) -> str:
    """The name without the parts that hide a file or mark the file as unfinished."""
    folder, slash, last = name.rpartition("/")
    last = last.lstrip("._")
    ending = next((ending for ending in UNFINISHED if last.casefold().endswith(ending)), "")
    return folder + slash + last[: len(last) - len(ending)]


def sorted_out(root: Place, found: Iterable[SourceFile], suffixes: tuple[str, ...]) -> Listing:
    """The files in *found* as a :class:`Listing`: to read, waiting, unknown, unfinished or unread.

    A file with a hidden or unfinished name is left out if it is a copy of a file with the finished name. If there is no
    such file after a day, it counts as unknown (G-62). Files in a hidden folder are unfinished or unread, never
    unknown.
    """
    files, waiting, unknown, unfinished = [], [], [], []
    unread: list[str] = []
    hidden = Counter[str]()
    listed = {file.name: file for file in found}
    for file in listed.values():
        finished = finished_name(file.name)
        would_be_read = finished.casefold().endswith(suffixes)
        folder = next(filter(hides, folders_around(file.name)), None)
        if file.unread:
            # An editor locks a file by a broken link.
            is_lock = file.name.rpartition("/")[2].startswith(".#")
            if not is_lock and (would_be_read or (folder is None and not hides(file.name))):
                unread.append(f"{file.name} ({file.unread})")
        elif folder is not None:
            if not (file.size and would_be_read) or file.name.rpartition("/")[2].startswith("._"):
                continue
            if any(word in folder.casefold() for word in _IN_PROGRESS):
                unfinished.append(file.name)
            else:
                hidden[folder] += 1
        elif finished != file.name:
            if file.size and would_be_read and not _is_copy(file, listed.get(finished)):
                unknown.append(file) if is_forgotten(root / file.name) else unfinished.append(file.name)
        elif not would_be_read:
            unknown.append(file)
        elif file.size:
            files.append(file)
        else:
            waiting.append(file.name)
    for folder, count in hidden.items():
        unread.append(f"{folder} (hidden by the folder's name: {count} {'file' if count == 1 else 'files'})")
    return Listing(sorted(files), sorted(waiting), sorted(unknown), sorted(unfinished), unread=tuple(sorted(unread)))


def _is_copy(file: SourceFile, finished: SourceFile | None) -> bool:
    """Whether a file is left over from copying the finished one; ``_name`` may be another table's if sizes differ."""
    if finished is None:
        return False
    folder, slash, name = finished.name.rpartition("/")
    return file.name != f"{folder}{slash}_{name}" or file.size == finished.size


def is_forgotten(path: Place) -> bool:
    """Whether a file was not written for a day; then a missing part of it is no longer expected."""
    return time.time() - _written_at(path) > _FORGOTTEN_SECONDS


def left_behind(root: Place, waiting: Sequence[str], ranges: Iterable[BoundRange]) -> tuple[str, ...]:
    """The *waiting* files that their writer seems to have given up (G-116).

    Such a file was not written for a day, or was last written more than a minute before a file of *ranges*.
    """
    if not waiting:
        return ()
    times = side_by_side(root, lambda one: _written_at(root / one.name), [one for one in ranges if one.start < one.end])
    left = max((at for at in times if at < math.inf), default=-math.inf) - _LEFT_SECONDS
    return tuple(name for name in sorted(waiting) if is_forgotten(root / name) or _written_at(root / name) < left)


def _written_at(path: Place) -> float:
    """The time of the last write to a file; in the future if it is gone or renamed."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return math.inf


def bound_so_far(where: Place, name: str, size: int, bound: Mapping[str, int]) -> int:
    """The position up to which a file belongs to batches; the file has *size* bytes now.

    Raises ``SOURCE_REWRITTEN`` if the file has become shorter than this position.
    """
    start = bound.get(name, 0)
    if size < start:
        raise TerminalError(
            "SOURCE_REWRITTEN",
            f"{name!r} has {size} bytes, but was already read up to byte {start}",
            where=str(where),
            next_step="source files are append-only; restore the file, or deliver its content under a new name",
        )
    return start


def is_rewritten(root: Place, file: SourceFile, start: int, seen: Mapping[str, FileVersion] | None) -> bool | None:
    """Whether the part of a file that belongs to batches, up to byte *start*, differs from what was *seen* (G-32).

    None if this is unknown: a file of unchanged size may have been written in the middle, which its digest leaves out.
    *seen* are the last known versions of files.
    """
    known = (seen or {}).get(file.name)
    if known is None or known.version == file.version:
        return False
    if known.digest != _digest(root / file.name, start, like=known.digest):
        return True
    leaves_out = start > 2 * _LOOKED_AT and not known.digest.startswith(_WHOLE)
    return None if leaves_out and size_of(known) == file.size else False


def versions_of(
    root: Place,
    files: Iterable[SourceFile],
    bound: Mapping[str, int],
    ranges: Iterable[BoundRange],
    seen: Mapping[str, FileVersion] | None,
) -> dict[str, FileVersion]:
    """The new versions of files that belong to batches, or to *ranges*, for the ledger.

    Contains only files in *ranges*, and files whose version differs from the one in *seen*, the last known versions.
    Empty if *seen* is None.
    """
    if seen is None:
        return {}
    new = {one.name: one.end for one in ranges}
    ends = {**bound, **new}
    changed = [f for f in files if f.name in new or (f.name in bound and seen.get(f.name, ("",))[0] != f.version)]
    digests = side_by_side(root, lambda f: _digest(root / f.name, ends[f.name]), changed)
    return {f.name: FileVersion(f.version, found) for f, found in zip(changed, digests, strict=True)}


def side_by_side(root: Place, look: Callable[[Item], Looked], items: Sequence[Item]) -> list[Looked]:
    """The results of *look* for each item; in object storage in parallel, because each request waits for an answer."""
    if isinstance(root, Path):
        return [look(item) for item in items]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(look, items))


def gone_unread(listed: Listing, bound: Mapping[str, int], seen: Mapping[str, FileVersion] | None) -> list[BoundRange]:
    """An empty range for each file that disappeared before all of it belonged to batches.

    *seen* are the last known versions of files, with their sizes. *bound* is how far each file belongs to batches.
    """
    there = {file.name for file in listed.files}
    gone = [name for name in (seen or {}).keys() - there if size_of((seen or {})[name]) > bound[name]]
    gone = [name for name in gone if not any(name.startswith(f"{f}/") and name <= s for f, s in listed.begun.items())]
    return [BoundRange(name, bound[name], bound[name]) for name in sorted(gone)]


def size_of(seen: FileVersion) -> int:
    """The size of a file in its version *seen*."""
    return int(seen.version.partition(":")[0])


def _digest(path: Place, size: int, like: str = _WHOLE) -> str:
    """The digest of the first *size* bytes: of all of them, or of a beginning and an end.

    All bytes are used for local files up to 16 MB; objects have a new version in any case. To compare, it is made
    *like* the other one.
    """
    with open_source(path) as file:
        if isinstance(path, Path) and like.startswith(_WHOLE) and 2 * _LOOKED_AT < size <= _LOOKED_THROUGH:
            return f"{_WHOLE}{hashlib.sha256(file.read(size)).hexdigest()}"[:64]
        digest = hashlib.sha256(file.read(min(size, _LOOKED_AT)))
        file.seek(max(0, size - _LOOKED_AT))
        digest.update(file.read(min(size, _LOOKED_AT)))
    return digest.hexdigest()


def as_bound(folder: Place, bound: BoundRange, file: BoundFile | None, *, at_once: bool = False) -> Place:
    """The folder from which a bound file (one that belongs to a batch) can be read, in its bound version only (S-06).

    If the object in the store was replaced, the new object is accepted if its bound part is unchanged. *at_once*: the
    complete range is fetched before it is read.
    """
    if isinstance(folder, Path) or file is None or bound.start == bound.end:
        return folder
    version = file.seen
    path = folder / bound.name
    try:
        held = path.look(bound.start, bound.end) if at_once or bound.end <= _SMALL else path.look()
    except FileNotFoundError as error:
        raise _missing(path) from error
    now = folder.holding(held)
    # If a service lists objects without ETags, only the size is left.
    is_same = version.version in (held.stat.version, f"{held.stat.size}:")
    if not is_same:
        with suppress(ObjectReplaced):
            is_same = version.digest == _digest(path.holding(Held(held.stat)), file.bound_to, version.digest)
    if not is_same:
        raise TerminalError(
            "SOURCE_REWRITTEN",
            f"{bound.name!r} had {size_of(version)} bytes when its batch began, and was replaced by another object "
            f"({held.stat.size} bytes)",
            where=str(folder),
            next_step="restore the object as it was, and deliver the new one under a new name; if changes were lost, "
            "`prove` shows which rows differ",
        )
    return now


def open_source(path: Place) -> IO[bytes]:
    """Opens a file that belongs to a batch for reading.

    Raises ``SOURCE_REWRITTEN`` if the file no longer exists, ``ACCESS_DENIED`` if it may not be read.
    """
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise _missing(path) from error
    except PermissionError as error:
        what = f"the file {str(path)!r} may not be read: {error.strerror}"
        next_step = "give the user of the jobs the right to read it; a file of a batch under way has to stay"
        raise TerminalError("ACCESS_DENIED", what, next_step=next_step) from error


def _missing(path: Place) -> TerminalError:
    return TerminalError(
        "SOURCE_REWRITTEN",
        f"the file {str(path)!r} is missing, although the current batch contains it",
        next_step="restore the file: it must stay readable until the batch is committed",
    )


def files_within(folder: Place, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
    """The ranges of files below *folder* whose time is in the interval.

    The time of a file is in its name, as in files of Event Hubs Capture, or else that of the last write.
    """
    return [bound for bound in ranges if _time_of(folder / bound.name, bound.name) in interval]


def files_bound_before(folder: Place, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
    """The ranges of batches in files whose time is in the interval, and the names of missing files.

    The time of a file is in its name, as in files of Event Hubs Capture, or else that of the last write. A file that is
    shorter than its ranges counts as missing. A missing file without a time in its name counts as one of the interval.
    """
    full = [bound for bound in ranges if bound.end > bound.start]
    gone = {bound.name for bound in full if _size(folder / bound.name) < bound.end}
    chosen = files_within(folder, (bound for bound in full if bound.name not in gone), interval)
    # The time of a missing file is known from its name only, if at all.
    missed = {name for name in gone if (window := _window(name)) is None or window in interval}
    return Chosen(longest(chosen), sorted(missed))


def _window(name: str) -> datetime | None:
    match = _WINDOW.fullmatch(name)
    return None if match is None else datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]


def _time_of(path: Place, name: str) -> datetime | None:
    """None for a file that is gone since it was listed: the next listing reports it."""
    try:
        return _window(name) or datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _size(path: Place) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
