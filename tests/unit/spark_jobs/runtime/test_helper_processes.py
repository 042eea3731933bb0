"""Helper processes: tasks run next to each other, a dead helper ends the run, and none outlives its process."""

from __future__ import annotations

import operator
import os
import signal
import subprocess
import sys
import time
from functools import partial

import psutil
import pytest

from open_mirroring.errors import TransientError
from spark_jobs.runtime import tasks
from spark_jobs.runtime.helper_processes import Helper, helped
from spark_jobs.runtime.tasks import own_processes

WAITING = """
import operator, time
from functools import partial
from spark_jobs.runtime.helper_processes import helped
helped(operator.call, [partial(time.sleep, 60)] * 2, 2)
"""


def test_two_processes_share_the_tasks_and_results_keep_their_order() -> None:
    slow = [partial(time.sleep, 1.0)] * 6
    found = helped(operator.call, [*slow, os.getpid, partial(int, "1")], 2)
    assert found[:6] == [None] * 6 and found[7] == 1
    with Helper(operator.call) as helper:
        assert helper(os.getpid) not in (os.getpid(), None)


def test_the_error_of_a_task_is_raised_unchanged() -> None:
    with Helper(int) as helper, pytest.raises(ValueError, match="'x'"):
        helper("x")
    assert helped(int, ["1", "2"], 2) == [1, 2]
    with pytest.raises(ValueError, match="'x'"):
        helped(int, ["1", "x", "2"], 2)


def test_a_killed_helper_ends_the_run_as_lack_of_memory() -> None:
    with Helper(operator.call) as helper, pytest.raises(TransientError, match="MEMORY_FULL"):
        helper(partial(signal.raise_signal, signal.SIGKILL))


def test_no_helper_outlives_its_process() -> None:
    with subprocess.Popen([sys.executable, "-c", WAITING]) as process:
        program, deadline = psutil.Process(process.pid), time.monotonic() + 60
        while not (children := program.children()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1)  # it works on its task now
        process.kill()
    gone, left = psutil.wait_procs(children, timeout=30)
    assert len(gone) == 1 and not left


def test_only_much_work_is_shared_and_only_by_several_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "THREADS", 2)
    assert (own_processes(2**20), own_processes(2**30)) == (0, 2)
    monkeypatch.setattr(tasks, "THREADS", 1)
    assert own_processes(2**30) == 0
