"""Two workers without a common disk mirror what one machine does, also when one of them dies in the middle (S-13)."""

from __future__ import annotations

import io
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from deltalake import DeltaTable

from open_mirroring.config.storage import log_place
from tests.distant_mirror import distant_mirror
from tests.e2e.test_histories import assert_mirrored
from tests.object_storage import AZURITE, Storage, running_servers
from tests.onelake import CLIENTS, emulator
from tests.pipeline import Pipeline
from tests.spark_cluster import Cluster, may_unshare, running_cluster

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
    """S-13, S-17: and a proof of what was mirrored in OneLake, by workers that share no disk with its driver."""
    _mirrored_by_two(storage, postgres, tmp_path, monkeypatch, ("extract_changes", "publish_changes"))


def _mirrored_by_two(
    storage: Storage, postgres: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deadly: tuple[str, ...]
) -> None:
    with emulator(tmp_path / "lake", clients=CLIENTS, seed=1) as server, running_cluster(tmp_path) as cluster:
        pipeline, made = distant_mirror(
            tmp_path, monkeypatch, storage, server, postgres, seed=11, transactions=200, messages_per_file=40
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
                # Whatever is left to do, one worker does as well.
                workers = [workers[1], *([cluster.worker(1)] if job != deadly[-1] else [])]
        server.poll()
        assert_mirrored(pipeline, made)
        assert not (tmp_path / "mirror" / "log").exists()
        if "publish_changes" in deadly:
            _export(storage, pipeline)
            assert '"EQUAL"' in _run(cluster, "prove", pipeline, None, bool)


def _export(storage: Storage, pipeline: Pipeline) -> None:
    """Let an export in the storage hold what is mirrored, and the mirror's proofs compare with it."""
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    for table in document["tables"]:
        content = io.BytesIO()
        pq.write_table(pa.table(DeltaTable(pipeline.target / table["target"]).scan()), content)
        storage.deliver(f"export/{table['source']}.parquet", content.getvalue())
        path = f"{storage.address}/export/{table['source']}.parquet"
        table["prove"] = {"format": "parquet", "path": path, "connection": "store"}
    document["prove"] = {"settle_seconds": 0}
    pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")


def _run(
    cluster: Cluster,
    job: str,
    pipeline: Pipeline,
    victim: subprocess.Popen[bytes] | None,
    has_begun: Callable[[], bool],
) -> str:
    """Run a job to its end, and kill a worker once it has begun; what the job said."""
    process = cluster.submit(job, pipeline.file, {})
    until = time.monotonic() + 300
    while victim is not None and process.poll() is None and time.monotonic() < until:
        if has_begun():
            victim.kill()
            victim.wait(300)
            break
        time.sleep(0.01)
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0, said
    return said
