"""Workers of a real Spark session read bound offset ranges with consumers of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.config.connections import resolve
from open_mirroring.errors import TerminalError
from open_mirroring.source_places.kafka_client import place_of
from spark_jobs.runtime.tasks import run_job
from spark_jobs.sources.transports.topics import KafkaTopics, expecting, read_range
from tests.kafka_broker import KafkaBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_read_exactly_what_was_bound_and_show_no_secret(
    kafka: KafkaBroker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """C-91, I28, I30: over SASL_SSL as at Event Hubs; a worker's refusal reaches the driver as itself."""
    kafka.create_topic("workers", 3)
    kafka.publish("workers", [(n % 3, None, str(n).encode()) for n in range(3_000)])
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.event_hubs_connection())
    place = place_of(resolve("broker"), ("workers",))._replace(messages_per_range=400)
    ranges = KafkaTopics(place).find(None, {}).ranges
    pinned = expecting(place, {bound.name: bound.end for bound in ranges})
    assert len(ranges) == 1 + 3 * 3

    def read(bound: BoundRange) -> list[tuple[str, int, bytes | None]]:
        return [(m.origin, m.place, m.body) for m in read_range(pinned, bound)]

    parts = run_job(spark, "read a topic", read, ranges, 0)
    found = sorted(message for part in parts for message in part)
    assert found == sorted((f"workers/{n % 3}", n // 3, str(n).encode()) for n in range(3_000))

    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.event_hubs_connection(password=f"{kafka.connection_string}wrong"))
    pinned = place_of(resolve("broker"), ("workers",))
    with pytest.raises(TerminalError) as refused:
        run_job(spark, "read a topic", read, ranges, 0)
    assert refused.value.code == "ACCESS_DENIED"
    settings = str(spark.sparkContext.getConf().getAll())
    key = kafka.connection_string.partition("SharedAccessKey=")[2]
    assert key not in "".join(capfd.readouterr()) + str(refused.value) + settings
