"""Casts columns of strings to their types by Arrow, if a pattern proves for all values that the cast is right.

The exact reader (:mod:`spark_jobs.sources.sql_server.types`) defines what is right, and reads all other columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.sql_server.type_text import INTEGERS, MONEY, SECOND_DIGITS, TEXTS, SqlType, read_type

Cast = Callable[[pa.Array, str, pa.DataType], pa.Array | None]
"""Converts texts, given source type and wanted type, to a column; None if the result is not certain."""


_GUID = "^[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$"


def cast_to(kind: pa.DataType) -> Cast | None:
    """The function that casts a column of strings to the Arrow type *kind*; None if only the exact reader can do it."""
    return _CASTS.get(str(kind).split("(")[0].split("[")[0])


def matches(texts: pa.Array, pattern: str) -> bool:
    """Whether every string that is not NULL matches the regular expression *pattern*."""
    return all_true(pc.match_substring_regex(texts, pattern))


def all_true(found: pa.Array) -> bool:
    """Whether no value is False; NULL counts as true."""
    return pc.all(found, min_count=0).as_py() is not False


def are_within(values: pa.Array, low: Any, high: Any) -> bool:
    """Whether *values*, apart from NULL, are from *low* to *high*."""
    bounds = pc.min_max(values).as_py()
    return bounds["min"] is None or (low <= bounds["min"] and bounds["max"] <= high)


def are_in_range(numbers: pa.Array, parsed: SqlType) -> bool:
    """Whether numbers, which fit the landing type, certainly fit the SQL type: a tinyint lands in a wider type."""
    if parsed.name in INTEGERS:
        return are_within(numbers, *INTEGERS[parsed.name][1:])
    money = MONEY.get(parsed.name)
    return money is None or are_within(numbers, 1 - money[2], money[2] - 1)


def _cast_text(texts: pa.Array, sql_type: str, kind: pa.DataType) -> pa.Array | None:
    parsed = read_type(sql_type)
    if parsed.name == "uniqueidentifier":
        return pc.ascii_upper(texts) if matches(texts, _GUID) else None
    if parsed.name not in TEXTS:
        return None
    length = 128 if parsed.name == "sysname" else parsed.length
    if length is None or length == -1:
        return texts
    # A text has at most as many characters as UTF-8 bytes, in any unit of the declared length.
    longest = pc.max(pc.binary_length(texts)).as_py()
    return texts if longest is None or longest <= length else None


def _guarded(pattern: str, prepare: Callable[[pa.Array], pa.Array] = lambda texts: texts) -> Cast:
    def cast(texts: pa.Array, sql_type: str, kind: pa.DataType) -> pa.Array | None:
        if not matches(texts, pattern):
            return None
        try:
            array = prepare(texts).cast(kind)
        except pa.ArrowInvalid:
            return None
        return array if are_in_range(array, read_type(sql_type)) else None

    return cast


_cast_integer = _guarded(r"^-?[0-9]{1,18}$", lambda texts: texts.cast(pa.int64()))
_cast_decimal = _guarded(r"^-?[0-9]+(\.[0-9]+)?$")
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"  # the calendar has no year 0


def _cast_timestamp(texts: pa.Array, sql_type: str, kind: pa.DataType) -> pa.Array | None:
    parsed = read_type(sql_type)
    if parsed.name == "datetimeoffset":
        return None
    digits = parsed.second_digits if parsed.name in SECOND_DIGITS else 7
    fraction = "[0-9]{1,12}" if digits == 7 else rf"[0-9]{{1,{digits}}}0{{0,{12 - digits}}}" if digits else "0{1,12}"
    pattern = rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}} [0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.{fraction})?$"
    # Digits beyond the sixth are cut, never rounded (C-82); a wall clock is read as UTC.
    cut = _guarded(pattern, lambda texts: pc.utf8_slice_codeunits(texts, 0, 26).cast(pa.timestamp("us")))
    return cut(texts, sql_type, kind)


_cast_double = _guarded(
    r"^-?[0-9]{1,200}(\.[0-9]{1,200})?([eE][+-]?[0-9]{1,2})?$", lambda texts: texts.cast(pa.float64())
)


def _cast_single(texts: pa.Array, sql_type: str, kind: pa.DataType) -> pa.Array | None:
    # By way of eight bytes, as the exact reader does; that reader refuses what four bytes cannot hold.
    doubles = _cast_double(texts, sql_type, pa.float64())
    if doubles is None:
        return None
    singles = doubles.cast(kind)
    is_held = pc.and_(pc.is_finite(singles), pc.equal(pc.equal(singles, 0), pc.equal(doubles, 0)))
    return singles if all_true(is_held) else None


_CASTS: dict[str, Cast] = {
    "string": _cast_text,
    "bool": lambda texts, _type, _kind: pc.equal(texts, "1") if matches(texts, "^[01]$") else None,
    "int16": _cast_integer,
    "int32": _cast_integer,
    "int64": _cast_integer,
    "float": _cast_single,
    "double": _cast_double,
    "decimal128": _cast_decimal,
    "timestamp": _cast_timestamp,
    "date32": _guarded(rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$"),
}
