"""Which offsets of a place's topics were never bound, and whether what was bound is still what the broker has (I28).

A partition is named ``topic/partition`` and bound in half-open ranges of offsets. A topic that has an id is remembered
beside them as an empty range ``topic#id``: a topic deleted and made anew has another one. At the first look at a topic
every partition is bound from its first offset, empty ones too; so a partition that is unknown later was added since,
and is read from its beginning.

Public source: Apache Kafka, *KIP-516: Topic Identifiers* and *Design: Log Compaction* (offsets never change, and may be
missing).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from itertools import pairwise

from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.sources.contract.source import Found
from spark_jobs.sources.kafka.client import Broker
from spark_jobs.sources.kafka.place import KafkaPlace
from spark_jobs.sources.kafka.topics import Topic, check_id, recreated, retention_loss, topic_states

log = logging.getLogger(__name__)


def find_ranges(place: KafkaPlace, bound: Mapping[str, int]) -> Found:
    """Every offset that the topics have beyond what is bound, as far as one run may go.

    Names that belong to other sources, or to topics that the mirror no longer reads, are left alone. Where a run may
    not take everything, every partition gives a part in proportion to its backlog.

    Args:
        place: the topics.
        bound: up to where each name is bound, from the ledger.

    Raises:
        TerminalError: ``RETENTION_LOSS`` when messages beyond what is bound are gone, ``TOPIC_RECREATED`` when a topic
            has another id, lost a partition, or ends before what is bound of it; ``TOPIC_MISSING``, ``KAFKA_DENIED``,
            ``KAFKA_UNTRUSTED``, ``KAFKA_REFUSED``, ``CONNECTION_INVALID``.
        TransientError: ``KAFKA_UNREACHABLE``.
    """
    broker = Broker(place)
    topics = topic_states(broker, broker.admin(), place)
    starts: dict[str, tuple[int, int]] = {}
    fresh: set[str] = set()
    for topic in topics:
        where = f"connection {place.connection}, topic {topic.name}"
        known = _partitions_bound(topic.name, bound)
        ids = _ids_bound(topic.name, bound)
        if topic.id is not None and ids:
            check_id(topic.name, topic.id, ids, place.connection)
        gone = sorted(known.keys() - topic.first.keys())
        if gone:
            raise recreated(f"the partitions {gone} were bound and are gone: the topic was made anew", where)
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
    identities = [f"{topic.name}#{topic.id}" for topic in topics if topic.id is not None and topic.name in bound_now]
    ranges += [BoundRange(name, 0, 0) for name in identities if name not in bound]
    return Found(sorted(ranges), [])


def expecting(place: KafkaPlace, bound: Mapping[str, int]) -> KafkaPlace:
    """*place* with the topics' ids as they are bound: reading a range then proves that it came from that very topic."""
    ids = [(topic, topic_id) for topic in place.topics for topic_id in _ids_bound(topic, bound)]
    return place._replace(ids=tuple(ids))


def _partitions_bound(topic: str, bound: Mapping[str, int]) -> dict[int, int]:
    names = {name: name.rpartition("/") for name in bound}
    return {int(n): bound[name] for name, (t, _, n) in names.items() if t == topic and n.isascii() and n.isdigit()}


def _ids_bound(topic: str, bound: Mapping[str, int]) -> list[str]:
    return [name.removeprefix(f"{topic}#") for name in bound if name.startswith(f"{topic}#")]


def _unbound(topic: Topic, number: int, known: Mapping[int, int], where: str) -> tuple[int, int]:
    """From where to where a partition may be read now."""
    first, end = topic.first[number], topic.end[number]
    if not known:
        return first, max(first, end)
    if number not in known:
        log.warning("partition %d was added to the topic %r: it is read from its beginning", number, topic.name)
    start = known.get(number, 0)
    if first > start:
        raise retention_loss(first - start, first, f"{where}, partition {number}")
    if end < start:
        what = f"it ends at offset {end}, but {start} were bound: the topic was made anew, or its log was cut"
        raise recreated(what, f"{where}, partition {number}")
    return start, end


def _shares(starts: Mapping[str, tuple[int, int]], limit: int) -> dict[str, int]:
    """The end of each partition's range: all there is, or in proportion to the backlogs; never nothing for all."""
    backlog = sum(end - start for start, end in starts.values())
    if backlog <= limit:
        return {name: end for name, (_, end) in starts.items()}
    return {name: start + -(-(end - start) * limit // backlog) for name, (start, end) in starts.items()}


def _cut(name: str, start: int, end: int, most: int) -> list[BoundRange]:
    """About equal ranges of at most *most* offsets; one empty range where there is nothing."""
    count = max(1, -(-(end - start) // most))
    marks = [start + (end - start) * i // count for i in range(count + 1)]
    return [BoundRange(name, *pair) for pair in pairwise(marks)]
