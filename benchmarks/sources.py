"""Times extraction of every source through its real transport, beside the plain readers of its format in the same run.

``make bench-extract SOURCE=…``. The real job (Spark session, ledger, workers, Delta commit) takes turns with each plain
reader on the same events: from files, from a real Kafka broker, from a real PostgreSQL. A ratio is the plain reader's
time over the job's; the reader checks, orders and writes nothing. The memory is that of the job's process tree, without
broker and database.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psutil

from benchmarks import plain_readers as plain
from benchmarks import qlik_events as qlik
from benchmarks.generate import ROOT, TABLES, ces_bodies, key_of, source_folder
from benchmarks.measure import BUSY, Cost, measured, versions

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
        self._stack, self.pids = stack, []  # type: tuple[ExitStack, list[int]]
        self._broker: Any = None
        self._postgres: Any = None

    def _start(self, server: Any) -> Any:
        before = {child.pid for child in psutil.Process().children()}
        started = self._stack.enter_context(server)
        self.pids += [child.pid for child in psutil.Process().children() if child.pid not in before]
        return started

    def broker(self) -> Any:
        """The Kafka broker; the connection ``broker`` names it."""
        from tests.kafka_broker import running_broker

        if self._broker is None:
            self._broker = self._start(running_broker())
            os.environ["AIRFLOW_CONN_BROKER"] = self._broker.connection()
        return self._broker

    def postgres(self) -> Any:
        """The database server; the connection ``target`` names it."""
        from tests.postgres import running_postgres

        if self._postgres is None:
            server = self._postgres = self._start(running_postgres())
            content = {"conn_type": "postgres", "host": "127.0.0.1", "port": server.port, "login": server.user}
            content |= {"password": server.password, "schema": server.database}
            os.environ["AIRFLOW_CONN_TARGET"] = json.dumps(content)
        return self._postgres


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
    return _topic(servers, "ces", events, parts, readers)


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
    server = servers.postgres()
    partitions = "table_owner varchar(128), table_name varchar(128), partition_name varchar(50)"
    server.execute(
        "DROP SCHEMA IF EXISTS dbo CASCADE",
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
        dsn = connection.get_dsn_parameters() | {"password": server.password}
    connection.close()
    text = " ".join(f"{name}={dsn[name]}" for name in ("host", "port", "user", "dbname", "password"))
    described = {"format": "qlik-change-table", "transport": "jdbc", "connection": "target"}
    exports = [plain.Export(text, f"dbo.{table.name}__ct") for table in qlik.tables()]
    readers = {"psycopg2 COPY": plain.copied_out}
    return Source({**described, "partitions": "dbo.attrep_cdc_partitions"}, exports, readers, rows)


SOURCES = {
    one.__name__.replace("_", "-"): one
    for one in (ces_capture, ces_kafka, qlik_kafka_json, qlik_kafka_avro, qlik_files, qlik_jdbc)
}


def _messages(
    servers: Servers, events: int, encoding: qlik.Encoding, readers: Mapping[str, Callable[[Any], int]]
) -> Source:
    parts = [qlik.read_messages(path) for path in qlik.message_files(events, encoding)]
    found = _topic(servers, encoding, events, parts, readers)
    metadata = f"{found.described['topics'][0]}.metadata"
    servers.broker().create_topic(metadata)
    servers.broker().publish(metadata, [(0, None, body) for body in qlik.announcements(encoding)])
    described = {**found.described, "format": "qlik-message"}
    return found._replace(
        described={**described, "topics": [*described["topics"], metadata]}, first={**described, "topics": [metadata]}
    )


def _topic(
    servers: Servers, name: str, events: int, parts: Sequence[Any], readers: Mapping[str, Callable[[Any], int]]
) -> Source:
    broker, topic = servers.broker(), f"{name}-{events}"
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


def run_job(source: Source, name: str, without: Sequence[int]) -> tuple[Cost, dict[str, int]]:
    """One extraction into a fresh ledger and change log."""
    from open_mirroring.config import load_mirror
    from open_mirroring.ledger import open_ledger
    from spark_jobs.extract_changes import extract
    from spark_jobs.runtime.session import build_session

    work, spark = ROOT / "work" / name, build_session("bench", cores=2)
    shutil.rmtree(work, ignore_errors=True)
    if source.first is not None:
        mirror = load_mirror(_mirror_file(work, source.first))
        extract(mirror, open_ledger(mirror.ledger_url()), spark)
    mirror = load_mirror(_mirror_file(work, source.described))
    with measured(without) as cost:
        extracted = extract(mirror, open_ledger(mirror.ledger_url()), spark)
    shutil.rmtree(work)
    return cost, dict(extracted.counts)


def _mirror_file(work: Path, described: Mapping[str, Any]) -> Path:
    document = {
        "mirror": "bench",
        "source": described,
        "landing_zone": {"store": "local", "path": str(work / "landing_zone")},
        "ledger": f"sqlite:///{work}/ledger.db",
        "change_log": str(work / "change_log"),
        "tables": [{"source": f"dbo.{name}", "target": f"dbo/{name}", "key": [key_of(name)]} for name in TABLES],
    }
    path = work / "mirrors" / "bench.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document))
    return path


def bench(name: str, sizes: Sequence[int], rounds: int) -> None:
    """Print the table of one source."""
    with ExitStack() as stack:
        servers = Servers(stack)
        warm = SOURCES[name](5_000, servers)
        for turn in range(2):
            run_job(warm, f"warm-{turn}", servers.pids)
        print(f"{name}, {len(TABLES)} tables; {versions()}")
        columns = [f"{reader} ev/s | ratio wall | ratio CPU" for reader in warm.readers]
        print(f"| events | job ev/s | job CPU s | job peak MB | {' | '.join(columns)} | others |")
        print("|" + "---|" * (5 + 3 * len(columns)))
        for size in sizes:
            source = SOURCES[name](size, servers)
            ratios = [_round(source, f"{size}-{number}", servers.pids) for number in range(rounds)]
            medians = [f"{reader} {statistics.median(r[reader] for r in ratios):.2f}" for reader in source.readers]
            print(f"median wall ratio at {source.events:,} events: {', '.join(medians)}", flush=True)


def _round(source: Source, name: str, without: Sequence[int]) -> dict[str, float]:
    """One turn of each; a table line, and the wall ratios by reader."""
    costs = {}
    for reader, read in source.readers.items():
        costs[reader], events = plain.run(read, source.parts, without)
        if events != source.events:
            raise SystemExit(f"{reader} read {events} of {source.events} events")
    job, counts = run_job(source, name, without)
    done = counts["changes"] + counts["metadata"]  # before images beside their updates count as metadata
    if counts["messages"] != source.events or done != source.events:
        raise SystemExit(f"the job read {counts}, not {source.events} events")
    cells = [
        f"{source.events / cost.wall:,.0f} | {cost.wall / job.wall:.2f} | {cost.cpu / job.cpu:.2f}"
        for cost in costs.values()
    ]
    busy = max(cost.others for cost in (job, *costs.values()))
    print(
        f"| {source.events:,} | {source.events / job.wall:,.0f} | {job.cpu:.1f} | {job.peak / 1e6:,.0f} "
        f"| {' | '.join(cells)} | {busy:.2f}{' busy' if busy > BUSY else ''} |",
        flush=True,
    )
    return {reader: cost.wall / job.wall for reader, cost in costs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", choices=tuple(SOURCES))
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 400_000], help="sizes, one after another")
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    bench(arguments.source, arguments.events, arguments.rounds)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parents[1]))
    main()
