"""Finds where Spark, the product's jobs and their jars are installed, without importing them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from open_mirroring.errors import TerminalError

_JOBS = "spark_jobs"
_NOT_FOR_JOBS = ("AIRFLOW_CONN_", "AIRFLOW_VAR_", "AIRFLOW__")
"""Prefixes of environment variables of Airflow that jobs do not get: none needs them."""


def job_file(job: str) -> Path:
    """The path of a job's Python program. Raises ``INSTALLATION_INCOMPLETE`` if it is missing."""
    file = _jobs_folder() / f"{job}.py"
    if not file.is_file():
        raise TerminalError(
            "INSTALLATION_INCOMPLETE", f"there is no job {job!r}", where=str(file), next_step="install it complete"
        )
    return file


def logging_option() -> str:
    """The JVM option that keeps Spark's own log lines out of the Airflow task's log."""
    return f"-Dlog4j2.configurationFile={(_jobs_folder() / 'runtime' / 'log4j2.properties').as_uri()}"


def job_environment(connections: Mapping[str, str]) -> dict[str, str]:
    """The environment variables for the process that submits a job.

    The result has the variables of the current process without Airflow's own settings, and the variables in
    *connections*. Variables that are already set are kept: ``SPARK_HOME`` and ``PYSPARK_PYTHON`` for a separate Spark,
    ``SPARK_SUBMIT_OPTS`` for flags of the JVM. Raises ``INSTALLATION_INCOMPLETE`` if there is no ``spark-submit``.
    """
    environment = {name: text for name, text in os.environ.items() if not name.startswith(_NOT_FOR_JOBS)}
    installed = _installed_spark()
    home = environment.get("SPARK_HOME") or installed
    if home:
        environment["SPARK_HOME"] = home
        environment["PATH"] = _joined(str(Path(home) / "bin"), environment.get("PATH", os.defpath))
    submit = shutil.which("spark-submit", path=environment.get("PATH", os.defpath))
    if submit is None:
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            "there is no spark-submit here",
            where=home or "PATH",
            next_step="install pyspark next to Airflow, or set SPARK_HOME and PYSPARK_PYTHON to a Spark of its own",
        )
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    if not home:
        home = environment["SPARK_HOME"] = str(Path(submit).resolve().parents[1])
    if installed is None or Path(home).resolve() != Path(installed).resolve():
        # Its own Python side goes with it, as spark-submit would see to.
        for archive in sorted(Path(home, "python", "lib").glob("*.zip")):
            environment["PYTHONPATH"] = _joined(str(archive), environment.get("PYTHONPATH", ""))
    environment["PYTHONPATH"] = _joined(str(_jobs_folder().parent), environment.get("PYTHONPATH", ""))
    return {**environment, **connections}


def _jobs_folder() -> Path:
    found = importlib.util.find_spec(_JOBS)
    if found is None or not found.submodule_search_locations:
        raise TerminalError(
            "INSTALLATION_INCOMPLETE",
            f"the package {_JOBS} is not installed where tasks run",
            next_step="install open-mirroring into Airflow's environment",
        )
    return Path(found.submodule_search_locations[0])


def _installed_spark() -> str | None:
    found = importlib.util.find_spec("pyspark")
    folders = [] if found is None else list(found.submodule_search_locations or ())
    # pyspark-client has the same name and no spark-submit.
    return next((folder for folder in folders if (Path(folder) / "bin" / "spark-submit").is_file()), None)


def _joined(first: str, rest: str) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first
