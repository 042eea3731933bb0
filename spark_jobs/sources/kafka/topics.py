"""Reads ids, partitions and offsets of topics from a broker, and reports when they do not match what was bound.

Public source: Apache Kafka, *KIP-516: Topic Identifiers*, *KIP-98: Transactional Messaging* (last stable offset).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from open_mirroring.errors import TerminalError
from spark_jobs.sources.kafka.client import Broker, KafkaPlace

_RECREATED_WAY_OUT = (
    "offsets of the old topic mean nothing in the new one, and changes between the two may be lost: let the source "
    "write to a topic of another name, name that in the mirror file, and reload its tables"
)


class Topic(NamedTuple):
    """A topic's state at its broker; *id* is None for brokers without ids. Offsets are by partition."""

    name: str
    id: str | None
    first: Mapping[int, int]
    end: Mapping[int, int]


def topic_ids(broker: Broker, admin: AdminClient, topics: Iterable[str]) -> dict[str, tuple[str | None, list[int]]]:
    """The id and the partitions of each topic."""
    names = sorted(topics)
    asked = admin.describe_topics(TopicCollection(names))
    found = {}
    for name, description in broker.results(admin, asked, f"topics {', '.join(names)}").items():
        uuid = description.topic_id
        # Brokers without ids return zero.
        known = uuid.get_most_significant_bits() or uuid.get_least_significant_bits()
        found[name] = (str(uuid) if known else None, sorted(p.id for p in description.partitions))
    return found


def topic_states(broker: Broker, admin: AdminClient, place: KafkaPlace) -> list[Topic]:
    """All topics of a place with first and end offset of every partition, as visible to readers (KIP-98)."""
    committed = place.settings.options.get("isolation.level", "read_committed") == "read_committed"
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    ids = topic_ids(broker, admin, place.topics)
    wanted = [TopicPartition(name, number) for name in ids for number in ids[name][1]]
    # First the end: retention in between must not make a range look longer than it was.
    offsets = []
    for spec in (OffsetSpec.latest(), OffsetSpec.earliest()):
        asked = admin.list_offsets(dict.fromkeys(wanted, spec), isolation_level=level)
        answers = broker.results(admin, asked, f"offsets of {', '.join(ids)}")
        offsets.append({(p.topic, p.partition): answer.offset for p, answer in answers.items()})
    end, first = offsets
    return [
        Topic(name, topic_id, {n: first[name, n] for n in numbers}, {n: end[name, n] for n in numbers})
        for name, (topic_id, numbers) in ids.items()
    ]


def prove_identity(place: KafkaPlace, broker: Broker, topic: str) -> None:
    """Check that a topic still has the id under which it was bound, if any."""
    expected = [topic_id for name, topic_id in place.ids if name == topic]
    if not expected:
        return
    found, _ = topic_ids(broker, broker.admin(), [topic])[topic]
    if found is not None:
        check_id(topic, found, expected, place.connection)


def check_id(topic: str, found: str, expected: Sequence[str], connection: str) -> None:
    """Check that the id found is one that was bound."""
    if found not in expected:
        what = f"the topic's id is {found}, but {', '.join(expected)} was bound: it was re-created"
        raise recreated(what, f"connection {connection}, topic {topic}")


def recreated(what: str, where: str) -> TerminalError:
    """The error for a topic that is no longer the one whose offsets were bound."""
    return TerminalError("MESSAGES_LOST", what, where=where, way_out=_RECREATED_WAY_OUT)


def retention_loss(lost: int, first: int, where: str) -> TerminalError:
    """The error for messages that the broker deleted before they were read."""
    return TerminalError(
        "MESSAGES_LOST",
        f"{lost} offsets are gone before they were read: the first that is left is {first}",
        where=where,
        way_out="lengthen the topic's retention beyond the longest outage; the lost changes cannot be read any more: "
        "let the source write to a topic of another name, name that in the mirror file, and reload its tables",
    )
