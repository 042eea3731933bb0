"""A real table's whole history, as Qlik renders it and through real transports, ends in its known final state."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest

from open_mirroring.changes.horizon import MirrorHorizon
from open_mirroring.ledger.horizon import move_horizon
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_lost_ledger import set_to
from tests.kafka_broker import KafkaBroker
from tests.pipeline import Pipeline, in_order
from tests.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFICES: dict[str, Any] = {"source": "dbo.district_offices", "target": "dbo/district_offices", "key": ["office_id"]}
TICKS = [7, *(pytest.param(ticks, marks=pytest.mark.long) for ticks in (1, 50))]


def assert_equals_final(pipeline: Pipeline, expected: Path) -> None:
    found = in_order(pipeline.mirrored("dbo", "district_offices"), ["office_id"])
    assert found == in_order(pq.read_table(expected).to_pylist(), ["office_id"])
    numbers = pipeline.numbers("dbo.schema/district_offices")
    assert numbers == list(range(1, len(numbers) + 1)), "numbers are never skipped or reused (I7, F-31)"
    assert pipeline.open_fragments == 0
    (state,) = pipeline.reader.tables().values()
    assert state.stop_code is None


def sliced(items: Sequence[Any], ticks: int) -> Iterator[Sequence[Any]]:
    for tick in range(ticks):
        yield items[len(items) * tick // ticks : len(items) * (tick + 1) // ticks]


def lines_of(packed: Path, topic: str) -> list[bytes]:
    """The messages of a file in order of arrival, under a topic of the test's own."""
    lines = gzip.decompress(packed.read_bytes()).splitlines()
    return [json.dumps({**json.loads(line), "topic": topic}).encode() for line in lines]


@pytest.fixture
def topic(kafka: KafkaBroker) -> str:
    """A topic with the partitions of the data."""
    name = f"offices-{uuid4().hex[:8]}"
    kafka.create_topic(name, 3)
    return name


@pytest.fixture
def broker(kafka: KafkaBroker, security: str, monkeypatch: pytest.MonkeyPatch) -> KafkaBroker:
    """The broker behind the connection that mirrors name, by the listener that the test is about."""
    connection = kafka.connection() if security == "plain" else kafka.event_hubs_connection()
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", connection)
    return kafka


def over_kafka(
    folder: Path, spark: SparkSession, kafka: KafkaBroker, topic: str, lines: Sequence[bytes], ticks: int, source: Any
) -> Pipeline:
    """Produce the lines in slices, each followed by a tick."""
    described = {"transport": "kafka", "connection": "broker", "topics": [topic], "path": "", "layout": None, **source}
    pipeline = Pipeline(folder, spark, [OFFICES], source=described)
    for part in sliced(lines, ticks):
        kafka.publish_lines(part)
        pipeline.tick()
    return pipeline


@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize(
    ("encoding", "security"), [("json", "plain"), pytest.param("avro", "sasl_ssl", marks=pytest.mark.long)]
)
def test_messages_over_kafka(
    encoding: str,
    ticks: int,
    tmp_path: Path,
    spark: SparkSession,
    shared_data: Path,
    broker: KafkaBroker,
    topic: str,
) -> None:
    """K-01 to K-41, C-91, G-09: a load and its changes, whole transactions sent again, columns added on the way."""
    lines = lines_of(shared_data / "qlik-kafka" / f"{encoding}.jsonl.gz", topic)
    pipeline = over_kafka(tmp_path, spark, broker, topic, lines, ticks, {"format": "qlik-message"})
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet")


@pytest.mark.parametrize("ticks", TICKS)
@pytest.mark.parametrize("security", [pytest.param("plain", marks=pytest.mark.long), "sasl_ssl"])
def test_change_events_over_kafka(
    ticks: int,
    tmp_path: Path,
    spark: SparkSession,
    shared_data: Path,
    broker: KafkaBroker,
    topic: str,
) -> None:
    """C-22c, C-51 to C-55, C-91, G-02, G-09: events in pieces over partitions, as from Event Hubs' Kafka endpoint."""
    lines = lines_of(shared_data / "ces" / "json-gen-c" / "messages.jsonl.gz", topic)
    pipeline = over_kafka(tmp_path, spark, broker, topic, lines, ticks, {"format": "sqlserver-ces"})
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet")


@pytest.mark.parametrize("encoding", ["json", "avro"])
def test_messages_in_files(encoding: str, tmp_path: Path, spark: SparkSession, shared_data: Path) -> None:
    """K-01, K-03, K-40: the same messages as JSON lines, a few in each file."""
    pipeline = Pipeline(tmp_path, spark, [OFFICES], source={"format": "qlik-message"})
    packed = shared_data / "qlik-kafka" / f"{encoding}.jsonl.gz"
    lines = gzip.decompress(packed.read_bytes()).splitlines(keepends=True)
    for tick, part in enumerate(sliced(lines, 3)):
        pipeline.deliver(f"{tick}.jsonl", b"".join(part))
        pipeline.tick()
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet")


def load(pipeline: Pipeline, spark: SparkSession) -> None:
    from spark_jobs.initial_load import load as run

    assert dict(run(pipeline.mirror, pipeline.ledger, spark).stopped) == {}


@pytest.mark.parametrize("ticks", TICKS)
def test_change_tables_of_a_file_target(ticks: int, tmp_path: Path, spark: SparkSession, shared_data: Path) -> None:
    """T-30, T-40 to T-42, G-08: the full load, then files of changes that overlap it, the column list growing."""
    root = shared_data / "qlik-change-tables" / "files"
    initial = {"format": "qlik-full-load", "path": str(root / "dbo.district_offices"), "stream_from": "beginning"}
    pipeline = Pipeline(
        tmp_path,
        spark,
        [{**OFFICES, "initial_load": initial}],
        source={"format": "qlik-change-table", "transport": "files", "layout": None},
    )
    load(pipeline, spark)
    folder = "dbo.district_offices__ct"
    rows = [row for dfm in sorted((root / folder).glob("*.dfm")) for row in rows_of(dfm)]
    for tick, part in enumerate(sliced(rows, ticks)):
        for name, content in files_of(part, f"2030{tick:04d}-"):
            pipeline.deliver(f"{folder}/{name}", content)
        pipeline.tick()
    assert_equals_final(pipeline, shared_data / "district_offices" / "final.parquet")


def rows_of(dfm: Path) -> list[tuple[str, bytes, bytes]]:
    """The rows of a data file, each with its metadata file and header line."""
    header, *lines = gzip.decompress(dfm.with_suffix(".csv.gz").read_bytes()).splitlines(keepends=True)
    # A record may go over several lines: an odd number of quotes ends none.
    records: list[bytes] = []
    for line in lines:
        if records and records[-1].count(b'"') % 2:
            records[-1] += line
        else:
            records.append(line)
    return [(dfm.read_text(), header, record) for record in records]


def files_of(rows: Sequence[tuple[str, bytes, bytes]], prefix: str) -> Iterator[tuple[str, bytes]]:
    """The rows as data files with their metadata files, one for each list of columns."""
    for number, description in enumerate(dict.fromkeys(dfm for dfm, _, _ in rows)):
        mine = [(header, record) for dfm, header, record in rows if dfm == description]
        document = json.loads(description)
        document["fileInfo"] |= {"name": f"{prefix}{number}.csv", "extension": "", "recordCount": len(mine)}
        yield f"{prefix}{number}.csv", mine[0][0] + b"".join(record for _, record in mine)
        yield f"{prefix}{number}.dfm", json.dumps(document).encode()


@pytest.fixture
def offices(shared_data: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    """The target of a task that only stores changes, which are still to come."""
    postgres.execute("DROP SCHEMA IF EXISTS dbo CASCADE", "DROP SCHEMA IF EXISTS control CASCADE")
    postgres.execute(gzip.decompress((shared_data / "qlik-change-tables" / "postgres.sql.gz").read_bytes()).decode())
    postgres.execute(
        "CREATE TABLE dbo.later AS SELECT *, row_number() OVER (ORDER BY header__change_seq, header__change_oper) AS n "
        "FROM dbo.district_offices__ct",
        "CREATE TABLE control.later AS SELECT *, row_number() OVER (ORDER BY partition_name) AS n "
        "FROM control.attrep_cdc_partitions",
        "TRUNCATE control.attrep_cdc_partitions",
    )
    content = {
        "conn_type": "postgres",
        "host": "127.0.0.1",
        "port": postgres.port,
        "login": postgres.user,
        "password": postgres.password,
        "schema": postgres.database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_QLIK_TARGET", json.dumps(content))
    return postgres


def of_change_tables(folder: Path, spark: SparkSession, **source: Any) -> Pipeline:
    described = {"format": "qlik-change-table", "transport": "jdbc", "connection": "qlik_target", "path": "", **source}
    initial = {"format": "jdbc", "connection": "qlik_target", "stream_from": "beginning"}
    return Pipeline(folder, spark, [{**OFFICES, "initial_load": initial}], source={**described, "layout": None})


@pytest.mark.parametrize("ticks", TICKS)
def test_change_tables_over_jdbc_by_partitions(
    ticks: int, tmp_path: Path, spark: SparkSession, shared_data: Path, offices: PostgresServer
) -> None:
    """T-18, T-24, T-30, T-34: closed partitions, several at once; the table as loaded is the initial load."""
    pipeline = of_change_tables(tmp_path, spark, partitions="control.attrep_cdc_partitions")
    load(pipeline, spark)
    columns = (
        "server_name, task_name, partition_name, partition_start_time, partition_end_time, table_owner, table_name"
    )
    for numbers in sliced(range(1, 47), ticks):
        offices.execute(
            f"INSERT INTO control.attrep_cdc_partitions ({columns}) SELECT {columns} FROM control.later "
            f"WHERE n >= {min(numbers, default=0)} AND n <= {max(numbers, default=-1)}"
        )
        pipeline.tick()
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet")


@pytest.mark.parametrize("ticks", TICKS)
def test_change_tables_over_jdbc_by_sequence(
    ticks: int, tmp_path: Path, spark: SparkSession, shared_data: Path, offices: PostgresServer
) -> None:
    """T-10, T-11, T-18: without partitions, rows are read in intervals of change_seq that overlap."""
    offices.execute("TRUNCATE dbo.district_offices__ct")
    pipeline = of_change_tables(tmp_path, spark)
    load(pipeline, spark)
    connection = offices.connect()
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute "
            "WHERE attrelid = 'dbo.district_offices__ct'::regclass AND attnum > 0 AND NOT attisdropped"
        )
        (columns,) = cursor.fetchone()
    connection.close()
    for numbers in sliced(range(1, 2_109), ticks):
        offices.execute(
            f"INSERT INTO dbo.district_offices__ct ({columns}) SELECT {columns} FROM dbo.later "
            f"WHERE n >= {numbers[0]} AND n <= {numbers[-1]}"
        )
        pipeline.tick()
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet")


def test_what_was_logged_before_the_load_of_a_task_that_only_stores_changes(
    tmp_path: Path,
    spark: SparkSession,
    shared_data: Path,
    offices: PostgresServer,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """T-30, G-08: the loaded table stays as the task's full load left it: nothing that was logged is in it.

    Nor is it when the table is reset with that load: it ended as the load was, and each run said PASS. So did one
    behind which the log had not all changes any more.
    """
    pipeline = of_change_tables(tmp_path, spark)
    set_to(pipeline, landing_zone={"store": "local", "path": "zone", "tables": "tables"})
    pipeline.extract()
    load(pipeline, spark)
    pipeline.service.poll()
    pipeline.tick()
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet")

    def reset(request: str, **settings: Any) -> tuple[int, str]:
        load = {"format": "jdbc", "connection": "qlik_target", **settings}
        set_to(pipeline, tables=[{**OFFICES, "initial_load": load}])
        asked = ("--reason", "r", "--approved-by", "Ada", "--wait", "0", "--request", request)
        for _ in range(4):
            code = main(["reload-table", str(pipeline.file), "--table", str(OFFICES["source"]), *asked])
            pipeline.service.poll()
        capsys.readouterr()
        main(["tick", str(pipeline.file)])
        pipeline.service.poll()
        return code, capsys.readouterr().out

    code, said = reset("r1")
    assert code == Exit.DONE and "rows unverified" in said and "set `stream_from: beginning` of the load" in said
    code, said = reset("r2", stream_from="beginning")
    assert code == Exit.DONE and "rows unverified" not in said, "what the note said to do was done"
    assert_equals_final(pipeline, shared_data / "district_offices_part" / "final.parquet")
    # As maintenance does once the batches are old enough.
    assert move_horizon(pipeline.ledger, pipeline.name, 1, MirrorHorizon(1, datetime.now(UTC), 1), [])
    code, said = reset("r3", stream_from="beginning")
    assert code == Exit.TABLES_STOPPED and "STREAM_FROM_INVALID" in said, said
    code, said = reset("r3")
    assert code == Exit.DONE and "rows unverified" in said and "the log lacks some of them" in said
