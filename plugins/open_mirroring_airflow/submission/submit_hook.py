"""Runs one job on Spark, without secrets on the command line, and reads the job's result.

In client mode the job is a Python program on the Airflow task's machine: secrets are in the program's environment, and
its result is a file. In cluster mode, as in Fabric's own Spark (:mod:`~open_mirroring_airflow.submission.livy_hook`),
the job is sent to the driver as encrypted text, and its result is read from the ledger.
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
from open_mirroring_airflow.submission.spark_installation import job_environment, job_file

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
    """Runs a job in client mode, and reads the job's result.

    *environment* are all environment variables of the job's process. *class_path* are jars for the driver and, if the
    executors are on other machines, for the executors. *cores* limits the cores; None: the Spark connection decides.
    If the Spark connection has the type ``spark_connect``, the job uses that Spark Connect server and starts no JVM.
    The inherited argument ``env_vars`` is not used, because Airflow shows it on the rendered task.
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
        """The exit code of the job; None before the job has ended."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Runs the job to its end; writes its output to the task's log, and sets :attr:`result`."""
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
    """The address of the Spark Connect server in an Airflow connection; None for a connection of another type.

    Fields of the connection's extra whose names begin with ``x-``, such as ``x-databricks-cluster-id``, are sent to
    the server as headers.
    """
    connection = BaseHook.get_connection(connection_id)
    if connection.conn_type != SparkConnectHook.conn_type:
        return None
    headers = {name: str(text) for name, text in connection.extra_dejson.items() if name.startswith("x-")}
    address = SparkConnectHook(connection_id).get_connection_url()
    return ";".join([address, *(f"{name}={quote(text)}" for name, text in headers.items())])


def is_cluster_mode(spark: Any) -> bool:
    """Whether the Spark connection *spark* sets the deploy mode ``cluster``: the driver runs on the cluster."""
    return bool(spark.conn_type == SparkSubmitHook.conn_type and spark.extra_dejson.get("deploy-mode") == "cluster")


class SealedJob:
    """A job as encrypted text, for a Spark driver on another machine, which writes the job's result into the ledger.

    *extra* is the extra of the Spark connection *name*. The attribute *arguments* has the command line for
    :mod:`spark_jobs.sealed_job`: where the driver finds the key, and the encrypted text. Raises
    ``INSTALLATION_INCOMPLETE`` if the ledger is a SQLite file, which the driver cannot reach.
    """

    def __init__(self, mirror: Mirror, job: str, job_arguments: list[str], extra: Mapping[str, Any], name: str) -> None:
        self._ledger_url, self.run = ledger_url(mirror), uuid4().hex
        if self._ledger_url.startswith("sqlite"):
            raise _refused("a driver on the cluster has no way to a ledger in a file", name)
        key, key_file = _key(mirror, extra, name)
        order = JobOrder(
            run=self.run,
            job=job,
            mirror=mirror.file.name,
            text=mirror.file.read_text(encoding="utf-8"),
            home=str(mirror.home),
            arguments=job_arguments,
            connections=job_connections(mirror),
        )
        self.arguments = [key_file, sealed(order, key)]

    def end(self) -> tuple[int, JobResult]:
        """The job's exit code and result from the ledger.

        If the ledger has no result of the job, the exit code is ``NO_END`` and the result is empty.
        """
        ledger = open_ledger(self._ledger_url)
        try:
            return recorded_end(ledger, self.run) or (NO_END, JobResult())
        finally:
            ledger.dispose()

    def masked(self, text: str) -> str:
        """*text* with the encrypted text of the job replaced, for logs."""
        return text.replace(self.arguments[-1], "(the sealed job)")


class ClusterSubmitHook(SparkSubmitHook):
    """Submits a job in cluster mode, where the driver gets neither files nor environment variables of this process.

    The submitted program is :mod:`spark_jobs.sealed_job`. Raises ``INSTALLATION_INCOMPLETE`` if the Spark master runs
    no Python programs in cluster mode.
    """

    def __init__(
        self, *, mirror: Mirror, job: str, job_arguments: list[str], class_path: list[str], **arguments: Any
    ) -> None:
        super().__init__(conf=_ON_CLUSTER, jars=",".join(class_path) or None, **arguments)
        if not (master := str(self._connection["master"])).startswith(("yarn", "k8s://")):
            what = f"Spark runs no driver of a Python program on the master {master}"
            raise _refused(what, self._conn_id)
        extra = BaseHook.get_connection(self._conn_id).extra_dejson
        self._job = SealedJob(mirror, job, job_arguments, extra, self._conn_id)
        self._application_args = self._job.arguments
        self.exit_code = NO_END
        self.result = JobResult()

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Runs the job to its end, and sets :attr:`result` and :attr:`exit_code`."""
        try:
            return super().submit(str(job_file("sealed_job")), env=job_environment({}), **kwargs)
        finally:
            self.exit_code, self.result = self._job.end()

    def _mask_cmd(self, connection_cmd: str | list[str]) -> str:
        return self._job.masked(super()._mask_cmd(connection_cmd))


def _refused(what: str, connection: str) -> TerminalError:
    return TerminalError(
        "INSTALLATION_INCOMPLETE",
        what,
        where=f"connection {connection}",
        next_step='set "deploy-mode": "client" in the extra of the connection; or, on YARN, Kubernetes or Fabric, keep '
        "the ledger in PostgreSQL",
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
            f"`{KEY_FILE}` is the path of the file with the same key on the driver, or its address in a key vault",
        )
    try:
        key = BaseHook.get_connection(name).password or ""
    except AirflowNotFoundException:
        raise missing(name, mirror.file) from None
    mask_secret(key)
    return key, str(file)
