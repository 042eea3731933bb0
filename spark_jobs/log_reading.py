"""Reading log files in a worker: no more row groups, columns and rows than a plan needs.

Files are sorted by table and key bucket, so the statistics of most row groups prove that all or none of their rows
are wanted; only the rows of the others are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from spark_jobs.change_log_schema import CHANGE, HELD_SCHEMA, LOG_SCHEMA

_COLUMNS = ("batch", "tbl", "epoch", "pos", "op", "key", "cols", "row", "before", "origin", "place")
# Long or repeated texts of few different values are read as codes.
_READ_CODED = ("tbl", "epoch", "cols", "origin")
_SCHEMA = pa.schema([HELD_SCHEMA.field(f.name) if f.name in _READ_CODED else f for f in LOG_SCHEMA])
_FORMAT = ds.ParquetFileFormat(dictionary_columns=set(_READ_CODED))

CHANGES_SCHEMA = pa.schema([_SCHEMA.field(name) for name in _COLUMNS])
"""What is read of a change."""


class Wanted(NamedTuple):
    """The changes of some tables in a range of key buckets: *low* included, *high* excluded."""

    sources: Sequence[str]
    low: int
    high: int

    @property
    def rows(self) -> pc.Expression:
        """The condition that a row fulfils."""
        bucket = pc.field("bucket")
        chosen = pc.field("tbl").isin(list(self.sources)) & (bucket >= self.low) & (bucket < self.high)
        return (pc.field("kind") == CHANGE) & chosen

    def proof(self, group: pq.RowGroupMetaData, places: dict[str, int]) -> bool | None:
        """Whether the statistics of a row group prove all (True) or none (False) of its rows wanted."""
        bounds = {name: _bounds(group.column(place)) for name, place in places.items()}
        asked: dict[str, tuple[Any, Any]] = {
            "kind": (CHANGE, CHANGE),
            "tbl": (min(self.sources), max(self.sources)),
            "bucket": (self.low, self.high - 1),
        }
        for name, (low, high) in asked.items():
            found = bounds[name]
            if found is not None and (found.high < low or high < found.low):
                return False
        if any(found is None or found.nulls for found in bounds.values()):
            return None
        inside = all(low <= bounds[name].low and bounds[name].high <= high for name, (low, high) in asked.items())
        # Of several tables, one between two that are asked for may be a third.
        one_table = bounds["tbl"].low == bounds["tbl"].high and bounds["tbl"].low in self.sources
        return True if inside and one_table else None


class _Bounds(NamedTuple):
    low: Any
    high: Any
    nulls: bool


def _bounds(column: pq.ColumnChunkMetaData) -> _Bounds | None:
    statistics = column.statistics
    if statistics is None or not statistics.has_min_max:
        return None
    return _Bounds(statistics.min, statistics.max, not statistics.has_null_count or statistics.null_count > 0)


def read_changes(files: Sequence[str], wanted: Wanted) -> pa.Table:
    """The wanted changes of log files, in the order of the files."""
    pieces = [CHANGES_SCHEMA.empty_table()]
    for path in files:
        with pq.ParquetFile(path, read_dictionary=list(_READ_CODED)) as file:
            places = {name: file.schema_arrow.names.index(name) for name in ("kind", "tbl", "bucket")}
            proofs = [wanted.proof(file.metadata.row_group(at), places) for at in range(file.num_row_groups)]
            whole = [at for at, proof in enumerate(proofs) if proof]
            partly = [at for at, proof in enumerate(proofs) if proof is None]
            if whole:
                pieces.append(_read(file, whole, _COLUMNS))
            if partly:
                pieces.append(_read(file, partly, LOG_SCHEMA.names[:-7]).filter(wanted.rows))
    return pa.concat_tables([piece.select(_COLUMNS).cast(CHANGES_SCHEMA) for piece in pieces])


def _read(file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
    return file.read_row_groups(groups, columns=list(columns), use_threads=False)


def read_history(files: Sequence[str], source: str, chosen: pc.Expression) -> pa.Table:
    """The *chosen* changes of one table, with the columns of :func:`read_changes`."""
    if not files:
        return CHANGES_SCHEMA.empty_table()
    dataset = ds.dataset(list(files), format=_FORMAT, schema=_SCHEMA)
    wanted = (pc.field("kind") == CHANGE) & (pc.field("tbl") == source) & chosen
    return dataset.to_table(columns=list(_COLUMNS), filter=wanted, use_threads=False)
