"""Runs the tasks of a job: in the job's own process if they are small, else in Spark's workers.

Starting Spark takes seconds, and most runs have little to do. The job's own process and Spark's workers call the same
function with the same tasks.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from open_mirroring.errors import MirroringError, disk_error, memory_error
from open_mirroring.without_pandas import without_pandas

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from open_mirroring.config import Mirror

log = logging.getLogger(__name__)
THREADS = min(4, os.cpu_count() or 1)
"""The number of threads for tasks that mostly run outside of Python; more would need more memory."""
_TASKS_PER_CORE = 3
_WORTH_PROCESSES = 32 * 2**20
"""A second process takes a third of a second to start; decoding so many bytes takes two of these."""
_HELPED = 4
"""How many times `spark.start_above` each of several processes does without Spark.

Spark on the same machine has the same cores and is not quicker: it read 1 million change events in 11 s, two processes
read them in 6 s.
"""
Task = TypeVar("Task")
Result = TypeVar("Result")


class SessionOnDemand:
    """Stands in for a Spark session and starts it on first use; work of up to *most_without* bytes does not use it."""

    def __init__(self, name: str, most_without: int) -> None:
        self._name = name
        self.most_without = most_without

    def __getattr__(self, attribute: str) -> Any:
        from pyspark.sql import SparkSession

        from spark_jobs.runtime.session import build_session

        if SparkSession.getActiveSession() is None:
            log.info("starting Spark")
        return getattr(build_session(self._name), attribute)


def session_on_demand(mirror: Mirror, job: str) -> SparkSession:
    """A session that starts for the first work that is too large to be done without Spark.

    The limit is ``spark.start_above`` (bytes) in the mirror file; for work that several processes share, a multiple of
    it.
    """
    return cast("SparkSession", SessionOnDemand(f"{mirror.name} {job}", mirror.spark.most_without_spark))


def needs_spark(spark: SparkSession, size: int, own_processes: int = 0) -> bool:
    """Whether work of about *size* bytes is done by Spark's workers, not by this process or *own_processes*."""
    return not isinstance(spark, SessionOnDemand) or size > spark.most_without * max(1, _HELPED * own_processes)


def tasks_wanted(
    spark: SparkSession, size: int, own_threads: int = 0, own_processes: int = 0, per_core: int = _TASKS_PER_CORE
) -> int:
    """The number of tasks for work of *size* bytes: *per_core* for each core of Spark.

    If the work is done without Spark, the number is one, or *per_core* for each of *own_threads* or *own_processes*.
    """
    if not needs_spark(spark, size, own_processes):
        return per_core * (own_threads or own_processes) or 1
    from spark_jobs.runtime.worker_tasks import parallelism

    return per_core * parallelism(spark)


def dealt_out(spark: SparkSession, items: Sequence[Task], size: int) -> list[Sequence[Task]]:
    """Divide *items* into tasks, for work of *size* bytes."""
    tasks = min(len(items), tasks_wanted(spark, size))
    return [items[at::tasks] for at in range(tasks)]


def own_processes(size: int) -> int:
    """The number of processes that share work of *size* bytes without Spark; 0 if it is too little for a second one."""
    return THREADS if size > _WORTH_PROCESSES and THREADS > 1 else 0


def run_job(
    spark: SparkSession,
    description: str,
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    size: int,
    own_threads: int = 1,
    own_processes: int = 0,
) -> list[Result]:
    """Run *function* for each task; returns the results in order.

    *tasks* are plain values, *size* is about how many bytes all tasks read together. Results must be small: tasks write
    rows to files and return only file names and counts. Without Spark, *own_threads* threads of this process run the
    tasks, or *own_processes* processes. Raises the MirroringError of a task unchanged; if several tasks fail, that of
    the first task. A lack of memory or disk space in a task is raised as a MirroringError, too.
    """
    if not tasks:
        return []
    work = partial(_outcome, function)
    if needs_spark(spark, size, own_processes):
        from spark_jobs.runtime.worker_tasks import sealed_outcomes

        found = sealed_outcomes(spark, description, work, tasks)
    elif min(own_processes, len(tasks)) > 1:
        from spark_jobs.runtime.helper_processes import helped

        found = helped(work, tasks, own_processes)
    elif min(own_threads, len(tasks)) > 1:
        with ThreadPoolExecutor(own_threads) as pool:
            found = list(pool.map(work, tasks))
    else:
        found = [work(task) for task in tasks]
    for outcome in found:
        if isinstance(outcome, MirroringError):
            raise outcome
    return found


def is_of_spark(error: Exception) -> bool:
    """Whether Spark, or the connection to its JVM, raised *error*."""
    if "pyspark" not in sys.modules:
        return False
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException | Py4JError)


def _outcome(function: Callable[[Any], Any], task: Any) -> Any:
    """Return a task's error as a value: Spark would retry the task, and wrap the error in a stack trace."""
    with without_pandas():
        import pyarrow as pa

        pa.array([None])  # its first array of Python values asks whether they are a series of pandas
    try:
        return function(task)
    except MirroringError as error:
        return error
    except MemoryError:
        return memory_error()
    except OSError as error:
        ours = disk_error(error)
        if ours is None:
            raise
        return ours
