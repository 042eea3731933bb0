"""Small work is done in the tests' own process, as a job does it; a fixed set of tests does it in Spark as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark_jobs.runtime import tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(spark_on_demand: SparkSession) -> SparkSession:
    """A session that starts when work needs it."""
    return spark_on_demand


@pytest.fixture(params=["own process", "Spark"])
def executor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SparkSession:
    """The session for tests whose results must be equal whoever computes; "helpers" shares the least work."""
    if request.param == "helpers":
        monkeypatch.setattr(tasks, "_WORTH_PROCESSES", -1)
        monkeypatch.setattr(tasks, "THREADS", 3)
    session: SparkSession = request.getfixturevalue("spark_workers" if request.param == "Spark" else "spark_on_demand")
    return session
