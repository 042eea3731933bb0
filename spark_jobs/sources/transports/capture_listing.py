"""Which Capture files there are; in object storage without listing every day what was read long ago (S-08).

A partition's files are written one after the other, each below the folder of its window, and those that were bound
follow each other without a hole (C-93). So what is new stands behind what was bound. What came into an older folder all
the same (a copy that was late, a file written anew) is found by the first look of each day, which lists everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta

from open_mirroring.storage.object_path import ObjectPath, Place
from open_mirroring.storage.object_store import ObjectStat
from spark_jobs.sources.transports.capture import SUFFIXES
from spark_jobs.sources.transports.capture_gaps import has_numbers, partition_of
from spark_jobs.sources.transports.source_files import (
    Listing,
    SourceFile,
    list_source_files,
    side_by_side,
    sorted_out,
    source_files,
)

_SINCE = timedelta(days=1)
"""So long before the newest window that was bound a listing begins."""


def list_capture(root: Place, bound: Mapping[str, int], today: date | None = None) -> Listing:
    """All capture files below a folder, except hidden and temporary ones; all others are *unknown*.

    Args:
        root: the source's folder.
        bound: up to which size each was bound, from the ledger.
        today: the day in UTC; None for this one.

    Raises:
        TerminalError: ``SOURCE_FOLDER_MISSING``; what the storage raises.
    """
    starts = _starts(bound, today or datetime.now(UTC).date()) if isinstance(root, ObjectPath) else {}
    if not starts or not isinstance(root, ObjectPath):
        return list_source_files(root, SUFFIXES, was_read=bool(bound))
    found: list[SourceFile] = []
    begun = dict[str, str]()
    others, partitions = _walked(root, starts)
    found += source_files(root, others)
    listed = side_by_side(root, lambda p: _since(root, p, starts.get(p, ""), bound), partitions)
    for partition, (files, start) in zip(partitions, listed, strict=True):
        found += files
        begun[partition] = start
    return sorted_out(found, SUFFIXES)._replace(begun=begun)


def _starts(bound: Mapping[str, int], today: date) -> dict[str, str]:
    """By partition the folder of the day with which a listing begins; empty where everything has to be listed."""
    newest: dict[str, str] = {}
    for name in bound:
        partition = partition_of(name)
        if partition == name and name.casefold().endswith(SUFFIXES):
            return {}  # another layout, of which no order is known
        if partition != name:
            newest[partition] = max(newest.get(partition, ""), name)
    windows = {partition: _day(partition, name) for partition, name in newest.items()}
    if None in windows.values() or max(windows.values(), default=None, key=lambda day: day or date.min) != today:
        return {}
    days = {partition: day - _SINCE for partition, day in windows.items() if day is not None}
    return {partition: f"{partition}/{day:%Y/%m/%d}" for partition, day in days.items()}


def _day(partition: str, name: str) -> date | None:
    try:
        return datetime.strptime(name[len(partition) + 1 :][:10], "%Y/%m/%d").date()
    except ValueError:
        return None


def _walked(root: ObjectPath, starts: Mapping[str, str]) -> tuple[list[ObjectStat], list[str]]:
    """The objects that are in no partition's folder, and the folders of partitions, by their names below *root*."""
    others: list[ObjectStat] = []
    partitions: list[str] = []
    ahead = [root.key]
    while ahead:
        key = ahead.pop()
        folders, objects = root.store.folders(key)
        if key != root.key and any(_is_year(folder) for folder in folders):
            partitions.append(root.relative(key))
            continue
        others += objects
        for folder in folders:
            if root.relative(folder) in starts:
                partitions.append(root.relative(folder))
            else:
                ahead.append(folder)
    return others, partitions


def _is_year(folder: str) -> bool:
    name = folder.rpartition("/")[2]
    return len(name) == 4 and name.isascii() and name.isdigit()


def _since(root: ObjectPath, partition: str, start: str, bound: Mapping[str, int]) -> tuple[list[SourceFile], str]:
    """The files of a partition behind a name, and that name; all of them where those are no anchor for what is new."""
    folder = (root / partition).key
    if not start:
        return source_files(root, root.store.objects(folder)), ""
    files = source_files(root, _from_day(root, folder, tuple(start[len(partition) + 1 :].split("/"))))
    captured = [file for file in sorted(files, reverse=True) if partition_of(file.name) == partition]
    known = [file for file in captured if bound.get(file.name) == file.size]
    if len(known) == len(captured) or any(has_numbers(root, file) for file in known):
        return files, start
    # Empty windows alone: whether a new file follows the one with the last numbers is not to be seen from here.
    return source_files(root, root.store.objects(folder)), ""


def _from_day(root: ObjectPath, folder: str, day: tuple[str, ...]) -> Iterator[ObjectStat]:
    """The objects below a folder in date folders from a day on, given by the names of year, month and day.

    By folders, not behind a name: that is not how every service lists.
    """
    if not day:
        yield from root.store.objects(folder)
        return
    folders, objects = root.store.folders(folder)
    yield from objects
    for one in folders:
        name = one.rpartition("/")[2]
        if name >= day[0]:
            yield from _from_day(root, one, day[1:] if name == day[0] else ())
