"""One migrated Airflow of its own for all tests here: no scheduler, no server, one SQLite file in a temporary folder.

Airflow reads its home when it is first imported, which the test modules do; so the home is set here, before them. The
settings below apply only while a test of this folder runs.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any

import pytest

from tests.hand_made_mirror import HandMadeMirror

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(tempfile.mkdtemp(prefix="open-mirroring-airflow-"))
atexit.register(shutil.rmtree, HOME, ignore_errors=True)

MIRRORS = HOME / "mirrors"
SETTINGS = {
    "AIRFLOW_HOME": str(HOME),
    "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
    "OPEN_MIRRORING_MIRRORS": str(MIRRORS),
}

with pytest.MonkeyPatch.context() as _patch:
    for _name, _value in SETTINGS.items():
        _patch.setenv(_name, _value)
    import airflow.settings  # noqa: F401


MIRROR = """
mirror: shop
source: {format: sqlserver-ces, transport: capture, path: capture}
landing_zone: {store: local, path: zone}
ledger: sqlite:///ledger.db
change_log: log
tables:
  - {source: dbo.customers, target: dbo/customers, key: [customer_id]}
  - {source: dbo.orders, target: dbo/orders, key: [order_id]}
gate: {timeout_minutes: 7}
"""


@pytest.fixture(autouse=True, scope="module")
def settings() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        for name in ("OPEN_MIRRORING_HOME", "SPARK_HOME", "PYSPARK_PYTHON"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session")
def metadata_database() -> None:
    """Airflow's tables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        from airflow.utils.db import initdb

        initdb()


@pytest.fixture
def mirrors(metadata_database: None) -> Iterator[Path]:
    """The folder that ``dags/`` reads; empty at the start of each test."""
    shutil.rmtree(MIRRORS, ignore_errors=True)
    MIRRORS.mkdir()
    yield MIRRORS
    shutil.rmtree(MIRRORS, ignore_errors=True)


@pytest.fixture
def write_mirror(tmp_path: Path) -> Callable[..., Path]:
    """Write a mirror file, by default that of :data:`MIRROR` below ``tmp_path``."""

    def write(text: str = MIRROR, *, name: str = "shop") -> Path:
        file = tmp_path / "mirrors" / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text(dedent(text), encoding="utf-8")
        return file

    return write


@pytest.fixture
def made(mirrors: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandMadeMirror:
    """A mirror by hand in a folder that ``dags/`` reads; what fails in it is not tried again."""
    monkeypatch.setenv("OPEN_MIRRORING_MIRRORS", str(tmp_path / "mirrors"))
    monkeypatch.setattr("open_mirroring_airflow.dag_factory.RETRIES", 0)
    return HandMadeMirror(tmp_path)


class FakeSpark:
    """A Python of jobs that records how it was called, prints what a test sets, and exits as a test sets."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.binary = home / "bin" / "python"
        self.binary.parent.mkdir(parents=True)
        (self.binary.parent / "spark-submit").touch(mode=0o755)
        self.answers()

    def answers(
        self, exit_code: int = 0, output: str = "", only: str = "", left: Mapping[str, Any] | None = None
    ) -> None:
        """From now on; with *only*, for applications of this name alone, all others end well.

        What is *left* as result is mostly what a job leaves that prints this output.
        """
        result = self._result(output) if left is None else json.dumps(left)
        self.binary.write_text(
            dedent(
                f"""\
                #!{sys.executable}
                import json, os, shlex, sys
                calls = {str(self.home / "calls.jsonl")!r}
                argv = [*shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))[:-1], *sys.argv[1:]]
                with open(calls, "a") as file:
                    print(json.dumps({{"argv": argv, "environment": dict(os.environ)}}), file=file)
                if {only!r} in " ".join(argv):
                    print({output!r}, flush=True)
                    result = {result!r}
                    if result:
                        with open(os.environ["OPEN_MIRRORING_RESULT"], "w") as file:
                            file.write(result)
                    sys.exit({exit_code})
                """
            )
        )
        self.binary.chmod(0o755)

    @staticmethod
    def _result(output: str) -> str:
        """What a job leaves that prints this: its report, its error, or nothing."""
        if output.startswith("{"):
            return json.dumps({"report": json.loads(output)})
        found = re.search(r" ERROR \S+: ([A-Z0-9_]+): (.*)$", output)
        return json.dumps({"error": found.groups()}) if found else ""

    @property
    def calls(self) -> list[dict[str, Any]]:
        import json

        file = self.home / "calls.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def jobs(self) -> list[str]:
        """The jobs that were submitted, in order."""
        return [Path(word).stem for call in self.calls for word in call["argv"] if word.endswith(".py")]


@pytest.fixture
def fake_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSpark:
    fake = FakeSpark(tmp_path / "spark")
    monkeypatch.setenv("SPARK_HOME", str(fake.home))
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", str(fake.binary))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    return fake


@pytest.fixture
def task_context() -> dict[str, Any]:
    """What a task of ours asks of its context, outside a run."""

    class Instance:
        def __init__(self) -> None:
            self.xcoms: dict[str, Any] = {}
            self.states: dict[str, str] = {}

        try_number = 1

        def xcom_pull(self, task_ids: str) -> Any:
            return self.xcoms.get(task_ids)

        def xcom_push(self, key: str, value: Any) -> None:
            self.xcoms[key] = value

        def get_task_states(self, *, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
            return {run: {task: self.states[task] for task in task_ids if task in self.states} for run in run_ids}

    class Events(dict[Any, list[Any]]):
        def __missing__(self, alias: Any) -> Any:
            recorded: list[Any] = []

            class Accessor:
                def add(self, asset: Any, extra: dict[str, Any]) -> None:
                    recorded.append((asset.uri, extra))

            accessor = Accessor()
            accessor.recorded = recorded  # type: ignore[attr-defined]
            self[alias.name] = recorded
            return accessor

    class Store(dict[str, Any]):
        def set(self, key: str, value: Any) -> None:
            self[key] = value

    return {
        "ti": Instance(),
        "params": {"tables": [], "reread": False},
        "run_id": "manual__1",
        "dag_run": SimpleNamespace(run_type="manual", data_interval_start=None, data_interval_end=None),
        "outlet_events": Events(),
        "task_state_store": Store(),
    }


@pytest.fixture
def approved(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every approval is answered at once, as the API would: the run itself would wait for ever."""

    def execute(self: Any, context: Any) -> Any:
        answer = {"chosen_options": ["Approve"], "params_input": {}, "responded_by_user": {"id": "7", "name": "Ada"}}
        return self.execute_complete(context, {**answer, "responded_at": datetime.now(UTC)})

    monkeypatch.setattr("airflow.providers.standard.operators.hitl.HITLOperator.execute", execute)


@pytest.fixture(autouse=True)
def no_left_over_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AIRFLOW_CONN_")]:
        monkeypatch.delenv(name)
