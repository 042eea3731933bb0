"""A job that takes long tells how far it is."""

from __future__ import annotations

import logging
import re
import time
from typing import Any

import pytest

from spark_jobs.runtime.tasks import run_job


def _slow(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def test_a_long_job_shows_how_many_tasks_are_done_and_how_long_the_rest_takes(
    spark: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Spark's own count of finished tasks: a backfill of hours reads in one job."""
    monkeypatch.setattr("spark_jobs.runtime.worker_tasks._REPORT_SECONDS", 0.2)
    caplog.set_level(logging.INFO)
    assert run_job(spark, "read hours", _slow, [0.3] * 8, 0) == [0.3] * 8
    story = [re.fullmatch(r"read hours: (\d) of 8 tasks done(, about \d+ s left)?", r.message) for r in caplog.records]
    done = [int(found[1]) for found in story if found]
    assert done == sorted(done) and 0 < max(done) < 8
    assert any(found and found[2] for found in story)
