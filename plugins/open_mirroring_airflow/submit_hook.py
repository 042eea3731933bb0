"""Runs one job on Spark, without secrets on its command line, and reads its result.

In client mode the job is a Python program on the task's machine: secrets are in its environment, and its result is a
file. In cluster mode the job is sent to the driver as encrypted text, and its result is read from the ledger.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from open_mirroring.config import Mirror
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import open_ledger
from open_mirroring.operate.job_result import RESULT_FILE, JobResult, read_result, recorded_end
from open_mirroring.operate.sealed_job import JobOrder, sealed
from open_mirroring.operate.spark_jars import REMOTE, SUBMITTED, server_shown
from open_mirroring_airflow.connections import job_connections, ledger_url, missing
from open_mirroring_airflow.spark_installation import job_environment, job_file

_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

KEY, KEY_FILE = "job-key", "job-key-file"
"""Names in the extra of the Spark connection: the connection that holds the key, and the key's file at the driver."""
NO_END = 256
"""Stands for the exit code of a cluster driver that was killed or never began; no process ends with 256."""
_ON_CLUSTER = {
    "spark.ui.enabled": "false",
    # A second attempt by the cluster would repeat what ended with an answer; Airflow knows when to try again.
    "spark.yarn.maxAppAttempts": "1",
}


class JobSubmitHook(SparkSubmitHook):
    """Submits in client mode with the complete *environment* of the process, and reads what the job leaves.

    A connection of the type ``spark_connect`` names a server of Spark Connect: the job joins it, and starts no JVM. The
    hook's ``env_vars`` are not used: they are shown on the rendered task. *class_path* are jars for the driver and, off
    this machine, for executors; without *cores* the connection decides.
    """

    def __init__(
        self, *, environment: Mapping[str, str], class_path: list[str], cores: int | None, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._environment = {name: text for name, text in environment.items() if name != REMOTE}
        self._remote = connect_address(self._conn_id)
        self.result = JobResult()
        self._driver_class_path = ":".join(class_path) or None
        master = self._connection["master"]
        if not master.startswith("local"):
            self._jars = ",".join(class_path) or None
            self._total_executor_cores = cores
        else:
            self._conf = {**_LOOPBACK, **self._conf}
            if cores is not None:
                self._connection["master"] = f"local[{cores}]"

    @property
    def exit_code(self) -> int | None:
        """The exit code of the job; None before its end."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run the job to its end; its output goes to the log, its result into :attr:`result`."""
        with TemporaryDirectory(prefix="open-mirroring-") as folder:
            file = Path(folder, "result.json")
            environment = {**self._environment, RESULT_FILE: str(file), **self._spark()}
            try:
                return super().submit(application, env=environment, **kwargs)
            finally:
                self.result = read_result(file)

    def _spark(self) -> dict[str, str]:
        """How the job gets at Spark once it needs it."""
        if self._remote is not None:
            self.log.info("Spark, once it is needed: %s", server_shown(self._remote))
            return {REMOTE: self._remote}
        options = self._build_spark_common_args()
        self.log.info("Spark, once it is needed: %s", self._mask_cmd(options))
        return {SUBMITTED: "1", "PYSPARK_SUBMIT_ARGS": shlex.join([*options, "pyspark-shell"])}

    def _build_spark_submit_command(self, application: str) -> list[str]:
        """The job as a program of the Python that ``spark-submit`` would take for the driver."""
        named = (self._environment.get(name) for name in ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON"))
        python = next(filter(None, named), sys.executable)
        return [python, application, *(self._application_args or ())]


def connect_address(connection_id: str) -> str | None:
    """The address of the Spark Connect server that a connection names; None for a connection of another type.

    Of its extra, what begins with ``x-`` is sent along, as ``x-databricks-cluster-id`` is.
    """
    connection = BaseHook.get_connection(connection_id)
    if connection.conn_type != SparkConnectHook.conn_type:
        return None
    headers = {name: str(text) for name, text in connection.extra_dejson.items() if name.startswith("x-")}
    address = SparkConnectHook(connection_id).get_connection_url()
    return ";".join([address, *(f"{name}={quote(text)}" for name, text in headers.items())])


def is_cluster_mode(spark: Any) -> bool:
    """Whether a Spark connection asks for drivers on the cluster."""
    return bool(spark.conn_type == SparkSubmitHook.conn_type and spark.extra_dejson.get("deploy-mode") == "cluster")


class ClusterSubmitHook(SparkSubmitHook):
    """Submits in cluster mode, where neither a file nor the environment of this process reaches the driver.

    The submitted program is :mod:`spark_jobs.sealed_job`, with the key's file at the driver and a text that only this
    key opens. It is refused (``INSTALLATION_INCOMPLETE``) on a master that runs no Python programs, and with a ledger
    in a file.
    """

    def __init__(
        self, *, mirror: Mirror, job: str, job_arguments: list[str], class_path: list[str], **arguments: Any
    ) -> None:
        super().__init__(conf=_ON_CLUSTER, jars=",".join(class_path) or None, **arguments)
        spark = BaseHook.get_connection(self._conn_id)
        self._ledger_url, self._run = ledger_url(mirror), uuid4().hex
        _refuse(str(self._connection["master"]), self._ledger_url, f"connection {self._conn_id}")
        key, key_file = _key(mirror, spark.extra_dejson, self._conn_id)
        order = JobOrder(
            run=self._run,
            job=job,
            mirror=mirror.file.name,
            text=mirror.file.read_text(encoding="utf-8"),
            home=str(mirror.home),
            arguments=job_arguments,
            connections=job_connections(mirror),
        )
        self._text = sealed(order, key)
        self._application_args = [key_file, self._text]
        self.exit_code = NO_END
        self.result = JobResult()

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run the job to its end; what it left goes into :attr:`result` and :attr:`exit_code`."""
        try:
            return super().submit(str(job_file("sealed_job")), env=job_environment({}), **kwargs)
        finally:
            ledger = open_ledger(self._ledger_url)
            try:
                if end := recorded_end(ledger, self._run):
                    self.exit_code, self.result = end
            finally:
                ledger.dispose()

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        shown: str = super()._mask_cmd(connection_cmd)
        return shown.replace(self._text, "(the sealed job)")


def _refuse(master: str, ledger: str, where: str) -> None:
    if not master.startswith(("yarn", "k8s://")):
        what = f"Spark runs no driver of a Python program on the master {master}"
    elif ledger.startswith("sqlite"):
        what = "a driver on the cluster has no way to a ledger in a file"
    else:
        return
    raise TerminalError(
        "INSTALLATION_INCOMPLETE",
        what,
        where=where,
        next_step='set "deploy-mode": "client" in the extra of the connection; or, on YARN or Kubernetes, keep the '
        "ledger in PostgreSQL",
    )


def _key(mirror: Mirror, extra: Mapping[str, Any], connection: str) -> tuple[str, str]:
    """The key, and its file at the driver."""
    name, file = extra.get(KEY), extra.get(KEY_FILE)
    if not name or not file:
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            "a driver on the cluster gets its job as sealed text, and no key is named for it",
            where=f"connection {connection}",
            next_step=f"add two entries to its extra. `{KEY}` names a connection whose password is the key; "
            f"`{KEY_FILE}` is the path of the file with the same key on the driver",
        )
    try:
        key = BaseHook.get_connection(name).password or ""
    except AirflowNotFoundException:
        raise missing(name, mirror.file) from None
    mask_secret(key)
    return key, str(file)
