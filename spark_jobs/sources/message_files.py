"""Files of messages: Event Hubs Capture and JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from open_mirroring.errors import TerminalError
from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.change_log_schema import RawMessage
from spark_jobs.sources import capture, json_lines
from spark_jobs.sources.capture import Damage
from spark_jobs.sources.found import Found
from spark_jobs.sources.source_files import Listing, SourceFile


class SourcePlace(NamedTuple):
    """Files of messages as a worker needs them: a folder, or one file; *layout* matters to JSON lines only."""

    transport: Literal["capture", "files"]
    path: Path
    layout: Literal["wrapped", "bare"]

    @property
    def folder(self) -> Path:
        """Where the names of source files start."""
        return self.path.parent if self.path.is_file() else self.path


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


def _listed(source: SourcePlace) -> Listing:
    if source.path.is_file():
        size = source.path.stat().st_size
        return Listing([SourceFile(source.path.name, size)], []) if size else Listing([], [source.path.name])
    return capture.list_capture(source.path) if source.transport == "capture" else json_lines.list_files(source.path)
