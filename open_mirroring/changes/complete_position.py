"""The complete position of a log: below it no change can arrive any more, and every transaction is whole.

Nothing in the source marks the end of a transaction, but positions rise inside each partition. So a transaction is
whole once every partition has shown a later commit (C-34). The complete position is the smallest of the highest
commits that the partitions have shown, that commit excluded. It never passes an event whose pieces are missing (C-52).
Where the source counts the changes of each transaction, the place of a first one tells it instead of a commit (K-80);
closed partitions of change tables are one sequence of commits (T-80). A partition that shows nothing new holds the
position back, because a quiet partition looks like a late one. A row that the source writes to each partition from time
to time (a heartbeat) moves it on (C-88).

Public source: Microsoft Learn, *JSON Message format - change event streaming* (``finalevent`` is not in use),
*sys.sp_create_event_stream_group* (``@partition_key_scheme``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.changes.log_position import position_order
from open_mirroring.changes.places_left import Reads, places_left

HighestMajors = Mapping[str, Mapping[str, str]]
"""Per partition of the source and stream incarnation the highest commit that it has shown: the ``major`` of a position.

Where a format tells the first change of each transaction it is the place of the highest such change, ``major:minor``.
"""


class Completeness(NamedTuple):
    """How complete the log is after a batch.

    Attributes:
        partitions: how many partitions of the source carry changes.
        told: the highest commit that each of them has shown up to this batch; empty where it has shown none as yet.
        below: per stream incarnation the place below which every transaction is whole, spelled as in *told*. An
            incarnation that some partition has not shown yet is left out.
        reads: where the source was read; empty where that is not known.
    """

    partitions: int
    told: HighestMajors
    below: Mapping[str, str]
    reads: Reads = MappingProxyType({})

    def told_at(self, reads: Reads) -> HighestMajors:
        """What partitions have shown that are still read; those of a former place show nothing any more (G-142)."""
        return {} if places_left(self.reads, reads) else self.told

    def position(self, ordinals: Mapping[str, int]) -> str | None:
        """The complete position of a table as :func:`~open_mirroring.changes.log_position.position_order` writes it.

        Streams that the table's *ordinals* do not name have no place in its order. A stream is whole once a later one
        has a complete position, as positions rise over all streams of a partition (G-01).
        """
        known = [position_order(ordinals[epoch], major) for epoch, major in self.below.items() if epoch in ordinals]
        return max(known, default=None)

    def to_json(self) -> str:
        """The ledger's document."""
        return json.dumps({**self._asdict(), "reads": dict(self.reads)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Completeness:
        """Read back what :meth:`to_json` wrote."""
        return cls(**json.loads(text))


def advance(
    before: Completeness | None,
    told: HighestMajors,
    partitions: int,
    waiting: Iterable[tuple[str, str]],
    reads: Reads = MappingProxyType({}),
) -> Completeness:
    """The completeness after a batch: a pure function of the batches up to it. A complete position never falls.

    Args:
        before: the completeness after the batch before; None when none was kept.
        told: the highest commits that the batch's ranges have shown.
        partitions: how many partitions of the source carry changes.
        waiting: stream incarnation and ``major`` of every event that lacks pieces after the batch; an empty ``major``
            is of messages whose place is not known yet, which may lie anywhere above.
        reads: where the source was read for the batch.
    """
    merged = {name: dict(epochs) for name, epochs in (before.told_at(reads) if before else {}).items()}
    for name, epochs in told.items():
        seen = merged.setdefault(name, {})
        for epoch, major in epochs.items():
            seen[epoch] = max(major, seen.get(epoch, ""))
    below = dict(before.below) if before else {}
    waiting = list(waiting)
    if any(not major for _, major in waiting):
        return Completeness(partitions, merged, below, reads)
    open_from: dict[str, str] = {}
    for epoch, major in waiting:
        open_from[epoch] = min(major, open_from.get(epoch, major))
    for epoch in {epoch for epochs in merged.values() for epoch in epochs}:
        shown = [epochs[epoch] for epochs in merged.values() if epochs.get(epoch)]
        if len(shown) >= partitions:
            now = min([*shown, open_from.get(epoch, shown[0])])
            below[epoch] = max(now, below.get(epoch, ""))
    return Completeness(partitions, merged, below, reads)
