"""Finds which keys have a logged change of some kind: workers read the log's files, wherever they are."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from open_mirroring.errors import MirroringError
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import log_rows
from spark_jobs.runtime.job import sealed_frame
from spark_jobs.runtime.worker_tasks import parallelism

_FOUND = pa.schema([pa.field("key", pa.string()), pa.field("error", pa.binary())])
_TASKS_PER_CORE = 3


def logged_among(
    spark: SparkSession, root: Place, files: Sequence[str], chosen: pc.Expression, keys: pa.Table
) -> pa.Array:
    """The *keys* of which log files hold a *chosen* row; the other keys of these rows stay in the workers.

    Raises:
        MirroringError: what the storage of the log says.
    """

    def each(files: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            for file in files:
                for found in log_rows(root, [file]).to_batches(columns=["key"], filter=chosen, use_threads=False):
                    errors = pa.nulls(found.num_rows, pa.binary())
                    yield pa.RecordBatch.from_arrays([found.column(0), errors], schema=_FOUND)
        except MirroringError as error:
            # Raised here, Spark would bury it in a stack of its own.
            yield pa.RecordBatch.from_pylist([{"key": None, "error": pickle.dumps(error)}], _FOUND)

    tasks = min(len(files), _TASKS_PER_CORE * parallelism(spark))
    shares = [files[at::tasks] for at in range(tasks)]
    logged = sealed_frame(spark, each, shares, "key string, error binary").persist(StorageLevel.DISK_ONLY)
    try:
        (line,) = logged.agg(F.max("error").alias("error")).collect()
        if line["error"] is not None:
            raise pickle.loads(bytes(line["error"]))
        wanted = spark.createDataFrame(keys.select(["key"]))
        return wanted.join(logged, "key", "left_semi").toArrow()["key"].combine_chunks()
    finally:
        logged.unpersist()
