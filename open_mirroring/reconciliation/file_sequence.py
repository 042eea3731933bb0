"""Sorts a table's file numbers by where a listing shows them, and decides what became of the missing ones.

The service applies and moves files in order, keeps the last one in the folder (F-34, F-35), and removes processed files
after some days (F-36). So a missing number was purged, taken away, or never applied (I22).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from open_mirroring.landing_zone.listing import FileStage, ListedItem
from open_mirroring.ledger.reading import PublishedFile


@dataclass(frozen=True)
class FileSequence:
    """The numbers of one table, sorted by what is known of them.

    *final* are seen in the folder, *moved* in a processed one. Confirmed numbers that are nowhere are *purged*
    (processed long ago), *gaps* (the target waits for them), *missing* (too young to be purged) or *last_missing*.
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
    """Confirmed and not applied, in the folder; not the last file when it is alone there (F-35)."""

    @property
    def highest(self) -> int:
        """The highest number seen, confirmed or not; 0 for none."""
        return max(self.final | self.moved, default=0)


def file_sequence(
    items: Iterable[ListedItem],
    confirmed: int,
    published: Mapping[int, PublishedFile],
    *,
    settled: int,
    purged_before: datetime,
) -> FileSequence:
    """Sort the numbers 1 to *confirmed* by what *items* show of them.

    Numbers up to *settled* need no record and may be absent. Files confirmed before *purged_before* may have been
    removed.
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
        # A gap left the folder by somebody else's hand: it is no evidence for itself.
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
        # Nothing above it says that it ever was here: no age explains that.
        return "missing"
    if number < highest_moved:
        # Moved before a higher one that is still to be seen.
        return "purged" if old else "missing"
    if highest_moved or (lowest_final is not None and number > lowest_final):
        # A lower one is still to be seen, so this one was not purged: the service goes in order.
        return "gap"
    return "purged" if old else "missing"
