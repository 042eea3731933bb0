"""Reads files of Event Hubs Capture, one Avro record for each message, and finds gaps among the files (C-93).

Event Hubs numbers the events of a partition without a gap. So a file whose numbers do not follow those of the previous
file waits for the files between. Folders of days that were read long ago are listed once a day (S-08). Public source:
Microsoft Learn, *Capture events through Azure Event Hubs*.
"""

from __future__ import annotations

import io
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, NamedTuple, cast

import fastavro

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.config import Mirror
from open_mirroring.config.source import GAP_TIMEOUT_MINUTES, InCapture
from open_mirroring.config.storage import place_of
from open_mirroring.errors import TerminalError
from open_mirroring.facts.read_places import Numbering
from open_mirroring.source_places.source_folders import SourceFile, files_below, files_in
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.origins import partition_of
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.avro_codecs import UNREADABLE, refuse_missing_codec
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.transports.message_files import MessageFiles
from spark_jobs.sources.transports.source_files import (
    MAX_RAW,
    Listing,
    list_source_files,
    open_source,
    side_by_side,
    sorted_out,
)

log = logging.getLogger(__name__)

SUFFIXES = (".avro",)

_SYNC_BYTES = 16
_SINCE = timedelta(days=1)
"""A listing begins this long before the newest bound window."""


@dataclass(frozen=True)
class CaptureFiles(MessageFiles):
    """Files of Event Hubs Capture, each read completely; files after a gap in the numbers wait (C-93)."""

    gap_timeout_minutes: int = GAP_TIMEOUT_MINUTES
    lists_all: bool = False
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    settles_after: ClassVar[int] = 960  # Capture writes its files at least every 15 minutes

    @classmethod
    def of(cls, mirror: Mirror, source: InCapture) -> CaptureFiles:
        return cls(place_of(mirror, source.path, source.connection), source.gap_timeout_minutes)

    @property
    def numbering(self) -> Numbering:
        return "rising"

    def list_files(self, bound: Mapping[str, int]) -> Listing:
        return super().list_files(bound) if self.lists_all else list_capture(self.path, bound)

    def unlimited(self) -> CaptureFiles:
        return replace(self, lists_all=True)

    def beyond(
        self, listed: Listing, bound: Mapping[str, int], unread: list[BoundRange]
    ) -> tuple[list[BoundRange], set[str]]:
        held = set[str]()
        for hole in holes(self.folder, listed.files, bound):
            minutes = (time.time() - min((self.folder / name).stat().st_mtime for name in hole.files)) / 60
            if minutes > self.gap_timeout_minutes:
                raise TerminalError(
                    "SOURCE_REWRITTEN",
                    f"{hole.what} of partition {hole.partition!r} are missing, and {hole.files[0]!r} waits for them "
                    f"since {minutes:.0f} minutes",
                    where=str(self.path),
                    next_step="copy the missing files to their places; if they are lost, so are changes: load the "
                    "tables again, with a new ledger and change log (docs: *Start over*)",
                )
            what = hole.partition, hole.what, len(hole.files)
            log.warning("partition %r: %s are missing; %d files wait for them", *what)
            held.update(hole.files)
        return [BoundRange(one.name, 0, one.end) for one in unread if one.name not in held], held

    def messages(self, folder: Place, bound: BoundRange) -> Iterator[RawMessage | Damage]:
        return read_capture(folder, bound.name, bound.end)


def read_capture(root: Place, name: str, size: int) -> Iterator[RawMessage | Damage]:
    """The messages in the first *size* bytes of a capture file, each with its sequence number as place.

    After the last readable message of a damaged or truncated file comes one :class:`Damage`: the rest of the file
    cannot be separated into messages.
    """
    with open_source(root / name) as file:
        prefix = _Prefix(file, size)
        good = 0
        try:
            blocks: Any = fastavro.block_reader(cast(IO[bytes], prefix))
            good = prefix.tell()
            for block in blocks:
                for record in block:
                    yield _message(record, name)
                if block.bytes_.read(1):
                    raise ValueError(f"a block of {block.num_records} records holds more than these")
                good = prefix.tell()
            if good != size:
                raise ValueError(f"the file ends at byte {good}, but {size} bytes were bound")
        except UNREADABLE as error:
            refuse_missing_codec(error)
            file.seek(good)
            yield Damage(
                name,
                good,
                "FILE_DAMAGED",
                f"{type(error).__name__}: {error}"[:300],
                file.read(min(MAX_RAW, max(0, size - good))),
            )


def _message(record: Any, origin: str) -> RawMessage:
    number, body = record["SequenceNumber"], record["Body"]
    if not isinstance(number, int) or not (body is None or isinstance(body, bytes)):
        raise TypeError("a record without a complete SequenceNumber and bytes as Body is not a captured event")
    return RawMessage(origin, number, body)


class _Prefix:
    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file, self._size, self._at = file, size, 0

    def read(self, count: int = -1) -> bytes:
        left = self._size - self._at
        content = self._file.read(left if count < 0 else min(count, left))
        self._at += len(content)
        return content

    def tell(self) -> int:
        return self._at


class Span(NamedTuple):
    """The first and last sequence number in a file; *is_whole*: the file has all numbers between them."""

    first: int
    last: int
    is_whole: bool


class Hole(NamedTuple):
    """Sequence numbers that a partition lacks, and the files that wait for them."""

    partition: str
    what: str
    files: tuple[str, ...]


class _Run(NamedTuple):
    files: list[str]
    broken: str
    is_whole: bool


_Found = Span | Literal["empty", "damaged"]


def holes(root: Place, files: Sequence[SourceFile], bound: Mapping[str, int]) -> list[Hole]:
    """The gaps in the sequence numbers before new files, and inside them.

    A new file has to follow the bound files of its partition, or, if none is bound, the partition's first file. Only
    files with documented names ``…/<partition>/YYYY/MM/DD/HH/MM/SS.avro`` have an order. Empty files and repeated
    numbers are no gaps, but a file that begins below the previous file's first number is one: the hub was re-created.
    The numbers in a damaged file are unknown, so there is no gap between a damaged file and the next file.
    """
    partitions: dict[str, list[SourceFile]] = defaultdict(list)
    for file in sorted(files):
        partition = partition_of(file.name)
        if partition != file.name:
            partitions[partition].append(file)
    found = []
    for partition, its in partitions.items():
        new = {file.name for file in its if file.size > bound.get(file.name, 0)}
        if new:
            ahead = [] if isinstance(root, Path) else [file for file in its if file.name in new]
            looked = side_by_side(root, lambda file: _numbers(root / file.name, file.size), ahead)
            numbers = {file.name: one for file, one in zip(ahead, looked, strict=True)}
            found += _holes_of(partition, _runs(root, its, new, numbers), new)
    return found


def _holes_of(partition: str, runs: Sequence[_Run], new: set[str]) -> list[Hole]:
    begun = [run for run in runs if not new.issuperset(run.files)] or runs[:1]
    found = []
    for at, run in enumerate(runs):
        names = tuple(name for name in run.files if name in new)
        if names and (run not in begun or not run.is_whole):
            # What precedes all bound files lacks the numbers after it.
            missing = run.broken or runs[at + 1].broken
            found.append(Hole(partition, missing, names))
    return found


def _runs(root: Place, files: Sequence[SourceFile], new: set[str], known: Mapping[str, _Found]) -> list[_Run]:
    @cache
    def numbers(at: int) -> _Found:
        return known.get(files[at].name) or _numbers(root / files[at].name, files[at].size)

    runs: list[_Run] = []
    must_look = False
    for at, file in enumerate(files):
        is_new = file.name in new
        if not is_new and not must_look:
            runs = runs or [_Run([], "", True)]
            runs[-1].files.append(file.name)
            continue
        found = numbers(at)
        if found == "empty":
            continue
        before = next((one for one in map(numbers, range(at - 1, -1, -1)) if one != "empty"), None)
        broken = _broken(before, found)
        is_whole = not isinstance(found, Span) or found.is_whole or not is_new
        if runs and not broken and is_whole:
            runs[-1].files.append(file.name)
        else:
            runs.append(_Run([file.name], broken or ("" if is_whole else f"numbers in {file.name}"), is_whole))
        must_look = is_new
    return runs


def _broken(before: _Found | None, found: _Found) -> str:
    if not isinstance(before, Span) or not isinstance(found, Span):
        return ""
    if found.first > before.last + 1:
        return f"numbers {before.last + 1} to {found.first - 1}"
    if found.first < before.first:
        return f"number {found.first} comes again behind {before.last}: the hub was re-created"
    return ""


def _numbers(path: Place, size: int) -> _Found:
    try:
        return _span(path, size) or "empty"
    except UNREADABLE as error:
        refuse_missing_codec(error)
        return "damaged"


def _span(path: Place, size: int) -> Span | None:
    with open_source(path) as file:
        fastavro.block_reader(file)
        header_end = file.tell()
        records, blocks = 0, []
        while (start := file.tell()) < size:
            count, length = _read_long(file), _read_long(file)
            file.seek(length + _SYNC_BYTES, io.SEEK_CUR)
            if count < 0 or length < 0 or file.tell() > size:
                raise ValueError(f"the block at byte {start} is none")
            if count:
                records += count
                blocks.append((start, file.tell()))
        if not blocks:
            return None
        file.seek(0)
        header = file.read(header_end)
        ends: list[Any] = []
        for start, end in (blocks[0], blocks[-1]):
            file.seek(start)
            ends += fastavro.reader(io.BytesIO(header + file.read(end - start)))
    first, last = ends[0]["SequenceNumber"], ends[-1]["SequenceNumber"]
    return Span(first, last, last - first + 1 == records)


def _read_long(file: IO[bytes]) -> int:
    value, shift = 0, 0
    while True:
        byte = file.read(1)
        if not byte or shift > 63:
            raise EOFError("no whole number")
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return (value >> 1) ^ -(value & 1)
        shift += 7


def list_capture(root: Place, bound: Mapping[str, int], today: date | None = None) -> Listing:
    """All capture files below a folder, except hidden and temporary files; any other files are *unknown*.

    Once a file of the current day (UTC) belongs to a batch, folders of days that were read long ago are left out
    (S-08).
    """
    starts = _starts(bound, today or datetime.now(UTC).date())
    if not starts:
        return list_source_files(root, SUFFIXES, was_read=bool(bound))
    found, partitions = _walked(root, starts)
    begun = dict[str, str]()
    listed = side_by_side(root, lambda p: _since(root, p, starts.get(p, ""), bound), partitions)
    for partition, (files, start) in zip(partitions, listed, strict=True):
        found += files
        begun[partition] = start
    if any(file.unread for file in found):
        return list_source_files(root, SUFFIXES, was_read=True)  # only a listing from the root follows links
    return sorted_out(root, found, SUFFIXES)._replace(begun=begun)


def _starts(bound: Mapping[str, int], today: date) -> dict[str, str]:
    """For each partition the name from which on its files are listed; empty if everything has to be listed."""
    newest: dict[str, str] = {}
    for name in bound:
        partition = partition_of(name)
        if partition != name:
            newest[partition] = max(newest.get(partition, ""), name)
        elif name.casefold().endswith(SUFFIXES):
            return {}  # another layout without a known order
    days: dict[str, date] = {}
    for partition, name in newest.items():
        try:
            days[partition] = datetime.strptime(name[len(partition) + 1 :][:10], "%Y/%m/%d").date()
        except ValueError:
            return {}
    if max(days.values(), default=None) != today:
        return {}
    return {partition: f"{partition}/{day - _SINCE:%Y/%m/%d}" for partition, day in days.items()}


def _walked(root: Place, starts: Mapping[str, str]) -> tuple[list[SourceFile], list[str]]:
    others: list[SourceFile] = []
    partitions: list[str] = []
    ahead = [""]
    while ahead:
        folder = ahead.pop()
        folders, files = files_in(root, folder)
        years = [name for name in (one.rpartition("/")[2] for one in folders) if len(name) == 4 and name.isascii()]
        if folder and any(name.isdigit() for name in years):
            partitions.append(folder)
            continue
        others += files
        for one in folders:
            (partitions if one in starts else ahead).append(one)
    return others, partitions


def _since(root: Place, partition: str, start: str, bound: Mapping[str, int]) -> tuple[list[SourceFile], str]:
    """The files of a partition after a name, and that name; all files if those do not show where new ones follow."""
    if not start:
        return files_below(root, partition, follow=False).files, ""
    files = list(_from_day(root, partition, tuple(start[len(partition) + 1 :].split("/"))))
    captured = [file for file in sorted(files, reverse=True) if partition_of(file.name) == partition]
    known = [file for file in captured if bound.get(file.name) == file.size]
    if len(known) == len(captured) or any(_numbers(root / file.name, file.size) != "empty" for file in known):
        return files, start
    # Only empty windows: they do not show whether a new file follows the one with the last numbers.
    return files_below(root, partition, follow=False).files, ""


def _from_day(root: Place, folder: str, day: tuple[str, ...]) -> Iterator[SourceFile]:
    """By folders, because not every service can list from a name on."""
    if not day:
        yield from files_below(root, folder, follow=False).files
        return
    folders, files = files_in(root, folder)
    yield from files
    for one in folders:
        name = one.rpartition("/")[2]
        if name >= day[0]:
            yield from _from_day(root, one, day[1:] if name == day[0] else ())
