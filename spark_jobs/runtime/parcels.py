"""Encrypts tasks and functions for Spark's workers, so that Spark neither stores nor shows a secret (S-04)."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import pyarrow as pa
from cryptography.fernet import Fernet
from pyspark.cloudpickle import dumps
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_jobs.runtime.worker_tasks import outcomes, sent_beside, task_frame, text_of

Task = TypeVar("Task")
Result = TypeVar("Result")


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
    """Run *function* for each task in Spark's workers, sent encrypted; returns the results in the order of tasks."""
    key = ParcelKey()
    return outcomes(spark, description, key.called, key.packed(function), [key.packed(task) for task in tasks])


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

    frame = task_frame(spark, [key.packed(task) for task in tasks]).withColumn("work", F.lit(key.packed(work)))
    return frame.mapInArrow(each, schema)


def sealed(spark: SparkSession, work: Callable[..., Result]) -> Callable[..., Result]:
    """Wrap *work* in an encrypted function that workers call with rows that Spark itself reads."""
    key = ParcelKey()
    parcel = sent_beside(spark, key.packed(work))

    def unsealed(*given: Any) -> Result:
        return cast("Callable[..., Result]", key.unpacked(text_of(parcel)))(*given)

    return unsealed
