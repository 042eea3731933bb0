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
    groups. *purged*: Fabric removed the file after processing it long ago. *gaps*: a file with a lower number is still
    in a folder. So Fabric did not remove the missing file, and waits for it. *missing*: the file is too young to be
    removed, or its number is higher than all numbers found. *last_missing*: the highest confirmed number is missing.
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
    found = final | moved
    lowest, highest, highest_moved = min(found, default=0), max(found, default=0), max(moved, default=0)
    purged, gaps, missing = list[int](), list[int](), list[int]()
    for number in range(settled + 1, confirmed + 1):
        if number in found:
            continue
        record = published.get(number)
        is_old = record is not None and record.confirmed_at < purged_before
        if max(lowest, highest_moved) < number < highest:
            # A file with a lower number is still there. Fabric goes in order, so it did not remove this file.
            gaps.append(number)
        elif is_old and number < highest:
            purged.append(number)
        else:
            # If no file with a higher number was found, nothing shows that this file ever arrived, whatever its age.
            missing.append(number)
    evidence = {
        "moved": highest_moved,
        # Someone else removed a file that is a gap, so its absence does not show that it was applied.
        "left the folder": min([*final, *gaps], default=1) - 1,
    }
    applied = min(max(evidence.values()), confirmed)
    last_missing = confirmed > highest
    waiting = sorted(number for number in final if applied < number <= confirmed)
    if waiting == [highest]:
        waiting = []
    return FileSequence(
        final=final,
        moved=moved,
        applied=applied,
        applied_by=tuple(how for how, number in evidence.items() if 0 < applied <= number),
        purged=tuple(purged),
        gaps=tuple(gaps),
        missing=tuple(n for n in missing if n < confirmed or not last_missing),
        last_missing=last_missing,
        lost=tuple(sorted([*gaps, *missing])),
        waiting=tuple(waiting),
    )
