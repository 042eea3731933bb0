"""Runs a job in a Python process of its own that uses the JVM of the tests' Spark session.

All that decides and keeps anything is the Python process; the JVM computes for it and holds nothing that lasts. So a
test kills this process alone: a JVM for each of hundreds of kills takes longer than all that the kills prove. A job is
a module, or a program by its path as Airflow's tasks start it.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent.parent


def environment_of(spark: SparkSession) -> Mapping[str, str]:
    """What is set for another Python process that runs a job here: it finds the session's JVM, and all our code."""
    parameters: Any = spark.sparkContext._gateway.gateway_parameters
    return {
        "PYSPARK_GATEWAY_PORT": str(parameters.port),
        "PYSPARK_GATEWAY_SECRET": parameters.auth_token,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }


def _attach() -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()
    jvm: Any = gateway.jvm
    context = jvm.org.apache.spark.SparkContext.getOrCreate()
    java_context = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(context)
    own = SparkContext(gateway=gateway, jsc=java_context, conf=SparkConf(_jvm=jvm, _jconf=context.getConf()))
    found: Any = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession()
    SparkSession(own, found.get().newSession())


if __name__ == "__main__":
    _attach()
    del sys.argv[0]
    if sys.argv[0].endswith(".py"):
        runpy.run_path(sys.argv[0], run_name="__main__")
    else:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
