"""Converts typed Arrow values to the strings that the readers of SQL types read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.sql_server.times import time_text
from spark_jobs.sources.sql_server.type_text import INTEGERS, MONEY, SqlType

_FLOATS = {"halffloat": (2**11, 3), "float": (2**24, 6), "double": (2**53, 15)}
"""Up to which number a floating type is exact for integers, and its exact decimal digits."""
_WHOLE = {*INTEGERS, "bit"}


def texts_of(values: pa.Array) -> pa.Array:
    """Typed values as strings that read back as the same values."""
    kind, types = values.type, pa.types
    if isinstance(kind, pa.DictionaryType):
        return texts_of(values.dictionary_decode())
    if is_binary(kind):
        return _by_value(values, lambda value: "0x" + value.hex())
    if types.is_decimal(kind):
        return _by_value(values, lambda value: format(value, "f"))
    if types.is_floating(kind):
        # Python prints the shortest text that reads back; a four-byte float has its own.
        single = values.cast(pa.float32()) if types.is_float16(kind) else values
        return _by_value(values, repr) if kind == pa.float64() else pc.cast(single, pa.string())
    if types.is_boolean(kind):
        return pc.if_else(values, "1", "0")
    if types.is_timestamp(kind) or types.is_time(kind):
        clock = pc.cast(values, pa.timestamp(kind.unit)) if types.is_timestamp(kind) else values
        # No type declares more than seven digits of a second.
        return pc.replace_substring_regex(pc.cast(clock, pa.string()), r"(\.[0-9]{7})00$", r"\1")
    return pc.cast(values, pa.string())


def texts_as(values: pa.Array, parsed: SqlType) -> pa.Array:
    """Typed values of a file as strings of the SQL type *parsed*, which is of another kind.

    The reader of the SQL type then refuses strings that are not values of the type.
    """
    kind, name, types = values.type, parsed.name, pa.types
    is_exact = name in _WHOLE or name == "decimal" or name in MONEY
    if types.is_floating(kind) and is_exact:
        texts = _by_value(texts_of(values), lambda text: text if "n" in text else format(Decimal(text), "f"))
    else:
        texts = texts_of(values)
    if name in _WHOLE:
        return pc.replace_substring_regex(texts, r"\.0*$", "")
    if name == "time":
        return _by_value(texts, lambda text: time_text(text, parsed.second_digits))
    if name == "datetimeoffset" and types.is_timestamp(kind):
        return pc.binary_join_element_wise(texts, "Z", "")
    return pc.binary_join_element_wise(texts, "00:00:00", " ") if types.is_date(kind) and name != "date" else texts


def beyond_exact(values: pa.Array, parsed: SqlType) -> pa.Array | None:
    """For each value, whether it may stand for more than one number of the SQL type *parsed*.

    A large integer may if *parsed* is a float type, and a large float may if *parsed* is an exact type. The result is
    None if the values' type and *parsed* are equally exact.
    """
    if pa.types.is_integer(values.type) and parsed.name in ("float", "real"):
        most = _FLOATS["float" if parsed.single else "double"][0]
        return pc.greater(pc.abs(values.cast(pa.float64(), safe=False)), most)
    limits = _FLOATS.get(str(values.type))
    if limits is None or not (parsed.name in _WHOLE or parsed.name == "decimal" or parsed.name in MONEY):
        return None
    scale = 0 if parsed.name in _WHOLE else parsed.digits[1]
    limit = limits[0] if scale == 0 else 10.0 ** (limits[1] - scale)
    return pc.greater_equal(pc.abs(values.cast(pa.float64())), limit)


def is_binary(kind: pa.DataType) -> bool:
    """Whether values of an Arrow type are bytes."""
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or pa.types.is_fixed_size_binary(kind)


def _by_value(values: pa.Array, spell: Callable[[Any], str]) -> pa.Array:
    spelled: Sequence[str | None] = [None if value is None else spell(value) for value in values.to_pylist()]
    return pa.array(spelled, pa.string())
