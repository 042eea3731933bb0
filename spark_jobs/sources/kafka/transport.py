"""Topics as a transport: their offsets, and the messages of a range of them.

Time only chooses offsets for a backfill; the broker tells it by the timestamps of its messages.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from open_mirroring.config import Mirror
from open_mirroring.config.connections import resolve
from open_mirroring.ledger.extract_ledger import BoundRange, FileVersion
from open_mirroring.protocols.backfilling import Interval
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.message_blocks import Block, blocks_of
from spark_jobs.sources.contract.source import Chosen, Found, MessageTransport, longest
from spark_jobs.sources.kafka.place import KafkaPlace, place_of
from spark_jobs.sources.kafka.ranges import expecting, find_ranges
from spark_jobs.sources.kafka.reader import read_range
from spark_jobs.sources.kafka.times import offsets_at, offsets_kept

_WORTH_MESSAGES = 1_000
"""Fewer messages are decoded one by one: what takes them from blocks has to learn before it is fast."""


@dataclass(frozen=True)
class KafkaTopics(MessageTransport):
    """The topics of a mirror, at their broker."""

    place: KafkaPlace

    @classmethod
    def of(cls, mirror: Mirror) -> KafkaTopics:
        """The topics that a mirror file names.

        Raises:
            TerminalError: ``CONNECTION_MISSING``, ``CONNECTION_INVALID``.
        """
        source = mirror.source
        place = place_of(resolve(source.connection or ""), source.topics or ())
        limit = source.max_messages_per_run or place.max_messages_per_run
        return cls(place._replace(max_messages_per_run=limit))

    @property
    def settles_after(self) -> int:
        """As :meth:`Transport.settles_after`."""
        return 30

    def find(self, spark: Any, bound: Mapping[str, int], seen: Mapping[str, FileVersion] | None = None) -> Found:
        """See :func:`find_ranges`."""
        return find_ranges(self.place, bound)

    def ends(self, spark: Any, bound: Mapping[str, int]) -> dict[str, int]:
        """To the very end, whatever one run of extraction takes at most."""
        return {one.name: one.end for one in self.unlimited().find(spark, bound).ranges}

    def pinned(self, bound: Mapping[str, int], seen: Callable[[], Mapping[str, FileVersion]]) -> KafkaTopics:
        """The topics with the ids under which they were bound."""
        return replace(self, place=expecting(self.place, bound))

    def unlimited(self) -> KafkaTopics:
        """As :meth:`Transport.unlimited`."""
        return replace(self, place=self.place._replace(max_messages_per_run=sys.maxsize))

    def retained(self) -> Mapping[str, tuple[int, int]]:
        """See :func:`offsets_kept`."""
        return offsets_kept(self.place)

    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        """All before the end of the interval: of a partition none may be left out."""
        ends = offsets_at(self.place, interval.end)
        clipped = [b._replace(end=min(b.end, ends.get(b.name, b.end))) for b in ranges]
        return [bound for bound in clipped if bound.start < bound.end or bound.start == 0]

    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        """As :meth:`Transport.bound_before`."""
        starts, ends = (offsets_at(self.place, moment) for moment in interval)
        first = {name: kept for name, (kept, _) in offsets_kept(self.place).items()}
        chosen, gone = [], set()
        for bound in ranges:
            if bound.end <= bound.start or bound.name not in first:
                continue  # nothing, or a topic that is no longer read
            start, end = max(bound.start, starts[bound.name]), min(bound.end, ends[bound.name])
            if start < end and start < first[bound.name]:
                gone.add(bound.name)
                start = first[bound.name]
            if start < end:
                chosen.append(BoundRange(bound.name, start, end))
        return Chosen(longest(chosen), sorted(gone))

    def sample(self, most: int) -> Iterator[RawMessage]:
        """As :meth:`MessageTransport.sample`: of each partition the first messages and the newest."""
        whole = dict[str, BoundRange]()
        for one in (one for one in self.unlimited().find(None, {}).ranges if one.start < one.end):
            known = whole.setdefault(one.name, one)
            whole[one.name] = one._replace(start=min(known.start, one.start), end=max(known.end, one.end))
        share = max(most // max(2 * len(whole), 1), 1)
        for one in whole.values():
            head = min(one.start + share, one.end)
            yield from self.read(one._replace(end=head))
            yield from self.read(one._replace(start=max(head, one.end - share)))

    def counts_as_bound(self, name: str) -> bool:
        """Messages have their offsets."""
        return True

    def read(self, bound: BoundRange) -> Iterator[RawMessage]:
        """See :func:`read_range`."""
        return read_range(self.place, bound)

    def blocks(self, bound: BoundRange) -> Iterator[Block] | None:
        """As :meth:`MessageTransport.blocks`."""
        return blocks_of(self.read(bound)) if bound.end - bound.start >= _WORTH_MESSAGES else None
