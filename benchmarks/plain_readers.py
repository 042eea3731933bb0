"""Reads each format with its plain reader alone, in two processes as the job has two cores.

Nothing is checked or written: each function does only what reading its format needs. It takes one part of a source and
gives the number of its events.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import fastavro
import psycopg2
import pyarrow.csv
from confluent_kafka import Consumer, TopicPartition

from benchmarks.measure import Cost, measured


class Slice(NamedTuple):
    """All messages of one topic partition."""

    bootstrap: str
    topic: str
    partition: int
    end: int


class Export(NamedTuple):
    """A table in PostgreSQL."""

    dsn: str
    table: str


def run(read: Callable[[Any], int], parts: Sequence[Any], without: Sequence[int]) -> tuple[Cost, int]:
    """Read all parts; the start of the processes is not counted.

    Args:
        read: one of this module's readers.
        parts: what it takes.
        without: processes that are left out of the cost, with their descendants.
    """
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        list(pool.map(_warm, [read] * 4))
        with measured(without) as cost:
            events = sum(pool.map(read, parts))
    return cost, events


def _warm(read: Callable[[Any], int]) -> int:
    return len(read.__name__)


def capture_records(path: Path) -> int:
    """Fastavro: the records of an Event Hubs Capture file."""
    return sum(1 for _ in _bodies(path))


def capture_json(path: Path) -> int:
    """The same, and JSON: the event and the data inside it."""
    return sum(_ces(record["Body"]) for record in _bodies(path))


def _bodies(path: Path) -> Iterator[Any]:
    with path.open("rb") as file:
        yield from fastavro.reader(file)


def _ces(body: bytes) -> int:
    json.loads(json.loads(body)["data"])
    return 1


def consumed(part: Slice) -> int:
    """The consumer alone: every message once."""
    return sum(len(messages) for messages in _consumed(part))


def consumed_ces(part: Slice) -> int:
    """The consumer, and JSON: the event and the data inside it."""
    return sum(_ces(message.value()) for messages in _consumed(part) for message in messages)


def consumed_json(part: Slice) -> int:
    """The consumer, and JSON."""
    return sum(bool(json.loads(message.value())) for messages in _consumed(part) for message in messages)


def consumed_avro(part: Slice) -> int:
    """The consumer, and fastavro with its logical types: the envelope, then the message by the schema of its id."""
    envelope, schemas = _schemas()
    count = 0
    for messages in _consumed(part):
        for message in messages:
            outer: Any = fastavro.schemaless_reader(io.BytesIO(message.value()), envelope, None)
            fastavro.schemaless_reader(io.BytesIO(outer["message"]), schemas[outer["messageSchemaId"]], None)
            count += 1
    return count


@lru_cache
def _schemas() -> tuple[Any, dict[str, Any]]:
    from benchmarks.qlik_events import TASK, tables
    from workload_generator.qlik_schemas import ENVELOPE, parsed_data_schema, schema_id

    return ENVELOPE, {schema_id(table, TASK, True): parsed_data_schema(table, TASK, True) for table in tables()}


def _consumed(part: Slice) -> Iterator[list[Any]]:
    settings = {"bootstrap.servers": part.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.assign([TopicPartition(part.topic, part.partition, 0)])
    at = 0
    while at < part.end:
        messages = consumer.consume(min(500, part.end - at), 1.0)
        at += len(messages)
        yield messages
    consumer.close()


def arrow_csv(path: Path) -> int:
    """Pyarrow: a CSV file as texts, block by block."""
    names = path.open().readline().strip().replace('"', "").split(",")
    convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, "string"), strings_can_be_null=True)
    how = pyarrow.csv.ReadOptions(use_threads=False, block_size=4 << 20)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with pyarrow.csv.open_csv(path, how, parse, convert) as reader:
        return sum(batch.num_rows for batch in reader)


def duckdb_csv(path: Path) -> int:
    """DuckDB: a CSV file as texts to Parquet."""
    with duckdb.connect(config={"threads": 1, "preserve_insertion_order": False}) as db:
        target = path.parents[2] / f"reference-{path.parent.name}-{path.stem}.parquet"
        query = (
            f"COPY (SELECT * FROM read_csv('{path}', all_varchar = true, header = true, quote = '\"')) TO '{target}'"
        )
        copied = db.execute(f"{query} (FORMAT parquet, COMPRESSION zstd)").fetchone()
        target.unlink()
    return copied[0] if copied else 0


def copied_out(part: Export) -> int:
    """Psycopg: a table by COPY as CSV, thrown away."""
    connection = psycopg2.connect(part.dsn)
    with connection, connection.cursor() as cursor, open("/dev/null", "wb") as sink:
        cursor.copy_expert(f"COPY {part.table} TO STDOUT (FORMAT csv)", sink)
        rows: int = cursor.rowcount
    connection.close()
    return rows
