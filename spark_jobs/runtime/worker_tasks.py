"""Runs one function for each of several tasks in Spark's workers, in every kind of Spark session.

Tasks and functions are sent encrypted, so that Spark neither stores nor shows a secret (S-04). Each task is one
partition. A classic session (with its own JVM) runs an RDD, because the first DataFrame of a new JVM
takes two seconds longer. A session of Spark Connect has neither RDDs nor a SparkContext, so a DataFrame is used there.
"""

from __future__ import annotations

import logging
import pickle
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pyarrow as pa
from cryptography.fernet import Fernet
from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.cloudpickle import dumps, loads
from pyspark.core.broadcast import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.operate.words import pace

log = logging.getLogger(__name__)

Task = TypeVar("Task")
Result = TypeVar("Result")

_LARGE = 2**19
"""Half of the size from which Spark sends a function through a file."""
_UNFIT = (
    (r"_VERSION_MISMATCH\].* version:? ([\d.]+) than that in driver:? ([\d.]+)", "Python {} and the driver has {}"),
    (r"ModuleNotFoundError: No module named '([\w.]+)'", "a Python without the module {}"),
    (r'Cannot run program "([^"\n]+)"[^\n]*\berror(?:=|: )2\b', "no program {}, which is to be their Python"),
)
"""Spark's texts for workers that cannot run our tasks.

A program may also fail to start for lack of memory or files (12, 11, 24). That is temporary, and not caused by
packages.
"""
_WORKERS_DISK_FULL = re.compile(r"^(?!.*SQL\w*Exception).*No space left on device", re.MULTILINE)
"""An exception of a database driver with this text concerns the database's own disk."""
_OUTCOME = pa.schema([pa.field("id", pa.int64()), pa.field("outcome", pa.binary())])
_MORE_THAN_CORES = 2**20
_REPORT_SECONDS = 30.0


@dataclass(frozen=True)
class ParcelKey:
    """The encryption key of one job, with which only the job's own workers can read its tasks.

    Spark stores tasks and large functions in files, and shows query plans on its web page, so none of them may contain
    a secret in clear (S-04). The key itself is never in a file.
    """

    _key: bytes = field(default_factory=Fernet.generate_key, repr=False)

    def packed(self, value: Any) -> str:
        """The encrypted value as a string of letters, digits, ``-``, ``_`` and ``=``."""
        return Fernet(self._key).encrypt(dumps(value)).decode()

    def unpacked(self, text: str) -> Any:
        """Decrypt a value that :meth:`packed` encrypted with this key."""
        return pickle.loads(Fernet(self._key).decrypt(text))

    def called(self, function: str, task: str) -> Any:
        """Decrypt a function and a task, and call the function with the task."""
        return self.unpacked(function)(self.unpacked(task))


def sealed_outcomes(
    spark: SparkSession, description: str, function: Callable[[Task], Result], tasks: Sequence[Task]
) -> list[Result]:
    """Run *function* for each task in Spark's workers, sent encrypted; returns the results in the order of tasks.

    Spark's page shows *description* for the job. Raises ``INSTALLATION_INCOMPLETE`` if workers cannot run at all.
    """
    key, run = ParcelKey(), _by_rdd if is_classic(spark) else _by_frame
    try:
        return run(spark, description, key, key.packed(function), [key.packed(task) for task in tasks])
    except (PySparkException, Py4JError) as error:
        ours = workers_error(error)
        if ours is None:
            raise
        raise ours from None


def workers_error(error: Exception) -> MirroringError | None:
    """The error if Spark's workers cannot run at all or have no disk space; None for any other error of Spark."""
    text = str(error)
    for pattern, what in _UNFIT:
        if found := re.search(pattern, text):
            return TerminalError(
                "INSTALLATION_INCOMPLETE",
                f"Spark's workers have {what.format(*found.groups())}",
                next_step="install the driver's minor version of Python with the package open-mirroring[spark] on "
                "every worker; PYSPARK_PYTHON names it there",
            )
    if _WORKERS_DISK_FULL.search(text):
        next_step = "free space, or let SPARK_LOCAL_DIRS name a larger disk; the next run goes on"
        return TransientError("DISK_FULL", "a worker of Spark has no space left for its own files", next_step=next_step)
    return None


def is_classic(spark: SparkSession) -> bool:
    """Whether the session has its own SparkContext and JVM; a session of Spark Connect has neither."""
    return getattr(spark, "sparkContext", None) is not None


def parallelism(spark: SparkSession) -> int:
    """About how many tasks can run at the same time."""
    if is_classic(spark):
        return spark.sparkContext.defaultParallelism
    # Over Spark Connect only the partitions of a range show it.
    return spark.range(_MORE_THAN_CORES).select(F.spark_partition_id()).distinct().count()


def _by_rdd(spark: SparkSession, description: str, key: ParcelKey, function: str, tasks: Sequence[str]) -> list[Any]:
    context = spark.sparkContext
    context.setJobDescription(description)
    sent = _sent_beside(spark, function)
    try:
        with _progress_logged(context, description, len(tasks)):
            return context.parallelize(tasks, len(tasks)).map(lambda task: key.called(_text_of(sent), task)).collect()
    finally:
        if isinstance(sent, Broadcast):
            sent.destroy()


@contextmanager
def _progress_logged(context: SparkContext, description: str, tasks: int) -> Iterator[None]:
    """Log every half minute how many of the tasks are done, and the remaining time at the current pace.

    A catch-up or a backfill may read for an hour in one job, which would otherwise log nothing.
    """
    tracker, begun, ended = context.statusTracker(), time.monotonic(), threading.Event()

    def report() -> None:
        while not ended.wait(_REPORT_SECONDS):
            try:
                found = [tracker.getStageInfo(number) for number in tracker.getActiveStageIds()]
            except Py4JError:
                return  # Spark is gone, which the job reports
            stages = [stage for stage in found if stage is not None]
            if not stages:
                continue  # not begun or already done, which is not the same as no task done
            done = sum(stage.numCompletedTasks for stage in stages)
            log.info("%s: %d of %d tasks done%s", description, done, tasks, pace(done, tasks, time.monotonic() - begun))

    reporting = threading.Thread(target=report, name="progress", daemon=True)
    reporting.start()
    try:
        yield
    finally:
        ended.set()
        reporting.join()


def _by_frame(spark: SparkSession, description: str, key: ParcelKey, function: str, tasks: Sequence[str]) -> list[Any]:
    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for line in batch.to_pylist():
                outcome = dumps(key.called(line["work"], line["task"]))
                yield pa.RecordBatch.from_pylist([{"id": line["id"], "outcome": outcome}], _OUTCOME)

    tag = description.replace(",", ";")
    spark.addTag(tag)
    try:
        lines = _task_frame(spark, function, tasks).mapInArrow(each, "id long, outcome binary").toArrow().to_pylist()
    finally:
        spark.removeTag(tag)
    return [loads(line["outcome"]) for line in sorted(lines, key=lambda line: line["id"])]


def _task_frame(spark: SparkSession, work: str, tasks: Sequence[str]) -> DataFrame:
    """A DataFrame ``id, task, work``: a row for each of the encrypted *tasks*, each in its own partition."""
    # A range with one number per task, mapped to its text: no shuffle, and no worker gets another one's text.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    frame = numbers.select("id", F.split(F.lit(",".join(tasks)), ",")[F.col("id")].alias("task"))
    return frame.withColumn("work", F.lit(work))


def sealed_frame(
    spark: SparkSession, work: Callable[[Task], Iterable[pa.RecordBatch]], tasks: Sequence[Task], schema: str
) -> DataFrame:
    """A lazy DataFrame with the rows that *work* yields for each task; each task is a partition, sent encrypted.

    The encryption key differs in each call. So no two query plans are equal, and Spark cannot answer a later one from a
    cache.
    """
    key = ParcelKey()

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for line in (line for batch in batches for line in batch.to_pylist()):
            yield from key.called(line["work"], line["task"])

    frame = _task_frame(spark, key.packed(work), [key.packed(task) for task in tasks])
    return frame.mapInArrow(each, schema)


def sealed(spark: SparkSession, work: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap *work* in an encrypted function that workers call with rows that Spark itself reads."""
    key = ParcelKey()
    parcel = _sent_beside(spark, key.packed(work))

    def unsealed(*given: Any) -> Result:
        return cast("Callable[..., Result]", key.unpacked(_text_of(parcel)))(*given)

    return unsealed


def _sent_beside(spark: SparkSession, text: str) -> str | Broadcast[str]:
    """A string to be sent to workers: a large string as a broadcast, if the session has a SparkContext."""
    return spark.sparkContext.broadcast(text) if len(text) > _LARGE and is_classic(spark) else text


def _text_of(sent: str | Broadcast[str]) -> str:
    return sent.value if isinstance(sent, Broadcast) else sent
