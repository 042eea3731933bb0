"""The fast path of Avro messages: reads many records of one schema field by field, into rows of the change log.

It decodes only messages that meet the same conditions as JSON messages, see
:class:`~spark_jobs.sources.qlik.message.followed.Followed`. A record is valid only if it ends at the last byte of its
message. Public source: Apache Avro 1.11 specification, *Binary Encoding*, *Logical Types* (K-04, K-35).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.row_key import buckets_of_bytes
from spark_jobs.changelog.schema import DELETE, UPDATE
from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.contract.fast_decoder import NOT_ASKED, RowFields, Transacted
from spark_jobs.sources.contract.message_blocks import Places
from spark_jobs.sources.qlik.message.avro import Field, decimal_text
from spark_jobs.sources.qlik.message.followed import LOGGED, Followed
from spark_jobs.sources.qlik.message.headers import read_headers
from spark_jobs.sources.qlik.positions import qlik_positions
from spark_jobs.sources.qlik.types import is_out_of_range
from spark_jobs.sources.sql_server.json_columns import canonical_column, json_lists, json_objects

Booleans = npt.NDArray[np.bool_]
_LONGEST_VARINT, _LONGEST_INTEGER = 10, 8
_PADDING = bytes(16)
_SECONDS = (-62_135_596_800, 253_402_300_799)
"""The years 1 to 9999."""
_PLAIN_SCALE = 6
"""The most digits after the point of a decimal that Arrow never writes with an exponent."""
_UNITS = {"millis": ("ms", 10**3), "micros": ("us", 10**6), "nanos": ("ns", 10**9)}
Spot = tuple[int, int, int, int]
"""The position of a message's record in a block: the message's index and place, the record's start and end."""
_NOTHING = pa.scalar(None, pa.string())


def record_rows(followed: Followed, content: bytes, spots: Sequence[Spot]) -> list[RowFields]:
    """The rows of those messages for which the exact decoder would certainly give the same rows.

    All other messages are skipped.
    """
    schema = followed.writer
    if schema is None:
        return []
    numbers, places, starts, ends = np.array(spots, np.int64).T
    try:
        read = AvroColumns(schema.parsed, content, starts, ends)
        records = _Records(followed, schema.fields, read.columns, read.is_valid)
        return records.rows(numbers, places)
    except (Unsupported, RecursionError, pa.ArrowInvalid):
        return []


class _Records:
    """Records of one structure as columns: headers, and both images as texts."""

    def __init__(self, followed: Followed, fields: Sequence[Field], read: Mapping[str, Any], is_sure: Booleans) -> None:
        self._followed, self._names = followed, [field.name for field in fields]
        self._sure, self._headers = is_sure & read["headers"].is_there, read["headers"].columns
        data, before = read["data"], read.get("beforeData") or Rows(np.zeros(len(is_sure), bool), {})
        self._has_data, self._has_before = data.is_there, before.is_there
        self._new = {field.name: self._texts(data, field) for field in fields}
        self._old = {field.name: self._texts(before, field) for field in fields}
        self._sure &= self._has_data | self._has_before

    def _texts(self, image: Rows, field: Field) -> pa.Array:
        """The texts of a column of an image; a value without one makes its record unsure."""
        if not image.columns:
            return pa.nulls(len(self._sure), pa.string())
        column = image.columns[field.name]
        if isinstance(column, Rows):
            raise Unsupported(field.name)
        texts = texts_of(column, field.logical, field.scale)
        self._sure &= _booleans(pc.equal(column.is_null(), texts.is_null()))
        return texts

    def rows(self, numbers: Any, places: Any) -> list[RowFields]:
        followed, is_pair = self._followed, self._has_data & self._has_before
        differ = {n: ~_same(new, self._old[n]) & is_pair for n, new in self._new.items()}
        image = {name: self._image(name) for name in self._names}
        for name in followed.key:
            self._sure &= _booleans(image[name].is_valid()) & ~differ[name]
        operations, kinds = self._judged(differ)
        is_set = kinds != DELETE
        for name, bounds in followed.ranges:
            outside = [text is not None and is_out_of_range(text, *bounds) for text in image[name].to_pylist()]
            self._sure &= ~(np.array(outside, bool) & is_set)
        positions = self._positions(operations, places, is_set)
        types = [followed.structure.by_name[name].log_type() for name in followed.key]
        keys = [
            canonical_column(kind, convert, image[name])
            for kind, convert, name in zip(types, followed.convert, followed.key, strict=True)
        ]
        for key in keys:
            self._sure &= _booleans(key.is_valid())
        chosen = pa.array(np.flatnonzero(self._sure))
        if not len(chosen):
            return []
        lines = json_objects(self._names, [image[name].take(chosen) for name in self._names])
        images = lines.cast(pa.binary()).to_pylist()
        canonical = json_lists([key.take(chosen) for key in keys]).cast(pa.binary()).to_pylist()
        at = chosen.to_numpy()
        sets, ops = is_set[at].tolist(), kinds[at].tolist()
        return list(
            zip(
                numbers[at].tolist(),
                repeat(followed.number),
                positions.take(chosen).cast(pa.binary()).to_pylist(),
                ops,
                canonical,
                buckets_of_bytes(canonical),
                repeat(True),
                [line if is_set else None for line, is_set in zip(images, sets, strict=True)],
                [None if is_set else line for line, is_set in zip(images, sets, strict=True)],
                self._marks(chosen, (kinds == UPDATE) & is_pair, images),
                self._transactions(chosen),
            )
        )

    def _image(self, name: str) -> pa.Array:
        if self._has_data.all():
            return self._new[name]
        return pc.if_else(pa.array(self._has_data), self._new[name], self._old[name])

    def _header(self, name: str, *kinds: pa.DataType) -> pa.Array:
        column = self._headers.get(name)
        if column is None:
            return pa.nulls(len(self._sure), kinds[0])
        if isinstance(column, Rows) or column.type not in kinds:
            raise Unsupported(name)
        return column

    def _judged(self, differ: Mapping[str, Booleans]) -> tuple[Any, Any]:
        """Each record's operation, and that of its row; headers and images that do not agree make it unsure."""
        followed, shape = self._followed, self._has_data * 2 + self._has_before
        parts = [
            self._header("operation", pa.string()),
            self._header("changeMask", pa.binary(), pa.string()),
            self._header("columnMask", pa.binary(), pa.string()),
        ]
        coded, values = shape.astype(np.int64), list[list[Any]]()
        for column in parts:
            found = column.dictionary_encode()
            values.append([*found.dictionary.to_pylist(), None])
            codes = found.indices.fill_null(len(values[-1]) - 1).to_numpy()
            coded = coded * len(values[-1]) + codes
        forms, form_of = np.unique(coded, return_inverse=True)
        is_sure, operations, denied = np.zeros(len(forms), bool), list[str](), list[Sequence[str]]()
        for at, form in enumerate(forms.tolist()):
            members = []
            for known in reversed(values):
                form, code = divmod(form, len(known))
                members.append(known[code])
            columns, change, operation = members
            has_data, has_before = form >= 2, bool(form % 2)
            sequence = "1" * followed.sequence_digits
            said = {"operation": operation, "changeSequence": sequence, "changeMask": change, "columnMask": columns}
            operations.append(operation or "")
            denied.append(())
            try:
                headers = read_headers({"headers": said}, followed.sequence_digits)
            except Refusal:
                continue
            is_sure[at] = followed.is_sure(headers, has_data=has_data, has_before=has_before)
            if has_data and has_before:
                denied[-1] = followed.unchanged(headers)
        self._sure &= is_sure[form_of]
        for name in {name for names in denied for name in names}:
            self._sure &= ~(np.array([name in names for names in denied])[form_of] & differ[name])
        logged = np.array([LOGGED.get(operation, "") for operation in operations])
        return np.array(operations)[form_of], logged[form_of]

    def _positions(self, operations: Any, places: Any, is_set: Booleans) -> pa.Array:
        digits = self._followed.sequence_digits
        is_load = pa.array(operations == "REFRESH")
        sequences = pc.if_else(is_load, "0" * digits, self._header("changeSequence", pa.string()))
        is_sequence = pc.match_substring_regex(sequences, f"^[0-9]{{{digits}}}$")
        is_above = pc.or_(is_load, pc.match_substring_regex(sequences, "[1-9]"))
        counters = self._header("transactionEventCounter", pa.int64()).fill_null(0)
        self._sure &= _booleans(pc.and_(is_sequence, is_above).fill_null(False)) & _booleans(
            pc.greater_equal(counters, 0)
        )
        counters = pc.if_else(is_load, pa.array(places), counters)
        return qlik_positions(sequences, pc.if_else(pa.array(is_set), "1", "0"), counters)

    def _marks(self, chosen: pa.Array, is_update: Booleans, images: Sequence[bytes]) -> list[int | None]:
        marks: list[int | None] = [None] * len(images)
        spots = np.flatnonzero(is_update[chosen.to_numpy()]) if self._followed.is_marked else np.array([], np.int64)
        old = [self._old[name].take(chosen.take(pa.array(spots))) for name in self._names]
        lines = json_objects(self._names, old).cast(pa.binary()).to_pylist()
        for spot, line in zip(spots.tolist(), lines, strict=True):
            marks[spot] = self._followed.mark(line, images[spot])
        return marks

    def _transactions(self, chosen: pa.Array) -> Iterable[Transacted]:
        if not self._followed.logs_transactions:
            return repeat(NOT_ASKED, len(chosen))
        columns = [self._header(name, pa.string()).take(chosen) for name in ("timestamp", "transactionId")]
        parts = [pc.if_else(pc.equal(one, ""), _NOTHING, one).cast(pa.binary()).to_pylist() for one in columns]
        return zip(*parts, strict=True)


def _same(one: pa.Array, other: pa.Array) -> Booleans:
    equal = pc.or_(pc.equal(one, other).fill_null(False), pc.and_(one.is_null(), other.is_null()))
    return _booleans(equal)


def _booleans(values: pa.Array) -> Booleans:
    found: Booleans = values.to_numpy(zero_copy_only=False)
    return found


class Unsupported(Exception):
    """The error that a schema has a type which only the exact decoder reads."""


class Rows(NamedTuple):
    """The values of a field that is itself a record: which messages have it, and a column for each of its fields."""

    is_there: Booleans
    columns: Mapping[str, pa.Array | Rows]


class AvroColumns:
    """Reads many Avro records of one schema at once, without logical types.

    Record *i* is the part of *content* from byte ``starts[i]`` to byte ``ends[i]``.
    """

    def __init__(self, schema: Any, content: bytes, starts: Places, ends: Places) -> None:
        self._bytes = np.frombuffer(content + _PADDING, np.uint8)
        self._at, self._ends, self._last = starts.copy(), ends, len(content)
        self._named: Mapping[str, Any] = schema["__named_schemas"]
        self.is_valid = np.ones(len(starts), bool)
        """Which records are exactly the bytes of their messages."""
        self.columns: Mapping[str, Any] = self._record(schema, np.arange(len(starts))).columns
        self.is_valid &= self._at == ends

    def _record(self, schema: Any, rows: Places) -> Rows:
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
                symbols = pa.array(kind["symbols"], pa.string())
                return symbols.take(pa.array(self._within(self._long(rows), len(symbols), rows)))
            case "fixed":
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
