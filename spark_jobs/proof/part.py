"""The part of a table that a proof compares: ranges of the split column, or the rows of given keys.

Only the part is read. The source is asked only for rows of the part; of the target's files, only those row groups are
read that may have a row of the part by their statistics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.landing_zone.digest import row_hashes
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.proof.rows import Part, Shape, fitted, key_texts
from spark_jobs.sources.sql_server.type_text import INTEGERS, TEXTS, read_type
from spark_jobs.sources.sql_server.typed_rows import Failure, typed_column
from spark_jobs.sources.sql_server.types import type_of_landed_key

_ASKED_BY_KEY = {*INTEGERS, *TEXTS, "decimal", "date", "uniqueidentifier"}
"""Types of key columns whose values the change log has in a form by which a database finds exactly the same value."""


@dataclass(frozen=True)
class OfRanges(Part):
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


@dataclass(frozen=True)
class OfKeys(Part):
    """The rows with some keys; *values* has the keys' values as in the change log, one column for each key column."""

    shape: Shape
    values: pa.Table

    @classmethod
    def of(cls, keys: pa.Array, shape: Shape) -> OfKeys:
        """Make the part from encoded keys; a key whose values do not have the types of the key columns is left out."""
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


def are_asked_by_key(columns: Sequence[LoadColumn], keys: Collection[str], hashed: Collection[str]) -> bool:
    """Whether the source can be asked for the rows with some keys, by key values as the change log has them."""
    types = [column.sql_type for column in columns if column.name in keys]
    asked = all(text is not None and read_type(text).name in _ASKED_BY_KEY for text in types)
    return bool(keys) and asked and not {*keys} & {*hashed}


def _typed(texts: pa.Table, shape: Shape, name: str, bad: dict[int, Failure]) -> pa.Array:
    field = shape.field(name)
    column = texts[name].combine_chunks()
    return typed_column(column, type_of_landed_key(shape.type_of(name)), field, pa.array(np.arange(len(column))), bad)
