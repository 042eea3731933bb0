"""Finds the keys that differ between source and target, and the keys that changed since a position of the change log.

Spark, or DuckDB if both sides are small, joins hashes of rows and never the rows themselves.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.ledger.reading import LedgerReader
from open_mirroring.protocols.proving import CellSum, Kind, add_sums
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import log_rows
from spark_jobs.changelog.schema import CHANGE, ROW_BYTES
from spark_jobs.proof.rows import KEYS, KEYS_SCHEMA, SUMS, SUMS_SCHEMA, HashKeys, OfRanges, Part, Shape, SumCells
from spark_jobs.proof.sides import Side, kept, lines_here
from spark_jobs.runtime.tasks import dealt_out, needs_spark, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """Find the first *most* keys that differ between the sides: ``k1, k2, key, kind, times, columns``.

    *work* has the table's shape, and the part of the table that is compared. *k1* and *k2* are the two halves of the
    key's hash. *kind* is how a key differs. *columns* are the indexes of the columns that differ. *times* is 1; in a
    table without a key, how many more equal rows one side has. If *before*, the result of an earlier call, is given,
    only the keys in *before* are compared.
    """
    shape, part = work.shape, work.part
    keyed = bool(shape.keys)
    if part is None and work.cells is not None and shape.split is not None:
        part = OfRanges(shape, frozenset(cell // shape.buckets for cell in work.cells))
    if not needs_spark(spark, sum(side.size for side in sides)):
        lines = [lines_here(side, work, KEYS, part) for side in sides]
        if _are_alike(*lines):
            return _FOUND.empty_table()
        import duckdb

        with duckdb.connect() as db:
            for name, rows in zip(("source", "target", "before"), (*lines, before), strict=True):
                if rows is not None:
                    db.register(name, rows)
            query = _differing(_DUCKDB, most, keyed=keyed, limited=before is not None)
            return db.sql(query).to_arrow_table().cast(_FOUND)
    frames = [kept(side, side.frame(work, KEYS_SCHEMA, part)) for side in sides]
    named: dict[str, Any] = dict(zip(("source", "target"), frames, strict=True))
    if before is not None:
        named["before"] = spark.createDataFrame(before.select(_STAYS))
    query = _differing(_SPARK, most, keyed=keyed, limited=before is not None)
    keys = spark.sql(query, **named).toArrow().cast(_FOUND)
    for frame in frames:
        frame.unpersist()
    return keys


_DUCKDB = {
    **{name: name for name in ("source", "target", "before")},
    "rows": "list_sort(list(row(r1, r2)))",
    "columns": "list_filter(range(len(a)), lambda i: a[i + 1] <> b[i + 1])",
    "none": "[]",
}
_SPARK = {
    **{name: f"{{{name}}}" for name in ("source", "target", "before")},
    "rows": "sort_array(collect_list(struct(r1, r2)))",
    "columns": "filter(transform(zip_with(a, b, (x, y) -> x <> y), (d, i) -> if(d, i, -1)), i -> i >= 0)",
    "none": "array()",
}
"""What DuckDB and Spark write differently in the query for the keys that differ."""
_KEYED = f"""CASE WHEN theirs = 0 THEN '{Kind.MISSING}' WHEN ours = 0 THEN '{Kind.EXTRA}'
                  WHEN ours > 1 OR theirs > 1 THEN '{Kind.DOUBLED}' ELSE '{Kind.DIFFERENT}' END"""
_COUNTED = f"CASE WHEN ours > theirs THEN '{Kind.MISSING}' ELSE '{Kind.EXTRA}' END"


def _differing(of: Mapping[str, str], most: int, *, keyed: bool, limited: bool) -> str:
    """The query for the keys that differ, in the language *of* DuckDB or Spark."""
    times, differ, kind = ("1", "differ", _KEYED) if keyed else ("abs(ours - theirs)", "ours <> theirs", _COUNTED)
    by_key = f"SELECT k1, k2, count(*) AS n, min(key) AS key, {of['rows']} AS rows, any_value(hashes) AS hashes FROM"
    both = f"""SELECT coalesce(s.k1, t.k1) AS k1, coalesce(s.k2, t.k2) AS k2, coalesce(s.key, t.key) AS key,
                 coalesce(s.n, 0) AS ours, coalesce(t.n, 0) AS theirs, s.rows IS DISTINCT FROM t.rows AS differ,
                 s.hashes AS a, t.hashes AS b
               FROM ({by_key} {of["source"]} GROUP BY k1, k2) s
               FULL OUTER JOIN ({by_key} {of["target"]} GROUP BY k1, k2) t ON s.k1 = t.k1 AND s.k2 = t.k2"""
    stays = f"AND (k1, k2) IN (SELECT k1, k2 FROM {of['before']})" if limited else ""
    return f"""SELECT k1, k2, key, kind, CAST(times AS BIGINT) AS times,
                 CASE WHEN kind = '{Kind.DIFFERENT}' THEN {of["columns"]} ELSE {of["none"]} END AS columns
               FROM (SELECT *, {kind} AS kind, {times} AS times FROM ({both}) AS x WHERE {differ} {stays}) AS y
               ORDER BY k1, k2 LIMIT {most}"""


def _are_alike(source: pa.Table, target: pa.Table) -> bool:
    """Whether both sides have the same rows in any order: most often they have, and joining them takes longer."""
    hashes = []
    for lines in (source, target):
        low, high = lines["r1"].to_numpy(), lines["r2"].to_numpy()
        order = np.argsort(low)
        hashes.append((low[order], high[order]))
    return all(np.array_equal(one, other) for one, other in zip(*hashes, strict=True))


@dataclass(frozen=True)
class LoggedChanges:
    """The rows of some files of the change log that meet the condition *chosen*; *rows* is about their number."""

    root: Place
    files: Sequence[str]
    chosen: pc.Expression
    rows: int

    @classmethod
    def since(
        cls, reader: LedgerReader, root: Place, source: str, batch: int, reaching: Mapping[str, str]
    ) -> LoggedChanges:
        """The changes of a table in batches above *batch*, and the changes at or above the position of each stream.

        *reaching* maps the epoch of each stream (one enabling of streaming or one Qlik full load) to the position.
        """
        committed, chosen = reader.mirror().committed, pc.field("batch") > batch
        contents = list(reader.contents({source: batch}, committed).get(source, ()))
        if reaching:
            contents += reader.history(source, committed, reaching)
            for epoch, text in reaching.items():
                chosen |= (pc.field("epoch") == epoch) & (pc.field("pos") >= text)
        chosen &= (pc.field("kind") == CHANGE) & (pc.field("tbl") == source)
        files = sorted({file for part in contents for file in part.files})
        return cls(root, files, chosen, sum(part.rows for part in contents))

    def keys(self, spark: SparkSession, among: pa.Array | None = None) -> pa.Array:
        """The keys of the changes, each once; if *among* is given, only keys that are in *among*."""
        size = self.rows * ROW_BYTES
        look = partial(_keys, self.root, self.chosen, among)
        parts = dealt_out(spark, self.files, size)
        found: Collection[pa.Array] = run_job(spark, "look for keys in the log", look, parts, size)
        return pa.chunked_array(found, pa.string()).unique()


def _keys(root: Place, chosen: pc.Expression, among: pa.Array | None, files: Sequence[str]) -> pa.Array:
    if among is not None:
        chosen &= pc.field("key").isin(among)
    return log_rows(root, files).to_table(columns=["key"], filter=chosen, use_threads=False)["key"].unique()
