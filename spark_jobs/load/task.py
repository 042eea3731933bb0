"""Loads in a worker: reads a chunk, converts its rows to types, and stages files without row markers.

Fabric inserts each row of a file without row markers, duplicates too; so the keys of a chunk are proved unique before
its rows are staged (F-57, I6).
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from open_mirroring.config.row_filter import Condition
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.arrow_schema import file_schema, landed_file_schema
from open_mirroring.landing_zone.data_file import Footer, WrittenFile, write_data_file
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.salt import Salt
from open_mirroring.landing_zone.schema import LandingColumn, landed
from open_mirroring.protocols.publishing import StagedFile
from spark_jobs.publish.staging import create_staged
from spark_jobs.sources.exports.files import Export, ExportRows, Piece
from spark_jobs.sources.sql_server.row_filters import matching
from spark_jobs.sources.sql_server.target_columns import landed_rows, loaded_extra
from spark_jobs.sources.sql_server.types import filled_length

_MEMORY_FOR_KEYS = "512MB"


@dataclass(frozen=True)
class LoadTarget:
    """Where a table's staged files go, and what they contain.

    *extra* are added columns, such as the name of the table at the *source*. Only rows that fulfil the condition
    *where* are loaded (G-193).
    """

    folder: str
    keys: tuple[str, ...]
    columns: tuple[LoadColumn, ...]
    max_rows: int
    footer: Footer
    compression: layout.Compression = layout.DEFAULT_COMPRESSION
    extra: tuple[LandingColumn, ...] = ()
    source: str = ""
    where: Condition | None = None

    @property
    def landing(self) -> tuple[LandingColumn, ...]:
        """The columns of the table's files."""
        return (*(column.landing for column in self.columns), *self.extra)

    @property
    def schema(self) -> pa.Schema:
        """The schema of rows before they are written: key columns are not nullable, and there is no row marker."""
        return file_schema([column.landing for column in self.columns], self.keys, marker=False)

    @property
    def file_schema(self) -> pa.Schema:
        """The schema of all files of the load, with the column names of the target table."""
        return landed_file_schema(self.landing, self.keys, marker=False)

    @property
    def landed_keys(self) -> tuple[str, ...]:
        """The key columns, by their names in the target table."""
        return landed(self.landing, self.keys)[1]

    @property
    def key_schema(self) -> pa.Schema:
        """The schema of the key columns in the files, in key order."""
        return pa.schema([self.file_schema.field(key) for key in self.landed_keys])

    def write(self, path: Path, tables: Iterable[pa.Table], salt: Salt | None) -> WrittenFile:
        """Write one file of the load."""
        schema = self.file_schema
        whole = (loaded_extra(table, self.extra, self.source) for table in tables)
        landing = (landed_rows(table, self.landing, schema.names, salt) for table in whole)
        return write_data_file(path, landing, schema, self.footer, self.compression)


@dataclass(frozen=True)
class ExportTask:
    """One chunk of the export of the table *source*, to be staged by one worker."""

    chunk: int
    source: str
    pieces: tuple[Piece, ...]
    target: LoadTarget


class LoadedChunk(NamedTuple):
    """The result of a chunk: its staged files in order, or the error, which is returned instead of raised.

    For each column that may have a fixed-length type, *shortest* has the length in bytes of the shortest value (G-86).
    """

    chunk: int
    files: tuple[StagedFile, ...] = ()
    error: MirroringError | None = None
    shortest: Mapping[str, int] = MappingProxyType({})


class Rows(Protocol):
    """Typed rows of a chunk, which can be read once, and the place in the source that each row came from."""

    def __iter__(self) -> Iterator[pa.Table]: ...

    def place(self, row: int) -> str:
        """The place that row number *row* (from 0) came from, for messages."""
        ...


class MatchingRows:
    """The rows of a chunk that meet the mirror file's condition ``where``, and the place that each row came from."""

    def __init__(self, rows: Rows, where: Condition) -> None:
        self._rows, self._where = rows, where
        self._places = [np.zeros(0, np.int64)]
        self._read = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for table in self._rows:
            chosen = matching(table, self._where)
            self._places.append(np.flatnonzero(chosen.to_numpy(zero_copy_only=False)) + self._read)
            self._read += table.num_rows
            yield table.filter(chosen)

    def place(self, row: int) -> str:
        """The place that row number *row* came from, counted from 0 over the rows that are mirrored."""
        return self._rows.place(int(np.concatenate(self._places)[row]))


def measured(rows: Rows, columns: Collection[LoadColumn], shortest: dict[str, int]) -> Iterator[pa.Table]:
    """Yield *rows* unchanged, and note in *shortest* the length of the shortest value of each of *columns*."""
    names = [c.name for c in columns if c.sql_type is None or filled_length(c.sql_type) is not None]
    for table in rows:
        for name in names:
            if pa.types.is_string(table[name].type) or pa.types.is_binary(table[name].type):
                found = pc.min(pc.binary_length(table[name])).as_py()
                if found is not None:
                    shortest[name] = min(found, shortest.get(name, found))
        yield table


def load_export_chunk(
    zone: ZoneAddress, salt: Salt | None, exports: Mapping[str, Export], task: ExportTask
) -> LoadedChunk:
    """Stage one chunk of an export.

    *zone*, *salt* and *exports* may contain secrets. Spark sends them with the function and not in *task*, because
    Spark stores tasks in files.
    """
    rows = ExportRows(exports[task.source], task.pieces, task.target.columns, task.target.schema)
    return load_chunk(zone, salt, task.chunk, rows, task.target)


def load_chunk(zone: ZoneAddress, salt: Salt | None, chunk: int, rows: Rows, target: LoadTarget) -> LoadedChunk:
    """Stage the rows of one chunk after proving their keys unique; an error is returned, not raised."""
    shortest: dict[str, int] = {}
    rows = rows if target.where is None else MatchingRows(rows, target.where)
    try:
        with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch:
            written: list[tuple[Path, WrittenFile]] = []
            cut = _cut(measured(rows, target.columns, shortest), target.max_rows)
            for index, pieces in groupby(cut, itemgetter(0)):
                local = Path(scratch) / f"{index}.parquet"
                written.append((local, target.write(local, (table for _, table in pieces), salt)))
            # Rows of a table without key may be alike.
            twice = duplicate_in([local for local, _ in written], target.key_schema) if target.keys else None
            if twice is not None:
                raise duplicate_key(rows.place(twice[0]), rows.place(twice[1]))
            return LoadedChunk(chunk, _create(zone, written, target), shortest=shortest)
    except MirroringError as error:
        return LoadedChunk(chunk, error=error, shortest=shortest)


def stage_no_rows(zone: ZoneAddress, target: LoadTarget) -> StagedFile:
    """Stage one file without rows, from which Fabric creates an empty table (F-41)."""
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch:
        local = Path(scratch) / "0.parquet"
        return _create(zone, [(local, target.write(local, (), None))], target)[0]


def duplicate_key(one: str, other: str) -> TerminalError:
    """The error for two rows with the same key; *one* and *other* are the places of the rows."""
    return TerminalError(
        "KEY_INVALID",
        f"two rows have the same key: {one}, and {other}",
        next_step="fix `key` if it names too few columns, or the source; then load again",
    )


def _create(
    zone: ZoneAddress, written: Iterable[tuple[Path, WrittenFile]], target: LoadTarget
) -> tuple[StagedFile, ...]:
    store = open_store(zone)
    folder = layout.staging_folder(target.folder, target.footer.generation)
    # Each attempt has a new name, a repeated Spark task included.
    name = f"{folder}/{target.footer.first_number:020d}.{uuid4().hex}"
    return tuple(
        create_staged(store, f"{name}.{index:04d}", local, one, target.file_schema, target.landed_keys)
        for index, (local, one) in enumerate(written)
    )


def _cut(tables: Iterable[pa.Table], max_rows: int) -> Iterator[tuple[int, pa.Table]]:
    rows = 0
    for table in tables:
        start = 0
        while start < table.num_rows:
            piece = table.slice(start, max_rows - rows % max_rows)
            yield rows // max_rows, piece
            rows, start = rows + piece.num_rows, start + piece.num_rows


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
        db.execute(f"SET memory_limit = '{_MEMORY_FOR_KEYS}'")
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
