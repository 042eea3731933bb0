"""Sources that fail in mid-read, jobs that die over them, topics that lose messages: nothing is lost unseen."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa
import yaml

from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.documents import PLACES
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.kafka_broker import KafkaBroker
from tests.pipeline import Pipeline, in_order

COLS = (("id", "int"), ("name", "nvarchar(max)"), ("price", "decimal(8,2)"))
TABLES = [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": ["id"]} for name in ("orders", "clean")]


def ordered(key: int, name: str, tbl: str = "orders") -> bytes:
    """The insert of a row; its key is its place in the order."""
    return event("INS", {"id": str(key), "name": name, "price": "1.50"}, commit=key, tbl=tbl, cols=COLS)


def landed(keys: Sequence[int], name: str) -> list[dict[str, Any]]:
    return in_order([{"id": key, "name": name, "price": Decimal("1.50")} for key in keys], ["id"])


def failed(code: str, act: Callable[[], Any], kind: type[MirroringError]) -> MirroringError:
    """The error of this kind and code that *act* ends with; it names a place and a way out."""
    with pytest.raises(kind) as caught:
        act()
    assert caught.value.code == code, caught.value
    assert caught.value.where and caught.value.next_step
    return caught.value


def open_batch(pipeline: Pipeline) -> tuple[int | None, str | None, str | None]:
    """Number, ranges and manifest of the mirror's open batch."""
    c = t.mirror.c
    with pipeline.ledger.connect() as db:
        query = sa.select(c.open_number, c.open_ranges, c.open_manifest).where(c.name == pipeline.name)
        return tuple(db.execute(query).one())  # type: ignore[return-value]


@pytest.fixture
def topic(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> str:
    """A topic of two partitions at the connection `broker`, through which no client runs far ahead."""
    name = f"faults-{uuid4().hex[:8]}"
    kafka.create_topic(name, 2)
    ahead = {"queued.max.messages.kbytes": 64, "max.partition.fetch.bytes": 65_536}
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.connection(**ahead))
    return name


def over_kafka(folder: Path, spark: Any, topic: str, **settings: Any) -> Pipeline:
    source = {"transport": "kafka", "connection": "broker", "topics": [topic], "path": "", "layout": None}
    return Pipeline(folder, spark, TABLES, source=source, **settings)


def publish(kafka: KafkaBroker, topic: str, keys: Sequence[int], name: str = "Ada", tbl: str = "orders") -> None:
    """Rows into both partitions by turns."""
    kafka.publish(topic, [(key % 2, None, ordered(key, name, tbl)) for key in keys])


# --- a broker that dies ------------------------------------------------------------------------------------------


def reading_that_kills(read: Callable[..., Any], victim: int, after: int) -> Callable[..., Any]:
    """As *read*, but the first worker that has consumed so many messages kills a process, in mid-read."""

    def killing(source: Any, task: Any) -> Any:
        import spark_jobs.sources.transports.topics as module

        plain = module.read_range

        def counted(*arguments: Any) -> Iterator[Any]:
            for number, message in enumerate(plain(*arguments), 1):
                yield message
                if number == after:
                    os.kill(victim, signal.SIGKILL)

        module.read_range = counted
        try:
            return read(source, task)
        finally:
            module.read_range = plain

    return killing


def test_a_broker_killed_in_mid_read_costs_one_tick(
    tmp_path: Path, spark: Any, kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I28, D2 to D4: transient; the batch stays bound, the next tick reads the same ranges and finishes."""
    import spark_jobs.extract.batch_writing
    import spark_jobs.sources.transports.topics

    pipeline, name = over_kafka(tmp_path, spark, topic), "x" * 4_000
    publish(kafka, topic, range(1, 5), "first")
    pipeline.tick()
    # Far more than the client takes ahead.
    publish(kafka, topic, range(5, 1_205), name)
    kafka.publish(topic, [(0, None, ordered(2_000, "Ada", "clean"))])
    place_of = spark_jobs.sources.transports.topics.place_of
    with monkeypatch.context() as patch:
        read = reading_that_kills(spark_jobs.extract.batch_writing.read, kafka.pid, after=20)
        patch.setattr("spark_jobs.extract.batch_writing.read", read)
        patch.setattr(
            "spark_jobs.sources.transports.topics.place_of",
            lambda *arguments: place_of(*arguments)._replace(timeout_seconds=2.0),
        )
        error = failed("UNREACHABLE", pipeline.extract, TransientError)
        assert topic in (error.where or "") and "connection broker" in (error.where or "")
        kafka.stop()
        number, ranges, manifest = open_batch(pipeline)
        assert (number, manifest) == (2, None) and ranges is not None
        assert pipeline.mirrored("dbo", "orders"), "what was published stays"
        patch.undo()
        patch.setattr(
            "spark_jobs.sources.transports.topics.place_of",
            lambda *arguments: place_of(*arguments)._replace(timeout_seconds=2.0),
        )
        patch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
        failed("UNREACHABLE", pipeline.extract, TransientError)
        assert open_batch(pipeline) == (2, ranges, None), "the bound ranges stand"
    kafka.start()
    extracted, _ = pipeline.tick()
    assert (extracted.batch, extracted.counts["messages"], extracted.counts["changes"]) == (2, 1_201, 1_201)
    found = in_order(pipeline.mirrored("dbo", "orders"), ["id"])
    assert found == in_order(landed(range(1, 5), "first") + landed(range(5, 1_205), name), ["id"])
    assert pipeline.mirrored("dbo", "clean") == landed([2_000], "Ada")
    assert pipeline.numbers("dbo.schema/orders") == [1, 2] and pipeline.numbers("dbo.schema/clean") == [1]
    assert [batch for batch, _, _ in pipeline.reader.batches()] == [1, 2]
    assert pipeline.extract().batch is None


@pytest.mark.parametrize("fault", ["extract.bound", "extract.written", "extract.sealed", "extract.committed"])
def test_the_next_tick_finishes_what_a_killed_job_began_over_kafka(
    fault: str, tmp_path: Path, spark: Any, kafka: KafkaBroker, topic: str
) -> None:
    """I19, I28, D2 to D11: the same offsets are one batch, whatever came to the topic meanwhile."""
    pipeline = over_kafka(tmp_path, spark, topic)
    publish(kafka, topic, range(1, 11))
    pipeline.killed("extract_changes", fault)
    number, ranges, manifest = open_batch(pipeline)
    assert (number, manifest is None) == (1, fault in ("extract.bound", "extract.written"))
    publish(kafka, topic, range(11, 16), tbl="clean")
    extracted, _ = pipeline.tick()
    assert (extracted.batch, extracted.counts["messages"]) == (2, 5), "one tick finishes the old and binds the new"
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == landed(range(1, 11), "Ada")
    assert in_order(pipeline.mirrored("dbo", "clean"), ["id"]) == landed(range(11, 16), "Ada")
    batches = pipeline.reader.batches()
    assert [batch for batch, _, _ in batches] == [1, 2]
    assert pipeline.numbers("dbo.schema/orders") == pipeline.numbers("dbo.schema/clean") == [1]
    assert ranges is not None and len(json.loads(ranges)) == 3
    assert pipeline.extract().batch is None


# --- topics that are not what they were --------------------------------------------------------------------------


def lose_messages(kafka: KafkaBroker, topic: str) -> None:
    publish(kafka, topic, range(11, 31))
    kafka.delete_records(topic, 1, 9)


def make_anew(kafka: KafkaBroker, topic: str) -> None:
    kafka.delete_topic(topic)
    kafka.create_topic(topic, 2)
    publish(kafka, topic, range(11, 51))


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [(lose_messages, "MESSAGES_LOST", "4 offsets"), (make_anew, "MESSAGES_LOST", "re-created")],
)
def test_a_topic_that_lost_messages_stops_its_mirror_alone(
    change: Callable[[KafkaBroker, str], None],
    code: str,
    words: str,
    tmp_path: Path,
    spark: Any,
    kafka: KafkaBroker,
    topic: str,
) -> None:
    """C-90, I28: nothing is bound or read past the loss, every tick says so again, and another mirror goes on."""
    other = f"{topic}-other"
    kafka.create_topic(other, 2)
    pipeline = over_kafka(tmp_path / "one", spark, topic)
    ledger = f"sqlite:///{tmp_path / 'one' / 'ledger.db'}"
    beside = over_kafka(tmp_path / "two", spark, other, mirror="beside", ledger=ledger)
    publish(kafka, topic, range(1, 11))
    publish(kafka, other, range(1, 11))
    pipeline.tick()
    beside.tick()
    change(kafka, topic)
    publish(kafka, other, range(11, 13))
    for _ in range(2):
        error = failed(code, pipeline.extract, TerminalError)
        assert words in error.what and topic in (error.where or "") and "connection broker" in (error.where or "")
    assert open_batch(pipeline) == (None, None, None), "nothing was bound"
    assert {state.stop_code for state in pipeline.reader.tables().values()} == {None}
    pipeline.publish()
    pipeline.service.poll()
    assert in_order(pipeline.mirrored("dbo", "orders"), ["id"]) == landed(range(1, 11), "Ada"), "as it was before"
    extracted, _ = beside.tick()
    assert extracted.counts["changes"] == 2
    assert in_order(beside.mirrored("dbo", "orders"), ["id"]) == landed(range(1, 13), "Ada")


def test_messages_lost_behind_a_bound_batch_are_reported_and_the_batch_stays_open(
    tmp_path: Path, spark: Any, kafka: KafkaBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """I28: between bind and read; never an incomplete batch."""
    pipeline = over_kafka(tmp_path, spark, topic)
    publish(kafka, topic, range(1, 11))

    def dies(fault: str) -> None:
        assert fault == "extract.bound"
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("spark_jobs.extract.driver.reach", dies)
        pipeline.extract()
    kafka.delete_records(topic, 0, 3)
    error = failed("MESSAGES_LOST", pipeline.extract, TerminalError)
    assert "3 offsets" in error.what and f"{topic}/0" in (error.where or "")
    number, _, manifest = open_batch(pipeline)
    assert (number, manifest, pipeline.reader.batches()) == (1, None, [])


def test_a_partition_that_was_empty_at_the_first_look_comes_up_with_its_next_message_g143(
    tmp_path: Path, spark: Any, kafka: KafkaBroker, topic: str
) -> None:
    """G-143, G-113: its first messages had expired by then, so a load that is made later holds them."""
    messages = {place: (place, None, ordered(place + 1, "Ada")) for place in (0, 1)}
    kafka.publish(topic, [messages[1]] * 3)
    kafka.delete_records(topic, 1, 3)
    pipeline = over_kafka(tmp_path, spark, topic)
    kafka.publish(topic, [messages[0]])
    pipeline.extract()
    with pipeline.ledger.begin() as db:
        db.execute(t.mirrored_table.update().values(load_state="loaded"))
        assert PLACES.of(db, pipeline.name) == {f"{topic}/0": [(0, 0)], f"{topic}/1": [(3, 2)]}
    kafka.publish(topic, [messages[1]])
    pipeline.extract()
    with pipeline.ledger.begin() as db:
        assert PLACES.of(db, pipeline.name)[f"{topic}/1"] == [(3, 3)]
    assert pipeline.reader.unverified_columns(pipeline.reader.tables().values()) == {}


def test_a_topic_under_another_name_leaves_tables_unverified_and_holds_nothing_back_g142(
    tmp_path: Path, spark: Any, kafka: KafkaBroker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-142: nobody reads what the former topic had unread; its partitions are not waited for any more."""
    other = f"{topic}-moved"
    kafka.create_topic(other, 2)
    pipeline = over_kafka(tmp_path, spark, topic, consistency="transaction")

    def tick(named: str) -> str:
        document = yaml.safe_load(pipeline.file.read_text())
        document["source"] |= {"topics": [named], "partition_key_scheme": "table", "partition_count": 2}
        pipeline.file.write_text(yaml.safe_dump(document))
        assert main(["tick", str(pipeline.file)]) == Exit.DONE
        pipeline.service.poll()
        return capsys.readouterr().out

    publish(kafka, topic, range(1, 5))
    assert "unverified" not in tick(topic)
    publish(kafka, topic, [5])
    publish(kafka, other, range(6, 11))
    assert f"dbo.orders: rows unverified up to batch 1: `source` no longer names topics '{topic}'" in tick(other)
    keys = sorted(one["id"] for one in pipeline.mirrored("dbo", "orders"))
    assert keys == [1, 2, 3, 4, 6, 7, 8], "whole are those below what both partitions of the new topic have shown"
