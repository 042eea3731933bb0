"""Times jobs of six small tasks in new sessions: as an RDD, and as the DataFrame that Spark Connect needs.

Each session has a process of its own, in turns. The first job counts most, for every run that finds something pays it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measure import versions

_CHECKOUT = Path(__file__).resolve().parents[1]
_KINDS = ("RDD", "DataFrame")
_TASKS, _JOBS = 6, 6


def size_of(ballast: bytes, task: bytes) -> int:
    """A task's work: as good as nothing."""
    return len(ballast) + len(task)


def session(kind: str) -> None:
    """Print the seconds of the first job of a new session, and of the median of the next ones."""
    from spark_jobs.runtime import worker_tasks
    from spark_jobs.runtime.session import build_session
    from spark_jobs.runtime.tasks import run_job

    if kind == "DataFrame":
        worker_tasks.is_classic = lambda spark: False
    spark, took = build_session("bench", cores=2), []
    for _ in range(_JOBS):
        begun = time.perf_counter()
        sizes = run_job(
            spark, "bench", partial(size_of, os.urandom(20_000)), [os.urandom(5_000)] * _TASKS, _TASKS * 5_000
        )
        took.append(time.perf_counter() - begun)
        assert sizes == [25_000] * _TASKS
    print(took[0], statistics.median(took[1:]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--session", choices=_KINDS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.session:
        session(arguments.session)
        return
    found: dict[str, list[list[float]]] = {kind: [] for kind in _KINDS}
    environment = {**os.environ, "PYTHONPATH": str(_CHECKOUT)}
    for turn in range(arguments.rounds):
        for kind in _KINDS[:: 1 if turn % 2 else -1]:
            command = [sys.executable, __file__, "--session", kind]
            said = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
            found[kind].append([float(seconds) for seconds in said.stdout.split()])
            print(f"round {turn + 1}: {kind}: {said.stdout.strip()}", flush=True)
    for at, which in enumerate(("first job", "next job")):
        for kind, rounds in found.items():
            seconds = [one[at] for one in rounds]
            print(f"{which}, {kind}: {statistics.median(seconds):.2f} s ({min(seconds):.2f}–{max(seconds):.2f})")
    print(versions())


if __name__ == "__main__":
    main()
