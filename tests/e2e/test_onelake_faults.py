"""Ticks over a wire to OneLake that fails at random; `make bench-faults` is the same for as long as one likes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from open_mirroring.landing_zone import opening
from open_mirroring.remote.http_service import RetryBudget
from tests.fault_run import FaultRun, perform
from tests.onelake import connection_variable

TICKS = 12


def test_ticks_over_a_bad_wire_end_exactly(tmp_path: Path, spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """O-04, O-05, O-08, F-31, G-08: 503, 429, drops, duplicates, late effects, stale listings, expired tokens.

    The shop's initial load and its changes, while the service takes files away; no table stops, every number is made
    once, and the tables are the source's.
    """
    monkeypatch.setattr(RetryBudget, "back_off", lambda self, attempt: None)
    run = FaultRun(
        tmp_path / "run",
        seed=5,
        connect=lambda server: monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection_variable(server)),
    )
    job = partial(perform, mirror_file=run.pipeline.file, spark=spark)
    try:
        for _ in range(TICKS):
            run.step(job)
        run.finish(job)
        assert len(run.server.faults.struck()) >= 8, run.server.faults.struck()
    finally:
        run.close()
        opening._onelake_store.cache_clear()
