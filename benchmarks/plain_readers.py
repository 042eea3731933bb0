"""Reads each format with its plain reader alone, in two processes: a program to compare the job with.

Nothing is checked: each function does only what its format and its name need. It takes one part of a source and gives
the number of its events; the program prints their sum.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.generate import ROOT

_DATA = (
    '{"eventsource":{"schema":"VARCHAR","tbl":"VARCHAR","cols":"JSON","pkkey":[{"columnname":"VARCHAR",'
    '"value":"VARCHAR"}]},"eventrow":{"old":"VARCHAR","current":"VARCHAR"}}'
)
_ENVELOPE = {"logicalid": "VARCHAR", "operation": "VARCHAR", "data": "VARCHAR"}


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


def program(read: Callable[[Any], int], parts: Sequence[Any]) -> list[str]:
    """The command that reads these parts."""
    return [sys.executable, __file__, read.__name__, json.dumps(parts, default=str)]


def capture_records(path: str) -> int:
    """Fastavro: the records of an Event Hubs Capture file."""
    return sum(1 for _ in _bodies(path))


def capture_json(path: str) -> int:
    """The same, and JSON: the event and the data inside it."""
    return sum(_ces(record["Body"]) for record in _bodies(path))


def _bodies(path: str) -> Iterator[Any]:
    import fastavro

    with open(path, "rb") as file:
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
    import fastavro

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
    from confluent_kafka import Consumer, TopicPartition

    part = Slice(*part)
    settings = {"bootstrap.servers": part.bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest", "check.crcs": True})
    consumer.assign([TopicPartition(part.topic, part.partition, 0)])
    at = 0
    while at < part.end:
        messages = consumer.consume(min(500, part.end - at), 1.0)
        at += len(messages)
        yield messages
    consumer.close()


def arrow_csv(path: str) -> int:
    """Pyarrow: a CSV file as texts, block by block."""
    import pyarrow.csv

    with open(path, encoding="utf-8") as file:
        names = file.readline().strip().replace('"', "").split(",")
    convert = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(names, "string"), strings_can_be_null=True)
    how = pyarrow.csv.ReadOptions(use_threads=False, block_size=4 << 20)
    parse = pyarrow.csv.ParseOptions(newlines_in_values=True)
    with pyarrow.csv.open_csv(path, how, parse, convert) as reader:
        return sum(batch.num_rows for batch in reader)


def duckdb_csv(path: str) -> int:
    """DuckDB: a CSV file as texts to Parquet."""
    return _to_parquet(f"SELECT * FROM read_csv('{path}', all_varchar = true, header = true, quote = '\"')")


def duckdb_events(path: str) -> int:
    """DuckDB: change events in JSON lines to Parquet, with the columns of the change log."""
    return _to_parquet(f"""
        SELECT 1::BIGINT AS batch, 'change' AS kind, d.eventsource.schema || '.' || d.eventsource.tbl AS tbl,
               (hash(d.eventsource.pkkey[1].value) % 64)::SMALLINT AS bucket, logicalid[:36] AS epoch,
               logicalid[38:] || ':1' AS pos, operation[:1] AS op, '["' || d.eventsource.pkkey[1].value || '"]' AS key,
               d.eventsource.cols AS cols, true AS whole, '{path}' AS origin, 0 AS place,
               CASE WHEN operation <> 'DEL' THEN d.eventrow.current END AS row,
               CASE WHEN operation = 'DEL' THEN d.eventrow.old END AS before
        FROM (SELECT *, from_json(data, '{_DATA}') AS d
              FROM read_json('{path}', format='newline_delimited', columns={_ENVELOPE}))""")


def _to_parquet(query: str) -> int:
    import duckdb

    with NamedTemporaryFile(dir=ROOT, suffix=".parquet") as target, duckdb.connect() as db:
        db.execute("SET threads = 1")
        db.execute("SET enable_progress_bar = false")
        db.execute("SET preserve_insertion_order = false")
        copied = db.execute(f"COPY ({query}) TO '{target.name}' (FORMAT parquet, COMPRESSION zstd)").fetchone()
    return copied[0] if copied else 0


def copied_out(part: Export) -> int:
    """Psycopg: a table by COPY as CSV, thrown away."""
    import psycopg2

    part = Export(*part)
    connection = psycopg2.connect(part.dsn)
    with connection, connection.cursor() as cursor, open("/dev/null", "wb") as sink:
        cursor.copy_expert(f"COPY {part.table} TO STDOUT (FORMAT csv)", sink)
        rows: int = cursor.rowcount
    connection.close()
    return rows


def main(name: str, parts: str) -> None:
    """Print the number of events in some parts."""
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        print(sum(pool.map(globals()[name], json.loads(parts))))


if __name__ == "__main__":
    main(*sys.argv[1:])
