"""The initial load over JDBC, from a real PostgreSQL: exact values, every row once, no secret anywhere (G-08, I6)."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrameReader

from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.load.planning import settings_of
from spark_jobs.sources.jdbc import tables
from spark_jobs.sources.jdbc.dialects import PostgreSql, Range
from spark_jobs.sources.jdbc.tables import JdbcTable, Pace
from tests.pipeline import ROOT, Pipeline
from tests.postgres import PostgresServer

HOSTILE_TABLE, HOSTILE_COLUMN = 'or"ders]; --', "na'me\"]); DROP TABLE x; --"


@pytest.fixture
def source(postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> PostgresServer:
    """The server, with a clean schema `shop` and a connection `shop_db` that names it."""
    postgres.execute("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop")
    connect(monkeypatch, postgres, postgres.port)
    return postgres


def connect(monkeypatch: pytest.MonkeyPatch, server: PostgresServer, port: int) -> None:
    content = {
        "conn_type": "postgres",
        "host": "127.0.0.1",
        "port": port,
        "login": server.user,
        "password": server.password,
        "schema": server.database,
    }
    monkeypatch.setenv("AIRFLOW_CONN_SHOP_DB", json.dumps(content))


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def mirror_of(folder: Path, spark: Any, *tables: dict[str, Any], **settings: Any) -> Pipeline:
    described = []
    for table in tables:
        load = {"format": "jdbc", "connection": "shop_db", **table.pop("load", {})}
        described.append({"key": ["id"], "target": table["source"].replace(".", "/"), **table, "initial_load": load})
    return Pipeline(folder, spark, described, **settings)


def load(pipeline: Pipeline, only: list[str] | None = None) -> Any:
    from spark_jobs.initial_load import load as run

    return run(pipeline.mirror, pipeline.ledger, pipeline._spark, only)


def test_every_type_arrives_exactly(tmp_path: Path, spark, source: PostgresServer) -> None:
    """G-06: read as exact texts, typed as the stream types; hostile names are names. F-41 for the empty table."""
    table, column = quoted(HOSTILE_TABLE), quoted(HOSTILE_COLUMN)
    source.execute(
        f"CREATE TABLE shop.{table} (id bigint PRIMARY KEY, {column} text, n numeric(38,10), d date, "
        "at timestamp, instant timestamptz, f double precision, r real, b boolean, raw bytea, u uuid, t time(3), "
        "s smallint)",
        f"INSERT INTO shop.{table} VALUES (9223372036854775807, 'ü''\"', 1234567890123456789012345678.0123456789, "
        "'0001-01-01', '9999-12-31 23:59:59.999999', '2024-07-01 12:00:00.123456+02', 0.1, 0.1, true, '\\x00ff', "
        "'a1b2c3d4-0000-4000-8000-00000000abcd', '01:02:03.5', -32768)",
        f"INSERT INTO shop.{table} (id) VALUES (2)",
        "CREATE TABLE shop.empty (id int PRIMARY KEY, name text)",
        "CREATE TABLE shop.lists (id int PRIMARY KEY, l int[])",
        "CREATE TABLE shop.big (id int PRIMARY KEY, f float)",
        "INSERT INTO shop.big VALUES (1, 'Infinity')",
    )
    pipeline = mirror_of(
        tmp_path,
        spark,
        {"source": f'shop."{HOSTILE_TABLE.replace(chr(34), chr(34) * 2)}"', "target": "shop/hostile"},
        {"source": "shop.empty"},
        {"source": "shop.lists"},
        {"source": "shop.big"},
        {"source": "shop.nothing"},
        publish={"empty_tables": "create"},
    )
    loaded = load(pipeline)
    assert {table: what.partition(":")[0] for table, what in loaded.stopped.items()} == {
        "shop.lists": "TYPE_UNSUPPORTED",
        "shop.big": "VALUE_INVALID",
        "shop.nothing": "PLACE_MISSING",
    }
    assert "column 'f'" in loaded.stopped["shop.big"] and "row 1" in loaded.stopped["shop.big"]
    pipeline.service.poll()
    assert pipeline.mirrored("shop", "empty") == []
    rows = {row["id"]: row for row in pipeline.mirrored("shop", "hostile")}
    assert {name for name, value in rows[2].items() if value is not None} == {"id"}
    assert rows[2**63 - 1] == {
        "id": 2**63 - 1,
        HOSTILE_COLUMN: "ü'\"",
        "n": Decimal("1234567890123456789012345678.0123456789"),
        "d": date(1, 1, 1),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "instant": datetime(2024, 7, 1, 10, 0, 0, 123456, UTC).replace(tzinfo=None),
        "f": 0.1,
        "r": pytest.approx(0.1, rel=1e-7),
        "b": True,
        "raw": b"\x00\xff",
        "u": "A1B2C3D4-0000-4000-8000-00000000ABCD",
        "t": "01:02:03.5",
        "s": -32768,
    }


def test_chunks_cover_every_row_once(tmp_path: Path, spark, source: PostgresServer) -> None:
    """I6: by key, and by a column with NULLs whose chunks prove their keys unique only together."""
    source.execute(
        "CREATE TABLE shop.keyed (id int PRIMARY KEY, v text)",
        "INSERT INTO shop.keyed SELECT i, 'v' || i FROM generate_series(1, 1000) i",
        "CREATE TABLE shop.dated (id int PRIMARY KEY, day date)",
        "INSERT INTO shop.dated SELECT i, CASE WHEN i % 3 > 0 THEN date '2024-01-01' + i END "
        "FROM generate_series(1, 90) i",
        "CREATE TABLE shop.twice (id int, part int)",
        "INSERT INTO shop.twice VALUES (1, 1), (2, 50), (1, 100)",
        "CREATE TABLE shop.texts (id text PRIMARY KEY)",
        "CREATE TABLE shop.endless (id int PRIMARY KEY, until date)",
        "INSERT INTO shop.endless VALUES (1, '2024-01-01'), (2, 'infinity')",
    )
    pipeline = mirror_of(
        tmp_path,
        spark,
        {"source": "shop.keyed", "load": {"split_column": "id", "chunks": 3}},
        {"source": "shop.dated", "load": {"split_column": "day", "chunks": 4}},
        {"source": "shop.twice", "load": {"split_column": "part", "chunks": 2}},
        {"source": "shop.texts", "load": {"split_column": "id", "chunks": 2}},
        {"source": "shop.endless", "load": {"split_column": "until", "chunks": 2}, "columns": ["id"]},
        publish={"max_rows_per_file": 300},
    )
    loaded = load(pipeline)
    assert loaded.stopped["shop.twice"].startswith("KEY_INVALID: two rows have the same key: chunk 1, row 1 as read")
    assert loaded.stopped["shop.texts"].startswith("CONFIG_INVALID")
    assert "CONFIG_INVALID: the column 'until' cannot be cut into ranges: 'infinity'" in loaded.stopped["shop.endless"]
    assert loaded.rows == {"shop.keyed": 1000, "shop.dated": 90}
    # 1000 rows in three chunks of a third each: none of them fits into one file of 300.
    assert (loaded.files["shop.keyed"], len(loaded.files["shop.dated"])) == ([1, 2, 3, 4, 5, 6], 4)
    pipeline.service.poll()
    assert sorted(row["id"] for row in pipeline.mirrored("shop", "keyed")) == list(range(1, 1001))
    assert sorted(row["id"] for row in pipeline.mirrored("shop", "dated")) == list(range(1, 91))
    assert load(pipeline, ["shop.keyed"]).files == {}


def test_the_password_stands_nowhere(tmp_path: Path, spark, source: PostgresServer) -> None:
    """Not in output, log, ledger or zone: neither when all is well nor when the login is refused."""
    source.execute("CREATE TABLE shop.t (id int PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
    pipeline = mirror_of(tmp_path, spark, {"source": "shop.t"})
    wrong = json.dumps({**json.loads(os.environ["AIRFLOW_CONN_SHOP_DB"]), "password": f"no{source.password}"})
    story = []
    for content in (wrong, os.environ["AIRFLOW_CONN_SHOP_DB"]):
        environment = {
            **os.environ,
            "AIRFLOW_CONN_SHOP_DB": content,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
        }
        command = [sys.executable, "-m", "spark_jobs.initial_load", str(pipeline.file)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, cwd=ROOT)
        story.append((done.returncode, done.stdout + done.stderr))
    assert [code for code, _ in story] == [3, 0]
    assert "SERVICE_REFUSED" in story[0][1] and "password authentication failed" in story[0][1]
    assert [text for _, text in story if source.password in text] == []
    secret = source.password.encode()
    assert [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()] == []


class Cable:
    """A connection to the server that can be cut: forwards bytes until so many came back."""

    def __init__(self, port: int, cut_after: int | None) -> None:
        self._target, self._left = port, cut_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Cable:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
                threading.Thread(target=self._forward, args=(near, far, False), daemon=True).start()
                threading.Thread(target=self._forward, args=(far, near, True), daemon=True).start()

    def _forward(self, origin: socket.socket, target: socket.socket, counted: bool) -> None:
        with closing(origin), closing(target), suppress(OSError):
            while content := origin.recv(65_536):
                if counted and self._left is not None:
                    self._left -= len(content)
                    if self._left < 0:
                        target.shutdown(socket.SHUT_RDWR)
                        return
                target.sendall(content)


@pytest.mark.parametrize("copies", [True, False])
def test_a_load_keeps_to_the_limits_of_its_source_and_shows_how_far_it_is(
    tmp_path: Path,
    spark,
    source: PostgresServer,
    copies: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """G-08: no more connections and rows per second than the mirror file allows; other limits do not end a load."""
    source.execute(
        "CREATE TABLE shop.paced (id int PRIMARY KEY, v text)",
        "INSERT INTO shop.paced SELECT i, 'v' || i FROM generate_series(1, 6000) i",
    )
    limits = {"max_connections": 1, "max_rows_per_second": 2000}
    pipeline = mirror_of(
        tmp_path, spark, {"source": "shop.paced", "load": {"split_column": "id", "chunks": 4, **limits}}
    )
    slow = settings_of(pipeline.mirror.tables[0])
    partitions: list[int] = []
    read, run = DataFrameReader.jdbc, tables.run_job

    def watched(reader: DataFrameReader, *arguments: Any, **named: Any) -> Any:
        partitions.append(len(named.get("predicates") or ()))
        return read(reader, *arguments, **named)

    def watched_tasks(session: Any, what: str, work: Any, tasks: Any, *limits: int) -> Any:
        partitions.append(len(tasks))
        return run(session, what, work, tasks, *limits)

    monkeypatch.setattr(DataFrameReader, "jdbc", watched)
    monkeypatch.setattr(tables, "run_job", watched_tasks)
    monkeypatch.setattr(PostgreSql, "copies", copies)
    with caplog.at_level(logging.INFO):
        begun = time.monotonic()
        assert load(pipeline).rows == {"shop.paced": 6000}
    assert time.monotonic() - begun >= 3.0
    assert [count for count in partitions if count] == [1, 1, 1, 1], "a partition is a connection"
    story = [record.getMessage() for record in caplog.records if record.name == "spark_jobs.load.work"]
    assert story[0] == "shop.paced: reading 4 chunks, 0 of 4 are loaded"
    assert story[1].startswith("shop.paced: 4 of 4 chunks staged, 6000 rows, ")
    assert story[1].endswith("6000 rows so far")
    pipeline.file.write_text(pipeline.file.read_text().replace("2000", "9").replace("max_connections: 1\n", "\n"))
    assert settings_of(pipeline.mirror.tables[0]) == slow


def test_chunks_that_go_through_the_log_are_read_side_by_side(
    tmp_path: Path, spark, source: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    """G-04, G-08: every chunk gets its own rows, and the task's log says how many of them are in the change log."""
    source.execute(
        "CREATE TABLE shop.keyed (id int PRIMARY KEY, v text)",
        "INSERT INTO shop.keyed SELECT i, 'v' || i FROM generate_series(1, 500) i",
    )
    pipeline = mirror_of(
        tmp_path,
        spark,
        {"source": "shop.keyed", "complete_rows": True, "load": {"split_column": "id", "chunks": 3}},
    )
    with caplog.at_level(logging.INFO):
        assert load(pipeline).rows == {"shop.keyed": 500}
    assert "shop.keyed: 3 of 3 chunks in the log, 500 rows in this run" in caplog.text
    places = {(row["origin"], row["place"]) for row in pipeline.logged()}
    assert len(places) == 500 and len({origin for origin, _ in places}) == 3
    pipeline.publish()
    pipeline.service.poll()
    rows = sorted((row["id"], row["v"]) for row in pipeline.mirrored("shop", "keyed"))
    assert rows == [(i, f"v{i}") for i in range(1, 501)]


def test_a_dropped_connection_is_worth_another_try(
    tmp_path: Path, spark, source: PostgresServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """D14: transient; what was loaded stays, another table is loaded, the next run reads the rest."""
    source.execute(
        "CREATE TABLE shop.wide (id int PRIMARY KEY, v text)",
        "INSERT INTO shop.wide SELECT i, repeat('x', 1000) FROM generate_series(1, 3000) i",
    )
    pipeline = mirror_of(tmp_path, spark, {"source": "shop.wide", "load": {"split_column": "id", "chunks": 2}})
    with Cable(source.port, cut_after=1_500_000) as cable, caplog.at_level(logging.INFO):
        connect(monkeypatch, source, cable.port)
        with pytest.raises(TransientError, match="UNREACHABLE") as failure:
            load(pipeline)
    assert source.password not in caplog.text + str(failure.value)
    assert failure.value.__cause__ is None and failure.value.__context__ is None
    state = pipeline.reader.tables()["shop.wide"]
    assert (state.row.confirmed, state.stop_code) == (0, None)
    connect(monkeypatch, source, source.port)
    assert load(pipeline).rows == {"shop.wide": 3000}
    plan = pipeline.reader.tables()["shop.wide"].start.load_plan
    assert plan is not None and plan.remaining == ()
    files = [pipeline.zone / "shop.schema" / "wide" / f"{number:020d}.parquet" for number in (1, 2)]
    assert sum(pq.read_metadata(file).num_rows for file in files) == 3000


def test_a_proof_shows_a_database_that_went_away_and_a_driver_that_is_missing(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-23: Spark asks the database while it makes a frame, before anybody reads it: no trace then, either."""
    with closing(socket.create_server(("127.0.0.1", 0))) as one:
        port = one.getsockname()[1]
    database = {"conn_type": "postgres", "host": "127.0.0.1", "port": port, "login": "a", "password": "canary-7f3a"}
    monkeypatch.setenv("AIRFLOW_CONN_GONE", json.dumps(database))
    monkeypatch.setattr(PostgreSql, "copies", False)
    table = JdbcTable(spark, "gone", SourceName("shop", "wide"))
    look = (LoadColumn("id", "int32", "int"),), None, [Range(None, None, True)], lambda batches: batches, "id int"
    with pytest.raises(TransientError, match="UNREACHABLE") as unreachable:
        table.frame(*look, Pace())
    monkeypatch.setattr(table._dialect, "driver", "org.example.Driver")
    with pytest.raises(
        TerminalError, match=r"INSTALLATION_INCOMPLETE: Spark has no org\.example\.Driver.*jars"
    ) as missing:
        table.frame(*look, Pace())
    assert "canary-7f3a" not in f"{unreachable.value}{missing.value}"


def test_a_full_disk_of_the_database_is_not_reported_as_one_of_a_worker(spark: Any, source: PostgresServer) -> None:
    """S-25: the database says of its own disk what a worker says of its."""
    says = "could not write to file base/pgsql_tmp/1: No space left on device"
    source.execute(
        "CREATE FUNCTION shop.full() RETURNS int LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{says}' USING ERRCODE = '53100'; END $$"
    )
    table = JdbcTable(spark, "shop_db", SourceName("shop", "wide"))
    url, properties = table._login()
    with pytest.raises(TransientError, match=r"^UNREACHABLE: .*53100.*No space left on device"):
        table.asked("reading", lambda: spark.read.jdbc(url, "(SELECT shop.full()) f", properties=properties).collect())
