"""Two workers without a common disk mirror what one machine does, also when one of them dies in the middle (S-13)."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.config.storage import log_place
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.object_storage import AZURITE, Storage, running_servers
from tests.onelake import CLIENTS, connection_variable, emulator
from tests.pipeline import Pipeline
from tests.spark_cluster import Cluster, may_unshare, running_cluster
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

pytestmark = [
    pytest.mark.spark,
    pytest.mark.storage,
    pytest.mark.skipif(not may_unshare(), reason="needs the right to mount (unshare)"),
]


@pytest.fixture
def storage() -> Iterator[Storage]:
    """Azurite, as slow as a distant storage: there is a middle to be killed in."""
    if not AZURITE.is_file():
        pytest.skip("needs Azurite: `make azurite` fetches it from the npm registry")
    with running_servers(latency_ms=40) as servers:
        yield servers.new("azure")


def test_a_worker_dies_in_the_middle(
    storage: Storage, postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-13: while it reads; what the other one does of its tasks is another try under other names."""
    _mirrored_by_two(storage, postgres, tmp_path, monkeypatch, ("extract_changes",))


@pytest.mark.long
def test_a_worker_dies_while_it_reads_and_another_while_it_publishes(
    storage: Storage, postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-13."""
    _mirrored_by_two(storage, postgres, tmp_path, monkeypatch, ("extract_changes", "publish_changes"))


def _mirrored_by_two(
    storage: Storage, postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadly: tuple[str, ...]
) -> None:
    made = history(seed=11, transactions=200)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700), Delivery(disorder=20, duplicates=0.05, seed=11))
    for at in range(0, len(messages), 40):
        storage.deliver(f"stream/{at:06d}.jsonl", json_lines(messages[at : at + 40], layout="wrapped"))
    with emulator(tmp_path / "lake", clients=CLIENTS, seed=1) as server, running_cluster(tmp_path) as cluster:
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server))
        monkeypatch.setenv("AIRFLOW_CONN_STORE", storage.connection)
        monkeypatch.setenv("AIRFLOW_CONN_BOOK", json.dumps(_ledger(postgres)))
        zone = {"store": "onelake", "workspace": server.workspace_id, "item": server.database_id, "connection": "lake"}
        pipeline = Pipeline(
            tmp_path / "mirror",
            None,  # type: ignore[arg-type]
            TABLES,
            source={"path": f"{storage.address}/stream", "connection": "store"},
            change_log={"path": f"{storage.address}/log", "connection": "store"},
            landing_zone=zone,
            ledger={"connection": "book"},
        )
        pipeline.service, pipeline.zone, pipeline.target = (
            server.service,
            tmp_path / "lake/zone",
            tmp_path / "lake/tables",
        )
        workers = [cluster.worker(number) for number in range(2)]
        root = log_place(pipeline.mirror)
        begun = {
            "extract_changes": lambda: any(one.name.endswith(".parquet") for one in root.store.objects(root.key)),
            "publish_changes": lambda: any(path.name[:20].isdigit() for path in pipeline.zone.rglob("_stage-*/*")),
        }
        for job in ("extract_changes", "publish_changes"):
            said = _run(cluster, job, pipeline, workers[0] if job in deadly else None, begun[job])
            if job in deadly:
                assert "Lost executor" in said, said
                workers = [workers[1], cluster.worker(1)]
        server.poll()
        assert_mirrored(pipeline, made)
        assert not (tmp_path / "mirror" / "log").exists()


def _run(
    cluster: Cluster,
    job: str,
    pipeline: Pipeline,
    victim: subprocess.Popen[bytes] | None,
    has_begun: Callable[[], bool],
) -> str:
    """Run a job to its end, and kill a worker once it has begun; what the job said."""
    process = cluster.submit(job, pipeline.file, {})
    until = time.monotonic() + 120
    while victim is not None and process.poll() is None and time.monotonic() < until:
        if has_begun():
            victim.kill()
            victim.wait(30)
            break
        time.sleep(0.01)
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    return said


def _ledger(postgres: Any) -> dict[str, Any]:
    at = {"host": "127.0.0.1", "port": postgres.port, "schema": postgres.database}
    return {"conn_type": "postgres", "login": postgres.user, "password": postgres.password, **at}
