"""Counts of what the change log holds, made by Spark for the deep check."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from open_mirroring.reconciliation.log_check import LogCount, LogFile, LogState, PieceCount
from spark_jobs.changelog.schema import FRAGMENT


def read_log_state(root: Path, spark: SparkSession, waiting: Collection[str]) -> LogState:
    """Rows by batch, kind, table and epoch, the pieces of the split messages *waiting*, and the files, of one version.

    A file that is gone or damaged counts as empty; comparing table by table then finds what is missing.
    """
    if not DeltaTable.is_deltatable(str(root)):
        return LogState()
    try:
        table = DeltaTable(str(root))
        actions = table.get_add_actions(flatten=True)
    except DeltaError as error:
        return LogState(unreadable=f"the change log cannot be opened: {error}")
    columns = (actions.column(name).to_pylist() for name in ("path", "num_records", "size_bytes"))
    files = {unquote(path): LogFile(rows or 0, size) for path, rows, size in zip(*columns, strict=True)}
    rows = _rows(root, table.version(), spark)
    # No row of ours lacks its batch; one of somebody else's is counted as batch 0, which nobody ever bound.
    batch = f.coalesce(f.col("batch"), f.lit(0)).alias("batch")
    counted = rows.groupBy(batch, "kind", "tbl", "epoch").agg(f.count("*"), f.min("pos"), f.max("pos"))
    counts = [LogCount(*line) for line in counted.collect()]
    return LogState(counts, _pieces(rows, waiting), files)


def _rows(root: Path, version: int, spark: SparkSession) -> DataFrame:
    # A session of its own, because Delta takes these two from the session only.
    session = spark.newSession()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    session.sparkContext.setJobDescription("count the change log")
    return session.read.format("delta").option("versionAsOf", version).load(str(root))


def _pieces(rows: DataFrame, waiting: Collection[str]) -> list[PieceCount]:
    if not waiting:
        return []
    chosen = rows.where((f.col("kind") == FRAGMENT) & f.col("fragment_of").isin(sorted(waiting)))
    return [PieceCount(*line) for line in chosen.groupBy("fragment_of", "batch").agg(f.count("*")).collect()]
