"""Finds which source files belong to an interval of time: by the window in a Capture file's name, else by mtime.

Time only chooses files for a backfill: order comes from positions alone (G-01).

Public source: Microsoft Learn, *Capture events through Azure Event Hubs* (file names).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.protocols.backfilling import Interval
from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.source import Chosen, longest

_WINDOW = re.compile(r"(?:.+/)?(\d{4})/(\d\d)/(\d\d)/(\d\d)/(\d\d)/(\d\d)\.avro")


def files_within(folder: Place, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
    """Of the ranges of files below *folder* those whose time lies in the interval."""
    return [bound for bound in ranges if _time_of(folder / bound.name, bound.name) in interval]


def files_bound_before(folder: Place, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
    """Of bound ranges of files those of the interval that are there still, and the names of files that are not."""
    full = [bound for bound in ranges if bound.end > bound.start]
    gone = {bound.name for bound in full if _size(folder / bound.name) < bound.end}
    chosen = files_within(folder, (bound for bound in full if bound.name not in gone), interval)
    # What is gone tells its time in its name, if at all.
    missed = {name for name in gone if (window := _window(name)) is None or window in interval}
    return Chosen(longest(chosen), sorted(missed))


def _window(name: str) -> datetime | None:
    match = _WINDOW.fullmatch(name)
    return None if match is None else datetime(*map(int, match.groups()), tzinfo=UTC)  # type: ignore[arg-type, misc]


def _time_of(path: Place, name: str) -> datetime | None:
    """None for a file that went away since it was listed: it belongs to no interval, and the next look misses it."""
    try:
        return _window(name) or datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except FileNotFoundError:
        return None


def _size(path: Place) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
