"""Runs one job in Fabric's own Spark by its Livy API, as a batch or in a session.

The job is sent to Fabric's driver as encrypted text, and writes its result into the ledger (S-16). Livy shows only when
the job has ended; the job's result is read from the ledger alone.
"""

from __future__ import annotations

import json
import logging
import time
from typing import Any

from open_mirroring.config import Mirror
from open_mirroring.config.connections import Connection
from open_mirroring.errors import MirroringError, TransientError
from open_mirroring.fabric.livy import LivyApi
from open_mirroring.fabric.livy_connection import livy_connection
from open_mirroring.operate.job_result import JobResult
from open_mirroring_airflow.submission.submit_hook import NO_END, SealedJob

log = logging.getLogger(__name__)

_POLL_SECONDS = 5.0
_PATIENCE_SECONDS = 900.0
"""How long the API may give no usable answer about a job that runs; a job of hours outlives its interruptions."""
_BATCHES, _SESSIONS = "/batches", "/sessions"


class LivySubmitHook:
    """Starts a job in Fabric, waits until it ends, and cancels it when the task is killed or times out.

    If the connection asks for a session, each job finds or starts the session that is named after the mirror. The
    session is kept for the next job until Fabric ends it as idle; the jobs in it run one after the other.
    """

    def __init__(self, mirror: Mirror, job: str, job_arguments: list[str], connection: Connection) -> None:
        self._livy = livy_connection(connection)
        self._api = LivyApi(self._livy)
        self._job = SealedJob(mirror, job, job_arguments, connection.extra, connection.name)
        environment = {"spark.fabric.environmentDetails": json.dumps({"id": self._livy.environment})}
        self._request: dict[str, Any] = {"conf": environment if self._livy.environment else {}}
        if mirror.spark.memory is not None:
            self._request |= {"driverMemory": mirror.spark.memory, "executorMemory": mirror.spark.memory}
        self._batch_name = f"{mirror.name}-{job}-{self._job.run}"
        self._session_name = f"open-mirroring-{mirror.name}"
        self._path: str | None = None
        self._is_killed = False
        self.exit_code = NO_END
        self.result = JobResult()

    def submit(self, application: str = "") -> None:
        """Runs the job to its end, and sets :attr:`result` and :attr:`exit_code`.

        *application* is not used: the program is in the lakehouse. Raises the errors of
        :class:`~open_mirroring.fabric.livy.LivyApi` if the job cannot be started, or if its end cannot be observed.
        """
        try:
            self._path = self._started()
            if self._path is not None and not self._is_killed:
                log.info("Fabric's Spark runs the job: %s", self._path)
                self._await_end(self._path)
            elif self._path is not None:
                self.on_kill()  # it came before the answer to the start
        except BaseException:
            self.on_kill()
            raise
        self.exit_code, self.result = self._job.end()

    def on_kill(self) -> None:
        """Cancels the job in Fabric, also if Fabric has not yet answered the request that starts it."""
        self._is_killed = True
        try:
            path = self._path or (self._livy.mode == "batch" and self._api.find(_BATCHES, self._batch_name))
            if path:
                self._api.cancel(path)
        except MirroringError as error:
            # The ledger lets one writer through, so what goes on there does no harm.
            log.warning("The job could not be cancelled in Fabric: %s", error)

    def _started(self) -> str | None:
        """The path of the batch or statement; None if the task was killed before."""
        if self._livy.mode == "batch":
            batch = {"name": self._batch_name, "file": self._livy.file, "args": self._job.arguments}
            return self._api.start(_BATCHES, {**batch, **self._request})
        session = self._api.find(_SESSIONS, self._session_name)
        if session is None:
            session = self._api.start(_SESSIONS, {"name": self._session_name, **self._request})
        while not self._api.is_ready(session):
            if self._is_killed:
                return None
            time.sleep(_POLL_SECONDS)
        code = f"from spark_jobs.sealed_job import main\nmain({self._job.arguments!r})"
        return None if self._is_killed else self._api.start_statement(session, code)

    def _await_end(self, path: str) -> None:
        seen = time.monotonic()
        while not self._is_killed:
            try:
                end = self._api.end(path)
                seen = time.monotonic()
            except TransientError:
                if time.monotonic() - seen > _PATIENCE_SECONDS:
                    raise
                end = None
            if end is not None:
                log.info("Fabric's Spark: %s", self._job.masked(end))
                return
            time.sleep(_POLL_SECONDS)
