"""The messages of one bound range of a Kafka partition: exactly those offsets, and never a choice made for us.

Offsets may be missing: compaction takes messages, and transactions leave markers and aborted messages. A range has
ended when the position has passed it, not when so many messages were seen.

Public source: librdkafka, *Configuration properties* (``auto.offset.reset=error``, ``enable.partition.eof``); Apache
Kafka, *Design: Log Compaction*.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.change_log_schema import RawMessage
from spark_jobs.sources.kafka_client import Broker, recreated, retention_loss, topic_ids
from spark_jobs.sources.kafka_place import KafkaPlace

_AT_ONCE = 5_000
_WAIT_SECONDS = 0.1
_OPTIONS = {
    "auto.offset.reset": "error",
    "check.crcs": True,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    # A worker that decodes slower than the broker sends must not sleep a second for it.
    "fetch.queue.backoff.ms": 20,
}
_DEFAULTS = {"isolation.level": "read_committed", "max.partition.fetch.bytes": 8 * 2**20}


def read_range(place: KafkaPlace, bound: BoundRange) -> Iterator[RawMessage]:
    """The messages with offsets from ``bound.start`` to ``bound.end``, in the order of their offsets.

    A message without a value (a tombstone) has the body None. Where the place knows the topic's id, the last step
    proves that the topic still has it: a topic made anew while it was read is told, not read as if it were the old one.

    Args:
        place: the topics, as :func:`~spark_jobs.sources.kafka_ranges.expecting` completed it.
        bound: one range of ``topic/partition``; a topic's identity ``topic#id`` holds no messages.

    Raises:
        TerminalError: ``RETENTION_LOSS``, ``TOPIC_RECREATED``, ``TOPIC_MISSING``, ``KAFKA_DENIED``,
            ``KAFKA_UNTRUSTED``, ``KAFKA_REFUSED``, ``CONNECTION_INVALID``.
        TransientError: ``KAFKA_UNREACHABLE`` when nothing came for the place's time-out.
    """
    if bound.start >= bound.end:
        return
    topic, _, number = bound.name.rpartition("/")
    broker = Broker(place)
    chosen = {name: place.settings.options.get(name, default) for name, default in _DEFAULTS.items()}
    # No more is fetched ahead than the range can need.
    ahead = {"queued.min.messages": min(100_000, bound.end - bound.start)}
    consumer = broker.consumer({**_OPTIONS, **chosen, **ahead})
    try:
        consumer.assign([TopicPartition(topic, int(number), bound.start)])
        yield from _Reading(place, broker, consumer, bound).messages()
    finally:
        consumer.close()
    _prove_identity(place, broker, topic)


class _Reading:
    """One consumer on its way through one range."""

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
                error = message.error()
                if error is not None:
                    self._take(error, message.offset())
                    continue
                offset = message.offset()
                if offset >= end:
                    self._position = end
                    return
                # A client that connects again may be given a batch from its start.
                if offset >= self._position:
                    self._position = offset + 1
                    yield RawMessage(origin, offset, message.value(), message.key())
            if self._position > before:
                # Counted from here: the time that the caller took is not the broker's.
                patience = time.monotonic() + self._place.timeout_seconds
            elif time.monotonic() > patience:
                self._explain()
                self._broker.unreachable(f"{self._where}, after {self._position}")

    def _take(self, error: KafkaError, offset: int) -> None:
        """An event in place of a message: the partition's end, which may lie behind missing offsets, or a failure."""
        if error.code() == KafkaError._PARTITION_EOF:
            self._position = max(self._position, offset)
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._explain()
        if not self._broker.passes(error):
            self._broker.fail(error, self._where)

    def _explain(self) -> None:
        """Raise what the partition's own offsets say about why nothing comes; nothing if they are as bound."""
        topic, _, number = self._bound.name.rpartition("/")
        try:
            first, end = self._consumer.get_watermark_offsets(
                TopicPartition(topic, int(number)), timeout=self._place.timeout_seconds
            )
        except KafkaException as error:
            self._broker.fail(error.args[0], self._where)
        where = f"connection {self._place.connection}, {self._where}"
        if end < self._bound.end:
            raise recreated(f"the partition ends at offset {end}: the topic was made anew, or its log was cut", where)
        if first > self._position:
            raise retention_loss(first - self._position, first, where)


def _prove_identity(place: KafkaPlace, broker: Broker, topic: str) -> None:
    expected = [topic_id for name, topic_id in place.ids if name == topic]
    if not expected:
        return
    found, _ = topic_ids(broker, broker.admin(), [topic])[topic]
    if found is not None and found not in expected:
        where = f"connection {place.connection}, topic {topic}"
        raise recreated(f"the topic's id is {found}, but {', '.join(expected)} was bound: it was made anew", where)
