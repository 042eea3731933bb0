"""Times extraction of every source through its real transport, next to the plain readers of its format.

``make bench-extract SOURCE=…``. The real job and each plain reader are complete processes, in turns on the same events:
from files, from a real Kafka broker, from a real PostgreSQL. The readers check and order nothing, and most write
nothing. Broker and database are not part of the costs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import plain_readers as plain
from benchmarks import qlik_events as qlik
from benchmarks.generate import ROOT, ces_bodies, source_folder
from benchmarks.mirrors import connect, shop_tables, write_mirror
from benchmarks.pairs import CHECKOUT, Program, compare

_TOPIC, _METADATA = "cdc", "cdc.metadata"


class Source(NamedTuple):
    """A source with so many events: how the mirror file describes it, and what its plain readers take.

    ``first`` is what a run before the measured one reads instead, if any: metadata in a topic of its own (K-06).
    """

    described: Mapping[str, Any]
    parts: Sequence[Any]
    readers: Mapping[str, Callable[[Any], int]]
    events: int
    first: Mapping[str, Any] | None = None


class Servers:
    """The broker and the database, started once one is needed."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def broker(self) -> Any:
        """Start the Kafka broker; the connection ``broker`` names it."""
        from tests.kafka_broker import running_broker

        broker = self._stack.enter_context(running_broker())
        os.environ["AIRFLOW_CONN_BROKER"] = broker.connection()
        return broker

    def postgres(self) -> tuple[Any, str]:
        """Start the database server; the connection ``target`` names it, and so does the text."""
        from tests.postgres import running_postgres

        server = self._stack.enter_context(running_postgres())
        return server, connect("target", server)


def ces_files(events: int, servers: Servers) -> Source:
    """Change events in JSON lines."""
    folder = source_folder(events, "bare")
    described = {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": str(folder)}
    return Source(described, sorted(folder.iterdir()), {"DuckDB → Parquet": plain.duckdb_events}, events)


def ces_capture(events: int, servers: Servers) -> Source:
    """Change events in files of Event Hubs Capture."""
    folder = source_folder(events, "capture")
    described = {"format": "sqlserver-ces", "transport": "capture", "path": str(folder)}
    readers = {"fastavro": plain.capture_records, "fastavro + json": plain.capture_json}
    return Source(described, sorted(folder.iterdir()), readers, events)


def ces_kafka(events: int, servers: Servers) -> Source:
    """Change events in a topic."""
    parts = [ces_bodies(events, part, qlik.PARTS) for part in range(qlik.PARTS)]
    readers = {"consumer": plain.consumed, "consumer + json": plain.consumed_ces}
    return _topic(servers.broker(), "ces", events, parts, readers)


def qlik_kafka_json(events: int, servers: Servers) -> Source:
    """Messages of a Qlik task in JSON."""
    readers = {"consumer": plain.consumed, "consumer + json": plain.consumed_json}
    return _messages(servers, events, "json", readers)


def qlik_kafka_avro(events: int, servers: Servers) -> Source:
    """Messages of a Qlik task in Avro."""
    readers = {"consumer": plain.consumed, "consumer + fastavro": plain.consumed_avro}
    return _messages(servers, events, "avro", readers)


def qlik_files(events: int, servers: Servers) -> Source:
    """Change tables of a file target in CSV."""
    folder = qlik.change_files(events)
    described = {"format": "qlik-change-table", "transport": "files", "path": str(folder)}
    readers = {"pyarrow": plain.arrow_csv, "DuckDB to Parquet": plain.duckdb_csv}
    rows = sum(json.loads(dfm.read_text())["fileInfo"]["recordCount"] for dfm in folder.rglob("*.dfm"))
    return Source(described, sorted(folder.rglob("*.csv")), readers, rows)


def qlik_jdbc(events: int, servers: Servers) -> Source:
    """Change tables in PostgreSQL, four closed partitions each."""
    server, dsn = servers.postgres()
    partitions = "table_owner varchar(128), table_name varchar(128), partition_name varchar(50)"
    server.execute(
        "CREATE SCHEMA dbo",
        f"CREATE TABLE dbo.attrep_cdc_partitions ({partitions})",
    )
    connection, rows = server.connect(), 0
    with connection.cursor() as cursor:
        for table, path in zip(sorted(qlik.tables(), key=lambda t: t.name), qlik.copy_files(events), strict=True):
            cursor.execute(qlik.create_table(table))
            with path.open("rb") as file:
                cursor.copy_expert(f"COPY dbo.{table.name}__ct FROM STDIN (FORMAT csv)", file)
            rows += cursor.rowcount
            cursor.execute(
                "INSERT INTO dbo.attrep_cdc_partitions SELECT DISTINCT 'dbo', %s, header__partition_name "
                f"FROM dbo.{table.name}__ct",
                (table.name,),
            )
        cursor.execute("VACUUM ANALYZE")
    connection.close()
    described = {"format": "qlik-change-table", "transport": "jdbc", "connection": "target"}
    exports = [plain.Export(dsn, f"dbo.{table.name}__ct") for table in qlik.tables()]
    readers = {"`COPY`, thrown away": plain.copied_out}
    return Source({**described, "partitions": "dbo.attrep_cdc_partitions"}, exports, readers, rows)


SOURCES = {
    one.__name__.replace("_", "-"): one
    for one in (ces_files, ces_capture, ces_kafka, qlik_kafka_json, qlik_kafka_avro, qlik_files, qlik_jdbc)
}


def _messages(
    servers: Servers, events: int, encoding: qlik.Encoding, readers: Mapping[str, Callable[[Any], int]]
) -> Source:
    parts = [qlik.read_messages(path) for path in qlik.message_files(events, encoding)]
    broker = servers.broker()
    found = _topic(broker, encoding, events, parts, readers)
    metadata = f"{found.described['topics'][0]}.metadata"
    broker.create_topic(metadata)
    broker.publish(metadata, [(0, None, body) for body in qlik.announcements(encoding)])
    described = {**found.described, "format": "qlik-message"}
    return found._replace(
        described={**described, "topics": [*described["topics"], metadata]}, first={**described, "topics": [metadata]}
    )


def _topic(
    broker: Any, name: str, events: int, parts: Sequence[Any], readers: Mapping[str, Callable[[Any], int]]
) -> Source:
    topic = f"{name}-{events}"
    broker.create_topic(topic, len(parts))
    slices = []
    for partition, bodies in enumerate(parts):
        counted = 0

        def numbered(bodies: Any = bodies, partition: int = partition) -> Any:
            nonlocal counted
            for body in bodies:
                counted += 1
                yield partition, None, body

        broker.publish(topic, numbered())
        slices.append(plain.Slice(broker.bootstrap, topic, partition, counted))
    described = {"format": "sqlserver-ces", "transport": "kafka", "connection": "broker", "topics": [topic]}
    return Source(described, slices, readers, sum(part.end for part in slices))


def job(source: Source, start_above: str | int) -> list[str]:
    """The command that extracts a source into a fresh ledger and change log; what comes first is read.

    Work above *start_above* starts Spark.
    """
    work = ROOT / "work" / "extract"
    shutil.rmtree(work, ignore_errors=True)
    if source.first is not None:
        subprocess.run(_extraction(work, source.first, start_above), capture_output=True, check=True)
    return _extraction(work, source.described, start_above)


def _extraction(work: Path, described: Mapping[str, Any], start_above: str | int) -> list[str]:
    file = write_mirror(work, described, shop_tables(), spark={"start_above": start_above})
    return [sys.executable, str(CHECKOUT / "spark_jobs" / "extract_changes.py"), str(file)]


def _read(output: str) -> int:
    counts = json.loads(output.splitlines()[-1])["counts"]
    done: int = counts["changes"] + counts["metadata"]  # before images next to their updates count as metadata
    return done if done == counts["messages"] else -1


def main() -> None:
    """Measure in turns, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", choices=tuple(SOURCES))
    parser.add_argument("--events", type=int, default=300_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with ExitStack() as stack:
        source = SOURCES[given.source](given.events, Servers(stack))
        programs = {f"`extract_changes`, {given.source}": Program(partial(job, source, "256m"), _read)}
        programs["… by Spark"] = Program(partial(job, source, 0), _read)
        for name, read in source.readers.items():
            programs[name] = Program(partial(plain.program, read, source.parts))
        kind = (SOURCES[given.source].__doc__ or "").rstrip(".")
        what = f"{kind}: {source.events:,} of 5 tables"
        compare(f"extract {given.source}", what, programs, given.rounds, of=source.events, unit="events")


if __name__ == "__main__":
    main()
