"""Finds the keys that differ between two sides, and which of them the log has a change of; Spark joins them.

It joins hashes of rows, never the rows; and workers read the log's files, wherever they are.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from open_mirroring.errors import MirroringError
from open_mirroring.protocols.proving import CellSum, Kind, add_sums
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import log_rows
from spark_jobs.proof.rows import SUMS_SCHEMA, Shape, SumCells
from spark_jobs.proof.sides import Side
from spark_jobs.runtime.parcels import sealed_frame
from spark_jobs.runtime.worker_tasks import parallelism

_FOUND = pa.schema([pa.field("key", pa.string()), pa.field("error", pa.binary())])
_TASKS_PER_CORE = 3


def read_sums(side: Side, shape: Shape) -> dict[int, CellSum]:
    """The cells of a side, from the sums of its partitions.

    Raises:
        MirroringError: what a worker met.
    """
    parts = []
    # Read once and not kept: a line for each partition is all there is.
    for line in side.asked(side.frame(shape, SumCells(shape), SUMS_SCHEMA).collect):
        if line["error"] is not None:
            raise pickle.loads(bytes(line["error"]))
        parts.append(pickle.loads(bytes(line["sums"])))
    return add_sums(parts)


def differing_keys(source: DataFrame, target: DataFrame, *, keyed: bool) -> DataFrame:
    """``k1, k2, key, kind, times, columns``: every key that is not the same on both sides.

    *columns* are places of columns that differ, where both sides have the key once. *times* is 1, or, where the whole
    row is the key, how many rows one side has more.
    """
    ours, theirs = _by_key(source, "s"), _by_key(target, "t")
    both = ours.join(theirs, ["k1", "k2"], "full_outer")
    n_source, n_target = F.coalesce("s_n", F.lit(0)), F.coalesce("t_n", F.lit(0))
    differ = (n_source != n_target) if not keyed else ~F.col("s_rows").eqNullSafe(F.col("t_rows"))
    if keyed:
        doubled = (n_source > 1) | (n_target > 1)
        kind = (
            F.when(n_target == 0, Kind.MISSING.value)
            .when(n_source == 0, Kind.EXTRA.value)
            .when(doubled, Kind.DOUBLED.value)
            .otherwise(Kind.DIFFERENT.value)
        )
        times = F.lit(1)
    else:
        kind = F.when(n_source > n_target, Kind.MISSING.value).otherwise(Kind.EXTRA.value)
        times = F.abs(n_source - n_target)
    places = F.expr(
        "filter(transform(zip_with(s_hashes, t_hashes, (a, b) -> a <> b), (d, i) -> if(d, i, -1)), i -> i >= 0)"
    )
    columns = F.when(kind == Kind.DIFFERENT.value, places).otherwise(F.expr("cast(array() as array<int>)"))
    return both.where(differ).select(
        "k1",
        "k2",
        F.coalesce("s_key", "t_key").alias("key"),
        kind.alias("kind"),
        times.cast("bigint").alias("times"),
        columns.alias("columns"),
    )


def _by_key(rows: DataFrame, side: str) -> DataFrame:
    grouped = rows.where("error IS NULL").groupBy("k1", "k2")
    return grouped.agg(
        F.count("*").alias(f"{side}_n"),
        F.min("key").alias(f"{side}_key"),
        F.sort_array(F.collect_list(F.struct("r1", "r2"))).alias(f"{side}_rows"),
        F.first("hashes").alias(f"{side}_hashes"),
    )


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
