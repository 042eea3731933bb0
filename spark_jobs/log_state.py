"""What the change log holds, counted by Spark: the log's side of the deep check."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from open_mirroring.log_check import LogCount, LogFile, LogState


def read_log_state(root: Path, spark: SparkSession) -> LogState:
    """Rows by batch, kind, table and epoch, and the files, of one version of the log.

    A file that is gone or damaged holds no rows: what is missing then is found by comparing, table by table.
    """
    if not DeltaTable.is_deltatable(str(root)):
        return LogState(files={})
    try:
        table = DeltaTable(str(root))
        actions = table.get_add_actions(flatten=True)
    except DeltaError as error:
        return LogState(unreadable=f"the change log cannot be opened: {error}")
    columns = (actions.column(name).to_pylist() for name in ("path", "num_records", "size_bytes"))
    files = {unquote(path): LogFile(rows or 0, size) for path, rows, size in zip(*columns, strict=True)}
    return LogState(_counts(root, table.version(), spark), files)


def _counts(root: Path, version: int, spark: SparkSession) -> list[LogCount]:
    # A session of its own, because Delta takes these two from the session only.
    session = spark.newSession()
    session.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    session.conf.set("spark.sql.files.ignoreCorruptFiles", "true")
    session.sparkContext.setJobDescription("count the change log")
    rows = session.read.format("delta").option("versionAsOf", version).load(str(root))
    counted = rows.groupBy("batch", "kind", "tbl", "epoch").agg(f.count("*"), f.min("pos"), f.max("pos"))
    return [LogCount(*line) for line in counted.collect()]
