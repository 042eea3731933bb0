"""The Spark session of a job that is started with the options of its submission (AF)."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from open_mirroring.operate.spark_jars import SUBMITTED
from tests.quick_java import java_options

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
from spark_jobs.runtime.session import build_session
context = build_session("session").sparkContext
print("JVM:", context._jvm.java.lang.System.getenv("SPARK_LOCAL_IP"), context.master)
"""


def test_a_submitted_job_does_not_show_workers_on_other_machines_to_call_the_loopback() -> None:
    """Without an address that somebody chose, Spark itself finds the one at which workers reach the driver."""
    options = ["--master", "local[1]", "--conf", "spark.driver.memory=512m", "pyspark-shell"]
    environment = {name: text for name, text in os.environ.items() if name not in {"SPARK_LOCAL_IP", "SPARK_HOME"}} | {
        SUBMITTED: "1",
        "PYSPARK_SUBMIT_ARGS": shlex.join(options),
        "SPARK_SUBMIT_OPTS": java_options(),
        "PYTHONPATH": str(ROOT),
    }
    end = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert "JVM: None local[1]" in end.stdout, end.stdout + end.stderr
