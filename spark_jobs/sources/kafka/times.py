"""Which offsets of a place's topics belong to which time: by the timestamps that the broker keeps of messages.

Public source: Apache Kafka, *ListOffsets* by timestamp: the earliest offset whose message is not older. Where none is,
the partition's end stands for it.
"""

from __future__ import annotations

from datetime import datetime

from confluent_kafka import TopicPartition
from confluent_kafka.admin import OffsetSpec

from spark_jobs.sources.kafka.client import Broker
from spark_jobs.sources.kafka.place import KafkaPlace
from spark_jobs.sources.kafka.topics import topic_states


def offsets_at(place: KafkaPlace, moment: datetime) -> dict[str, int]:
    """By ``topic/partition`` the first offset of a message not older than *moment*, else the partition's end.

    Raises:
        MirroringError: see :meth:`Broker.fail`.
    """
    broker = Broker(place)
    admin = broker.admin()
    ends = {f"{t.name}/{n}": end for t in topic_states(broker, admin, place) for n, end in t.end.items()}
    wanted = [TopicPartition(name.rpartition("/")[0], int(name.rpartition("/")[2])) for name in ends]
    spec = OffsetSpec.for_timestamp(int(moment.timestamp() * 1000))
    answers = broker.results(admin, admin.list_offsets(dict.fromkeys(wanted, spec)), "offsets by time")
    found = {f"{p.topic}/{p.partition}": answer.offset for p, answer in answers.items()}
    return {name: end if found[name] < 0 else min(end, found[name]) for name, end in ends.items()}


def offsets_kept(place: KafkaPlace) -> dict[str, tuple[int, int]]:
    """By ``topic/partition`` the first offset that retention has left, and the one behind the newest message.

    Raises:
        MirroringError: see :meth:`Broker.fail`.
    """
    broker = Broker(place)
    topics = topic_states(broker, broker.admin(), place)
    return {f"{topic.name}/{n}": (first, topic.end[n]) for topic in topics for n, first in topic.first.items()}
