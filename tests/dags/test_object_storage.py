"""What Airflow hands over for sources and exports in object storage."""

from __future__ import annotations

from pathlib import Path

import pytest

from open_mirroring.config import load_mirror
from open_mirroring_airflow.connections import job_connections
from tests.unit.open_mirroring.storage.test_storage_connections import MIRROR


def test_every_connection_of_a_mirror_goes_to_its_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-04: in the job's environment, those of exports, too."""
    (tmp_path / "mirrors").mkdir()
    file = tmp_path / "mirrors" / "shop.yaml"
    file.write_text(MIRROR.format(address="s3://bucket/a"), encoding="utf-8")
    for name in ("STORE", "EXPORTS"):
        monkeypatch.setenv(f"AIRFLOW_CONN_{name}", '{"conn_type": "aws", "login": "id", "password": "key"}')
    assert sorted(job_connections(load_mirror(file))) == ["AIRFLOW_CONN_EXPORTS", "AIRFLOW_CONN_STORE"]
