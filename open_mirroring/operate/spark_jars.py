"""Finds where a job gets Spark: options of spark-submit, a Spark Connect server, or a local Spark with its jars."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from open_mirroring.config import Mirror
from open_mirroring.config.connections import resolve
from open_mirroring.config.problems import Problem, SettingPath
from open_mirroring.config.source import ChangeTablesInDatabase
from open_mirroring.config.tables import JdbcLoad
from open_mirroring.errors import TerminalError

JARS = "OPEN_MIRRORING_JARS"
"""Environment variable naming the folder of jars."""
SUBMITTED = "OPEN_MIRRORING_SUBMITTED"
"""Environment variable: set if the options in ``PYSPARK_SUBMIT_ARGS`` start the job's Spark."""
REMOTE = "SPARK_REMOTE"
"""Spark's own environment variable for a Spark Connect server (``sc://HOST:PORT/;token=…``)."""
_DRIVERS = {"postgres": "postgresql", "mssql": "mssql-jdbc"}
"""A part of the file name of each database's JDBC driver."""
_CHECKOUT = Path(__file__).resolve().parents[2] / "jars"


def jars_folder() -> Path:
    """Return the folder of Spark's jars.

    The folder is the one that :data:`JARS` names. If :data:`JARS` is not set, the folder is ``jars`` in a git
    checkout, or, without a checkout, a folder in the user's cache.
    """
    if named := os.environ.get(JARS):
        return Path(named).absolute()
    if (_CHECKOUT / "ivy.xml").is_file():
        return _CHECKOUT
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "open_mirroring", "jars")


def jar_files() -> list[str]:
    """Return the paths of the jars in the folder of jars, sorted.

    The result is empty in a container image, which has the jars in Spark's own folder.
    """
    return sorted(map(str, jars_folder().glob("*.jar")))


def drivers_lacking(mirror: Mirror) -> list[Problem]:
    """Return a list with one problem if the mirror reads over JDBC and a local Spark would find no driver.

    The list is empty if the mirror does not read over JDBC, a driver is found, or Spark is a server or an installation
    of its own.
    """
    if REMOTE in os.environ or "SPARK_HOME" in os.environ or jar_files():
        return []
    for setting, connection in _jdbc_reads(mirror):
        if _spark_has_driver(connection):
            continue
        what = f"Spark needs a driver to read over {connection}, and there are no jars in {jars_folder()}"
        next_step = "fetch them: open-mirroring jars; nothing, where the cluster has the driver"
        return [mirror.problem(setting, "INSTALLATION_INCOMPLETE", what, next_step)]
    return []


def _spark_has_driver(connection: str) -> bool:
    """Whether pyspark's own folder of jars has the database's driver."""
    try:
        driver = _DRIVERS.get(resolve(connection).conn_type)
    except TerminalError:
        return False
    spark = find_spec("pyspark")
    places = (spark.submodule_search_locations if spark else None) or ()
    return driver is not None and any(list(Path(place, "jars").glob(f"*{driver}*.jar")) for place in places)


def _jdbc_reads(mirror: Mirror) -> Iterator[tuple[SettingPath, str]]:
    for at, entry in enumerate(mirror.entries):
        for setting in ("initial_load", "prove"):
            if isinstance(read := getattr(entry, setting), JdbcLoad):
                yield ("tables", at, setting, "connection"), read.connection
    if isinstance(mirror.source, ChangeTablesInDatabase):
        try:
            copied = resolve(mirror.source.connection).conn_type == "postgres"
        except TerminalError:
            return  # it is not set: that is said by others
        if not copied:
            yield ("source", "connection"), mirror.source.connection


def server_shown(address: str) -> str:
    """Return the address of a Spark Connect server without the address's parameters: one of them is a secret token."""
    return (
        address.partition(";")[0] if address.startswith("sc://") else f"what {REMOTE} says, which is not sc://HOST:PORT"
    )
