"""Fixtures that more than one folder of tests uses; anything heavy is imported where it is needed."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_broker import KafkaBroker
    from tests.object_storage import StorageServers
    from tests.page_mirror import PageMirror
    from tests.postgres import PostgresServer

ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"

# A ledger waits for the disk at each of its writes, and tests make many thousands. What they write may be lost when the
# power fails, so it goes into memory where there is enough of it.
_MEMORY = Path("/dev/shm")
if "TMPDIR" not in os.environ and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 6 * 2**30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(_MEMORY)

# How long a busy machine takes to make an example says nothing of the test.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# What a test starts as a program finds testing and example distributions where the test itself does (`pythonpath`).
_DISTRIBUTIONS = (str(ROOT / "testing"), str(ROOT / "examples" / "debezium"))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*_DISTRIBUTIONS, os.environ.get("PYTHONPATH"))))

# A test that asks for one of these fixtures is of that kind; it need not say so twice.
MARK_OF_FIXTURE = {
    "shared_data": "shared_data",
    "spark": "spark",
    "postgres": "postgres",
    "kafka": "kafka",
    "storage_servers": "storage",
}

# `-n 2` shares the work between two processes. What needs Spark, its servers or Airflow is dealt out by whole folders,
# so that there are at most two sessions and one migrated Airflow; all else goes to whoever has nothing else to do.
WHOLE_FOLDERS = {"tests/e2e", "tests/spark", "tests/dags", "tests/odd"}
# The largest folder would end last, alone: these of its files go with another one.
_WITH_SPARK = (
    *("prove", "prove_random", "drift", "chosen_types", "delimited_text", "dropped_columns", "wheel", "rebuild_ledger"),
    *("silent_gaps_ces", "transaction_cut", "transaction_cut_qlik", "source_reloads", "late_change_rows"),
)
_ELSEWHERE = dict.fromkeys((f"tests/e2e/test_{name}.py" for name in _WITH_SPARK), "tests/spark")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", type=Path, help="folder for the pictures of the page that the documents show")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = _ELSEWHERE.get(file, file.rpartition("/")[0])
            return folder if folder in WHOLE_FOLDERS else nodeid

    return ByFolder(config, log)


def pytest_collection_finish() -> None:
    # What is loaded by now lives to the end: to look through it for garbage takes a tenth of the unit tests' time.
    gc.freeze()
    gc.set_threshold(50_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for fixture, mark in MARK_OF_FIXTURE.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(mark)
        if item.get_closest_marker("shared_data") and not SHARED_DATA.is_dir():
            item.add_marker(pytest.mark.skip(reason="needs the real histories in ../shared/data beside the repository"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real histories; tests that use it are skipped where it is missing."""
    return SHARED_DATA


@pytest.fixture(scope="session")
def filled_page(tmp_path_factory: pytest.TempPathFactory) -> PageMirror:
    """A mirror for tests of the page, filled; whoever changes it takes a copy."""
    from tests.page_mirror import PageMirror

    made = PageMirror(tmp_path_factory.mktemp("filled"))
    made.fill()
    return made


@pytest.fixture(scope="session")
def spark_on_demand() -> Iterator[SparkSession]:
    """The session of the test run as jobs ask for it: small work is done without, and no JVM starts before its use."""
    from open_mirroring.config.models import Spark
    from spark_jobs.runtime.tasks import SessionOnDemand
    from tests.quick_java import DELTA, java_options

    with pytest.MonkeyPatch.context() as environment:
        # Jobs that a test starts in other processes inherit it.
        environment.setenv("SPARK_SUBMIT_OPTS", f"{java_options()} {DELTA}")
        # Its connections end with the process, when nothing can be logged any longer.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        yield cast("SparkSession", SessionOnDemand("open-mirroring-tests", Spark().most_without_spark))
        if "pyspark.sql" in sys.modules and (active := sys.modules["pyspark.sql"].SparkSession.getActiveSession()):
            active.stop()


@pytest.fixture(scope="session")
def spark_workers(spark_on_demand: SparkSession) -> SparkSession:
    """The one Spark session of the test run, as jobs build it, in a JVM that compiles little; it does all work."""
    from spark_jobs.runtime.session import build_session

    return build_session("open-mirroring-tests")


@pytest.fixture(scope="session")
def spark(spark_workers: SparkSession) -> SparkSession:
    """The session that tests give to jobs; folders whose tests are not about Spark give one on demand."""
    return spark_workers


@pytest.fixture(scope="session")
def storage_servers() -> Iterator[StorageServers]:
    """Azurite and an S3 server of this test run's own."""
    from tests.object_storage import AZURITE, running_servers

    if not AZURITE.is_file():
        pytest.skip("needs Azurite: `make azurite` fetches it from the npm registry")
    with running_servers() as servers:
        yield servers


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server of this test run's own."""
    from tests.postgres import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A Kafka broker of this test run's own."""
    from tests.kafka_broker import running_broker

    with running_broker() as broker:
        yield broker
