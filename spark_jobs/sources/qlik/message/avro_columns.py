"""Reads many Avro records of one schema at once, field by field, into columns (K-04, K-35).

A record is valid only if it ends at the last byte of its message. Public source: Apache Avro 1.11 specification,
*Binary Encoding*, *Logical Types*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.contract.message_blocks import Places
from spark_jobs.sources.qlik.message.avro import decimal_text

Booleans = npt.NDArray[np.bool_]
_LONGEST_VARINT, _LONGEST_INTEGER = 10, 8
_PADDING = bytes(16)
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999."""
_PLAIN_SCALE = 6
"""The most digits after the point of a decimal that Arrow never writes with an exponent."""
_UNITS = {"millis": ("ms", 10**3), "micros": ("us", 10**6), "nanos": ("ns", 10**9)}


class Unsupported(Exception):
    """The error that a schema has a type which only the exact decoder reads."""


class Rows(NamedTuple):
    """The values of a field that is itself a record: which messages have it, and a column for each of its fields."""

    is_there: Booleans
    columns: Mapping[str, pa.Array | Rows]


class AvroColumns:
    """Reads Avro records of one schema, without logical types: record *i* is ``content[starts[i]:ends[i]]``."""

    def __init__(self, schema: Any, content: bytes, starts: Places, ends: Places) -> None:
        self._bytes = np.frombuffer(content + _PADDING, np.uint8)
        self._at, self._ends, self._last = starts.copy(), ends, len(content)
        self._named: dict[str, Any] = {}
        self.is_valid = np.ones(len(starts), bool)
        """Which records are exactly the bytes of their messages."""
        self.columns: Mapping[str, Any] = self._record(schema, np.arange(len(starts))).columns
        self.is_valid &= self._at == ends

    def _record(self, schema: Any, rows: Places) -> Rows:
        self._named[schema["name"]] = schema
        columns = {field["name"]: self._read(field["type"], rows) for field in schema["fields"]}
        return Rows(np.ones(len(rows), bool), columns)

    def _read(self, kind: Any, rows: Places) -> pa.Array | Rows:
        kind = self._named.get(kind, kind) if isinstance(kind, str) else kind
        if isinstance(kind, list):
            return self._union(kind, rows)
        match kind if isinstance(kind, str) else kind["type"]:
            case "record":
                return self._record(kind, rows)
            case "enum":
                self._named[kind["name"]] = kind
                symbols = pa.array(kind["symbols"], pa.string())
                return symbols.take(pa.array(self._within(self._long(rows), len(symbols), rows)))
            case "fixed":
                self._named[kind["name"]] = kind
                return self._parts(rows, np.full(len(rows), kind["size"], np.int64))
            case "string" | "bytes" as name:
                parts = self._parts(rows, self._long(rows))
                return parts if name == "bytes" else parts.cast(pa.string())
            case "int" | "long":
                return pa.array(self._long(rows))
            case "boolean":
                return pa.array(self._within(self._fixed(rows, 1)[:, 0].astype(np.int64), 2, rows) == 1)
            case "float":
                return pa.array(self._fixed(rows, 4).view("<f4")[:, 0])
            case "double":
                return pa.array(self._fixed(rows, 8).view("<f8")[:, 0])
            case dict() | list() as inner:
                return self._read(inner, rows)
            case name if name in self._named:
                return self._read(name, rows)
            case other:
                raise Unsupported(str(other))

    def _union(self, kinds: Any, rows: Places) -> pa.Array | Rows:
        if len(kinds) != 2 or "null" not in kinds:
            raise Unsupported("a union of other types")
        null = kinds.index("null")
        is_there = self._within(self._long(rows), 2, rows) != null
        found = self._read(kinds[1 - null], rows[is_there])
        if is_there.all():
            return found
        spots = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
        return _spread(found, spots, is_there)

    def _within(self, numbers: Places, most: int, rows: Places) -> Places:
        is_known = (numbers >= 0) & (numbers < most)
        self.is_valid[rows[~is_known]] = False
        return np.where(is_known, numbers, 0)

    def _long(self, rows: Places) -> Places:
        at = self._at[rows]
        byte = self._bytes[np.minimum(at, self._last)].astype(np.uint64)
        value, going = byte & np.uint64(0x7F), np.flatnonzero(byte >= 0x80)
        at += 1
        for number in range(1, _LONGEST_VARINT):
            if not len(going):
                break
            byte = self._bytes[np.minimum(at[going], self._last)].astype(np.uint64)
            value[going] |= (byte & np.uint64(0x7F)) << np.uint64(7 * number)
            at[going] += 1
            if number == _LONGEST_VARINT - 1:
                self.is_valid[rows[going[byte > 1]]] = False
            going = going[byte >= 0x80]
        self._at[rows] = at
        return (value >> np.uint64(1)).view(np.int64) ^ -(value & np.uint64(1)).view(np.int64)

    def _fixed(self, rows: Places, size: int) -> npt.NDArray[np.uint8]:
        at = np.minimum(self._at[rows], self._last)
        self._at[rows] += size
        return self._bytes[at[:, None] + np.arange(size)]

    def _parts(self, rows: Places, lengths: Places) -> pa.Array:
        starts = self._at[rows]
        is_inside = (lengths >= 0) & (lengths <= self._ends[rows] - starts)
        self.is_valid[rows[~is_inside]] = False
        lengths = np.where(is_inside, lengths, 0)
        self._at[rows] = starts + lengths
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        moved = np.repeat(starts - offsets[:-1], lengths)
        content = self._bytes[moved + np.arange(len(moved))]
        return pa.Array.from_buffers(pa.binary(), len(rows), [None, pa.py_buffer(offsets), pa.py_buffer(content)])


def _spread(found: pa.Array | Rows, spots: pa.Array, is_there: Booleans) -> pa.Array | Rows:
    if isinstance(found, Rows):
        at = np.flatnonzero(is_there)
        inner = np.zeros(len(is_there), bool)
        inner[at] = found.is_there
        return Rows(inner, {name: _spread(column, spots, is_there) for name, column in found.columns.items()})
    return found.take(spots)


def texts_of(column: pa.Array, logical: str, scale: int) -> pa.Array:
    """The values of a column as strings, spelled as :meth:`DataSchema.image` spells them.

    Null for a value that has no such string.
    """
    kind, types = column.type, pa.types
    if types.is_string(kind):
        return column
    if types.is_binary(kind):
        if logical == "decimal":
            return _decimals(column, scale)
        return pa.array([None if raw is None else f"0x{raw.hex().upper()}" for raw in column.to_pylist()], pa.string())
    if types.is_boolean(kind):
        return pc.if_else(column, "true", "false")
    if types.is_floating(kind):
        # Two numbers that are none are never the same.
        spelled = [None if number is None else repr(number) for number in column.to_pylist()]
        return pc.if_else(pc.is_finite(column), pa.array(spelled, pa.string()), pa.scalar(None, pa.string()))
    if logical == "date":
        days = _bounded(column, -719_162, 2_932_896)
        return days.cast(pa.int32()).cast(pa.date32()).cast(pa.string())
    form, _, unit = logical.rpartition("-")
    if unit not in _UNITS:
        return column.cast(pa.string())
    name, per_second = _UNITS[unit]
    if form == "time":
        bits, clock = (pa.int32(), pa.time32("ms")) if name == "ms" else (pa.int64(), pa.time64(name))
        return _bounded(column, 0, 86_400 * per_second - 1).cast(bits).cast(clock).cast(pa.string())
    low, high = (_SECONDS[0] * per_second, _SECONDS[1] * per_second + per_second - 1)
    moments = column if name == "ns" else _bounded(column, low, high)
    return moments.cast(pa.timestamp(name)).cast(pa.string())


def _bounded(numbers: pa.Array, low: int, high: int) -> pa.Array:
    is_inside = pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))
    return pc.if_else(is_inside, numbers, pa.scalar(None, numbers.type))


def _decimals(column: pa.Array, scale: int) -> pa.Array:
    lengths = pc.binary_length(column).fill_null(0).to_numpy()
    if scale > _PLAIN_SCALE or (lengths > _LONGEST_INTEGER).any():
        return pa.array([None if raw is None else decimal_text(raw, scale) for raw in column.to_pylist()], pa.string())
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset :][: len(column)].astype(np.int64)
    content = np.frombuffer((column.buffers()[2] or pa.py_buffer(b"")).to_pybytes() + _PADDING, np.uint8)
    value = np.zeros(len(column), np.uint64)
    for number in range(int(lengths.max(initial=0))):
        value = np.where(
            number < lengths, value << np.uint64(8) | content[np.minimum(offsets + number, len(content) - 1)], value
        )
    bits = (64 - 8 * np.maximum(lengths, 1)).astype(np.int64)
    low = (value << bits.astype(np.uint64)).view(np.int64) >> bits
    wide = np.stack([low, low >> 63], axis=1)
    numbers = pa.Array.from_buffers(pa.decimal128(19, scale), len(low), [None, pa.py_buffer(wide)])
    return pc.if_else(column.is_valid(), numbers.cast(pa.string()), pa.scalar(None, pa.string()))
