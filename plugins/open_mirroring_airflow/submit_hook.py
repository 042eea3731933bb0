"""Runs one job on Spark: secrets go in by the environment, so that no command line shows them; a file comes back.

The job is started as a Python program with the options of ``spark-submit`` in its environment, and starts Spark by them
once it has something to do: most runs find nothing new, and a JVM costs more than all else that they do.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import BaseHook

from open_mirroring.errors import TerminalError
from open_mirroring.operate.job_result import RESULT_FILE, JobResult, read_result
from open_mirroring.operate.spark_jars import REMOTE, SUBMITTED, server_shown

_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class JobSubmitHook(SparkSubmitHook):
    """Submits in client mode with an environment of its own, and reads what the job leaves.

    A connection of the type ``spark_connect`` names a server of Spark Connect: the job joins it, and starts no JVM.

    The hook's ``env_vars`` are not used: they are templated, shown on the rendered task and, on a cluster, part of the
    command line.

    Args:
        environment: the whole environment of the submitting process.
        class_path: jars for the driver and, off this machine, for executors.
        cores: cores for the application; None: what the connection gives.
        arguments: those of the provider's hook.

    Raises:
        TerminalError: ``DEPLOY_MODE_UNSUPPORTED``.
    """

    def __init__(
        self, *, environment: Mapping[str, str], class_path: list[str], cores: int | None, **arguments: Any
    ) -> None:
        super().__init__(**arguments)
        self._environment = {name: text for name, text in environment.items() if name != REMOTE}
        self._remote = connect_address(self._conn_id)
        self.result = JobResult()
        if self._connection["deploy_mode"] == "cluster":
            raise TerminalError(
                "DEPLOY_MODE_UNSUPPORTED",
                "the driver of a job cannot run on the cluster yet: its result and its secrets need client mode",
                where=f"connection {self._conn_id}",
                way_out='set "deploy-mode": "client" in the extra of the connection, or name a server of Spark Connect',
            )
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
        """Run the job to its end; its output goes to the log, its result into :attr:`result`.

        Raises:
            AirflowException: when the exit code is not 0; then :attr:`exit_code` and :attr:`result` say more.
        """
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

    Of the connection's extra, what begins with ``x-`` is sent along, as ``x-databricks-cluster-id`` is.
    """
    connection = BaseHook.get_connection(connection_id)
    if connection.conn_type != SparkConnectHook.conn_type:
        return None
    headers = {name: str(text) for name, text in connection.extra_dejson.items() if name.startswith("x-")}
    address = SparkConnectHook(connection_id).get_connection_url()
    return ";".join([address, *(f"{name}={quote(text)}" for name, text in headers.items())])
