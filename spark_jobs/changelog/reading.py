"""Reads files of the change log in a worker: only the row groups, columns and rows that a plan needs.

The rows in each file are sorted by table and key bucket (a hash of the key), so the statistics of most row groups prove
that all or none of their rows are wanted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.fs import FileSystem

from open_mirroring.changes.row_key import key_bucket
from open_mirroring.storage.arrow_files import arrow_files, arrow_path
from open_mirroring.storage.object_path import Place
from open_mirroring.without_pandas import without_pandas
from spark_jobs.changelog.arrow_schema import HELD_SCHEMA, LOG_SCHEMA
from spark_jobs.changelog.schema import CHANGE, TRANSACTION_COLUMNS

if TYPE_CHECKING:
    import pyarrow.dataset as ds
    from duckdb import DuckDBPyConnection

_COLUMNS = ("batch", "tbl", "epoch", "pos", "op", "key", "cols", "row", "before", "origin", "place")
# Long or repeated texts with few distinct values are read as codes.
_READ_CODED = ("tbl", "epoch", "cols", "origin")
_GROUPS_AT_ONCE = 256
_SCHEMA = pa.schema([HELD_SCHEMA.field(f.name) if f.name in _READ_CODED else f for f in LOG_SCHEMA])

CHANGES_SCHEMA = pa.schema([_SCHEMA.field(name) for name in _COLUMNS])
"""The columns of a change that are always read."""

DATED_SCHEMA = pa.schema([*CHANGES_SCHEMA, *(_SCHEMA.field(name) for name in TRANSACTION_COLUMNS)])
"""The columns that are read if commit time or transaction are needed, too (G-118)."""


def paths_of(root: Place, files: Sequence[str]) -> list[str]:
    """The paths of files of the change log as Arrow's file system expects them."""
    return [arrow_path(root / file) for file in files]


class Wanted(NamedTuple):
    """Which changes to read: changes of the tables *sources* (sorted) with key buckets from *low* to below *high*."""

    sources: Sequence[str]
    low: int
    high: int

    @property
    def rows(self) -> pc.Expression:
        """The Arrow condition for changes of any table with key buckets from *low* to below *high*."""
        bucket = pc.field("bucket")
        return (pc.field("kind") == CHANGE) & (bucket >= self.low) & (bucket < self.high)

    def proof(self, group: pq.RowGroupMetaData, places: dict[str, int]) -> bool | None:
        """What a row group's statistics prove: only wanted buckets (True), nothing wanted (False), neither (None)."""
        asked: dict[str, tuple[Any, Any]] = {
            "tbl": (self.sources[0], self.sources[-1]),
            "bucket": (self.low, self.high - 1),
            "kind": (CHANGE, CHANGE),
        }
        proved = True
        for name, (low, high) in asked.items():
            known = group.column(places[name]).statistics
            if known is None or not known.has_min_max:
                proved = False
                continue
            lowest, highest = known.min, known.max
            if highest < low or high < lowest:
                return False
            may_lack = not known.has_null_count or known.null_count > 0
            if may_lack or (name != "tbl" and not low <= lowest <= highest <= high):
                proved = False
        return proved or None


def read_changes(
    files: Sequence[str], wanted: Wanted, storage: FileSystem | None = None, schema: pa.Schema = CHANGES_SCHEMA
) -> dict[str, pa.Table]:
    """Read the wanted changes from files of the change log, as one Arrow table for each source table.

    The files are in *storage*, or local if *storage* is None.
    """
    pieces: dict[str, list[pa.Table]] = {}
    for path in files:
        # The wanted parts of a remote file are fetched by few requests.
        distant = {"filesystem": storage, "pre_buffer": True} if storage is not None else {}
        with pq.ParquetFile(path, read_dictionary=list(_READ_CODED), **distant) as file:
            names = file.metadata.schema.names
            places = {name: names.index(name) for name in ("kind", "tbl", "bucket")}
            proofs = [wanted.proof(file.metadata.row_group(at), places) for at in range(file.num_row_groups)]
            if proved := [at for at, proof in enumerate(proofs) if proof]:
                _split(_read(file, proved, schema.names), schema, pieces)
            if others := [at for at, proof in enumerate(proofs) if proof is None]:
                _split(_read(file, others, [*schema.names, "kind", "bucket"]).filter(wanted.rows), schema, pieces)
    return {name: pa.concat_tables(pieces[name]) for name in wanted.sources if name in pieces}


def _split(changes: pa.Table, schema: pa.Schema, pieces: dict[str, list[pa.Table]]) -> None:
    """Add each table's consecutive changes to its pieces, without a copy: files are sorted by table."""
    changes = changes.select(schema.names)
    if not changes.schema.equals(schema):  # files rewritten by maintenance may have more nullable columns
        changes = changes.cast(schema)
    tables = changes["tbl"].unify_dictionaries().combine_chunks()
    codes, names = tables.indices.to_numpy(), tables.dictionary.to_pylist()
    borders = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, end in pairwise(borders):
        if start < end:
            pieces.setdefault(names[codes[start]], []).append(changes.slice(start, end - start))


def _read(file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
    return file.read_row_groups(groups, columns=list(columns), use_threads=False)


def read_history(
    files: Sequence[str],
    source: str,
    chosen: pc.Expression,
    storage: FileSystem | None = None,
    schema: pa.Schema = CHANGES_SCHEMA,
) -> pa.Table:
    """Read the changes of one table that meet the condition *chosen*, with the columns of *schema*."""
    if not files:
        return schema.empty_table()
    with without_pandas():
        import pyarrow.dataset as ds

    coded = ds.ParquetFileFormat(dictionary_columns=set(_READ_CODED))
    dataset = ds.dataset(list(files), format=coded, schema=_SCHEMA, filesystem=storage)
    wanted = (pc.field("kind") == CHANGE) & (pc.field("tbl") == source) & chosen
    return dataset.to_table(columns=schema.names, filter=wanted, use_threads=False)


def read_keys(
    files: Sequence[str],
    source: str,
    keys: Sequence[str],
    storage: FileSystem | None = None,
    schema: pa.Schema = CHANGES_SCHEMA,
) -> pa.Table:
    """Read the changes of some keys of one table, with the columns of *schema*.

    First only the key column is read, from row groups that have the keys' buckets; the other columns are read only from
    row groups that have a wanted key. So reading few keys of a long change log is fast.
    """
    wanted, buckets = pa.array(keys, pa.string()), np.array(sorted({key_bucket(key) for key in keys}))
    chosen = (pc.field("kind") == CHANGE) & (pc.field("tbl") == source) & pc.field("key").isin(wanted)
    pieces = [schema.empty_table()]
    for path in files if keys else ():
        distant = {"filesystem": storage, "pre_buffer": True} if storage is not None else {}
        with pq.ParquetFile(path, read_dictionary=list(_READ_CODED), **distant) as file:
            metadata, place = file.metadata, file.metadata.schema.names.index("bucket")
            some = [at for at in range(metadata.num_row_groups) if _may_have(metadata.row_group(at), place, buckets)]
            for part in (some[at : at + _GROUPS_AT_ONCE] for at in range(0, len(some), _GROUPS_AT_ONCE)):
                found = pc.is_in(_read(file, part, ["key"])["key"], value_set=wanted)
                ends = np.cumsum([metadata.row_group(at).num_rows for at in part])
                groups = np.unique(np.searchsorted(ends, np.flatnonzero(found.to_numpy()), side="right"))
                if len(groups):
                    rows = _read(file, [part[at] for at in groups], [*schema.names, "kind"]).filter(chosen)
                    pieces.append(rows.select(schema.names).cast(schema))
    return pa.concat_tables(pieces)


def _may_have(group: pq.RowGroupMetaData, place: int, buckets: npt.NDArray[np.int64]) -> bool:
    """Whether a row group may have a row in one of these sorted buckets, by the statistics of the column at *place*."""
    known = group.column(place).statistics
    if known is None or not known.has_min_max:
        return True
    return bool(np.searchsorted(buckets, known.min) < np.searchsorted(buckets, known.max, side="right"))


def log_rows(root: Place, files: Sequence[str]) -> ds.Dataset:
    """The rows of files of the change log as an Arrow dataset that can be filtered."""
    with without_pandas():
        import pyarrow.dataset as ds

    return ds.dataset(paths_of(root, files), format="parquet", schema=LOG_SCHEMA, filesystem=arrow_files(root))


def query_files(db: DuckDBPyConnection, root: Place, files: Sequence[str], name: str = "logged") -> None:
    """Make the rows of files of the change log a view *name* in DuckDB.

    DuckDB reads local files itself, and files in object storage through Arrow.
    """
    if isinstance(root, Path):
        db.read_parquet(paths_of(root, files)).create_view(name)
    else:
        db.register(name, log_rows(root, files))


@contextmanager
def logged(root: Place, files: Sequence[str]) -> Iterator[DuckDBPyConnection]:
    """An in-memory DuckDB database with the rows of files of the change log as the view *logged*."""
    import duckdb  # a worker that only reads changes does not need it

    with duckdb.connect() as db:
        query_files(db, root, files)
        yield db
