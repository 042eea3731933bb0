"""Proves that a load's keys are unique: Fabric inserts each row of a file without row markers, duplicates too (I6)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_MEMORY = "512MB"


def find_duplicate(tables: Iterable[pa.Table], keys: pa.Schema) -> tuple[int, int] | None:
    """Find two rows with the same key; returns their row numbers, counted from 0 over all *tables*, or None.

    *tables* have at least the columns of *keys*. Keys that do not fit into memory are written to disk.
    """
    import duckdb

    # Columns are renamed, so that no name of a source ever becomes part of a query.
    names = [f"k{at}" for at in range(len(keys))]
    schema = pa.schema([*(pa.field(n, f.type) for n, f in zip(names, keys, strict=True)), pa.field("row", pa.int64())])

    def batches() -> Iterator[pa.RecordBatch]:
        row = 0
        for table in tables:
            columns = [table.column(name) for name in keys.names]
            places = pa.chunked_array([pa.array(np.arange(row, row + table.num_rows))])
            yield from pa.Table.from_arrays([*columns, places], schema=schema).to_batches()
            row += table.num_rows

    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch, duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{_MEMORY}'")
        db.execute(f"SET temp_directory = '{scratch}'")
        db.execute("SET threads = 1")
        reader = pa.RecordBatchReader.from_batches(schema, batches())
        db.register("key_rows", reader)
        query = f"SELECT min(row), max(row) FROM key_rows GROUP BY {', '.join(names)} HAVING count(*) > 1 LIMIT 1"
        return db.execute(query).fetchone()


def duplicate_in(files: Sequence[Path], keys: pa.Schema) -> tuple[int, int] | None:
    """Find two rows with the same key in Parquet files; returns their numbers as :func:`find_duplicate` does."""
    if len(keys) == 1 and _ascends(table.column(0) for table in _key_columns(files, keys)):
        return None
    return find_duplicate(_key_columns(files, keys), keys)


def _ascends(columns: Iterable[pa.ChunkedArray]) -> bool:
    last: list[pa.Array] = []
    for column in columns:
        values = pa.concat_arrays([*last, *column.chunks])
        if not pc.all(pc.greater(values[1:], values[:-1]), min_count=0).as_py():
            return False
        last = [values[-1:]]
    return True


def _key_columns(files: Sequence[Path], keys: pa.Schema) -> Iterator[pa.Table]:
    for file in files:
        with pq.ParquetFile(file) as parquet:
            for batch in parquet.iter_batches(columns=keys.names, use_threads=False):
                yield pa.Table.from_batches([batch]).select(keys.names)
