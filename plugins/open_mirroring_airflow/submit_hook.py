"""Submits one job to Spark: secrets go into its environment, its report comes out of its output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

from open_mirroring.errors import TerminalError

_ERROR_LINE = re.compile(r" ERROR \S+: (?P<code>[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*): (?P<text>.*)$")
_LOOPBACK = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


class JobSubmitHook(SparkSubmitHook):
    """Submits in client mode with an environment of its own, and reads what the job says.

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
        self.report: dict[str, Any] | None = None
        self.error: tuple[str, str] | None = None
        if self._connection["deploy_mode"] == "cluster":
            raise TerminalError(
                "DEPLOY_MODE_UNSUPPORTED",
                "the driver of a job cannot run on the cluster yet: its report and its secrets need client mode",
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
        """Run the job to its end; its output goes to the log.

        Raises:
            AirflowException: when the exit code is not 0; then :attr:`exit_code` and :attr:`error` say more.
        """
        return super().submit(application, env=self._environment, **kwargs)

    def _process_spark_submit_log(self, itr: Iterator[Any]) -> None:
        super()._process_spark_submit_log(self._watched(itr))

    def _watched(self, lines: Iterator[str]) -> Iterator[str]:
        for line in lines:
            if line.startswith("{"):
                self.report = _report(line) or self.report
            elif match := _ERROR_LINE.search(line.rstrip()):
                self.error = match["code"], match["text"]
            yield line


def _report(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "job" in found else None
