"""Decides from a listing of a table's folders which files the target has applied, and what became of absent files.

Fabric applies files in order, and moves each applied file but the last one to ``_ProcessedFiles`` (F-34, F-35). After
some days Fabric removes processed files (F-36). So a number that is not listed was removed by Fabric, was removed by
someone else, or never arrived (I22).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from open_mirroring.landing_zone.listing import FileStage, ListedItem
from open_mirroring.ledger.reading import PublishedFile


@dataclass(frozen=True)
class FileSequence:
    """The file numbers of one table, sorted by where each file was found.

    *final* are in the table's folder, *moved* in a folder of processed files. *applied* is the highest number that the
    target has applied, *applied_by* how that is known. A confirmed number that is in no folder belongs to one of four
    groups. *purged*: Fabric removed the file after processing it long ago. *gaps*: the target waits for the file,
    which Fabric did not remove, because a file with a lower number is still in a folder. *missing*: the file is too
    young to be removed, or its number is higher than all numbers found. *last_missing*: the highest confirmed number
    is missing.
    """

    final: frozenset[int]
    moved: frozenset[int]
    applied: int
    applied_by: tuple[str, ...]
    purged: tuple[int, ...]
    gaps: tuple[int, ...]
    missing: tuple[int, ...]
    last_missing: bool
    lost: tuple[int, ...]
    """Gaps, missing numbers and a missing last one together."""
    waiting: tuple[int, ...]
    """Confirmed numbers in the folder that are not applied; empty if only the last file is there (F-35)."""

    @property
    def highest(self) -> int:
        """The highest file number found, confirmed or not; 0 if no file was found."""
        return max(self.final | self.moved, default=0)


def file_sequence(
    items: Iterable[ListedItem],
    confirmed: int,
    published: Mapping[int, PublishedFile],
    *,
    settled: int,
    purged_before: datetime,
) -> FileSequence:
    """Sort the file numbers 1 to *confirmed* by where *items*, a listing of the folders, shows the files.

    Numbers up to *settled* need no entry in *published*, and their files may be absent. Fabric may have removed files
    that were confirmed before *purged_before*.
    """
    stages = [(item.number, item.stage) for item in items if item.number is not None]
    final = frozenset(number for number, stage in stages if stage is FileStage.FINAL)
    moved = frozenset(number for number, stage in stages if stage is not FileStage.FINAL)
    absent: dict[str, list[int]] = {"purged": [], "gap": [], "missing": []}
    for number in range(settled + 1, confirmed + 1):
        if number not in final and number not in moved:
            record = published.get(number)
            old = record is not None and record.confirmed_at < purged_before
            absent[_why_absent(number, final, moved, old=old)].append(number)
    evidence = {
        "moved": max(moved, default=0),
        # Someone else removed a file that is a gap, so its absence does not show that it was applied.
        "left the folder": min([*final, *absent["gap"]], default=1) - 1,
    }
    applied = min(max(evidence.values()), confirmed)
    highest = max(final | moved, default=0)
    last_missing = confirmed > highest
    lost = tuple(sorted({*absent["gap"], *absent["missing"]}))
    waiting = sorted(number for number in final if applied < number <= confirmed)
    if waiting == [highest]:
        waiting = []
    return FileSequence(
        final=final,
        moved=moved,
        applied=applied,
        applied_by=tuple(how for how, number in evidence.items() if 0 < applied <= number),
        purged=tuple(absent["purged"]),
        gaps=tuple(absent["gap"]),
        missing=tuple(n for n in absent["missing"] if n < confirmed or not last_missing),
        last_missing=last_missing,
        lost=lost,
        waiting=tuple(waiting),
    )


def _why_absent(number: int, final: frozenset[int], moved: frozenset[int], *, old: bool) -> str:
    lowest_final, highest_moved = min(final, default=None), max(moved, default=0)
    if number > max(final | moved, default=0):
        # No file with a higher number was found, so nothing shows that this file ever arrived, whatever its age.
        return "missing"
    if number < highest_moved:
        # A file with a higher number was moved and is still there, so this file was moved before.
        return "purged" if old else "missing"
    if highest_moved or (lowest_final is not None and number > lowest_final):
        # A file with a lower number is still there. Fabric goes in order, so it did not remove this file.
        return "gap"
    return "purged" if old else "missing"
