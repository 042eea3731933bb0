"""Files of messages: Event Hubs Capture and JSON lines."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from open_mirroring.config import Mirror
from open_mirroring.config.source import GAP_TIMEOUT_MINUTES
from open_mirroring.config.storage import place_of
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.extract_ledger import BoundRange, FileVersion
from open_mirroring.protocols.backfilling import Interval
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract import message_blocks
from spark_jobs.sources.contract.message_blocks import Block
from spark_jobs.sources.contract.source import Chosen, Found, MessageTransport
from spark_jobs.sources.transports import capture, capture_gaps, json_lines
from spark_jobs.sources.transports.capture import Damage
from spark_jobs.sources.transports.capture_gaps import list_capture
from spark_jobs.sources.transports.file_times import files_bound_before, files_within
from spark_jobs.sources.transports.source_files import (
    BoundFile,
    Listing,
    SourceFile,
    as_bound,
    bound_files,
    bound_so_far,
    gone_unread,
    is_read,
    is_rewritten,
    side_by_side,
    versions_of,
    why_unread,
)

log = logging.getLogger(__name__)

_WORTH_BYTES = 2**18
"""Fewer bytes are decoded one by one: what takes messages from blocks has to learn before it is fast."""


@dataclass(frozen=True)
class MessageFiles(MessageTransport):
    """Files of messages as a worker needs them: a folder, or one file.

    Args:
        transport: what the files are.
        path: the folder or file.
        layout: matters to JSON lines only.
        gap_timeout_minutes: how long the files behind a hole wait; matters to Capture only (C-93).
        files: how the files were when they were bound; matters in object storage only.
    """

    transport: Literal["capture", "files"]
    path: Place
    layout: Literal["wrapped", "bare"]
    gap_timeout_minutes: int = GAP_TIMEOUT_MINUTES
    files: Mapping[str, BoundFile] = field(default_factory=dict)

    @property
    def folder(self) -> Place:
        """Where the names of source files start."""
        return self.path.parent if self.path.is_file() else self.path

    @classmethod
    def of(cls, mirror: Mirror) -> MessageFiles:
        """The files that a mirror file names.

        Raises:
            TerminalError: ``CONNECTION_MISSING``, ``CONNECTION_INVALID``, ``ADDRESS_INVALID``.
        """
        source = mirror.source
        assert source.transport in ("capture", "files")
        layout = source.layout or "wrapped"
        path = place_of(mirror, source.path, source.connection)
        return cls(source.transport, path, layout, source.gap_timeout_minutes or GAP_TIMEOUT_MINUTES)

    @property
    def settles_after(self) -> int:
        """A Capture writes its files every 15 minutes at most."""
        return 960 if self.transport == "capture" else 60

    @property
    def empty_range_is_damage(self) -> bool:
        """As :meth:`Transport.empty_range_is_damage`."""
        return True

    def find(self, spark: Any, bound: Mapping[str, int], seen: Mapping[str, FileVersion] | None = None) -> Found:
        """See :func:`find_ranges`."""
        return find_ranges(self, bound, seen)

    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        """As :meth:`Transport.within`."""
        return files_within(self.folder, ranges, interval)

    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        """As :meth:`Transport.bound_before`."""
        return files_bound_before(self.folder, ranges, interval)

    def counts_as_bound(self, name: str) -> bool:
        """Lines count bytes; records of a Capture file and lines of a packed one are numbered."""
        return self.transport == "files" and not json_lines.is_gzip(name)

    def pinned(self, bound: Mapping[str, int], seen: Callable[[], Mapping[str, FileVersion]]) -> MessageFiles:
        """As :meth:`MessageTransport.pinned`."""
        return self if isinstance(self.path, Path) else replace(self, files=bound_files(bound, seen()))

    def grows(self, name: str) -> bool:
        """Whether lines may be appended to a file that was read; others are read as a whole."""
        return self.counts_as_bound(name)

    def read(self, bound: BoundRange) -> Iterator[RawMessage | Damage]:
        """As :meth:`MessageTransport.read`."""
        return read_range(self, bound)

    def blocks(self, bound: BoundRange) -> Iterator[Block] | None:
        """As :meth:`MessageTransport.blocks`."""
        return read_blocks(self, bound) if bound.end - bound.start >= _WORTH_BYTES else None

    def as_bound(self, bound: BoundRange) -> Place:
        """The folder, from which a file is read as it was bound."""
        return as_bound(self.folder, bound, self.files.get(bound.name), at_once=self.grows(bound.name))


def find_ranges(source: MessageFiles, bound: Mapping[str, int], seen: Mapping[str, FileVersion] | None = None) -> Found:
    """Everything at the source beyond what is bound.

    A file whose name tells nothing is one range, and becomes one dead letter: nobody is to believe that it was read.
    A Capture file is one range; should it have grown since it was bound, it is read again as a whole, and the plan
    drops what it holds twice; one behind a hole in the numbers of its partition waits. A plain JSON-lines file gives
    its complete new lines. One that was read as a whole and is written anew is read again; of lines that were bound
    and changed nobody knows what else there was (G-32). One that is gone before it was read to its end is an empty
    range, and becomes a dead letter. Half a line at the end of a file waits for its other half.

    Raises:
        TerminalError: ``SOURCE_FOLDER_MISSING`` when the source's folder does not exist, ``SOURCE_SHRUNK`` when a
            file is shorter than what was bound of it, ``SOURCE_REWRITTEN`` when that has changed, ``CAPTURE_GAP``
            when a hole did not close in time (C-93).
    """
    listed = _listed(source, bound)
    held_back = _held_back(source, listed, bound) if source.transport == "capture" else set()
    ranges: list[BoundRange] = []
    half: list[str] = []
    ahead: list[BoundRange] = []
    for file in listed.files:
        name, size, _ = file
        start = bound_so_far(source.path, name, size, bound)
        if start and is_rewritten(source.folder, file, start, seen):
            if source.grows(name):
                raise TerminalError(
                    "SOURCE_REWRITTEN",
                    f"{name!r} was read up to byte {start}, and what stands there now is not what was read",
                    where=str(source.path),
                    way_out="source files are append-only: put the file back as it was, and deliver the other under a "
                    "new name; if lines were lost, `prove` tells which rows differ",
                )
            start = 0
        if source.transport == "files" and size > start:
            ahead.append(BoundRange(name, start, size))
        elif size > start and name not in held_back:
            ranges.append(BoundRange(name, 0, size))
    for found, is_half in side_by_side(source.folder, partial(_complete_lines, source.folder), ahead):
        ranges += found
        half += is_half
    versions = versions_of(source.folder, listed.files, bound, ranges, seen)
    ranges += gone_unread(listed, bound, seen)
    ranges += [BoundRange(name, 0, size) for name, size, _ in listed.unknown if size and name not in bound]
    waiting = sorted([*listed.waiting, *listed.unfinished, *held_back, *half])
    return Found(ranges, waiting, tuple(listed.waiting), versions)


def _complete_lines(folder: Place, ahead: BoundRange) -> tuple[list[BoundRange], list[str]]:
    """The complete lines that a file has beyond what is bound of it, and its name if half a line stands behind them."""
    found = json_lines.ranges(folder, *ahead)
    end = found[-1].end if found else ahead.start
    is_whole = json_lines.is_gzip(ahead.name) or json_lines.is_blank(folder / ahead.name, end, ahead.end)
    return found, [] if is_whole else [ahead.name]


def _held_back(source: MessageFiles, listed: Listing, bound: Mapping[str, int]) -> set[str]:
    """The Capture files that wait for numbers before them; one that waits too long stops the mirror."""
    held: set[str] = set()
    for hole in capture_gaps.holes(source.folder, listed.files, bound):
        minutes = (time.time() - min((source.folder / name).stat().st_mtime for name in hole.files)) / 60
        if minutes > source.gap_timeout_minutes:
            raise TerminalError(
                "CAPTURE_GAP",
                f"{hole.what} of partition {hole.partition!r} are missing, and {hole.files[0]!r} waits for them since "
                f"{minutes:.0f} minutes",
                where=str(source.path),
                way_out="copy the missing files to their places; if they are lost, so are changes: load the tables "
                "anew, with a new ledger and change log (runbook, *Starting over*)",
            )
        log.warning("partition %r: %s are missing; %d files wait for them", hole.partition, hole.what, len(hole.files))
        held.update(hole.files)
    return held


def read_range(source: MessageFiles, bound: BoundRange) -> Iterator[RawMessage | Damage]:
    """The messages of one bound range in the order in which they stand there."""
    return _read(source, source.as_bound(bound), bound)


def _read(source: MessageFiles, folder: Place, bound: BoundRange) -> Iterator[RawMessage | Damage]:
    if not is_known(source, bound.name):
        reason = f"{why_unread(bound.name, _suffixes(source))}: nothing of it was read"
        return iter([Damage(bound.name, 0, "FILE_UNKNOWN", reason, None)])
    if bound.start == bound.end:
        reason = "the file is gone, and held more behind this place when it was seen last"
        return iter([Damage(bound.name, bound.start, "LINES_DAMAGED", reason, None)])
    if source.transport == "capture":
        return capture.read_capture(folder, bound.name, bound.end)
    return json_lines.read_lines(folder, bound.name, bound.start, bound.end, source.layout)


def read_blocks(source: MessageFiles, bound: BoundRange) -> Iterator[Block]:
    """The messages of :func:`read_range` in blocks."""
    folder = source.as_bound(bound)
    is_plain = (source.transport, source.layout) == ("files", "bare") and not json_lines.is_gzip(bound.name)
    if is_plain and is_known(source, bound.name):
        read_to = bound.start
        for block in json_lines.read_blocks(folder, *bound):
            yield block
            read_to += len(block.content)
        if read_to == bound.end:
            return
        bound = BoundRange(bound.name, read_to, bound.end)  # what a file cut meanwhile lacks
    yield from message_blocks.blocks_of(_read(source, folder, bound))


def is_known(source: MessageFiles, name: str) -> bool:
    """Whether a file's name says how it is read; a single file that the mirror file names is read."""
    return source.path.is_file() or is_read(name, _suffixes(source))


def _suffixes(source: MessageFiles) -> tuple[str, ...]:
    return capture.SUFFIXES if source.transport == "capture" else json_lines.SUFFIXES


def _listed(source: MessageFiles, bound: Mapping[str, int]) -> Listing:
    if source.path.is_file():
        file = SourceFile.of(source.path, source.path.name)
        return Listing([file], []) if file.size else Listing([], [file.name])
    if source.transport == "capture":
        return list_capture(source.path, bound)
    return json_lines.list_files(source.path, was_read=bool(bound))
