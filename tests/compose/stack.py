"""The development stack from outside: ``python -m tests.compose.stack up|prove COMPOSE…``.

``up`` builds and starts it, waits until every service is healthy, and says where to look. ``prove`` does so from
nothing under a name of its own, runs the mirror's DAG through Airflow's REST API while the shop trades, compares source
and mirrored tables cell by cell, and removes everything again. Needs Python alone and a Docker engine; where official
images cannot be pulled, ``prove`` makes stand-ins first.

Exit codes: 0 done; 1 not so, the last lines say why.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from demo.airflow_api import AirflowApi
from demo.failures import DemoFailed

ROOT = Path(__file__).resolve().parents[2]
DAG = "shop__replicate"
PROJECT = "open-mirroring-proof"
_STAND_INS = {
    "BASE_IMAGE": "open-mirroring-stand-in/airflow:local",
    "POSTGRES_IMAGE": "open-mirroring-stand-in/postgres:local",
    "KAFKA_IMAGE": "open-mirroring-stand-in/kafka:local",
    "AZURITE_IMAGE": "open-mirroring-stand-in/azurite:local",
}
_HEALTHY_LIMIT, _RUN_LIMIT, _APPLIED_LIMIT = 300.0, 600.0, 180.0
_STARTED = time.monotonic()


class Stack:
    """A stack under one project name.

    Args:
        compose: the command of Compose, v1 or v2.
        environment: variables for it, besides those of this process.
    """

    def __init__(self, compose: Sequence[str], environment: dict[str, str]) -> None:
        self._compose = list(compose)
        self._environment = {**os.environ, **environment}

    def run(self, *arguments: str, quiet: bool = True) -> str:
        """One command of Compose; what it prints.

        Raises:
            DemoFailed: it failed.
        """
        done = subprocess.run(
            [*self._compose, *arguments],
            cwd=ROOT,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
        )
        if done.returncode:
            said = "\n".join(f"{done.stdout}\n{done.stderr or ''}".strip().splitlines()[-20:])
            raise DemoFailed(f"{' '.join(arguments[:3])} ended with {done.returncode}: {said}")
        return done.stdout

    def start(self) -> None:
        """Build, start, and wait until all is healthy.

        Raises:
            DemoFailed: something does not get healthy.
        """
        say("building the image")
        # An image that is not there is built when the services start; one that stands in for it is there.
        self.run("build", "airflow-init")
        say("starting")
        try:
            self.run("up", "--detach", "--remove-orphans")
        except DemoFailed as failure:
            raise DemoFailed(f"{failure.what}\n{self.run('logs', '--tail', '15', 'airflow-init')}") from failure
        give_up = time.monotonic() + _HEALTHY_LIMIT
        while unready := self._unready():
            if time.monotonic() > give_up:
                raise DemoFailed(f"not healthy after {_HEALTHY_LIMIT:.0f} s: {unready}\n{self._last_words(unready)}")
            time.sleep(2)
        say("every service is healthy")

    def hand_over(self, source: str, path: str, target: str, name: str) -> None:
        """Copy a file from one service's container to another's; they share no disk.

        Raises:
            DemoFailed: it cannot be copied.
        """
        containers = [self.run("ps", "--quiet", "--all", service).split()[0] for service in (source, target)]
        root = "/opt/open-mirroring"
        with tempfile.TemporaryDirectory() as folder:
            for one, other in (
                (f"{containers[0]}:{root}/{path}", f"{folder}/file"),
                (f"{folder}/file", f"{containers[1]}:{root}/{name}"),
            ):
                done = subprocess.run(["docker", "cp", one, other], capture_output=True, text=True)
                if done.returncode:
                    raise DemoFailed(f"{one} was not copied: {done.stderr.strip()}")

    def _unready(self) -> dict[str, str]:
        containers = self.run("ps", "--quiet").split()
        form = '{{index .Config.Labels "com.docker.compose.service"}} {{.State.Status}} {{.State.ExitCode}} '
        form += "{{if .State.Health}}{{.State.Health.Status}}{{end}}"
        story = subprocess.run(["docker", "inspect", "--format", form, *containers], capture_output=True, text=True)
        found = {}
        for line in story.stdout.splitlines():
            service, state, code, *health = line.split()
            ended_well = service == "airflow-init" and (state, code) == ("exited", "0")
            if not ended_well and (state, health) != ("running", ["healthy"]):
                found[service] = " ".join((state, *health))
        return found

    def _last_words(self, services: dict[str, str]) -> str:
        return "\n".join(self.run("logs", "--tail", "15", service) for service in services)


def say(text: str) -> None:
    """Print a line with the time since the beginning."""
    print(f"[{time.monotonic() - _STARTED:6.1f} s] {text}", flush=True)


def secrets() -> dict[str, str]:
    """What ``make .env`` made."""
    lines = (ROOT / ".env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def airflow() -> AirflowApi:
    """The stack's Airflow."""
    port = os.environ.get("AIRFLOW_PORT", "8080")
    return AirflowApi(f"http://127.0.0.1:{port}", "admin", secrets()["AIRFLOW_ADMIN_PASSWORD"])


def follow(api: AirflowApi, what: str) -> None:
    """Trigger the mirror's DAG and wait for the run to end well.

    Raises:
        DemoFailed: it does not.
    """
    run_id = api.trigger(DAG)
    give_up, began = time.monotonic() + _RUN_LIMIT, time.monotonic()
    while (state := api.run_state(DAG, run_id)) not in ("success", "failed"):
        if time.monotonic() > give_up:
            raise DemoFailed(f"{what} has not ended after {_RUN_LIMIT:.0f} s")
        time.sleep(2)
    tasks = {name: task["state"] for name, task in api.tasks(DAG, run_id).items()}
    say(f"{what}: {state} after {time.monotonic() - began:.0f} s, {tasks}")
    if state == "failed":
        raise DemoFailed(f"{what} failed")


def wait_for_dag(api: AirflowApi) -> None:
    """Wait until Airflow has found the mirror's DAG.

    Raises:
        DemoFailed: it cannot import it, or does not find it.
    """
    give_up = time.monotonic() + _HEALTHY_LIMIT
    while DAG not in api.dag_ids():
        if errors := api.import_errors():
            raise DemoFailed(f"Airflow cannot import a DAG file: {errors[0]}")
        if time.monotonic() > give_up:
            raise DemoFailed(f"Airflow does not find {DAG}")
        time.sleep(2)


def judge(stack: Stack) -> None:
    """Compare source and mirrored tables until they are equal.

    Raises:
        DemoFailed: they are not, long after the last file should have been applied.
    """
    stack.hand_over("workload-generator", "build/shop/source.db", "emulator", "build/source.db")
    paths = ("--state", "build/source.db", "--tables", "build/emulator/tables")
    give_up = time.monotonic() + _APPLIED_LIMIT
    while True:
        try:
            verdict = stack.run("exec", "-T", "emulator", "python", "demo/judge.py", *paths)
        except DemoFailed as failure:
            if time.monotonic() > give_up:
                raise DemoFailed(f"the tables are not equal: {failure.what}") from failure
            time.sleep(5)
            continue
        print(verdict, flush=True)
        return


def prove(compose: Sequence[str]) -> None:
    """From nothing to equal tables, and back to nothing.

    Raises:
        DemoFailed: something is not as it should be.
    """
    images = {} if can_pull() else stand_ins()
    environment = {"COMPOSE_PROJECT_NAME": PROJECT, "SHOP_PAUSE_SECONDS": "20", **images}
    stack = Stack(compose, environment)
    stack.run("down", "--volumes", "--remove-orphans")
    try:
        stack.start()
        api = airflow()
        wait_for_dag(api)
        api.unpause(DAG)
        follow(api, "the first run")
        follow(api, "the second run")
        stack.run("stop", "workload-generator")
        withheld = ("workload-generator", "-m", "workload_generator", "run", "--state", "build/shop/source.db")
        alone = ("run", "--rm", "--no-deps", "-T", "--entrypoint", "python")
        stack.run(*alone, *withheld, "--kafka", "kafka:9092", "--transactions", "0")
        follow(api, "the last run, after the last delivery")
        judge(stack)
        say("proved: every table is equal")
    finally:
        say("removing the stack with its data")
        stack.run("down", "--volumes", "--remove-orphans")


def can_pull() -> bool:
    """Whether official images can be pulled here; one small question."""
    asked = subprocess.run(["docker", "pull", "hello-world"], capture_output=True, text=True)
    return asked.returncode == 0


def stand_ins() -> dict[str, str]:
    """Images that stand in for those that cannot be pulled, as variables for Compose.

    Raises:
        DemoFailed: they cannot be made.
    """
    missing = [
        image
        for image in _STAND_INS.values()
        if subprocess.run(["docker", "image", "inspect", image], capture_output=True).returncode
    ]
    if missing:
        say("no image can be pulled: making stand-ins (two minutes)")
        made = subprocess.run([ROOT / "tests" / "compose" / "stand_ins" / "make"], cwd=ROOT)
        if made.returncode:
            raise DemoFailed("the stand-ins could not be made")
    return dict(_STAND_INS)


def up(compose: Sequence[str]) -> None:
    """Start the stack for somebody to look at.

    Raises:
        DemoFailed: something does not get healthy.
    """
    Stack(compose, {}).start()
    wait_for_dag(airflow())
    print(
        f"\n  Airflow: http://127.0.0.1:{os.environ.get('AIRFLOW_PORT', '8080')}  user admin, password: "
        "AIRFLOW_ADMIN_PASSWORD in .env\n"
        f"  Spark:   http://127.0.0.1:{os.environ.get('SPARK_PORT', '8081')}\n"
        f"  Unpause {DAG} and look at its runs. make down stops everything.\n",
        flush=True,
    )


def main(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""
    command, *compose = arguments
    try:
        {"up": up, "prove": prove}[command](compose)
    except DemoFailed as failure:
        print(f"\nThe stack failed: {failure.what}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
