"""`open-mirroring init`: what it writes of a real source runs unedited, and ends equal."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from demo.judge import judge
from demo.place import DemoFolder, claim
from demo.shop import TOPIC, Shop
from demo.source_formats import CES, QLIK_CHANGE_TABLE, QLIK_KAFKA, SourceFormat
from fabric_emulator.service import MirroringService
from open_mirroring.changes.manifest import BoundRange
from open_mirroring.config import load_mirror
from open_mirroring.config.connections import resolve
from open_mirroring.operate.exit_codes import Exit
from open_mirroring.source_places.kafka_client import place_of
from spark_jobs.cli.command_line import main
from spark_jobs.sources.transports.topics import KafkaTopics, read_range
from tests.ces_messages import event
from tests.kafka_broker import KafkaBroker
from tests.pipeline import in_order
from tests.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def mirrored(home: Path, name: str) -> Path:
    """Check, load, tick and apply what stands in the mirror file; the folder of the target's tables."""
    file = home / "mirrors" / f"{name}.yaml"
    assert main(["check", str(file)]) == Exit.DONE
    if any(table.initial_load for table in load_mirror(file).tables):
        assert main(["initial-load", str(file)]) == Exit.DONE
    zone, tables = home / "build" / name / "landing_zone", home / "tables"
    service = MirroringService(zone, tables)
    service.poll()
    assert main(["tick", str(file)]) == Exit.DONE
    service.poll()
    return tables


@pytest.mark.parametrize("source_format", [CES, QLIK_CHANGE_TABLE], ids=lambda one: one.name)
def test_what_init_writes_of_the_demos_sources_runs_unedited_and_ends_equal(
    source_format: SourceFormat, tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-50: tables, keys in their order and first rows, from changes or from `.dfm` files."""
    with claim(tmp_path / "demo") as place:
        shop = Shop(place, 7, source_format)
        shop.open()
        shop.hand_over()
        shop.trade(60, hold_back=False)
        source, rows = "format: qlik-change-table, transport: files, path: target, before_images: true", []
        if source_format is CES:
            source = "format: sqlserver-ces, transport: capture, path: capture"
            rows = ["--export", str(place.export), "--stream-from", str(place.export / "export.json")]
        ends_equal(place, source, rows, with_loads=True)
        assert "4 tables added" in capsys.readouterr().out


def test_what_init_writes_of_the_demos_messages_runs_unedited_and_ends_equal(
    tmp_path: Path, spark: SparkSession, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-50, K-12, K-18: metadata messages tell the tables, and the first rows come in the topic."""
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_BROKER", kafka.connection())
    kafka.create_topic(TOPIC, 3)
    with claim(tmp_path / "demo") as place:
        shop = Shop(place, 7, QLIK_KAFKA, kafka.bootstrap)
        shop.open()
        shop.hand_over()
        shop.trade(60, hold_back=False)
        source = f"format: qlik-message, transport: kafka, connection: shop_broker, topics: [{TOPIC}]"
        ends_equal(place, source, [], with_loads=False)


def ends_equal(place: DemoFolder, source: str, rows: Sequence[str], *, with_loads: bool) -> None:
    file = place.mirrors / "begun.yaml"
    assert main(["init", str(file), "--source", source, *rows]) == Exit.DONE
    mirror = load_mirror(file)
    assert {table.source: table.key for table in mirror.tables} == {
        "dbo.customers": ("customer_id",),
        "dbo.order_lines": ("order_id", "line_no"),
        "dbo.orders": ("order_id",),
        "dbo.products": ("sku",),
    }
    assert [table.initial_load is not None for table in mirror.tables] == [with_loads] * 4
    verdicts = judge(place.source, mirrored(place.root, "begun"))
    assert len(verdicts) == 4 and [one for one in verdicts if not one.equal] == []


def offices_equal(tables: Path, expected: Path) -> None:
    rows = pa.table(DeltaTable(str(tables / "dbo" / "district_offices")).scan()).to_pylist()
    plain = [{name: v.replace(tzinfo=None) if hasattr(v, "tzinfo") else v for name, v in row.items()} for row in rows]
    assert in_order(plain, ["office_id"]) == in_order(pq.read_table(expected).to_pylist(), ["office_id"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("format: sqlserver-ces, transport: capture, path: {data}/ces/capture-gen-c", ""),
        ("format: sqlserver-ces, transport: files, path: {data}/ces/json-gen-a", "_part"),
        ("format: sqlserver-ces, transport: files, path: {data}/ces/json-gen-c", "_part"),
        ("format: qlik-message, transport: files, path: {data}/qlik-kafka/json.jsonl.gz", "_part"),
        ("format: qlik-message, transport: files, path: {data}/qlik-kafka/avro.jsonl.gz", "_part"),
        ("format: qlik-change-table, transport: files, path: {data}/qlik-change-tables/files", ""),
    ],
)
def test_what_init_writes_of_a_real_history_runs_unedited_and_ends_equal(
    source: str, expected: str, tmp_path: Path, spark: SparkSession, shared_data: Path
) -> None:
    """G-50, C-45, K-12, T-41: one table, its key, and the full load that lies beside a change table."""
    file = tmp_path / "mirrors" / "offices.yaml"
    assert main(["init", str(file), "--source", source.format(data=shared_data)]) == Exit.DONE
    (table,) = load_mirror(file).tables
    assert (table.source, table.target, table.key) == (
        "dbo.district_offices",
        "dbo/district_offices",
        ("office_id",),
    )
    offices_equal(mirrored(tmp_path, "offices"), shared_data / f"district_offices{expected}" / "final.parquet")


def connection_of(postgres: PostgresServer) -> str:
    at = {"conn_type": "postgres", "host": "127.0.0.1", "port": postgres.port, "schema": postgres.database}
    return json.dumps({**at, "login": postgres.user, "password": postgres.password})


def test_change_tables_in_a_database_are_found_by_their_suffix_and_headers(
    tmp_path: Path, spark: SparkSession, shared_data: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-50, T-01, T-02, T-34: the key is that of the loaded table, which gives the first rows, too."""
    postgres.execute("DROP SCHEMA IF EXISTS dbo CASCADE", "DROP SCHEMA IF EXISTS control CASCADE")
    postgres.execute(gzip.decompress((shared_data / "qlik-change-tables" / "postgres.sql.gz").read_bytes()).decode())
    postgres.execute("CREATE TABLE dbo.letters__ct (id int)")
    monkeypatch.setenv("AIRFLOW_CONN_QLIK_TARGET", connection_of(postgres))
    source = "format: qlik-change-table, transport: jdbc, connection: qlik_target"
    file = tmp_path / "mirrors" / "offices.yaml"
    story = ["--source", f"{source}, partitions: control.attrep_cdc_partitions"]
    assert main(["init", str(file), *story]) == Exit.DONE
    (table,) = load_mirror(file).tables
    assert (table.source, table.key) == ("dbo.district_offices", ("office_id",))
    offices_equal(mirrored(tmp_path, "offices"), shared_data / "district_offices_part" / "final.parquet")


def test_the_catalog_shows_what_the_stream_does_not(
    tmp_path: Path, kafka: KafkaBroker, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-50, C-77: keys, tables without changes as comments, and columns whose type cannot be loaded are left out.

    The login may read, and no more: `information_schema` would not show it a key.
    """
    postgres.execute("DROP SCHEMA IF EXISTS sales CASCADE", "CREATE SCHEMA sales")
    postgres.execute(
        'CREATE TABLE sales.orders (b int, "a b" int, note varchar(9), place point, PRIMARY KEY ("a b", b))',
        "CREATE TABLE sales.quiet (id int PRIMARY KEY)",
        "CREATE TABLE sales.hidden (id int PRIMARY KEY)",
    )
    reader = postgres._replace(user=f"reader_{uuid4().hex[:8]}", password=uuid4().hex)
    postgres.execute(
        f"CREATE ROLE {reader.user} LOGIN PASSWORD '{reader.password}'",
        f"GRANT USAGE ON SCHEMA sales TO {reader.user}",
        f"GRANT SELECT ON sales.orders, sales.quiet TO {reader.user}",
    )
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
    monkeypatch.setenv("AIRFLOW_CONN_SHOP", connection_of(reader))
    topic = f"sales-{uuid4().hex[:8]}"
    kafka.create_topic(topic, 2)
    story = event("INS", {"b": "1", "a b": "2"}, cols=[("b", "int"), ("a b", "int")], schema="sales")
    kafka.publish(topic, [(1, None, story)])
    file = tmp_path / "mirrors" / "sales.yaml"
    source = f"format: sqlserver-ces, transport: kafka, connection: broker, topics: [{topic}]"
    assert main(["init", str(file), "--source", source, "--database", "shop"]) == Exit.DONE
    (table,) = load_mirror(file).tables
    assert (table.source, table.key, table.columns) == ("sales.orders", ("a b", "b"), ("b", "a b", "note"))
    assert table.initial_load is not None and table.initial_load.format == "jdbc"
    assert "  # - source: sales.quiet" in file.read_text() and "hidden" not in file.read_text()
    assert main(["init", str(file), "--add", "--unseen", "--database", "shop"]) == Exit.DONE
    assert [table.source for table in load_mirror(file).tables if table.source_name.schema == "sales"][1:] == [
        "sales.quiet"
    ]


def test_of_a_long_topic_each_partition_is_looked_at_twice(kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """G-50: its beginning and its end, however many ranges a run would cut it into."""
    topic = f"long-{uuid4().hex[:8]}"
    kafka.create_topic(topic, 2)
    kafka.publish(topic, [(number % 2, None, b"%d" % number) for number in range(400)])
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
    place = place_of(resolve("broker"), (topic,))._replace(messages_per_range=10)
    read = list[BoundRange]()
    monkeypatch.setattr(KafkaTopics, "read", lambda self, bound: read.append(bound) or read_range(self.place, bound))
    numbers = sorted(int(message.body or b"") for message in KafkaTopics(place).sample(40))
    assert numbers == [*range(20), *range(380, 400)] and len(read) == 4
