"""The complete position of a log: below it no change can arrive any more, and every transaction is complete.

Nothing in the source marks the end of a transaction, but positions rise inside each partition. So a transaction is
complete once every partition has shown a later commit (C-34). The complete position is the smallest of the highest
commits that the partitions have shown, that commit excluded. It never passes an event whose pieces are missing (C-52).
Where the source counts the changes of each transaction, the position of a first change is used instead of a commit
(K-80). Closed partitions of change tables are one sequence of commits (T-80). A partition that shows nothing new holds
the position back, because a quiet partition looks like a late one. A row that the source writes to each partition from
time to time (a heartbeat) moves it forward (C-88).

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
"""The highest commit (``major`` of a position) seen per partition of the source and stream incarnation.

If a format marks the first change of each transaction, it is the position of the highest such change, ``major:minor``.
"""


class Completeness(NamedTuple):
    """The completeness of the log after a batch.

    Attributes:
        partitions: the number of partitions of the source with changes.
        told: the highest commit that each of them has shown up to this batch; empty if none yet.
        below: per stream incarnation, the position below which every transaction is complete, written as in *told*.
            Incarnations that some partition has not shown yet are left out.
        reads: where the source was read; empty if unknown.
    """

    partitions: int
    told: HighestMajors
    below: Mapping[str, str]
    reads: Reads = MappingProxyType({})

    def told_at(self, reads: Reads) -> HighestMajors:
        """The commits of partitions that are still read; those of a former place show nothing new (G-142)."""
        return {} if places_left(self.reads, reads) else self.told

    def position(self, ordinals: Mapping[str, int]) -> str | None:
        """The complete position of a table as :func:`~open_mirroring.changes.log_position.position_order` writes it.

        Streams that the table's *ordinals* lack have no place in its order. A stream is complete once a later one has a
        complete position, because positions rise over all streams of a partition (G-01).
        """
        known = [position_order(ordinals[epoch], major) for epoch, major in self.below.items() if epoch in ordinals]
        return max(known, default=None)

    def to_json(self) -> str:
        """The text stored in the ledger."""
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
        before: the completeness after the previous batch; None if unknown.
        told: the highest commits in the batch's ranges.
        partitions: the number of partitions of the source with changes.
        waiting: stream incarnation and ``major`` of every event that lacks pieces after the batch. An empty ``major``
            stands for messages of unknown position, which may be anywhere above.
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
