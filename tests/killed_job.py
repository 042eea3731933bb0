"""Jobs that die at a fault point, each in a process of its own.

A process that has imported all jobs, and done nothing, forks each of them: importing takes longer than what such a job
does before it dies. Only that process is forked, because one in which Delta has worked cannot be.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_JOBS = ("corrections", "extract_changes", "initial_load", "prove", "publish_changes", "reload_table")
_FORKING = get_context("forkserver")
_FORKING.set_forkserver_preload([f"spark_jobs.{name}" for name in _JOBS])


def exit_of_job(job: str, arguments: Sequence[str], environment: Mapping[str, str], output: Path) -> int:
    """Run a job to its end, its output in a file; the exit code, or the signal that killed it as a negative number."""
    process = _FORKING.Process(target=_run, args=(job, [*arguments], dict(environment), output))
    process.start()
    process.join(300)
    assert process.exitcode is not None, f"{job} takes more than 300 s"
    return process.exitcode


def _run(job: str, arguments: list[str], environment: dict[str, str], output: Path) -> None:
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(ROOT)
    sys.exit(import_module(f"spark_jobs.{job}").main(arguments))
