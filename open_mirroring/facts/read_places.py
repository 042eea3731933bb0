"""Records what was read of each partition: its offsets, as ranges without gaps, and the highest position it has shown.

Ranges with a gap show that messages are missing. A broker numbers the messages of a partition without a gap. If the
first number that was read is not the partition's first number, reading began too late and messages may be missing. The
lowest of the partitions' highest positions decides which transactions are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from open_mirroring.facts.kind import Kind

Numbering = Literal["", "bound", "rising", "unbroken"]
"""What the offsets of messages prove.

``""``: nothing; ``bound``: where reading began, by the range that the batch bound; ``rising``: where reading began, by
the messages themselves; ``unbroken``: also which messages are missing."""

RUNS_KEPT = 1_000
"""Ranges kept per partition. Further ones are forgotten, so their offsets count as missing; a gap is never forgotten.
"""


class Run(NamedTuple):
    """A range of consecutive offsets that were all read, both ends inclusive.

    If *last* is one below *first*, no offset was read yet and reading begins at *first*.
    """

    first: int
    last: int


def joined(runs: Iterable[Sequence[int]]) -> list[Run]:
    """Merge ranges that overlap or touch; the result is in ascending order."""
    found: list[Run] = []
    for first, last in sorted(Run(*run) for run in runs):
        if found and first <= found[-1].last + 1:
            found[-1] = Run(found[-1].first, max(found[-1].last, last))
        else:
            found.append(Run(first, last))
    return found


def bounded(runs: Sequence[Run]) -> list[Run]:
    """Keep the first range and the last ones, at most :data:`RUNS_KEPT` ranges together."""
    surplus = max(0, len(runs) - RUNS_KEPT)
    return [*runs[:1], *runs[1 + surplus :]]


def gaps(runs: Sequence[Run]) -> list[Run]:
    """The ranges of offsets between the given ranges, which were not read, in ascending order."""
    return [Run(one.last + 1, other.first - 1) for one, other in pairwise(runs)]


READ_PLACES = Kind[list[Run]]("places", list[Run], lambda one, other: joined([*one, *other]))
"""The ranges that were read for the first time, by partition."""


def fold(known: Mapping[str, Sequence[Run]], found: Mapping[str, Sequence[Run]]) -> dict[str, list[Run]]:
    """Add the ranges of a batch to the known ranges.

    Returns, for each partition that the batch read, all ranges that were read until now.
    """
    return {name: bounded(joined([*known.get(name, ()), *runs])) for name, runs in found.items()}


def begun_late(known: Mapping[str, Sequence[Run]], found: Mapping[str, Sequence[Run]]) -> dict[str, int]:
    """The partitions in *found* that *known* lacks and that were not read from offset 0, with their first offset read.

    Empty if *known* is empty: nothing was read before, so no partition counts as late (G-143).
    """
    late = {name: runs[0].first for name, runs in sorted(found.items()) if runs and runs[0].first}
    return {name: first for name, first in late.items() if known and name not in known}


def highest_of(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """By partition, the higher one of the positions in *one* and in *other*."""
    return {name: max(one.get(name, ""), other.get(name, "")) for name in {**one, **other}}


SHOWN = Kind[dict[str, str]]("shown", dict[str, str], highest_of)
"""The highest commit (``major`` of a position) by partition and stream.

If a format marks the first change of a transaction (K-80), it is ``major:minor`` of the highest such change; empty
without one."""

UNCOUNTED = Kind[str]("uncounted", str, min)
"""Where a change was found that lacks its number in its transaction, in a format that has one (K-80)."""
