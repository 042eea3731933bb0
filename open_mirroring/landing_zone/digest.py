"""The logical digest of rows: equal rows give equal digests, whatever their order, files or encoding (I9, I16).

The digest of a set of rows is the sum modulo 2¹²⁸ of a 128-bit hash of each row, written as 32 hex digits. A sum does
not depend on order, so row order, row groups, files and Parquet encodings do not matter. A duplicate row does. Digests
are kept as long as files, so the hash is defined here on bytes and depends on no library:

* A value's bytes, padded with zeros to little-endian 64-bit words: boolean, integers, date (days) and timestamp
  (microseconds) 8 bytes, two's complement; floats their IEEE bits (4 or 8 bytes: every NaN and -0.0 is itself); decimal
  its unscaled integer, 16 bytes; string UTF-8; binary as it is. Strings and binaries beyond 256 bytes are replaced by
  their 16-byte BLAKE2b.
* A column's two seeds (one per 64-bit lane): BLAKE2b of its type tag, a zero byte and its name. The type tag holds what
  the bytes do not show, for example the scale of a decimal.
* A value's hash, per lane: ``h = seed + length``, then ``h = mix(h ^ word)`` for each word; *mix* is the finaliser of
  SplitMix64.
* A row's hash, per lane: ``mix(row seed + sum of its values' hashes)``. **A NULL adds nothing**: it differs from an
  empty string, and a nullable column added later (F-83) does not change the digests of older rows.

The digest detects accidents and wrong bookkeeping. It does not protect against forged rows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from open_mirroring.errors import TerminalError

EMPTY = "0" * 32
"""The digest of no rows."""

LONG_VALUE = 256
"""Longer strings and binaries, in bytes, are replaced by their BLAKE2b."""

_ROWS_AT_ONCE = 16_384  # intermediate arrays stay in the processor's cache
_MODULUS, _WORD = 1 << 128, (1 << 64) - 1

_Words = npt.NDArray[np.uint64]
_MASKS = np.array([(1 << (8 * n)) - 1 for n in range(9)], dtype=np.uint64)
_LOW_HALF, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_ROUNDS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LAST_SHIFT = np.uint64(31)


def digest_of(rows: pa.Table | pa.RecordBatch) -> str:
    """Return the digest of a table's rows as 32 hex digits; :data:`EMPTY` for a table without rows.

    The order of columns does not matter. Column names are compared exactly.

    Raises:
        TerminalError: ``TYPE_UNSUPPORTED`` for a column of a type that no landing zone file has.
    """
    low = high = 0
    for lanes in _hashed_rows(rows):
        low += _sum(lanes[0])
        high += _sum(lanes[1])
    return _text(low + (high << 64))


def _hashed_rows(rows: pa.Table | pa.RecordBatch) -> Iterator[_Words]:
    """The hashes of the rows in order, in batches."""
    if isinstance(rows, pa.Table) and rows.num_rows <= _ROWS_AT_ONCE:
        rows = rows.combine_chunks()  # every chunk costs its own calls, which dominate for few rows
    columns = [(index, *_column(field)) for index, field in enumerate(rows.schema)]
    for batch in rows.to_batches(_ROWS_AT_ONCE) if isinstance(rows, pa.Table) else _slices(rows):
        if batch.num_rows == 0:
            continue
        sums = np.repeat(_ROW_SEEDS, batch.num_rows, axis=1)
        for index, seeds, hashed in columns:
            array = batch.column(index)
            hashes = hashed(array, seeds)
            sums += hashes if array.null_count == 0 else hashes * array.is_valid().to_numpy(zero_copy_only=False)
        yield _mix(sums)


def row_hashes(rows: pa.Table | pa.RecordBatch) -> npt.NDArray[np.uint64]:
    """Return the 128-bit hash of each row, in the order of the rows, as two arrays of 64-bit words.

    The order of columns does not matter.

    Raises:
        TerminalError: ``TYPE_UNSUPPORTED`` for a column of a type that no landing zone file has.
    """
    found = list(_hashed_rows(rows))
    return np.concatenate(found, axis=1) if found else np.empty((2, 0), np.uint64)


def value_hashes(array: pa.Array, field: pa.Field) -> npt.NDArray[np.uint64]:
    """Return a 64-bit hash of each value of a column, in the order of the values. NULL has the hash 0.

    Raises:
        TerminalError: ``TYPE_UNSUPPORTED`` for a type that no landing zone file has.
    """
    seeds, hashed = _column(field)
    if not len(array):
        return np.empty(0, np.uint64)
    hashes: _Words = hashed(array, seeds)[0]
    return hashes if array.null_count == 0 else hashes * array.is_valid().to_numpy(zero_copy_only=False)


def combine(digests: Iterable[str]) -> str:
    """Return the digest of all rows together, from the digests of parts that have no row in common.

    Raises:
        TerminalError: ``LOG_DAMAGED`` for a digest that is not 32 lower-case hex digits.
    """
    return _text(sum(_number(digest) for digest in digests))


def _number(digest: str) -> int:
    if len(digest) != 32 or not set(digest) <= set("0123456789abcdef"):
        raise TerminalError(
            "LOG_DAMAGED",
            f"{digest!r} is not a digest",
            next_step="restore the ledger, or the file, from a backup: a digest has 32 lower-case hex digits",
        )
    return int(digest, 16)


def _text(total: int) -> str:
    return f"{total % _MODULUS:032x}"


def _seeds(text: str) -> _Words:
    return np.frombuffer(blake2b(text.encode(), digest_size=16).digest(), dtype="<u8").astype(np.uint64)[:, None]


_ROW_SEEDS = _seeds("row")


def _slices(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    return (batch.slice(start, _ROWS_AT_ONCE) for start in range(0, batch.num_rows, _ROWS_AT_ONCE))


def _mix(words: _Words) -> _Words:
    """The finaliser of SplitMix64, in place: a bijection in which every bit of the input reaches every output bit."""
    for shift, factor in _ROUNDS:
        words ^= words >> shift
        words *= factor
    words ^= words >> _LAST_SHIFT
    return words


def _sum(words: _Words) -> int:
    """The exact sum; NumPy's would wrap at 2⁶⁴."""
    return int((words & _LOW_HALF).sum()) + (int((words >> _HALF).sum()) << 32)


# --- a column's values as words -------------------------------------------------------------------------------

_Hashed = Callable[[pa.Array, _Words], _Words]
"""Computes the hashes of a column's values, one row of numbers per lane, from the column and its seeds."""


@functools.lru_cache(maxsize=4096)
def _column(field: pa.Field) -> tuple[_Words, _Hashed]:
    """The seeds of a column and its hash function. The caller drops the hashes of NULLs."""
    kind = field.type
    if kind in _SIMPLE:
        tag, hashed = _SIMPLE[kind]
    elif pa.types.is_decimal128(kind):
        tag, hashed = f"decimal{kind.scale}", _decimals
    else:
        raise TerminalError(
            "TYPE_UNSUPPORTED",
            f"column {field.name!r} has the type {kind}, which no file of the landing zone has",
            next_step="give the rows the types of the table's file schema",
        )
    return _seeds(f"{tag}\0{field.name}"), hashed


def _numbers(kind: str, length: int = 8) -> _Hashed:
    """The hash function of a fixed-width column whose values are stored in memory as NumPy's *kind*."""

    def hashed(array: pa.Array, seeds: _Words) -> _Words:
        values = _values(array, kind)
        widened = values.astype(np.uint64) if length < 8 else values.astype(np.int64).view(np.uint64)
        return _fixed(widened[:, None], length, seeds)

    return hashed


def _booleans(array: pa.Array, seeds: _Words) -> _Words:
    return _numbers("<i1")(array.cast(pa.int8()), seeds)


def _decimals(array: pa.Array, seeds: _Words) -> _Words:
    return _fixed(_values(array, "2<u8"), 16, seeds)


def _values(array: pa.Array, kind: str) -> npt.NDArray[Any]:
    # Read the buffer directly: three Arrow calls per column would cost more than hashing a few rows.
    where = np.dtype(kind).itemsize * array.offset
    return np.frombuffer(array.buffers()[1], kind, count=len(array), offset=where)


def _fixed(words: _Words, length: int, seeds: _Words) -> _Words:
    hashes = _mix((seeds + np.uint64(length)) ^ words[:, 0])
    for place in range(1, words.shape[1]):
        hashes = _mix(hashes ^ words[:, place])
    return hashes


def _texts(array: pa.Array, seeds: _Words) -> _Words:
    _, offsets_buffer, data_buffer = array.buffers()
    bounds = np.frombuffer(offsets_buffer, dtype=np.int32)[array.offset :][: len(array) + 1].astype(np.int64)
    first, last = int(bounds[0]), int(bounds[-1])
    data = b"" if data_buffer is None else memoryview(data_buffer)[first:last]
    starts, lengths = bounds[:-1] - first, np.diff(bounds)
    long = np.flatnonzero(lengths > LONG_VALUE)
    short = [blake2b(data[starts[i] : starts[i] + lengths[i]], digest_size=16).digest() for i in long]
    # Eight zero bytes at the end, so that every byte of the data begins a whole word.
    padded = np.frombuffer(b"".join([data, *short, bytes(8)]), dtype=np.uint8)
    word_at: _Words = np.ndarray((padded.size - 7,), dtype="<u8", buffer=padded, strides=(1,))
    begun = lengths.astype(np.uint64)
    starts[long], lengths[long] = last - first + 16 * np.arange(long.size), 16
    # Longest first: the rows that still have a word at a given place are then the first ones, a plain slice.
    order = np.argsort((LONG_VALUE - lengths).astype(np.int16), kind="stable")
    starts, lengths, lanes = starts[order], lengths[order], seeds + begun[order]
    for place in range(0, int(lengths[0]), 8):
        going, filled = np.searchsorted(-lengths, (-place, -place - 7))
        words = word_at[starts[:going] + place]
        words[filled:] &= _MASKS[lengths[filled:going] - place]
        lanes[:, :going] = _mix(lanes[:, :going] ^ words)
    hashes = np.empty_like(lanes)
    hashes[:, order] = lanes
    return hashes


# The tags are written out: a digest must not change because a library renames its types.
_SIMPLE: dict[pa.DataType, tuple[str, _Hashed]] = {
    pa.bool_(): ("bool", _booleans),
    pa.int16(): ("int", _numbers("<i2")),
    pa.int32(): ("int", _numbers("<i4")),
    pa.int64(): ("int", _numbers("<i8")),
    pa.float32(): ("float32", _numbers("<u4", length=4)),
    pa.float64(): ("float64", _numbers("<i8")),
    pa.string(): ("string", _texts),
    pa.binary(): ("binary", _texts),
    pa.date32(): ("date", _numbers("<i4")),
    pa.timestamp("us", tz="UTC"): ("timestamp", _numbers("<i8")),
}
