"""Lists the unread offsets of topics, and reads the messages of a range (I28).

The ledger keeps a topic's id as an empty range ``topic#id``, to notice a topic that was created again. The ledger also
keeps every partition of a new topic, even an empty one, to notice partitions that are added later.

The client never chooses an offset itself. A partition may lack offsets because of compaction and transactions. So a
range is read when the consumer's position is at or after the range's end. Public source: Apache Kafka, *KIP-516* and
*Design: Log Compaction*; librdkafka, *Configuration properties*.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any, ClassVar, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from open_mirroring.changes.manifest import BoundFile, BoundRange
from open_mirroring.config.connections import resolve
from open_mirroring.config.source import InTopics
from open_mirroring.facts.read_places import Numbering
from open_mirroring.protocols.backfilling import Interval
from open_mirroring.source_places.kafka_client import Broker, KafkaPlace, Topic, place_of, recreated, retention_loss
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.message_blocks import Block, blocks_of
from spark_jobs.sources.contract.source import Chosen, Found, MessageTransport, Seen, longest

_WORTH_MESSAGES = 1_000
"""Fewer messages are decoded one by one: the fast path needs time to learn column lists."""
# Limits per poll in messages and seconds: memory stays flat with large messages, too.
_AT_ONCE = 500
_WAIT_SECONDS = 0.05
_OPTIONS = {
    "auto.offset.reset": "error",
    "check.crcs": True,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # A worker that decodes more slowly than the broker sends must not pause fetching for a second.
    "fetch.queue.backoff.ms": 20,
}
_DEFAULTS = {"isolation.level": "read_committed", "max.partition.fetch.bytes": 8 * 2**20}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KafkaTopics(MessageTransport):
    """The transport of the topics of a mirror at a Kafka broker."""

    settles_after: ClassVar[int] = 30
    bytes_of_a_place: ClassVar[int] = 2048
    place: KafkaPlace

    @classmethod
    def of(cls, source: InTopics) -> KafkaTopics:
        place = place_of(resolve(source.connection), source.topics)
        return cls(place._replace(max_messages_per_run=source.max_messages_per_run))

    @property
    def numbering(self) -> Numbering:
        return "bound"

    def find(self, spark: Any, bound: Mapping[str, int], seen: Seen | None = None) -> Found:
        """Every offset of the topics that belongs to no batch yet, up to the limit of one run.

        Names in *bound* that belong to other sources, or to topics that the mirror no longer reads, are ignored.
        """
        place = expecting(self.place, bound)
        broker = Broker(place)
        topics = broker.topics()
        starts: dict[str, tuple[int, int]] = {}
        fresh: set[str] = set()
        for topic in topics:
            where = f"connection {place.connection}, topic {topic.name}"
            names = [(name, *name.rpartition("/")) for name in bound]
            known = {int(n): bound[name] for name, t, _, n in names if t == topic.name and n.isascii() and n.isdigit()}
            broker.prove_identity(topic.name, topic.id)
            gone = sorted(known.keys() - topic.first.keys())
            if gone:
                raise recreated(f"the partitions {gone} were bound and are gone: the topic was re-created", where)
            if not known:
                fresh.add(topic.name)
            for number in sorted(topic.first):
                starts[f"{topic.name}/{number}"] = _unbound(topic, number, known, where)
        ends = _shares(starts, place.max_messages_per_run)
        ranges = [
            part
            for name, (start, _) in starts.items()
            if start < ends[name] or name.rpartition("/")[0] in fresh
            for part in _cut(name, start, ends[name], place.messages_per_range)
        ]
        bound_now = {part.name.rpartition("/")[0] for part in ranges}
        identities = [
            f"{topic.name}#{topic.id}" for topic in topics if topic.id is not None and topic.name in bound_now
        ]
        ranges += [BoundRange(name, 0, 0) for name in identities if name not in bound]
        return Found(sorted(ranges), [])

    def pinned(
        self, bound: Callable[[], Mapping[str, int]], files: Callable[[], Mapping[str, BoundFile]]
    ) -> KafkaTopics:
        return replace(self, place=expecting(self.place, bound()))

    def unlimited(self) -> KafkaTopics:
        return replace(self, place=self.place._replace(max_messages_per_run=sys.maxsize))

    def retained(self) -> Mapping[str, tuple[int, int]]:
        topics = Broker(self.place).topics()
        return {f"{topic.name}/{n}": (first, topic.end[n]) for topic in topics for n, first in topic.first.items()}

    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        """All messages of *ranges* from before the end of the interval.

        Messages from before the interval's start are included, because no part of a partition may be left out.
        """
        ends = offsets_at(self.place, interval.end)
        clipped = [b._replace(end=min(b.end, ends.get(b.name, b.end))) for b in ranges]
        return [bound for bound in clipped if bound.start < bound.end or bound.start == 0]

    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        starts, ends = (offsets_at(self.place, moment) for moment in interval)
        first = {name: kept for name, (kept, _) in self.retained().items()}
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
        return True

    def read(self, bound: BoundRange) -> Iterator[RawMessage]:
        return read_range(self.place, bound)

    def blocks(self, bound: BoundRange) -> Iterator[Block] | None:
        return blocks_of(self.read(bound)) if bound.end - bound.start >= _WORTH_MESSAGES else None


def expecting(place: KafkaPlace, bound: Mapping[str, int]) -> KafkaPlace:
    """*place* with the topics' ids from the ledger, so that reading proves that the topics are still the same.

    *bound* contains these ids.
    """
    ids = [(t, name.removeprefix(f"{t}#")) for t in place.topics for name in bound if name.startswith(f"{t}#")]
    return place._replace(ids=tuple(ids))


def _unbound(topic: Topic, number: int, known: Mapping[int, int], where: str) -> tuple[int, int]:
    first, end = topic.first[number], topic.end[number]
    if not known:
        return first, max(first, end)
    if number not in known:
        log.warning("partition %d was added to the topic %r: it is read from its beginning", number, topic.name)
    start = known.get(number, 0)
    if first > start:
        raise retention_loss(first - start, first, f"{where}, partition {number}")
    if end < start:
        what = f"it ends at offset {end}, but {start} were bound: the topic was re-created, or its log was cut"
        raise recreated(what, f"{where}, partition {number}")
    return start, end


def _shares(starts: Mapping[str, tuple[int, int]], limit: int) -> dict[str, int]:
    """The end of each partition's range: the partition's end, or in proportion to the backlogs; never all empty."""
    backlog = sum(end - start for start, end in starts.values())
    if backlog <= limit:
        return {name: end for name, (_, end) in starts.items()}
    return {name: start + -(-(end - start) * limit // backlog) for name, (start, end) in starts.items()}


def _cut(name: str, start: int, end: int, most: int) -> list[BoundRange]:
    count = max(1, -(-(end - start) // most))
    marks = [start + (end - start) * i // count for i in range(count + 1)]
    return [BoundRange(name, *pair) for pair in pairwise(marks)]


def offsets_at(place: KafkaPlace, moment: datetime) -> dict[str, int]:
    """For each ``topic/partition`` the offset of the first message that is not older than *moment*.

    For a partition without such a message it is the end offset.
    """
    broker = Broker(place)
    ends = {f"{t.name}/{n}": end for t in broker.topics() for n, end in t.end.items()}
    wanted = [TopicPartition(name.rpartition("/")[0], int(name.rpartition("/")[2])) for name in ends]
    spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
    answers = broker.results(broker.admin.list_offsets(dict.fromkeys(wanted, spec)), "offsets by time")
    found = {f"{p.topic}/{p.partition}": answer.offset for p, answer in answers.items()}
    return {name: end if found[name] < 0 else min(end, found[name]) for name, end in ends.items()}


def read_range(place: KafkaPlace, bound: BoundRange) -> Iterator[RawMessage]:
    """The messages from ``bound.start`` to ``bound.end``.

    At the end it is checked that the topic still has the id that it had when the range was assigned to a batch.
    """
    if bound.start >= bound.end:
        return
    topic, _, number = bound.name.rpartition("/")
    broker = Broker(place)
    chosen = {name: place.settings.options.get(name, default) for name, default in _DEFAULTS.items()}
    # Do not fetch more than the range can contain.
    ahead = {"queued.min.messages": min(100_000, bound.end - bound.start)}
    consumer = broker.consumer({**_OPTIONS, **chosen, **ahead})
    try:
        consumer.assign([TopicPartition(topic, int(number), bound.start)])
        yield from _Reading(place, broker, consumer, bound).messages()
    finally:
        consumer.close()
    if any(name == topic for name, _ in place.ids):
        broker.prove_identity(topic, broker.topic_ids([topic])[topic][0])


class _Reading:
    def __init__(self, place: KafkaPlace, broker: Broker, consumer: Consumer, bound: BoundRange) -> None:
        self._place, self._broker, self._consumer, self._bound = place, broker, consumer, bound
        self._position = bound.start
        self._where = f"{bound.name}, offsets {bound.start} to {bound.end}"

    def messages(self) -> Iterator[RawMessage]:
        origin, _, end = self._bound
        patience = time.monotonic() + self._place.timeout_seconds
        while self._position < end:
            before = self._position
            try:
                batch = self._consumer.consume(min(_AT_ONCE, end - before), _WAIT_SECONDS)
            except KafkaException as failure:
                self._broker.fail(failure.args[0], self._where)
            self._broker.check()
            for message in batch:
                error, offset = message.error(), cast(int, message.offset())
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        self._position = max(self._position, offset)
                    elif not self._broker.passes(error):
                        self._explain()
                        self._broker.fail(error, self._where)
                    continue
                if offset >= end:
                    self._position = end
                    return
                # After a reconnect the client may receive a batch from its start.
                if offset >= self._position:
                    self._position = offset + 1
                    yield RawMessage(origin, offset, message.value(), message.key())
            del batch  # otherwise it would be kept until the next one arrives
            if self._position > before:
                # Counted from here: the time that the caller took is not the broker's.
                patience = time.monotonic() + self._place.timeout_seconds
            elif time.monotonic() > patience:
                self._explain()
                self._broker.unreachable(f"{self._where}, after {self._position}")

    def _explain(self) -> None:
        name, _, partition = self._bound.name.rpartition("/")
        number = int(partition)
        (topic,) = Broker(self._place._replace(topics=(name,))).topics()
        self._broker.prove_identity(name, topic.id)
        where = f"connection {self._place.connection}, {self._where}"
        if number not in topic.end:
            raise recreated(f"it has {len(topic.end)} partitions: it was re-created", where)
        if topic.end[number] < self._bound.end:
            what = f"the partition ends at offset {topic.end[number]}: the topic was re-created, or its log was cut"
            raise recreated(what, where)
        if topic.first[number] > self._position:
            raise retention_loss(topic.first[number] - self._position, topic.first[number], where)
