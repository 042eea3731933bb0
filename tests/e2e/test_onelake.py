"""The whole pipeline on a landing zone in OneLake, over the wire: exact, also when the wire is bad, and quiet."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fabric_emulator.web.emulator_server import EmulatorServer
from fabric_emulator.web.faults import Fault
from open_mirroring.fabric.target import open_target
from open_mirroring.landing_zone import opening
from open_mirroring.ledger.tables import mirrored_table
from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event
from tests.e2e.test_histories import TABLES, assert_mirrored, history, slices
from tests.onelake import CLIENT, CLIENTS, SECRET, connection_variable, emulator
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatorServer]:
    with emulator(tmp_path / "mirror", clients=CLIENTS, seed=1) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        yield server
    opening._onelake_store.cache_clear()
    open_target.cache_clear()


def pipeline_of(folder: Path, spark, server: EmulatorServer) -> Pipeline:
    zone = {"store": "onelake", "workspace": server.workspace_id, "item": server.database_id, "connection": "lake"}
    pipeline = Pipeline(folder / "mirror", spark, TABLES, landing_zone=zone)
    pipeline.service = server.service
    return pipeline


def test_a_history_ends_exactly_and_an_idle_tick_is_cheap_r_04(tmp_path: Path, spark, server: EmulatorServer) -> None:
    """O-02, O-04, O-05, O-10: workers create staged objects, the driver renames; nothing else lies in the zone."""
    made = history(seed=11)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700, seed="a"), Delivery(partitions=3, disorder=40))
    pipeline = pipeline_of(tmp_path, spark, server)
    for tick, part in enumerate(slices(messages, 3)):
        pipeline.deliver(f"{tick}.jsonl", json_lines(part, layout="wrapped"))
        server.faults.reset_calls()
        _, published = pipeline.tick()
    files, calls = sum(map(len, published.files.values())), server.faults.calls()
    assert files >= len(TABLES) > 2
    per_file = dict.fromkeys(("create", "append", "flush", "rename"), files)
    # Read: each staged file, and the marker before the seal. Listed: the zone once, where nothing staged was left over.
    # The target: how the database is, and its tables.
    assert calls == {**per_file, "read": files + len(TABLES), "list": 1, "status": 2}
    assert_mirrored(pipeline, made)
    pipeline.tick()
    server.faults.reset_calls()
    pipeline.tick()
    assert server.faults.calls() == {"list": 1, "status": 2}, "the zone, the database, its tables"
    names = {path.name for path in pipeline.zone.rglob("*") if path.is_file()}
    assert {name for name in names if not name.endswith(".parquet")} == {"_incarnation.json", "_metadata.json"}


def test_the_login_travels_to_workers_in_memory_only(
    tmp_path: Path,
    spark_workers,
    server: EmulatorServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """I30: not in the data of a Spark job, which may be written to a file; nor in ledger, log, zone or messages."""
    caplog.set_level(logging.DEBUG)
    handed: list[bytes] = []
    parallelize = type(spark_workers.sparkContext).parallelize

    def watched(context, data, *arguments):
        handed.append(pickle.dumps(data))
        return parallelize(context, data, *arguments)

    monkeypatch.setattr(type(spark_workers.sparkContext), "parallelize", watched)
    made = history(seed=13, transactions=10)
    pipeline = pipeline_of(tmp_path, spark_workers, server)
    pipeline.deliver("0.jsonl", json_lines(render(made.changes, CesOptions(), Delivery()), layout="wrapped"))
    _, published = pipeline.tick()
    from spark_jobs.reconcile_sequence import reconcile_deep

    found = reconcile_deep(pipeline.mirror, pipeline.ledger, spark_workers)
    assert not found.stopped and sum(found.files.values()) >= len(published.files) > 0
    assert len(handed) >= 3, "reading, staging, and reading back"
    token = server.tokens.issue("https://storage.azure.com", CLIENT)[:20]
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    story = f"{published}{found}{caplog.text}".encode()
    for secret in (SECRET.encode(), token.encode()):
        assert not any(secret in place for place in (*handed, *kept, story))


def test_create_loads_the_first_files_before_it_starts(
    tmp_path: Path, spark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """F-42, F-57: structure and first files are there when the service looks for the first time.

    Also when the load broke off with more files than may wait for a service that applies them: this one applies
    nothing yet, and would never begin.
    """
    with emulator(tmp_path / "lake", clients=CLIENTS, database=None) as server:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        load = {"format": "parquet", "path": "export", "stream_from": "beginning"}
        tables = [{"source": "dbo.orders", "target": "shop/orders", "key": ["id"], "initial_load": load}]
        zone = {"store": "onelake", "workspace": "emulator", "item": "shop.MirroredDatabase", "connection": "lake"}
        limits = {"gate": {"max_files": 1}, "publish": {"max_rows_per_file": 1}}
        pipeline = Pipeline(tmp_path / "mirror", spark, tables, landing_zone=zone, **limits)
        export = tmp_path / "mirror" / "export"
        export.mkdir()
        rows = pa.table({"id": pa.array([1, 2, 3], pa.int32()), "name": ["a", "b", None]})
        pq.write_table(rows, export / "1.parquet")
        server.faults.add(Fault("unavailable_before", "database", path="*/startMirroring"))
        assert main(["create", str(pipeline.file)]) == 4
        (database,) = server.databases.all()
        assert (database.status(), pipeline.reader.tables()["dbo.orders"].start.load_state) == ("Initialized", "loaded")
        with pipeline.ledger.begin() as db:  # as if the last step of the load had not come to be
            db.execute(mirrored_table.update().values(load_state="pending"))
        capsys.readouterr()
        assert main(["create", str(pipeline.file), "--json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert (report["state"], report["held"], report["stopped"]) == ("Running", {}, {})
        assert [(one.number, one.rows) for one in database.service.poll()] == [(1, 1), (2, 1), (3, 1)]
    opening._onelake_store.cache_clear()


def test_mirrored_tables_in_onelake_are_proved_g40(
    tmp_path: Path, spark, server: EmulatorServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-40: read over the wire from `Tables/`, by the same login; a stale row there is found."""
    zone = {"store": "onelake", "workspace": server.workspace_id, "item": server.database_id, "connection": "lake"}
    orders = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
    pipeline = Pipeline(tmp_path / "mirror", spark, [orders], source={"layout": "bare"}, landing_zone=zone)
    pipeline.service = server.service
    rows = [{"id": str(key), "name": f"n{key}", "price": "1.50"} for key in range(20)]
    pipeline.deliver("a.jsonl", b"".join(event("INS", row, commit=at) + b"\n" for at, row in enumerate(rows, 1)))
    pipeline.tick()
    columns = {"id": pa.array(range(20), pa.int32()), "name": [row["name"] for row in rows]}
    prices = pa.array([Decimal("1.50")] * 20, pa.decimal128(8, 2))
    (tmp_path / "equal").mkdir()
    pq.write_table(pa.table({**columns, "price": prices}), tmp_path / "equal" / "dbo.orders.parquet")
    columns["name"][7] = "other"
    (tmp_path / "other").mkdir()
    pq.write_table(pa.table({**columns, "price": prices}), tmp_path / "other" / "dbo.orders.parquet")
    prove = ["prove", str(pipeline.file), "--json", "--settle", "0", "--export"]
    assert main([*prove, str(tmp_path / "equal")]) == Exit.DONE
    capsys.readouterr()
    assert main([*prove, str(tmp_path / "other")]) == Exit.NOT_EQUAL
    (found,) = json.loads(capsys.readouterr().out)["tables"].values()
    assert [(key["kind"], key["key"], key["columns"]) for key in found["keys"]] == [("different", '["7"]', ["name"])]
