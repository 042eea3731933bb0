"""A Spark Connect server of a test's own, in a JVM that starts quickly; its workers are on this machine."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from open_mirroring.operate.spark_jars import jar_files
from tests.quick_java import java_options

ROOT = Path(__file__).resolve().parent.parent
SPARK = Path(pyspark.__file__).parent
_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@contextmanager
def running_connect(folder: Path, cores: int = 2) -> Iterator[str]:
    """A server whose files are in *folder*, among them its event log; its address."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": folder / "local",
        "spark.ui.enabled": "false",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }
    (folder / "events").mkdir(parents=True)
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    jars = ["--driver-class-path", os.pathsep.join(jar_files())]
    submit = [str(SPARK / "bin" / "spark-submit"), "--master", f"local[{cores}]", *jars, "--class", _SERVER]
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW_CONN_")},
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": java_options(),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "testing")]),
    }
    with open(folder / "server.log", "wb") as log:
        process = subprocess.Popen(
            [*submit, *given, "spark-internal"], env=environment, cwd=folder, stdout=log, stderr=log
        )
    try:
        _wait_for(port, process, folder / "server.log")
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(300)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + 300
    while time.monotonic() < until and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"the server did not start:\n{log.read_text()[-3000:]}")
