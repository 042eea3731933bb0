"""Tasks that the job's own process runs: in threads where they ask for it, with results and errors as of one thread."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any, cast

import pytest

from open_mirroring.errors import TerminalError
from spark_jobs.runtime.tasks import SessionOnDemand, run_job, tasks_wanted


@pytest.fixture
def spark() -> Any:
    """Made in a fixture: pytest asks each name of a module for attributes, and any attribute starts this session."""
    return cast("Any", SessionOnDemand("test", 100))


def test_tasks_run_side_by_side_and_their_results_keep_their_order(spark: Any) -> None:
    both = threading.Barrier(2, timeout=30)

    def work(number: int) -> int:
        both.wait()  # a single thread would never come past it
        return 2 * number

    assert run_job(spark, "double", work, [1, 2, 3, 4], 100, own_threads=2) == [2, 4, 6, 8]


def test_the_first_error_of_several_threads_is_raised_unchanged(spark: Any) -> None:
    def work(number: int) -> int:
        if number:
            raise TerminalError("VALUE_INVALID", f"task {number}", next_step="fix it")
        return number

    with pytest.raises(TerminalError, match="task 1"):
        run_job(spark, "fail", work, [0, 1, 2], 100, own_threads=2)


def test_work_without_spark_is_one_task_unless_threads_share_it(spark: Any) -> None:
    assert (tasks_wanted(spark, 100), tasks_wanted(spark, 100, own_threads=2)) == (1, 6)


def test_a_program_with_duckdb_ends_quietly() -> None:
    """DuckDB complains at the exit about what the collector did not look through."""
    text = "from spark_jobs.runtime.collector import *; spare_the_collector(); import duckdb; spare_the_imports()"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
