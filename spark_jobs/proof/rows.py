"""Compares in a worker: turns rows into sums of hashes, or hashes of keys, so that no row leaves the worker.

Source and target use the same functions, so equal rows give equal numbers. A proof may compare only a part of a table.
"""

from __future__ import annotations

import pickle
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.row_key import encode_key
from open_mirroring.errors import MirroringError, TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type
from open_mirroring.landing_zone.digest import row_hashes, value_hashes
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.protocols.proving import BUCKETS_OF_RANGE, BUCKETS_OF_TABLE, CellSum
from spark_jobs.sources.sql_server.type_text import INTEGERS, TEXTS, read_type
from spark_jobs.sources.sql_server.typed_rows import Failure, typed_column
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
_ASKED_BY_KEY = {*INTEGERS, *TEXTS, "decimal", "date", "uniqueidentifier"}
"""Types of key columns whose values the change log has in a form by which a database finds exactly the same value."""


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


@dataclass(frozen=True)
class OfRanges:
    """The rows of some ranges of the split column."""

    shape: Shape
    ranges: frozenset[int]

    @property
    def column(self) -> str:
        """The split column, whose value shows the range of a row."""
        return self.shape.split or ""

    def may_hold(self, lowest: Any, highest: Any) -> bool:
        """Return whether a value between *lowest* and *highest* is in one of the ranges."""
        borders = self.shape.borders
        return any(
            (number == 0 or borders[number - 1] <= highest) and (number == len(borders) or lowest < borders[number])
            for number in self.ranges
        )

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that are in one of the ranges."""
        wanted = np.zeros(self.shape.ranges, bool)
        wanted[sorted(self.ranges)] = True
        return rows.filter(pa.array(wanted[self.shape.range_of(rows[self.column])]))

    def may_be_among(self, keys: pa.Table) -> bool:
        """Return True, because keys do not show the range of a row."""
        return True

    def texts(self, hashes: npt.NDArray[np.uint64]) -> None:
        """Return None, because the keys of a range are not known."""


@dataclass(frozen=True)
class OfKeys:
    """The rows with some keys; *values* has the keys' values as in the change log, one column for each key column."""

    shape: Shape
    values: pa.Table

    @classmethod
    def of(cls, keys: pa.Array, shape: Shape) -> OfKeys:
        """The rows with these encoded keys, as a :data:`Part`.

        A key whose values do not have the types of the key columns is left out.
        """
        lines, width = keys.to_pylist(), len(shape.keys)
        # Texts alone where that is enough: many tuples make the garbage collector look at all that there is.
        flat = msgspec.json.decode(f"[{','.join(line[1:-1] for line in lines)}]", type=list[str]) if width == 1 else []
        if len(flat) != len(lines):
            found = msgspec.json.decode(f"[{','.join(lines)}]", type=list[tuple[str, ...]])
            flat = [text for values in found if len(values) == width for text in values]
        texts = pa.table([pa.array(flat[at::width], pa.string()) for at in range(width)], names=list(shape.keys))
        bad: dict[int, Failure] = {}
        for name in shape.keys:
            _typed(texts, shape, name, bad)
        valid = np.ones(texts.num_rows, bool)
        valid[list(bad)] = False
        return cls(shape, texts.filter(pa.array(valid)))

    @property
    def column(self) -> str:
        """The first key column."""
        return self.shape.keys[0]

    def may_hold(self, lowest: Any, highest: Any) -> bool:
        """Return whether the first key column of one of the keys has a value between *lowest* and *highest*."""
        at = bisect_left(self._sorted, lowest)
        return at < len(self._sorted) and bool(self._sorted[at] <= highest)

    def rows(self, rows: pa.Table) -> pa.Table:
        """Return the rows that have one of the keys."""
        rows = rows.filter(pc.is_in(rows[self.column], value_set=self._keys[self.column].combine_chunks()))
        if len(self.shape.keys) == 1 or not rows.num_rows:
            return rows
        hashes = pa.array(row_hashes(rows.select(self.shape.keys))[0])
        return rows.filter(pc.is_in(hashes, value_set=pa.array(self._hashes)))

    def may_be_among(self, keys: pa.Table) -> bool:
        """Return whether one of *keys* is a key of this part."""
        columns = tuple(column for column in self.shape.columns if column.name in self.shape.keys)
        return bool(self.rows(fitted(keys, replace(self.shape, columns=columns))).num_rows)

    def texts(self, hashes: npt.NDArray[np.uint64]) -> pa.Array | None:
        """Return the encoded key for each of *hashes*, the first halves of hashes of keys in this part."""
        order = np.argsort(self._hashes)
        return self._encoded.take(pa.array(order[np.searchsorted(self._hashes, hashes, sorter=order)]))

    def at_once(self, most: int) -> list[Sequence[Sequence[str]]]:
        """The values of the keys as strings, by column, in groups of at most *most* keys."""
        parts = (self.values.slice(at, most) for at in range(0, self.values.num_rows, most))
        return [[column.to_pylist() for column in part.columns] for part in parts]

    @cached_property
    def _keys(self) -> pa.Table:
        columns = [_typed(self.values, self.shape, name, {}) for name in self.shape.keys]
        return pa.table(columns, names=list(self.shape.keys))

    @cached_property
    def _encoded(self) -> pa.Array:
        # By the present types: the change log may have a key from a time when its column had another type.
        return key_texts(self._keys, self.shape)

    @cached_property
    def _hashes(self) -> npt.NDArray[np.uint64]:
        hashes: npt.NDArray[np.uint64] = row_hashes(self._keys)[0]
        return hashes

    @cached_property
    def _sorted(self) -> list[Any]:
        return sorted(self._keys[self.column].unique().to_pylist())


Part = OfRanges | OfKeys
"""The part of a table that a proof compares: ranges of the split column, or the rows of given keys.

Only the part is read. The source is asked only for rows of the part; of the target's files, only those row groups are
read that may have a row of the part by their statistics.
"""


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
    """Computes hashes of each row: of its key, of the complete row, and of each column.

    *cells* are the groups whose rows are hashed; None: all rows.
    """

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


def are_asked_by_key(columns: Sequence[LoadColumn], keys: Collection[str], hashed: Collection[str]) -> bool:
    """Whether the source can be asked for the rows with some keys, by key values as the change log has them."""
    types = [column.sql_type for column in columns if column.name in keys]
    asked = all(text is not None and read_type(text).name in _ASKED_BY_KEY for text in types)
    return bool(keys) and asked and not {*keys} & {*hashed}


def _typed(texts: pa.Table, shape: Shape, name: str, bad: dict[int, Failure]) -> pa.Array:
    field = shape.field(name)
    column = texts[name].combine_chunks()
    return typed_column(column, type_of_landed_key(shape.type_of(name)), field, pa.array(np.arange(len(column))), bad)
