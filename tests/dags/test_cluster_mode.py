"""A mirror's DAG runs its jobs with the driver on the cluster: nothing but sealed text goes there (S-16)."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag
from cryptography.fernet import Fernet

from tests.distant_mirror import distant_mirror
from tests.e2e.test_histories import assert_mirrored
from tests.object_storage import Storage, StorageServers
from tests.onelake import CLIENTS, emulator
from tests.postgres import PostgresServer
from tests.quick_java import java_options
from tests.spark_cluster import may_unshare
from tests.yarn_cluster import is_there, running_yarn

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.storage,
    pytest.mark.postgres,
    pytest.mark.long,
    pytest.mark.skipif(not may_unshare(), reason="needs the right to mount (unshare)"),
    pytest.mark.skipif(not is_there(), reason="needs `make jars-yarn`"),
]

ROOT = Path(__file__).resolve().parents[2]
SPARK = {"memory": "512m", "start_above": 0}
KEY_FILE = Path(tempfile.gettempdir(), "open-mirroring-key")


def test_drivers_on_yarn_see_nothing_of_who_submits_and_leave_their_end_in_the_ledger(
    mirrors: Path,
    storage_servers: StorageServers,
    postgres: PostgresServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: Any,
) -> None:
    """S-16, S-13: the tables are equal, the reports come by the ledger, no login stands in a log or a submission."""
    storage: Storage = storage_servers.new("azure")
    key, client = Fernet.generate_key().decode(), tmp_path / "client"
    client.mkdir()
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", java_options())  # made by a Spark of its own, before YARN is configured
    with (
        emulator(tmp_path / "lake", clients=CLIENTS, seed=1) as server,
        running_yarn(tmp_path, key, KEY_FILE) as cluster,
    ):
        for name, value in cluster.configure(client).items():
            monkeypatch.setenv(name, value)
        extra = {"deploy-mode": "cluster", "job-key": "job_key", "job-key-file": str(KEY_FILE)}
        monkeypatch.setenv(
            "AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra})
        )
        monkeypatch.setenv("AIRFLOW_CONN_JOB_KEY", json.dumps({"conn_type": "generic", "password": key}))
        monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
        pipeline, made = distant_mirror(tmp_path, monkeypatch, storage, server, postgres, seed=22)
        document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8")) | {"spark": SPARK}
        (mirrors / "shop.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        run = DagBag(dag_folder=ROOT / "dags").dags["shop__replicate"].test()
        said = "".join(capfd.readouterr())
        states = {instance.task_id: instance.state for instance in run.get_task_instances()}
        assert states == dict.fromkeys(("extract", "gate", "publish", "reconcile"), "success"), said + cluster.logs()
        assert said.count("final status: SUCCEEDED") >= 2, "extract and publish ran on the cluster"
        server.poll()
        assert_mirrored(pipeline, made)
        everywhere = said + cluster.logs()
    for secret in (key, postgres.password, json.loads(storage.connection)["password"]):
        assert secret not in everywhere
