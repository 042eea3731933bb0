"""Reads one range of a Kafka partition, which belongs to a batch: exactly its offsets.

The client never chooses an offset itself. A partition may lack offsets because of compaction and transactions. So the
range is read when the consumer's position is at or after the range's end. Public source: librdkafka, *Configuration
properties*; Apache Kafka, *Design: Log Compaction*.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import cast

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.source_places.kafka_client import Broker, KafkaPlace, recreated, retention_loss
from spark_jobs.changelog.schema import RawMessage

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
                    self._take(error, offset)
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

    def _take(self, error: KafkaError, offset: int) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            self._position = max(self._position, offset)
            return
        if not self._broker.passes(error):
            self._explain()
            self._broker.fail(error, self._where)

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
