"""Finds the source files of an interval of time: by the window in a Capture file's name, else by mtime.

Time only selects files for a backfill; the order comes from positions alone (G-01).
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
    """The ranges of files below *folder* whose time is in the interval."""
    return [bound for bound in ranges if _time_of(folder / bound.name, bound.name) in interval]


def files_bound_before(folder: Place, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
    """The bound ranges of existing files in the interval, and the names of files that are gone."""
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
