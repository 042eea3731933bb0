"""What commands and workers load: a module that one of them does not use costs every run of it.

Counted are modules, not seconds, which depend on the machine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.small_runs import Mirror

ROOT = Path(__file__).resolve().parents[3]
SELDOM = {
    *("adbc_driver_manager", "alembic", "azure", "confluent_kafka", "fastapi", "pandas", "psycopg2", "py4j"),
    *("pyspark", "urllib3"),
}
"""What a mirror of local files needs in no run."""
OF_DATA = {"deltalake", "duckdb", "fastavro", "numpy", "pyarrow"}
"""What reads and writes rows."""
_PROGRAM = """
import atexit, sys
atexit.register(lambda: print("LOADED", *sys.modules))
from spark_jobs.cli.command_line import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory) -> Mirror:
    """A mirror that has run once."""
    return Mirror(tmp_path_factory.mktemp("small") / "mirror", ROOT)


def _loaded(*command: str, program: str = _PROGRAM) -> set[str]:
    """The modules that a command has loaded when it ends."""
    done = subprocess.run([sys.executable, "-c", program, *command], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("LOADED "))
    return set(line.split()[1:])


def test_the_version_loads_nothing_of_the_core_but_errors() -> None:
    loaded = _loaded("--version")
    assert loaded.isdisjoint({*SELDOM, *OF_DATA, "pydantic", "sqlalchemy"})
    assert len(loaded) <= 190


def test_status_loads_what_reads_a_ledger_and_no_more(mirror: Mirror) -> None:
    loaded = _loaded("status", str(mirror.file))
    assert loaded.isdisjoint({*SELDOM, *OF_DATA})
    assert len(loaded) <= 570


def test_a_tick_with_nothing_new_opens_no_log(mirror: Mirror) -> None:
    loaded = _loaded("tick", str(mirror.file))
    assert loaded.isdisjoint({*SELDOM, "deltalake", "duckdb"})
    assert len(loaded) <= 800


def test_a_tick_loads_only_its_own_source(mirror: Mirror) -> None:
    mirror.deliver("new", 7, 5)
    loaded = _loaded("tick", str(mirror.file))
    assert "deltalake" in loaded and loaded.isdisjoint(SELDOM)
    assert len(loaded) <= 870


def test_workers_load_no_ledger_and_no_settings() -> None:
    program = """
import sys
from pyspark import worker
import spark_jobs.extract.read_task, spark_jobs.load.task, spark_jobs.publish.staging, spark_jobs.sources.jdbc.tables
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.transports.message_files import LineFiles
print("LOADED", *sys.modules)
"""
    loaded = _loaded(program=program)
    settings = {"open_mirroring.config.models", "open_mirroring.ledger", "pydantic", "sqlalchemy", "yaml"}
    assert loaded.isdisjoint({*settings, "alembic", "deltalake", "duckdb", "pandas"})
