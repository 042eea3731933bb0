"""A mirror's DAG starts its jobs on a Spark cluster, from the Spark connection to the workers (S-13)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.dag_processing.dagbag import DagBag

from tests.distant_mirror import distant_mirror
from tests.e2e.test_histories import assert_mirrored
from tests.object_storage import Storage, StorageServers
from tests.onelake import CLIENTS, emulator
from tests.quick_java import java_options
from tests.spark_cluster import may_unshare, running_cluster

pytestmark = [
    pytest.mark.airflow,
    pytest.mark.spark,
    pytest.mark.storage,
    pytest.mark.long,
    pytest.mark.skipif(not may_unshare(), reason="needs the right to mount (unshare)"),
]

ROOT = Path(__file__).resolve().parents[2]
SPARK = {"cores": 1, "memory": "512m", "start_above": 0}


def test_the_tasks_of_a_dag_run_on_workers_that_see_nothing_of_its_disk(
    mirrors: Path, storage_servers: StorageServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    """AF-02, S-13: master, cores and memory, jars and Python are those that the operator passes on, and no other.

    The login to the storage reaches the workers and stands in no log.
    """
    storage: Storage = storage_servers.new("azure")
    with emulator(tmp_path / "lake", clients=CLIENTS, seed=1) as server, running_cluster(tmp_path) as cluster:
        cluster.worker(0)
        master, _, port = cluster.master.rpartition(":")
        spark = {"conn_type": "spark", "host": master, "port": int(port), "extra": {"deploy-mode": "client"}}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(spark))
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", java_options())
        monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
        pipeline, made = distant_mirror(tmp_path, monkeypatch, storage, server, seed=21)
        document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8")) | {"spark": SPARK}
        (mirrors / "shop.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
        run = DagBag(dag_folder=ROOT / "dags").dags["shop__replicate"].test()
        said = "".join(capfd.readouterr())
        states = {instance.task_id: instance.state for instance in run.get_task_instances()}
        assert states == dict.fromkeys(("extract", "gate", "publish", "reconcile"), "success"), said
        assert cluster.applications() == ["shop extract_changes", "shop publish_changes"]
        server.poll()
        assert_mirrored(pipeline, made)
    assert json.loads(storage.connection)["password"] not in said
