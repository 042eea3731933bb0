"""Finds the keys that differ between source and target.

Spark, or DuckDB if both sides are small, joins hashes of rows and never the rows themselves.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from open_mirroring.protocols.proving import CellSum, Kind, add_sums
from spark_jobs.proof.part import OfRanges
from spark_jobs.proof.rows import KEYS, KEYS_SCHEMA, SUMS, SUMS_SCHEMA, HashKeys, Part, Shape, SumCells
from spark_jobs.proof.sides import Side, kept, lines_here
from spark_jobs.runtime.tasks import needs_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STAYS = ["k1", "k2"]
_FOUND = pa.schema(
    [
        *map(KEYS.field, ("k1", "k2", "key")),
        pa.field("kind", pa.string()),
        pa.field("times", pa.int64()),
        pa.field("columns", pa.list_(pa.int32())),
    ]
)


def read_sums(spark: SparkSession, side: Side, shape: Shape, part: Part | None = None) -> dict[int, CellSum]:
    """The sums of row hashes by cell (the rows with similar key hashes in one range), for one side or its *part*.

    Raises the errors of workers.
    """
    work = SumCells(shape, part)
    if not needs_spark(spark, side.size):
        return add_sums(map(pickle.loads, lines_here(side, work, SUMS, part)["sums"].to_pylist()))
    parts = []
    # Read once and not kept: a line for each partition is all there is.
    for line in side.asked(side.frame(work, SUMS_SCHEMA, part).collect):
        if line["error"] is not None:
            raise pickle.loads(bytes(line["error"]))
        parts.append(pickle.loads(bytes(line["sums"])))
    return add_sums(parts)


def differing_keys(
    spark: SparkSession, sides: Sequence[Side], work: HashKeys, before: pa.Table | None, most: int
) -> pa.Table:
    """The first *most* keys of *work* that differ between the sides: ``k1, k2, key, kind, times, columns``.

    *k1* and *k2* are the two halves of the key's hash. *columns* are the indexes of the columns that differ. *times* is
    1; in a table without a key, how many more equal rows one side has. If *before*, the result of an earlier call, is
    given, only the keys in *before* are compared.
    """
    shape, part = work.shape, work.part
    keyed = bool(shape.keys)
    if part is None and work.cells is not None and shape.split is not None:
        part = OfRanges(shape, frozenset(cell // shape.buckets for cell in work.cells))
    if not needs_spark(spark, sum(side.size for side in sides)):
        lines = [lines_here(side, work, KEYS, part) for side in sides]
        if _are_alike(*lines):
            return _FOUND.empty_table()
        return _joined_here(lines, before, most, keyed=keyed).cast(_FOUND)
    from pyspark.sql import functions as F

    frames = [kept(side, side.frame(work, KEYS_SCHEMA, part)) for side in sides]
    found = _joined(*frames, keyed=keyed)
    if before is not None:
        found = found.join(F.broadcast(spark.createDataFrame(before.select(_STAYS))), _STAYS, "left_semi")
    keys = found.orderBy(_STAYS).limit(most).toArrow().cast(_FOUND)
    for frame in frames:
        frame.unpersist()
    return keys


_BY_KEY = """SELECT k1, k2, count(*) AS n, min(key) AS key, list_sort(list({'r1': r1, 'r2': r2})) AS rows,
               any_value(hashes) AS hashes
             FROM SIDE GROUP BY k1, k2"""
_OF_BOTH = f"""SELECT coalesce(s.k1, t.k1) AS k1, coalesce(s.k2, t.k2) AS k2, coalesce(s.key, t.key) AS key,
                 coalesce(s.n, 0) AS ours, coalesce(t.n, 0) AS theirs, s.rows IS DISTINCT FROM t.rows AS differ,
                 s.hashes AS a, t.hashes AS b
               FROM ({_BY_KEY.replace("SIDE", "source")}) s
               FULL OUTER JOIN ({_BY_KEY.replace("SIDE", "target")}) t ON s.k1 = t.k1 AND s.k2 = t.k2"""
_KEYED = f"""CASE WHEN theirs = 0 THEN '{Kind.MISSING}' WHEN ours = 0 THEN '{Kind.EXTRA}'
                  WHEN ours > 1 OR theirs > 1 THEN '{Kind.DOUBLED}' ELSE '{Kind.DIFFERENT}' END"""
_COUNTED = f"CASE WHEN ours > theirs THEN '{Kind.MISSING}' ELSE '{Kind.EXTRA}' END"


def _are_alike(source: pa.Table, target: pa.Table) -> bool:
    """Whether both sides have the same rows in any order: most often they have, and joining them takes longer."""
    hashes = []
    for lines in (source, target):
        low, high = lines["r1"].to_numpy(), lines["r2"].to_numpy()
        order = np.argsort(low)
        hashes.append((low[order], high[order]))
    return all(np.array_equal(one, other) for one, other in zip(*hashes, strict=True))


def _joined_here(sides: Sequence[pa.Table], before: pa.Table | None, most: int, *, keyed: bool) -> pa.Table:
    """The same as :func:`differing_keys` for two small sides, in DuckDB."""
    import duckdb

    times, differ, kind = ("1", "differ", _KEYED) if keyed else ("abs(ours - theirs)", "ours <> theirs", _COUNTED)
    with duckdb.connect() as db:
        for name, lines in zip(("source", "target"), sides, strict=True):
            db.register(name, lines)
        if before is not None:
            db.register("before_it", before.select(_STAYS))
        stays = "" if before is None else "AND (k1, k2) IN (SELECT (k1, k2) FROM before_it)"
        columns = "list_filter(range(len(a)), lambda i: a[i + 1] <> b[i + 1])"
        return db.sql(
            f"""SELECT k1, k2, key, kind, times::BIGINT AS times,
                  CASE WHEN kind = '{Kind.DIFFERENT}' THEN {columns} ELSE [] END::INTEGER[] AS columns
                FROM (SELECT *, {kind} AS kind, {times} AS times FROM ({_OF_BOTH}) WHERE {differ} {stays})
                ORDER BY k1, k2 LIMIT {most}"""
        ).to_arrow_table()


def _joined(source: DataFrame, target: DataFrame, *, keyed: bool) -> DataFrame:
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

    grouped = rows.where("error IS NULL").groupBy("k1", "k2")
    return grouped.agg(
        F.count("*").alias(f"{side}_n"),
        F.min("key").alias(f"{side}_key"),
        F.sort_array(F.collect_list(F.struct("r1", "r2"))).alias(f"{side}_rows"),
        F.first("hashes").alias(f"{side}_hashes"),
    )
