"""Where messages come from: which ranges a source has, and the messages of one range.

A transport knows ranges and bytes only; formats decode. A range names a file below the source's path (or a topic
partition) and a half-open interval in it; the ledger binds ranges before anything is read, so that a message is read
in exactly one batch however the source grows meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from open_mirroring.errors import TerminalError
from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.change_log_schema import RawMessage
from spark_jobs.sources import capture, json_lines
from spark_jobs.sources.capture import Damage
from spark_jobs.sources.source_files import Listing, SourceFile

__all__ = ["Damage", "SourcePlace", "find_ranges", "read_range"]


class SourcePlace(NamedTuple):
    """A source as a worker needs it: a folder, or one file; *layout* matters to JSON-lines files only."""

    transport: Literal["capture", "files"]
    path: Path
    layout: Literal["wrapped", "bare"]

    @property
    def folder(self) -> Path:
        """Where the names of source files start."""
        return self.path.parent if self.path.is_file() else self.path


class Found(NamedTuple):
    """What a look at the source brought: ranges never bound before, and files that are not ready to be read."""

    ranges: list[BoundRange]
    waiting: list[str]


def find_ranges(source: SourcePlace, bound: Mapping[str, int]) -> Found:
    """Everything at the source beyond what is bound.

    A Capture file is one range; should it have grown since it was bound, it is read again as a whole, and the plan
    drops what it holds twice. A plain JSON-lines file gives its complete new lines.

    Raises:
        TerminalError: ``SOURCE_FOLDER_MISSING`` when the source's folder does not exist, ``SOURCE_SHRUNK`` when a
            file is shorter than what was bound of it.
    """
    listed = _listed(source)
    ranges: list[BoundRange] = []
    for name, size in listed.files:
        start = bound.get(name, 0)
        if size < start:
            raise TerminalError(
                "SOURCE_SHRUNK",
                f"{name!r} has {size} bytes, but {start} were bound of it",
                where=str(source.path),
                way_out="source files are append-only; restore the file, or move it away and deliver under a new name",
            )
        if source.transport == "files":
            ranges.extend(json_lines.ranges(source.folder, name, start, size))
        elif size > start:
            ranges.append(BoundRange(name, 0, size))
    return Found(ranges, list(listed.waiting))


def read_range(source: SourcePlace, bound: BoundRange) -> Iterator[RawMessage | Damage]:
    """The messages of one bound range in the order in which they stand there."""
    if source.transport == "capture":
        return capture.read_capture(source.folder, bound.name, bound.end)
    return json_lines.read_lines(source.folder, bound.name, bound.start, bound.end, source.layout)


def has_blocks(source: SourcePlace, bound: BoundRange) -> bool:
    """Whether a range is of plain lines that are messages, so that it can be read in blocks of them."""
    return source.transport == "files" and source.layout == "bare" and not json_lines.is_gzip(bound.name)


def _listed(source: SourcePlace) -> Listing:
    if source.path.is_file():
        size = source.path.stat().st_size
        return Listing([SourceFile(source.path.name, size)], []) if size else Listing([], [source.path.name])
    return capture.list_capture(source.path) if source.transport == "capture" else json_lines.list_files(source.path)
