"""Jobs over a real Spark Connect server, which has neither RDD nor context for its clients: equal, and quiet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from open_mirroring.operate.exit_codes import Exit
from tests.distant_mirror import distant_mirror
from tests.e2e.test_histories import TABLES, assert_mirrored
from tests.object_storage import Storage, StorageServers
from tests.pipeline import Pipeline
from tests.spark_connect import ROOT, running_connect

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    folder = tmp_path_factory.mktemp("connect")
    with running_connect(folder) as address:
        yield address, folder


def _run(
    command: str,
    pipeline: Pipeline,
    address: str,
    connections: Mapping[str, str],
    *more: str,
    exit: Exit = Exit.DONE,
) -> str:
    """A command of the command line in a process of its own, which may start no JVM."""
    environment = {**os.environ, **connections, "SPARK_REMOTE": address, "JAVA_HOME": str(pipeline.folder)}
    program = [sys.executable, "-m", "spark_jobs.cli.command_line", command, str(pipeline.file), *more]
    ended = subprocess.run(program, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == exit, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def test_a_history_over_spark_connect(
    tmp_path: Path, server: tuple[str, Path], storage_servers: StorageServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-14, S-15: source and log in object storage; no file of the server has the login to it."""
    address, folder = server
    storage: Storage = storage_servers.new("azure")
    pipeline, made = distant_mirror(tmp_path, monkeypatch, storage, seed=14)
    said = _run("tick", pipeline, address, {})
    assert "Traceback" not in said, said
    pipeline.service.poll()
    assert_mirrored(pipeline, made)
    kept = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert any(b"extract batch 1" in one for one in kept), "a job is found by its tag"
    secret = json.loads(storage.connection)["password"].encode()
    assert not any(secret in one for one in kept)


@pytest.mark.long
@pytest.mark.parametrize("address", ["sc://127.0.0.1:1/;token=canary-7f3a", "https://canary-7f3a@server:15002"])
def test_a_server_that_is_not_there_is_reported_without_its_token(address: str, tmp_path: Path) -> None:
    """S-14, S-15: a transient error, and soon; so is an address that is none."""
    pipeline = Pipeline(tmp_path / "mirror", None, TABLES)  # type: ignore[arg-type]
    pipeline.deliver("0.jsonl", b"{}\n")
    said = _run("tick", pipeline, address, {}, exit=Exit.TRANSIENT)
    assert "UNREACHABLE" in said and ("sc://127.0.0.1:1/" if address.startswith("sc") else "SPARK_REMOTE") in said
    assert "canary-7f3a" not in said and "Traceback" not in said


@pytest.mark.long
def test_loads_proofs_and_deep_checks_over_spark_connect(tmp_path: Path, server: tuple[str, Path], postgres) -> None:
    """S-14: what is no tick: an initial load of an export and of a database, a proof of both, every file read back."""
    address, folder = server
    keys = range(1_000)
    rows = pa.table({"id": pa.array(keys, pa.int32()), "name": [f"n{key}" for key in keys]})
    (tmp_path / "export").mkdir()
    pq.write_table(rows, tmp_path / "export" / "1.parquet")
    postgres.execute("DROP SCHEMA IF EXISTS shop CASCADE", "CREATE SCHEMA shop")
    postgres.execute("CREATE TABLE shop.lines (id int PRIMARY KEY, name varchar(20))")
    postgres.execute("INSERT INTO shop.lines SELECT n, 'n' || n FROM generate_series(0, 999) n")
    of_export = {"format": "parquet", "path": str(tmp_path / "export")}
    of_database = {"format": "jdbc", "connection": "shop_db", "split_column": "id", "chunks": 3}
    tables = [
        {
            "source": "shop.orders",
            "target": "shop/orders",
            "key": ["id"],
            "initial_load": of_export,
            "prove": of_export,
        },
        {"source": "shop.lines", "target": "shop/lines", "key": ["id"], "initial_load": of_database},
    ]
    tables[0]["initial_load"] = {**of_export, "stream_from": "beginning"}  # type: ignore[dict-item]
    pipeline = Pipeline(
        tmp_path / "mirror",
        None,  # type: ignore[arg-type]
        tables,
        landing_zone={"store": "local", "path": "zone", "tables": "tables"},
    )
    at = {"host": "127.0.0.1", "port": postgres.port, "schema": postgres.database}
    shop = {"conn_type": "postgres", "login": postgres.user, "password": postgres.password, **at}
    for command, *more in (["initial-load"], ["reconcile"], ["prove", "--settle", "0"]):
        _run(command, pipeline, address, {"AIRFLOW_CONN_SHOP_DB": json.dumps(shop)}, *more)
        pipeline.service.poll()
    assert len(pipeline.mirrored("shop", "orders")) == len(pipeline.mirrored("shop", "lines")) == 1_000
    kept = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    assert postgres.password.encode() not in kept
