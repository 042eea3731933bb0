"""Computes the complete position of the change log: the position below which no change can arrive any more.

Below the complete position every transaction is complete. Positions rise inside each partition of the source, so a
transaction is complete once every partition has shown a later commit (C-34). So the complete position is the smallest
of the partitions' highest commits. The complete position never passes a split event whose pieces are missing (C-52). A
partition without new messages holds the complete position back; a heartbeat message moves it forward (C-88).

Public source: Microsoft Learn, *JSON Message format - change event streaming* (``finalevent`` is not in use),
*sys.sp_create_event_stream_group* (``@partition_key_scheme``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.changes.log_position import position_order
from open_mirroring.changes.manifest import Reads, places_left

HighestMajors = Mapping[str, Mapping[str, str]]
"""The highest commit seen, by partition of the source and by stream. A commit is the ``major`` part of a position.

If a format marks the first change of each transaction, it is the position ``major:minor`` of the highest such change.
"""


class Completeness(NamedTuple):
    """What is known after a batch about the positions below which the change log is complete.

    *partitions* is how many partitions of the source contain changes. *highest* has the highest commit that each
    partition has shown. *below* has, by stream, the position below which every change is in the change log. A stream
    (one enabling of streaming) is in *below* only once every partition has shown it. *reads* are the places, such as
    topics or folders, from which the source was read.
    """

    partitions: int
    highest: HighestMajors
    below: Mapping[str, str]
    reads: Reads = MappingProxyType({})

    def highest_at(self, reads: Reads) -> HighestMajors:
        """The highest commits by partition; empty if a former topic or folder is not in *reads* any more (G-142).

        Partitions of a topic or folder that is no longer read show nothing new. They would hold the complete position
        back for ever.
        """
        return {} if places_left(self.reads, reads) else self.highest

    def position(self, ordinals: Mapping[str, int]) -> str | None:
        """The complete position of a table as ``epoch:major``, comparable over its streams; None if there is none.

        *ordinals* are the numbers of the table's streams by stream name. If several streams have a complete position,
        that of the newest stream counts (G-01).
        """
        known = [position_order(ordinals[epoch], major) for epoch, major in self.below.items() if epoch in ordinals]
        return max(known, default=None)

    def to_json(self) -> str:
        return json.dumps({**self._asdict(), "reads": dict(self.reads)}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Completeness:
        return cls(**json.loads(text))


def advance(
    before: Completeness | None,
    highest: HighestMajors,
    partitions: int,
    waiting: Iterable[tuple[str, str]],
    reads: Reads = MappingProxyType({}),
) -> Completeness:
    """Compute the completeness after a batch from the completeness *before* it. A complete position never falls.

    *highest* are the highest commits by partition in this batch. *waiting* contains stream and commit of every split
    event that lacks pieces. If such a commit is empty (unknown), every complete position stays where it is.
    """
    merged = {name: dict(epochs) for name, epochs in (before.highest_at(reads) if before else {}).items()}
    for name, epochs in highest.items():
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
