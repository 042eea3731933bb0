"""A transport of files of messages, and its variant for JSON lines."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from open_mirroring.changes.manifest import BoundFile, BoundRange, FileVersion
from open_mirroring.errors import TerminalError
from open_mirroring.facts.read_places import Numbering
from open_mirroring.protocols.backfilling import Interval
from open_mirroring.source_places.source_folders import SourceFile
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract import message_blocks
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.contract.message_blocks import Block
from spark_jobs.sources.contract.source import Chosen, Found, MessageTransport, Seen
from spark_jobs.sources.transports import json_lines
from spark_jobs.sources.transports.source_files import (
    Listing,
    as_bound,
    bound_so_far,
    files_bound_before,
    files_within,
    gone_unread,
    is_read,
    is_rewritten,
    left_behind,
    list_source_files,
    side_by_side,
    versions_of,
    why_unread,
)

if TYPE_CHECKING:
    from open_mirroring.config import Mirror
    from open_mirroring.config.source import InLines, OffsetGaps

log = logging.getLogger(__name__)

_WORTH_BYTES = 2**18
"""Fewer bytes are decoded one by one: the fast path needs time to learn column lists."""


@dataclass(frozen=True)
class MessageFiles(MessageTransport):
    """The transport of a file or a folder of files that contain messages.

    *files* is the state of the files when the ledger assigned them to a batch; it is used in object storage only.
    """

    path: Place
    files: Mapping[str, BoundFile] = field(default_factory=dict, kw_only=True)
    suffixes: ClassVar[tuple[str, ...]]
    empty_range_is_damage: ClassVar[bool] = True

    @property
    def folder(self) -> Place:
        """The folder to which the names of source files are relative."""
        return self.path.parent if self.path.is_file() else self.path

    def list_files(self, bound: Mapping[str, int]) -> Listing:
        """The files of the folder. *bound* is how far each file belongs to batches."""
        return list_source_files(self.path, self.suffixes, was_read=bool(bound))

    @abstractmethod
    def beyond(
        self, listed: Listing, bound: Mapping[str, int], unread: list[BoundRange]
    ) -> tuple[list[BoundRange], set[str]]:
        """The readable ranges of bytes that belong to no batch yet, and the files that have to wait."""

    @abstractmethod
    def messages(self, folder: Place, bound: BoundRange) -> Iterator[RawMessage | Damage]:
        """The messages of a range of a batch, in a file that exists."""

    def grows(self, name: str) -> bool:
        """Whether lines may be appended to the file *name* after it was read; any other file is read completely."""
        return False

    def find(self, spark: Any, bound: Mapping[str, int], seen: Seen | None = None) -> Found:
        """Lists everything at the source that belongs to no batch yet.

        A file with an unknown name becomes one dead letter, and so does a file that disappeared before it was read to
        its end. Raises ``SOURCE_REWRITTEN`` if lines that belong to a batch have changed, because changes may be lost
        (G-32).
        """
        if self.path.is_file():
            file = SourceFile.of(self.path, self.path.name)
            listed = Listing([file], []) if file.size else Listing([], [file.name])
        else:
            listed = self.list_files(bound)
        known = None if seen is None else seen([file.name for file in listed.files])
        unread = [BoundRange(file.name, self._start(file, bound, known), file.size) for file in listed.files]
        ranges, waiting = self.beyond(listed, bound, [one for one in unread if one.end > one.start])
        versions = versions_of(self.folder, listed.files, bound, ranges, known)
        ranges += gone_unread(listed, bound, known)
        ranges += [BoundRange(one.name, 0, one.size) for one in listed.unknown if one.size and one.name not in bound]
        # A file to which lines can be appended may be empty; a gzip or Capture file always has bytes.
        empty = tuple(name for name in listed.waiting if self.grows(name))
        half = {name for name in waiting if self.grows(name)} | ({*listed.waiting} - {*empty})
        overdue = left_behind(self.folder, [*half, *listed.unfinished], ranges)
        waiting_files = sorted([*listed.waiting, *listed.unfinished, *waiting])
        return Found(ranges, waiting_files, empty, versions, overdue=overdue, unread=listed.unread)

    def _start(self, file: SourceFile, bound: Mapping[str, int], seen: Mapping[str, FileVersion] | None) -> int:
        start = bound_so_far(self.path, file.name, file.size, bound)
        rewritten = is_rewritten(self.folder, file, start, seen) if start else False
        if rewritten and self.grows(file.name):
            raise TerminalError(
                "SOURCE_REWRITTEN",
                f"{file.name!r} was read up to byte {start}, and this part of the file has changed since",
                where=str(self.path),
                next_step="source files are append-only: restore the file, and deliver the changed one under a "
                "new name; if lines were lost, `prove` shows which rows differ",
            )
        return start if rewritten is False else 0

    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        return files_within(self.folder, ranges, interval)

    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        return files_bound_before(self.folder, ranges, interval)

    def counts_as_bound(self, name: str) -> bool:
        """Whether messages of the file *name* are numbered by bytes, the unit of bound ranges.

        Lines of plain files are. Records of Capture, and lines of gzip files, are not.
        """
        return self.grows(name)

    def pinned(
        self, bound: Callable[[], Mapping[str, int]], files: Callable[[], Mapping[str, BoundFile]]
    ) -> MessageFiles:
        return self if isinstance(self.path, Path) else replace(self, files=files())

    def read(self, bound: BoundRange) -> Iterator[RawMessage | Damage]:
        return self._read(self._as_bound(bound), bound)

    def blocks(self, bound: BoundRange) -> Iterator[Block] | None:
        return self.in_blocks(bound) if bound.end - bound.start >= _WORTH_BYTES else None

    def in_blocks(self, bound: BoundRange) -> Iterator[Block]:
        """The messages of a range in blocks, also if the range is too small for :meth:`blocks`."""
        return message_blocks.blocks_of(self.read(bound))

    def _as_bound(self, bound: BoundRange) -> Place:
        return as_bound(self.folder, bound, self.files.get(bound.name), at_once=self.grows(bound.name))

    def _is_known(self, name: str) -> bool:
        """Whether a file's name shows how it is read. A single file in the mirror file is always read."""
        return self.path.is_file() or is_read(name, self.suffixes)

    def _read(self, folder: Place, bound: BoundRange) -> Iterator[RawMessage | Damage]:
        if not self._is_known(bound.name):
            reason = f"{why_unread(bound.name, self.suffixes)}: nothing of it was read"
            return iter([Damage(bound.name, 0, "FILE_UNKNOWN", reason, None)])
        if bound.start == bound.end:
            reason = "the file is missing, and contained more after this place when it was seen last"
            return iter([Damage(bound.name, bound.start, "FILE_DAMAGED", reason, None)])
        return self.messages(folder, bound)


@dataclass(frozen=True)
class LineFiles(MessageFiles):
    """The transport of JSON lines. A plain file may grow: new complete lines are read, an incomplete line waits."""

    layout: json_lines.Layout
    offset_gaps: OffsetGaps = "lost"
    suffixes: ClassVar[tuple[str, ...]] = json_lines.SUFFIXES

    @classmethod
    def of(cls, mirror: Mirror, source: InLines) -> LineFiles:
        from open_mirroring.config.storage import place_of  # imported late: workers need no settings

        return cls(place_of(mirror, source.path, source.connection), source.layout, source.offset_gaps)

    @property
    def numbering(self) -> Numbering:
        if self.layout == "bare":
            return ""
        return "unbroken" if self.offset_gaps == "lost" else "rising"

    def beyond(
        self, listed: Listing, bound: Mapping[str, int], unread: list[BoundRange]
    ) -> tuple[list[BoundRange], set[str]]:
        ranges, half = list[BoundRange](), set[str]()
        for found, is_half in side_by_side(self.folder, partial(_complete_lines, self.folder), unread):
            ranges += found
            half.update(is_half)
        return ranges, half

    def grows(self, name: str) -> bool:
        return not json_lines.is_gzip(name)

    def messages(self, folder: Place, bound: BoundRange) -> Iterator[RawMessage | Damage]:
        return json_lines.read_lines(folder, bound.name, bound.start, bound.end, self.layout)

    def in_blocks(self, bound: BoundRange) -> Iterator[Block]:
        folder = self._as_bound(bound)
        is_plain = self.layout == "bare" and self.grows(bound.name) and self._is_known(bound.name)
        if is_plain and json_lines.is_in_lines(folder / bound.name):
            read_to = bound.start
            for block in json_lines.read_blocks(folder, *bound):
                yield block
                read_to += len(block.content)
            if read_to == bound.end:
                return
            bound = BoundRange(bound.name, read_to, bound.end)  # the part that a file truncated meanwhile lacks
        yield from message_blocks.blocks_of(self._read(folder, bound))


def _complete_lines(folder: Place, ahead: BoundRange) -> tuple[list[BoundRange], list[str]]:
    found = json_lines.ranges(folder, *ahead)
    end = found[-1].end if found else ahead.start
    is_whole = json_lines.is_gzip(ahead.name) or json_lines.is_blank(folder / ahead.name, end, ahead.end)
    return found, [] if is_whole else [ahead.name]
