"""Random histories in every wire form end in the state their own generator folds them to, however ticks cut them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from tests.pipeline import Pipeline, in_order
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery, Message
from workload_generator.history import SHOP_TABLES, ColumnDef, History, random_history
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import change_files
from workload_generator.qlik_messages import QlikMessageOptions
from workload_generator.qlik_messages import render as render_qlik
from workload_generator.transports import capture_files, json_lines

TABLES = [{"source": t.full_name, "target": f"shop/{t.name}", "key": list(t.key)} for t in SHOP_TABLES]
FOLDERS = {t.full_name: f"shop.schema/{t.name}" for t in SHOP_TABLES}


def history(seed: int, transactions: int = 60) -> History:
    added = {transactions // 2: ("dbo.orders", ColumnDef("channel", "nvarchar(20)", nullable=True))}
    return random_history(seed, transactions, add_column_at=added)


def slices(messages: list[Message], ticks: int) -> Iterable[list[Message]]:
    """Messages by arrival, cut into ticks; partitions and split events fall where they fall."""
    ordered = sorted(messages, key=lambda message: (message.enqueued, message.partition, message.offset))
    for tick in range(ticks):
        yield ordered[len(ordered) * tick // ticks : len(ordered) * (tick + 1) // ticks]


def assert_mirrored(pipeline: Pipeline, expected: History) -> None:
    assert pipeline.open_fragments == 0
    for table in SHOP_TABLES:
        keys = list(table.key)
        found = in_order(pipeline.mirrored("shop", table.name), keys)
        assert found == in_order(expected.typed_final(table.full_name), keys), table.full_name
        numbers = pipeline.numbers(FOLDERS[table.full_name])
        assert numbers == list(range(1, len(numbers) + 1)), "numbers are never skipped or reused (I7, F-31)"
    for state in pipeline.reader.tables().values():
        assert state.stop_code is None


@pytest.mark.parametrize(
    ("generation", "encoding", "base", "layout", "ticks", "executor"),
    [
        ("a", "json", 0, "wrapped", 3, "own process"),
        ("b", "json", 1, "bare", 4, "own process"),
        ("c", "json", 0, "wrapped", 5, "own process"),
        ("b", "avro", 1, "wrapped", 2, "own process"),
        ("c", "avro", 0, "wrapped", 4, "own process"),
        ("c", "json", 0, "wrapped", 5, "helpers"),
        ("b", "avro", 1, "wrapped", 2, "helpers"),
        ("c", "json", 1, "bare", 2, "Spark"),
        ("c", "avro", 0, "wrapped", 2, "Spark"),
    ],
    indirect=["executor"],
)
def test_messages_in_files(generation, encoding, base, layout, ticks, tmp_path: Path, executor) -> None:
    """C-22, C-52, C-60 to C-63, G-02, G-03, G-05, G-09: splits, duplicates, disorder, key changes and swaps."""
    made = history(seed=ticks * 10 + base)
    options = CesOptions(
        generation=generation, encoding=encoding, segment_base=base, max_data_bytes=1_700, seed=generation
    )
    messages = render(made.changes, options, Delivery(partitions=3, disorder=40, duplicates=0.05, seed=ticks))
    pipeline = Pipeline(tmp_path, executor, TABLES, source={"layout": layout})
    for tick, part in enumerate(slices(messages, ticks)):
        pipeline.deliver(f"{Random(tick).random()}.jsonl", json_lines(part, layout=layout))
        pipeline.tick()
    assert_mirrored(pipeline, made)


def test_capture_windows(tmp_path: Path, spark) -> None:
    """C-93: Event Hubs Capture containers, empty windows included."""
    made = history(seed=5)
    delivery = Delivery(partitions=3, disorder=30, duplicates=0.05, seed=5)
    messages = render(made.changes, CesOptions(max_data_bytes=2_000), delivery)
    pipeline = Pipeline(tmp_path, spark, TABLES, source={"transport": "capture", "layout": None})
    files = list(capture_files(messages))
    for tick in range(3):
        for name, content in files[len(files) * tick // 3 : len(files) * (tick + 1) // 3]:
            pipeline.deliver(name, content)
        pipeline.tick()
    assert_mirrored(pipeline, made)


@pytest.mark.parametrize("security", ["plain", "sasl_ssl"])
def test_change_events_in_avro_over_kafka(security, tmp_path: Path, spark, kafka, monkeypatch) -> None:
    """C-60 to C-63, C-91, G-09: bytes as Event Hubs' Kafka endpoint gives them, in pieces, late and repeated."""
    made = history(seed=70)
    options = CesOptions(generation="c", encoding="avro", max_data_bytes=1_700, seed=70)
    messages = render(made.changes, options, Delivery(partitions=3, disorder=40, duplicates=0.05, seed=70))
    connection = kafka.connection() if security == "plain" else kafka.event_hubs_connection()
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", connection)
    topic = f"avro-{security}"
    kafka.create_topic(topic, 3)
    source = {"transport": "kafka", "connection": "broker", "topics": [topic], "path": "", "layout": None}
    pipeline = Pipeline(tmp_path, spark, TABLES, source=source)
    for part in slices(messages, 3):
        lines = [{**json.loads(line), "topic": topic} for line in json_lines(part, layout="wrapped").splitlines()]
        kafka.publish_lines(json.dumps(line).encode() for line in lines)
        pipeline.tick()
    assert_mirrored(pipeline, made)


@pytest.mark.parametrize(
    ("encoding", "ticks", "executor"),
    [("json", 4, "own process"), ("avro", 3, "own process"), ("json", 2, "Spark")],
    indirect=["executor"],
)
def test_qlik_messages(encoding, ticks, tmp_path: Path, executor) -> None:
    """K-01 to K-43, G-02, G-03, G-05, G-09: replayed transactions, keys that change places, all tables in one topic."""
    made = history(seed=30 + ticks)
    options = QlikMessageOptions(encoding=encoding, table_names=encoding == "json", replays=0.2, seed=ticks)
    messages = render_qlik(made, options, Delivery(partitions=3, scheme="key", duplicates=0.05, seed=ticks))
    pipeline = Pipeline(tmp_path, executor, TABLES, source={"format": "qlik-message"})
    for tick, part in enumerate(slices(messages, ticks)):
        pipeline.deliver(f"{Random(tick).random()}.jsonl", json_lines(part, layout="wrapped"))
        pipeline.tick()
    assert_mirrored(pipeline, made)


@pytest.mark.parametrize(
    ("encoding", "ticks", "executor"),
    [("json", 4, "own process"), ("avro", 2, "own process"), ("avro", 2, "Spark")],
    indirect=["executor"],
)
def test_qlik_messages_in_capture_windows(encoding, ticks, tmp_path: Path, executor) -> None:
    """K-01 to K-43, C-93: a task that writes to an event hub, in the containers of its Capture."""
    made = history(seed=80 + ticks)
    options = QlikMessageOptions(encoding=encoding, table_names=encoding == "json", replays=0.2, seed=ticks)
    messages = render_qlik(made, options, Delivery(partitions=3, scheme="key", duplicates=0.05, seed=ticks))
    source = {"format": "qlik-message", "transport": "capture", "layout": None}
    pipeline = Pipeline(tmp_path, executor, TABLES, source=source)
    files = list(capture_files(messages, window=timedelta(seconds=10)))
    for tick in range(ticks):
        for name, content in files[len(files) * tick // ticks : len(files) * (tick + 1) // ticks]:
            pipeline.deliver(name, content)
        pipeline.tick()
    assert_mirrored(pipeline, made)


@pytest.mark.parametrize(
    ("file_format", "binary", "executor"),
    [("csv", False, "own process"), ("parquet", True, "own process"), ("parquet", True, "Spark")],
    indirect=["executor"],
)
def test_qlik_change_files(file_format, binary, tmp_path: Path, executor) -> None:
    """T-10 to T-25, T-40 to T-42, G-02, G-03, G-09: pairs cut by files and ticks, files in any order."""
    made = history(seed=40)
    options = ChangeTableOptions(binary_mask=binary)
    files = [*change_files(stored_changes(made.changes, options), options, file_format, rows_per_file=17)]
    source = {"format": "qlik-change-table", "transport": "files", "layout": None}
    pipeline = Pipeline(tmp_path, executor, TABLES, source=source)
    pairs = [files[at : at + 2] for at in range(0, len(files), 2)]
    Random(4).shuffle(pairs)
    for tick in range(3):
        for pair in pairs[len(pairs) * tick // 3 : len(pairs) * (tick + 1) // 3]:
            for name, content in pair:
                pipeline.deliver(name, content)
        pipeline.tick()
    assert_mirrored(pipeline, made)


@pytest.mark.parametrize(("stored", "promised"), [(True, False), (None, True)])
def test_qlik_change_files_whose_pairs_are_cut_apart_without_masks(stored, promised, tmp_path: Path, spark) -> None:
    """T-02, T-11, T-19, T-60, G-03: each row is a file of its own, in any order; updates wait for their images.

    Or the mirror file promises that no key changes: images that say otherwise are believed, whenever they come.
    """
    made = history(seed=41, transactions=25)
    options = ChangeTableOptions(headers=("change_seq", "change_oper"))
    files = [*change_files(stored_changes(made.changes, options), options, "csv", rows_per_file=1)]
    source = {"format": "qlik-change-table", "transport": "files", "layout": None, "before_images": stored}
    tables = [{**table, "keys_never_change": True} if promised and table["key"] else table for table in TABLES]
    pipeline = Pipeline(tmp_path, spark, tables, source=source)
    pairs = [files[at : at + 2] for at in range(0, len(files), 2)]
    Random(41).shuffle(pairs)
    for tick in range(3):
        for pair in pairs[len(pairs) * tick // 3 : len(pairs) * (tick + 1) // 3]:
            for name, content in pair:
                pipeline.deliver(name, content)
        pipeline.tick()
    assert_mirrored(pipeline, made)
