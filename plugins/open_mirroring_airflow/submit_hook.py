"""Submits one job to Spark: secrets go in by the environment, so that no command line shows them; a file comes back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from open_mirroring.errors import TerminalError
from open_mirroring.operate.job_result import RESULT_FILE, JobResult, read_result

_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class JobSubmitHook(SparkSubmitHook):
    """Submits in client mode with an environment of its own, and reads what the job leaves.

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
        self._environment = dict(environment)
        self.result = JobResult()
        if self._connection["deploy_mode"] == "cluster":
            raise TerminalError(
                "DEPLOY_MODE_UNSUPPORTED",
                "the driver of a job cannot run on the cluster yet: its result and its secrets need client mode",
                where=f"connection {self._conn_id}",
                way_out='set "deploy-mode": "client" in the extra of the connection',
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
        """The exit code of the submitting process, which in client mode is the job's; None before its end."""
        return None if self._submit_sp is None else self._submit_sp.returncode

    def submit(self, application: str = "", **kwargs: Any) -> str | None:
        """Run the job to its end; its output goes to the log, its result into :attr:`result`.

        Raises:
            AirflowException: when the exit code is not 0; then :attr:`exit_code` and :attr:`result` say more.
        """
        with TemporaryDirectory(prefix="open-mirroring-") as folder:
            file = Path(folder, "result.json")
            try:
                return super().submit(application, env={**self._environment, RESULT_FILE: str(file)}, **kwargs)
            finally:
                self.result = read_result(file)
