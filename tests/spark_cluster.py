"""A standalone Spark master with workers that share no folder with the driver or each other."""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from open_mirroring.operate.spark_jars import jar_files
from tests.quick_java import java_options

ROOT = Path(__file__).resolve().parent.parent
SPARK = Path(pyspark.__file__).parent
_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]


def may_unshare() -> bool:
    """Whether this process may start others with mounts of their own."""
    return subprocess.run([*_NAMESPACES, "true"], capture_output=True, check=False).returncode == 0


class Cluster:
    """A running master; workers come and go.

    Args:
        hidden: a folder of the driver that no worker sees; nor does it see the driver's folder for temporary files.
    """

    def __init__(self, hidden: Path) -> None:
        self._hidden = hidden
        self._port, self._web = _free_port(), _free_port()
        self._processes: list[subprocess.Popen[bytes]] = []

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start the master."""
        at = ["--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._web)]
        self._processes.append(self._start([_spark_class(), "org.apache.spark.deploy.master.Master", *at]))
        self._wait_for_workers(0)

    def worker(self, known: int) -> subprocess.Popen[bytes]:
        """Start a worker of one core, beside *known* others, in namespaces of its own; killed, all of it is gone."""
        temporary = tempfile.gettempdir()
        at = ["--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g"]
        runs = [_spark_class(), "org.apache.spark.deploy.worker.Worker", *at, "--work-dir", f"{temporary}/work"]
        hide = [f"mount -t tmpfs none {shlex.quote(str(place))}" for place in (self._hidden, temporary)]
        script = " && ".join([*hide, f"exec {shlex.join([*runs, self.master])}"])
        process = self._start([*_NAMESPACES, "sh", "-c", script])
        self._processes.append(process)
        self._wait_for_workers(known + 1)
        return process

    def submit(self, job: str, mirror: Path, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start a job on the cluster, its driver here."""
        settings = {
            "spark.executorEnv.PYTHONPATH": str(ROOT),
            "spark.pyspark.python": sys.executable,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.driver.host": "127.0.0.1",
            "spark.ui.enabled": "false",
        }
        given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
        jars = ["--driver-class-path", os.pathsep.join(jar_files())]
        program = str(ROOT / "spark_jobs" / f"{job}.py")
        command = [str(SPARK / "bin" / "spark-submit"), "--master", self.master, *jars, *given, program, str(mirror)]
        quiet: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, env={**_environment(), **environment}, cwd=ROOT, **quiet)

    def applications(self) -> list[str]:
        """The names of all applications so far, in the order of their beginning."""
        page = json.loads(self._page())
        return [one["name"] for one in sorted((*page["activeapps"], *page["completedapps"]), key=lambda one: one["id"])]

    def stop(self) -> None:
        """End all that was started."""
        for process in reversed(self._processes):
            process.kill()
            process.wait(300)

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, env=_environment(), cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def _page(self) -> str:
        page: bytes = urllib.request.urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=30).read()
        return page.decode()

    def _wait_for_workers(self, number: int) -> None:
        until = time.monotonic() + 300
        while time.monotonic() < until:
            try:
                if self._page().count('"ALIVE"') == number + 1:  # the master itself is one
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise AssertionError(f"the cluster has not {number} workers")


@contextmanager
def running_cluster(hidden: Path) -> Iterator[Cluster]:
    """A master without workers."""
    cluster = Cluster(hidden)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _spark_class() -> str:
    return str(SPARK / "bin" / "spark-class")


def _environment() -> dict[str, str]:
    options = java_options()
    return {
        **os.environ,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_SUBMIT_OPTS": options,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
