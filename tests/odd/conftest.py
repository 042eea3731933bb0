"""Small work is done in the tests' own process, as a job does it; a fixed set of tests does it in Spark as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark(spark_on_demand: SparkSession) -> SparkSession:
    """A session that starts when work needs it."""
    return spark_on_demand
