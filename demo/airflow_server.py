"""Starts an Airflow for the demo: one command, SQLite, its own folder and ports, reachable from this machine only."""

from __future__ import annotations

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from demo.airflow_api import AirflowApi
from demo.failures import DemoFailed
from demo.place import ROOT, DemoFolder, clean_environment
from demo.processes import Service, free_ports

USER = "admin"
_COMPONENTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_START_LIMIT = 900.0
_QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For jobs of seconds on few cores: no second compiler, no parallel collector. Half the time of a short job."""


class AirflowServer:
    """``airflow standalone`` for the mirrors of a place.

    Args:
        place: where it lives.
        follows_schedules: whether runs start by the clock too. Without, only those that are triggered.
        connections: name to connection in Airflow's JSON form, besides Spark's.
        database: the address of Airflow's own database; by default a SQLite file in the place.

    Raises:
        DemoFailed: when it cannot be started.
    """

    def __init__(
        self,
        place: DemoFolder,
        *,
        follows_schedules: bool,
        connections: Mapping[str, str] = MappingProxyType({}),
        database: str | None = None,
    ) -> None:
        self._place = place
        self.password = secrets.token_urlsafe(12)
        port, *log_ports = free_ports(3)
        self.address = f"http://127.0.0.1:{port}"
        passwords = place.airflow_home / "passwords.json"
        with open(os.open(passwords, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump({USER: self.password}, file)
        self.environment = airflow_environment(
            place, port=port, log_ports=log_ports, passwords=passwords, follows_schedules=follows_schedules
        ) | {f"AIRFLOW_CONN_{name.upper()}": content for name, content in connections.items()}
        if database is not None:
            self.environment["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = database
        programs = Path(sys.executable).parent
        self.service = Service(
            "Airflow",
            [str(programs / "airflow"), "standalone"],
            self.environment,
            place.airflow_home,
            place.logs / "airflow.log",
        )

    def wait_until_ready(self, progress: Callable[[str], None]) -> AirflowApi:
        """Wait for all four components; then log in.

        Raises:
            DemoFailed: when it ended, or takes longer than it ever should.
        """
        api = AirflowApi(self.address, USER, self.password)
        give_up = time.monotonic() + _START_LIMIT
        missing = list(_COMPONENTS)
        while missing:
            self.service.check()
            if time.monotonic() > give_up:
                raise DemoFailed(
                    f"Airflow is not ready after {_START_LIMIT:.0f} s; missing: {', '.join(missing)}", self.service.log
                )
            time.sleep(1)
            health = api.health()
            now = [name for name in _COMPONENTS if (health.get(name) or {}).get("status") != "healthy"]
            if now != missing:
                progress(f"waiting for {', '.join(now)}" if now else "all components healthy")
            missing = now
        return api

    def task_log(self, dag_id: str, run_id: str, task: str) -> Path | None:
        """The log of the last attempt of a task, where there is one."""
        folder = self._place.airflow_home / "logs" / f"dag_id={dag_id}" / f"run_id={run_id}" / f"task_id={task}"
        return max(folder.glob("attempt=*.log"), default=None, key=lambda log: log.stat().st_mtime)


def airflow_environment(
    place: DemoFolder, *, port: int, log_ports: list[int], passwords: Path, follows_schedules: bool
) -> dict[str, str]:
    """The environment variables of Airflow and of all programs that it starts."""
    address = f"http://127.0.0.1:{port}"
    spark = {"conn_type": "spark", "host": "local[2]"}
    settings = {
        "AIRFLOW_HOME": str(place.airflow_home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        # It forks this many workers at once, each of 100 MB.
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        # Workers call the API server; without these two they look for it at port 8080.
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{address}/execution/",
        "AIRFLOW__API__BASE_URL": address,
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{place.airflow_home / 'airflow.db'}",
        "AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT": str(log_ports[0]),
        "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT": str(log_ports[1]),
        # A machine that is busy with other things is slow, not broken.
        "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "120",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "180",
        # The API server's first answer to a task takes seconds; with the default of 5 s the task would be killed.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "120",
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": str(follows_schedules),
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        "OPEN_MIRRORING_MIRRORS": str(place.mirrors),
        "SPARK_SUBMIT_OPTS": _QUICK_START,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    return clean_environment(**settings, PATH=programs)
