"""Runs one function over texts in Spark's workers, one partition each: what every session can do, and how wide it is.

A session with a context of its own runs an RDD: the first DataFrame of a new JVM costs some two seconds more, and every
run would pay them. Over Spark Connect (Databricks, Fabric's sessions over Connect) there is neither RDD nor context.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.cloudpickle import dumps, loads
from pyspark.core.broadcast import Broadcast
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

Work = Callable[[str, str], Any]
"""From the text that all tasks share and the task's own text to its outcome."""

_LARGE = 2**19
"""Half of the size from which Spark hands a function over through a file."""
_OUTCOME = pa.schema([pa.field("id", pa.int64()), pa.field("outcome", pa.binary())])
_MORE_THAN_CORES = 2**20


def outcomes(spark: SparkSession, description: str, work: Work, shared: str, tasks: Sequence[str]) -> list[Any]:
    """What *work* makes of each of the *tasks*, in their order.

    Args:
        spark: the session.
        description: what is shown of the job; over Spark Connect it is the tag of its operation.
        work: a small function: it alone travels in memory.
        shared: what all tasks need; of any size.
        tasks: texts without a comma.
    """
    if is_classic(spark):
        return _of_rdd(spark, description, work, shared, tasks)
    return _of_frame(spark, description, work, shared, tasks)


def is_classic(spark: SparkSession) -> bool:
    """Whether the session has a context and a JVM of its own; over Spark Connect it has none."""
    return getattr(spark, "sparkContext", None) is not None


def parallelism(spark: SparkSession) -> int:
    """How many tasks run side by side, about."""
    if is_classic(spark):
        return spark.sparkContext.defaultParallelism
    # Nothing tells it over Spark Connect but how Spark itself cuts a range.
    return spark.range(_MORE_THAN_CORES).select(F.spark_partition_id()).distinct().count()


def _of_rdd(spark: SparkSession, description: str, work: Work, shared: str, tasks: Sequence[str]) -> list[Any]:
    context = spark.sparkContext
    context.setJobDescription(description)
    sent = context.broadcast(shared) if len(shared) > _LARGE else None
    try:
        return context.parallelize(tasks, len(tasks)).map(partial(_worked, work, sent or shared)).collect()
    finally:
        if sent is not None:
            sent.destroy()


def _worked(work: Work, shared: str | Broadcast[str], task: str) -> Any:
    return work(shared if isinstance(shared, str) else shared.value, task)


def _of_frame(spark: SparkSession, description: str, work: Work, shared: str, tasks: Sequence[str]) -> list[Any]:
    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for line in batch.to_pylist():
                outcome = dumps(work(line["shared"], line["task"]))
                yield pa.RecordBatch.from_pylist([{"id": line["id"], "outcome": outcome}], _OUTCOME)

    # One range of one number for each task, and its text beside it: no shuffle, and no worker gets another one's text.
    numbers = spark.range(0, len(tasks), 1, len(tasks))
    task = F.split(F.lit(",".join(tasks)), ",")[F.col("id")]
    frame = numbers.select("id", task.alias("task"), F.lit(shared).alias("shared"))
    tag = description.replace(",", ";")
    spark.addTag(tag)
    try:
        lines = frame.mapInArrow(each, "id long, outcome binary").toArrow().to_pylist()
    finally:
        spark.removeTag(tag)
    return [loads(line["outcome"]) for line in sorted(lines, key=lambda line: line["id"])]
