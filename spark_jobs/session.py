"""The Spark session of a job: found when one is running, else built with what the jobs need."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

_JARS = Path(__file__).resolve().parents[1] / "jars"
_LOGGING = Path(__file__).resolve().with_name("log4j2.properties")


def build_session(name: str, *, cores: int | None = None) -> SparkSession:
    """The running session, or a new one.

    Under ``spark-submit`` the master, memory and jars are what was submitted. Started from Python, the session is
    local with the fetched jars on its class path.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name)
    if "SPARK_ENV_LOADED" not in os.environ:
        jars = ":".join(sorted(str(jar) for jar in _JARS.glob("*.jar")))
        builder = (
            builder.master(f"local[{cores or '*'}]")
            .config("spark.driver.extraClassPath", jars)
            .config(
                "spark.driver.extraJavaOptions",
                f"-Dlog4j2.configurationFile={_JARS.parent}/spark_jobs/log4j2.properties",
            )
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
        )
    return (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        # Side effects of a task are files under names used once; a speculative twin would only waste work.
        .config("spark.speculation", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
