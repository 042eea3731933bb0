"""Compares in a worker: turns rows into sums of hashes, or hashes of keys, so that no row leaves the worker.

Source and target use the same functions, so equal rows give equal numbers.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from open_mirroring.changes.row_key import encode_key
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.digest import row_hashes, value_hashes
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.protocols.proving import BUCKETS_OF_RANGE, BUCKETS_OF_TABLE, CellSum
from spark_jobs.sources.sql_server.types import canonical_text, type_of_landed_key

SUMS_SCHEMA = "sums binary, error binary"
KEYS_SCHEMA = "k1 bigint, k2 bigint, key string, r1 bigint, r2 bigint, hashes array<bigint>, error binary"
KEYS = pa.schema(
    [
        pa.field("k1", pa.int64()),
        pa.field("k2", pa.int64()),
        pa.field("key", pa.string()),
        pa.field("r1", pa.int64()),
        pa.field("r2", pa.int64()),
        pa.field("hashes", pa.list_(pa.int64())),
        pa.field("error", pa.binary()),
    ]
)
SUMS = pa.schema([pa.field("sums", pa.binary()), pa.field("error", pa.binary())])


class Part(Protocol):
    """Some rows of a table; the value of *column* shows whether a row may be in the part."""

    shape: Shape

    @property
    def column(self) -> str: ...

    def may_hold(self, lowest: Any, highest: Any) -> bool:
        """Return whether a row of the part may have a value of *column* within these limits."""
        ...

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are in the part, from *rows* made by :func:`fitted`."""
        ...

    def may_be_among(self, keys: pa.Table) -> bool:
        """Return whether a row with one of *keys* may be in the part; True if the keys do not show this."""
        return True

    def texts(self, hashes: npt.NDArray[np.uint64]) -> pa.Array | None:
        """Return the encoded keys for *hashes*, the first halves of hashes of keys in the part; None if unknown."""
        return None


Tables = Iterable[pa.Table]
Work = Callable[[Tables], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Shape:
    """How rows of source and target are compared: all columns of both, in types that hold the values of both.

    Without *keys* the complete row is the key. If *split* is a column, its values are divided into ranges at *borders*,
    and each cell belongs to one range.
    """

    columns: tuple[LandingColumn, ...]
    keys: tuple[str, ...]
    split: str | None = None
    borders: tuple[Any, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema in which rows are compared."""
        return pa.schema([pa.field(column.name, arrow_type(column.type)) for column in self.columns])

    def type_of(self, name: str) -> str:
        """The landing type of a column."""
        return next(column.type for column in self.columns if column.name == name)

    def field(self, name: str) -> pa.Field:
        """The Arrow field in which a column is compared."""
        return pa.field(name, arrow_type(self.type_of(name)))

    @property
    def ranges(self) -> int:
        return len(self.borders) + 1

    @property
    def buckets(self) -> int:
        """The number of key buckets in each range."""
        return BUCKETS_OF_TABLE if self.split is None else BUCKETS_OF_RANGE

    def cells(self, rows: pa.Table, key_hash: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        """The number of each row's cell; it depends on the row only, so equal rows of both sides have the same cell."""
        bucket = (key_hash % np.uint64(self.buckets)).astype(np.int64)
        if self.split is None:
            return bucket
        return self.range_of(rows[self.split]) * self.buckets + bucket

    def range_of(self, values: pa.ChunkedArray) -> npt.NDArray[np.int64]:
        """The range of each value of the split column; NULL belongs to the first range."""
        kind = self.field(self.split or "").type
        borders = pa.array(self.borders, kind)
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
            values, borders = values.cast(whole), borders.cast(whole)
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        place = np.searchsorted(borders.to_numpy(), values.fill_null(0).to_numpy(), side="right")
        return np.where(valid, place, 0)


def fitted(rows: pa.Table, shape: Shape, part: Part | None = None) -> pa.Table:
    """Rows of one side, only of *part* if given, in the columns and types of *shape*; a missing column is NULL.

    Raises ``SCHEMA_CHANGED`` if a column cannot be converted to its type.
    """
    found = pa.Table.from_arrays([_fitted_column(rows, field) for field in shape.schema], schema=shape.schema)
    return found if part is None else part.rows(found)


def _fitted_column(rows: pa.Table, field: pa.Field) -> pa.ChunkedArray | pa.Array:
    if field.name not in rows.column_names:
        return pa.nulls(rows.num_rows, field.type)
    values = rows[field.name]
    if pa.types.is_timestamp(values.type) and values.type.tz is None:
        # A wall clock is read as UTC (the product's own rule for every source type without zone).
        values = values.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    try:
        return values if values.type == field.type else values.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TerminalError(
            "SCHEMA_CHANGED",
            f"column {field.name!r}: a value of type {values.type} is none of {field.type}: {error}",
            next_step="compare the column's type at the source and at the target; a changed type needs a reload",
        ) from None


@dataclass(frozen=True)
class SumCells:
    """Sums up the row hashes of one partition by cell."""

    shape: Shape
    part: Part | None = None

    def __call__(self, tables: Tables) -> Iterator[pa.RecordBatch]:
        """Yield one line: the sums, or the error, because a worker cannot raise ours through Spark."""
        places = self.shape.ranges * self.shape.buckets
        counts = np.zeros(places, np.int64)
        lanes = np.zeros((2, places), np.uint64)
        try:
            for table in tables:
                self._add(fitted(table, self.shape, self.part), counts, lanes)
        except MirroringError as error:
            yield pa.RecordBatch.from_pylist([{"sums": None, "error": pickle.dumps(error)}], SUMS)
            return
        full = np.flatnonzero(counts)
        columns = zip(full.tolist(), counts[full].tolist(), *(lane[full].tolist() for lane in lanes), strict=True)
        cells = {cell: CellSum(*sums) for cell, *sums in columns}
        yield pa.RecordBatch.from_pylist([{"sums": pickle.dumps(cells), "error": None}], SUMS)

    def _add(self, rows: pa.Table, counts: npt.NDArray[np.int64], lanes: npt.NDArray[np.uint64]) -> None:
        if not rows.num_rows:
            return
        hashes = row_hashes(rows)
        keys = row_hashes(rows.select(self.shape.keys))[0] if self.shape.keys else hashes[0]
        cell = self.shape.cells(rows, keys)
        np.add.at(counts, cell, 1)
        for lane, values in zip(lanes, hashes, strict=True):
            np.add.at(lane, cell, values)  # modulo 2⁶⁴


@dataclass(frozen=True)
class HashKeys:
    """Hashes the key, the complete row and each column of rows in *cells*, groups of rows; None: of all rows."""

    shape: Shape
    cells: frozenset[int] | None
    part: Part | None = None

    def __call__(self, tables: Tables) -> Iterator[pa.RecordBatch]:
        """Yield one line for each row; an error is a line, because a worker cannot raise ours through Spark."""
        wanted = None if self.cells is None else np.array(sorted(self.cells), np.int64)
        try:
            for table in tables:
                yield from self._keys(fitted(table, self.shape, self.part), wanted)
        except MirroringError as error:
            yield pa.RecordBatch.from_pylist([{"error": pickle.dumps(error)}], KEYS)

    def _keys(self, rows: pa.Table, wanted: npt.NDArray[np.int64] | None) -> Iterator[pa.RecordBatch]:
        if not rows.num_rows:
            return
        keys = self.shape.keys
        key_hashes = row_hashes(rows.select(keys)) if keys else row_hashes(rows)
        if wanted is not None:
            chosen = np.isin(self.shape.cells(rows, key_hashes[0]), wanted)
            rows, key_hashes = rows.filter(pa.array(chosen)), key_hashes[:, chosen]
        if not rows.num_rows:
            return
        rows = rows.combine_chunks()
        known = None if self.part is None else self.part.texts(key_hashes[0])
        hashes = row_hashes(rows)
        by_column = np.stack(
            [value_hashes(rows[field.name].combine_chunks(), field) for field in self.shape.schema], axis=1
        )
        width = by_column.shape[1]
        offsets = pa.array(np.arange(0, (rows.num_rows + 1) * width, width), pa.int32())
        flat = pa.array(by_column.reshape(-1).view(np.int64))
        yield pa.RecordBatch.from_arrays(
            [
                *(pa.array(lane.copy().view(np.int64)) for lane in key_hashes),
                key_texts(rows, self.shape) if known is None else known,
                *(pa.array(lane.copy().view(np.int64)) for lane in hashes),
                pa.ListArray.from_arrays(offsets, flat),
                pa.nulls(rows.num_rows, pa.binary()),
            ],
            schema=KEYS,
        )


def key_texts(rows: pa.Table, shape: Shape) -> pa.Array:
    """The key of each row as the change log has it; without a key, the row as JSON, cut at 1,000 characters."""
    types = {column.name: type_of_landed_key(column.type) for column in shape.columns}
    names: Sequence[str] = shape.keys or list(types)
    texts = []
    for name in names:
        values = rows[name].to_pylist()
        texts.append([None if value is None else canonical_text(types[name], value) for value in values])
    lines = zip(*texts, strict=True)
    if shape.keys:
        return pa.array([encode_key([text or "" for text in line]) for line in lines], pa.string())
    return pa.array([msgspec.json.encode(line).decode()[:1_000] for line in lines], pa.string())
