"""Provides a job's Spark session: the running session, a new session, or a session of a Spark Connect server."""

from __future__ import annotations

import atexit
import logging
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any, cast
from zipfile import is_zipfile

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException, PySparkRuntimeError
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.operate.spark_jars import JARS, REMOTE, SUBMITTED, jar_files, jars_folder, server_shown

log = logging.getLogger(__name__)

_LOGGING = Path(__file__).resolve().with_name("log4j2.properties")

# Workers process blocks of some 20 MB: memory that is returned after each has to be allocated again, page by page.
_WORKER_MEMORY = {
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(512 * 2**20),
    "spark.executorEnv.MIMALLOC_PURGE_DELAY": "-1",
}
_SESSION = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4"}
_JOBS = {
    **_WORKER_MEMORY,
    **_SESSION,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # A speculative copy of a task would only waste work, because file names are used once.
    "spark.speculation": "false",
}
_JOINED = {
    **_SESSION,
    # The server shows each plan in its event log and on its page, including Spark's JDBC reader with the password.
    "spark.sql.redaction.string.regex": r'(?i)key: "[^"]*(password|secret|token)[^"]*"\s+value: "([^"\\]|\\.)*("|\z)',
}


def build_session(name: str, *, cores: int | None = None) -> SparkSession:
    """The running Spark session, or a new one.

    If the environment variable :data:`~open_mirroring.operate.spark_jars.REMOTE` names a Spark Connect server, this
    server provides the new session. Else, under ``spark-submit`` or if
    :data:`~open_mirroring.operate.spark_jars.SUBMITTED` is set, the new session has the submitted master, memory and
    jars. In all other cases the new session is local, with the jars that ``open-mirroring jars`` downloaded. Raises
    ``INSTALLATION_INCOMPLETE`` without Java or for a truncated jar; ``UNREACHABLE`` when the Spark Connect server
    provides no session.
    """
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    if REMOTE in os.environ:
        return _connected()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    conf = SparkConf().setAppName(name).setAll(list(_JOBS.items()))
    if "SPARK_ENV_LOADED" not in os.environ:
        if SUBMITTED not in os.environ:
            # Only for a local session: the workers of a cluster would look for the driver on their own machines.
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            conf.setMaster(f"local[{cores or '*'}]")
            conf.set("spark.driver.extraClassPath", ":".join(_jars()))
            conf.set("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={_LOGGING}")
            conf.set("spark.driver.bindAddress", "127.0.0.1")
            conf.set("spark.driver.host", "127.0.0.1")
            conf.set("spark.python.daemon.module", "spark_jobs.runtime.daemon")
        if SparkContext._gateway is None:
            try:
                gateway = launch_gateway(conf)
            except PySparkRuntimeError as error:
                raise TerminalError(
                    "INSTALLATION_INCOMPLETE",
                    "Spark could not start a Java virtual machine",
                    next_step="install Java 17 or newer, or let JAVA_HOME name one; what Java itself said is above",
                ) from error
            SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()


@cache
def _connected() -> SparkSession:
    """A session of the server in the environment, with the allowed session settings."""
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # Ten seconds: a missing server is reported soon, not after the minutes for which a running job waits.
    impatient = [DefaultPolicy(max_retries=5, max_backoff=4_000)]

    def leave() -> None:
        session.client.set_retry_policies(impatient)
        session.stop()

    try:
        session: Any = SparkSession.builder.getOrCreate()
        patient = session.client.get_retry_policies()
        session.client.set_retry_policies(impatient)
        for name, value in _JOINED.items():
            session.conf.set(name, value)
    except PySparkException as error:
        what = type(error).__name__
    else:
        session.client.set_retry_policies(patient)
        atexit.register(leave)
        return cast(SparkSession, session)
    # Raised here, because the original may hold the address, which includes a token.
    raise TransientError(
        "UNREACHABLE",
        f"the server of Spark Connect gives no session: {what}",
        where=server_shown(os.environ[REMOTE]),
        next_step="look whether the server runs, and whether address and token of the connection are right",
    )


def _jars() -> list[str]:
    """The jars for a local session; may be empty: only reading over JDBC needs one, and reports if it is missing."""
    jars = jar_files()
    for jar in jars:
        if not is_zipfile(jar):
            raise TerminalError(
                "INSTALLATION_INCOMPLETE",
                f"a jar that Spark needs is cut off: {os.path.basename(jar)}",
                where=str(jars_folder()),
                next_step=f"fetch them: open-mirroring jars; or let {JARS} name the folder that has them",
            )
    return jars
