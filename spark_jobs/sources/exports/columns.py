"""Chooses the landing zone's type of each exported column, and converts the column's values without loss.

If the column's SQL type is unknown, the Arrow type of the file decides; if it is known, every value has to fit the SQL
type. Two losses are intended: digits of a second beyond the sixth are cut, never rounded (C-82), and times without a
zone are read as UTC.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.sources.sql_server.arrow_texts import beyond_exact, is_binary, texts_as
from spark_jobs.sources.sql_server.chosen_types import can_land, landed_as
from spark_jobs.sources.sql_server.type_text import (
    INTEGERS,
    SECOND_DIGITS,
    TEXTS,
    TIMESTAMPS,
    SqlType,
    is_known,
    landing_type,
    read_any,
    read_type,
)
from spark_jobs.sources.sql_server.typed_rows import Failure, all_true, are_in_range, are_within, typed_column
from spark_jobs.sources.sql_server.types import type_of_landed_key

_BY_ARROW = {
    pa.bool_(): "bool",
    pa.int8(): "int16",
    # SQL Server's tinyint is unsigned; this is its Parquet type.
    pa.uint8(): "int16",
    pa.int16(): "int16",
    pa.uint16(): "int32",
    pa.int32(): "int32",
    pa.uint32(): "int64",
    pa.int64(): "int64",
    pa.float16(): "float32",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.date32(): "date",
    pa.date64(): "date",
    **dict.fromkeys((pa.string(), pa.large_string(), pa.string_view(), pa.uuid()), "string"),
    **dict.fromkeys((pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")), "string"),
}
_GUID = "[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"
_HOLDS = {
    "int": {"bool", "decimal", "float"},
    "float": {"bool", "int", "decimal"},
    "decimal": {"bool", "int"},
    "timestamp": {"date"},
    "date": {"timestamp"},
}
"""File type to landing types that it can hold exactly although they are of another kind; each value is checked."""
_GUID_SPELLED = "looks like a guid that the stream would spell in capitals: name the column's SQL type"
_UTC = {"utc", "etc/utc", "gmt", "z", "zulu", "+00:00", "+0000", "+00"}
_MOST_DIGITS, _SQL_DIGITS = 38, 7
"""The most digits of a decimal in the landing zone, and of a second in SQL Server."""
_TIME_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 7}
_FIRST = int((datetime(1, 1, 1) - datetime(1970, 1, 1)).total_seconds()) * 1_000_000
_LAST = int((datetime(9999, 12, 31, 23, 59, 59) - datetime(1970, 1, 1)).total_seconds()) * 1_000_000 + 999_999
_FIRST_DAY, _LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))


def landing_column(name: str, kind: pa.DataType, sql_type: str | None, chosen: str | None = None) -> LoadColumn:
    """Returns the column *name* of an initial load, for a column of an exported file with the Arrow type *kind*.

    *sql_type* is the column's type at the source, if known. *chosen* is the column's landing type under `types` of the
    table in the mirror file (G-110). Raises ``TYPE_UNSUPPORTED`` if *kind* does not fit the other two types, or if the
    export may have lost a part of the values.
    """
    if sql_type is not None and chosen == "string" and not is_known(sql_type):
        if _own_type(kind) == "string" and not pa.types.is_time(kind):
            return LoadColumn(name, chosen, sql_type)
        raise _unsupported(name, f"the file holds {kind}, and the text of a {sql_type} is unknown", "export it as text")
    column = _read_as(name, kind, sql_type)
    if chosen is None or (chosen == column.type and (sql_type is not None or pa.types.is_time(kind))):
        return column
    # A text of the export may have another spelling than the stream's text of the same value.
    is_held = can_land(column.type, chosen) or _family(chosen) in _HOLDS.get(_family(column.type), ())
    if sql_type is None and (chosen == "string" or not is_held):
        what = (
            f"{kind} cannot land as {chosen}, which `types` or `hash` of the table says, without its type at the source"
        )
        raise _unsupported(name, what, "name its SQL type under `types` of `initial_load`")
    try:
        landing = chosen if sql_type is None else landed_as(sql_type, chosen)
    except TerminalError as error:
        raise _unsupported(name, error.what, error.next_step) from error
    parsed = read_any(sql_type or "")
    # The export lost a part of the source's text: its offset, or its seventh digit.
    is_cut = pa.types.is_timestamp(kind) and (parsed.name == "datetimeoffset" or parsed.second_digits > 6)
    if chosen == "string" and is_cut:
        what = f"{kind} cannot hold all digits of a {sql_type}, which `types` of the table lands as text"
        raise _unsupported(name, what, "export the column as text")
    return column._replace(type=landing)


def _read_as(name: str, kind: pa.DataType, sql_type: str | None) -> LoadColumn:
    own = _own_type(kind)
    if sql_type is None:
        if own is None:
            raise _unsupported(name, f"{kind} has no type in the landing zone", "name its SQL type under `types`")
        return LoadColumn(name, own, held=_held(kind))
    wanted, parsed = landing_type(sql_type), read_type(sql_type)
    if pa.types.is_time(kind) and parsed.name in TEXTS:
        return LoadColumn(name, wanted, held=_held(kind))  # compared with the stream's type later
    if pa.types.is_null(kind) or _is_held(kind, own or "", parsed, wanted):
        return LoadColumn(name, wanted, sql_type)
    raise _unsupported(
        name, f"the file holds {kind}, which may have lost what a {sql_type} is", f"export it as {sql_type} or as text"
    )


def _is_held(kind: pa.DataType, own: str, parsed: SqlType, wanted: str) -> bool:
    if pa.types.is_time(kind) or parsed.name == "time":
        return parsed.name == "time" and own == "string"
    is_clock = {_family(own), _family(wanted)} == {"date", "timestamp"}
    if is_clock and (parsed.name == "datetimeoffset" or "zone" in _held(kind)):
        return False
    is_alike = own == "string" or _family(own) == _family(wanted)
    return is_alike or _family(wanted) in _HOLDS.get(_family(own), ())


def _held(kind: pa.DataType) -> list[str]:
    """Return what times are in their file: the stream may show another type later (G-114)."""
    types = pa.types
    digits = ["milliseconds"] if (types.is_timestamp(kind) or types.is_time(kind)) and kind.unit in ("s", "ms") else []
    if not types.is_timestamp(kind):
        return ["time of day", *digits] if types.is_time(kind) else []
    clock = ["wall clock"] if kind.tz is None else [] if kind.tz.casefold() in _UTC else ["zone"]
    return [*clock, *digits]


def land_rows(
    batch: pa.RecordBatch, columns: Sequence[LoadColumn], schema: pa.Schema
) -> tuple[pa.Table, Failure | None]:
    """Converts a batch to *schema*; returns also why the first row that does not fit fails, None if all rows fit."""
    bad: dict[int, Failure] = {}
    arrays = [
        land_column(values, column, field, bad)
        for values, column, field in zip(batch.columns, columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=schema), bad[min(bad)] if bad else None


def land_column(values: pa.Array, column: LoadColumn, field: pa.Field, bad: dict[int, Failure]) -> pa.Array:
    """Converts exported values to the type of *field*; adds to *bad*, by index, why values do not fit."""
    array = _plain(values)
    if column.sql_type is not None and pa.types.is_string(array.type):
        return _read_texts(array, column.sql_type, field, bad)
    own, sql_type = _own_type(array.type), column.sql_type
    if pa.types.is_time(array.type):
        return _read_typed(array, sql_type or f"time({_TIME_DIGITS[array.type.unit]})", column, field, bad)
    if sql_type is None:
        sql_type, is_other = type_of_landed_key(column.type), own is not None and own != column.type
    else:
        is_alike = own is None or _family(own) == _family(column.type)
        is_other = is_known(sql_type) and not (is_alike and column.type == landing_type(sql_type))
    if is_other:
        return _read_typed(array, sql_type, column, field, bad)
    landed = _cast(array, column, field)
    if landed is None:
        if not field.nullable and pa.types.is_timestamp(array.type) and array.type.unit == "ns":
            lost = pc.not_equal(pc.floor_temporal(array, unit="microsecond"), array)
            _note_where(lost, column, "has more than 6 digits of a second", bad)
        # The exact reader finds the value that does not fit.
        texts, index = texts_as(array, read_type(sql_type)), pa.array(np.arange(len(array)))
        return typed_column(texts, sql_type, field, index, bad)
    if column.sql_type is None and pa.types.is_string(landed.type):
        _check_guids(landed, column, is_key=not field.nullable, bad=bad)
    if not field.nullable and landed.null_count:
        at = pc.index(landed.is_null(), pa.scalar(True)).as_py()
        bad.setdefault(at, Failure(at, "KEY_INVALID", f"the key column {column.name!r} is NULL"))
    return landed


def _read_texts(texts: pa.Array, sql_type: str, field: pa.Field, bad: dict[int, Failure]) -> pa.Array:
    index = pa.array(np.arange(len(texts)))
    found: dict[int, Failure] = {}
    array = typed_column(texts, sql_type, field, index, found)
    name = read_any(sql_type).name
    if found and (name in INTEGERS or name == "bit"):
        # A data frame writes whole numbers like that in a column with NULL.
        texts = pc.replace_substring_regex(texts, r"^([+-]?[0-9]{1,15})\.0+$", r"\1")
    elif found and name in TIMESTAMPS and name != "datetimeoffset":
        # A time in UTC as wall clock, and midnight as its day (G-114).
        texts = pc.replace_substring_regex(texts, r"(:[0-9]{2}(?:\.[0-9]+)?)(?:Z| ?[+-]00:00)$", r"\1")
        texts = pc.replace_substring_regex(texts, r"^([0-9]{4}-[0-9]{2}-[0-9]{2})$", r"\1 00:00:00")
    else:
        bad.update({at: one for at, one in found.items() if at not in bad})
        return array
    return typed_column(texts, sql_type, field, index, bad)


def _read_typed(
    array: pa.Array, sql_type: str, column: LoadColumn, field: pa.Field, bad: dict[int, Failure]
) -> pa.Array:
    parsed, kind = read_type(sql_type), array.type
    beyond = beyond_exact(array, parsed)
    if beyond is not None:
        _note_where(
            beyond, column, f"may have been rounded: {kind} does not hold all such numbers; export it as text", bad
        )
    found: dict[int, Failure] = {}
    index = pa.array(np.arange(len(array)))
    landed = typed_column(texts_as(array, parsed), sql_type, field, index, found)
    for at, one in found.items():
        reason = f"{one.reason}; the file holds {kind}: export it as {sql_type} or as text"
        bad.setdefault(at, replace(one, reason=one.reason if one.code == "KEY_INVALID" else reason))
    return landed


def _own_type(kind: pa.DataType) -> str | None:
    if isinstance(kind, pa.DictionaryType):
        return _own_type(kind.value_type)
    if kind in _BY_ARROW:
        return _BY_ARROW[kind]
    if is_binary(kind):
        return "binary"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= min(kind.precision, _MOST_DIGITS):
        return f"decimal({min(kind.precision, _MOST_DIGITS)},{kind.scale})"
    return None


def _family(landing: str) -> str:
    name = landing.partition("(")[0]
    return {"int16": "int", "int32": "int", "int64": "int", "float32": "float", "float64": "float"}.get(name, name)


def _plain(values: pa.Array) -> pa.Array:
    if isinstance(values.type, pa.DictionaryType):
        values = values.dictionary_decode()
    if values.type == pa.uuid():
        texts = [None if v is None else str(uuid.UUID(bytes=v)).upper() for v in values.storage.to_pylist()]
        return pa.array(texts, pa.string())
    types = pa.types
    if types.is_large_string(values.type) or types.is_string_view(values.type):
        return values.cast(pa.string())
    return values


def _cast(array: pa.Array, column: LoadColumn, field: pa.Field) -> pa.Array | None:
    """Cast values to the type of *field*; None if not all of them certainly fit the column's types."""
    kind = array.type
    parsed = read_any(column.sql_type or "")
    try:
        if pa.types.is_timestamp(kind):
            # Towards the past, also before 1970: digits are cut from the written time, not from the count since then.
            cut = pc.floor_temporal(array, unit="microsecond") if kind.unit == "ns" else array
            declares_fewer = parsed.name in SECOND_DIGITS and parsed.second_digits < _SQL_DIGITS
            if (declares_fewer or not field.nullable) and not cut.equals(array):
                return None
            array = cut.cast(pa.timestamp("us", tz=kind.tz), safe=True)
        landed = array.cast(field.type)
    except pa.ArrowInvalid:
        return None
    return landed if _fits(landed, parsed) else None


def _fits(landed: pa.Array, parsed: SqlType) -> bool:
    """Whether all values are certainly ones of the SQL type *parsed*; times have to be in the years 1 to 9999."""
    kind = landed.type
    if pa.types.is_floating(kind):
        # A data frame writes NULL like that, and no change can carry such a number (G-06).
        return all_true(pc.is_finite(landed))
    if pa.types.is_date32(kind):
        return are_within(landed.view(pa.int32()), _FIRST_DAY, _LAST_DAY)
    if pa.types.is_timestamp(kind):
        count = landed.view(pa.int64())
        step = 10 ** max(0, 6 - parsed.second_digits) if parsed.name in SECOND_DIGITS else 1
        has_digits = step == 1 or all_true(pc.equal(pc.multiply(pc.divide(count, step), step), count))
        return has_digits and are_within(count, _FIRST, _LAST)
    if pa.types.is_binary(kind) and parsed.length not in (None, -1):
        least = parsed.length if parsed.name == "binary" else 0
        return are_within(pc.binary_length(landed), least, parsed.length)
    return are_in_range(landed, parsed)


def _check_guids(landed: pa.Array, column: LoadColumn, *, is_key: bool, bad: dict[int, Failure]) -> None:
    """Refuse guids in small letters or braces, in a key or where all texts are guids: the stream has capitals."""
    guids = pc.match_substring_regex(landed, rf"^(?:{_GUID}|\{{{_GUID}\}})$")
    if is_key or pc.all(guids).as_py():
        other = pc.or_(pc.not_equal(landed, pc.ascii_upper(landed)), pc.starts_with(landed, "{"))
        _note_where(pc.and_(guids, other), column, _GUID_SPELLED, bad)


def _note_where(found: pa.Array, column: LoadColumn, reason: str, bad: dict[int, Failure]) -> None:
    at = pc.index(found, pa.scalar(True)).as_py()
    if at >= 0:
        _note(at, column, reason, bad)


def _note(at: int, column: LoadColumn, reason: str, bad: dict[int, Failure]) -> None:
    kind = f" ({column.sql_type})" if column.sql_type else ""
    bad.setdefault(at, Failure(at, "VALUE_INVALID", f"column {column.name!r}{kind}: {reason}"))


def _unsupported(name: str, what: str, next_step: str) -> TerminalError:
    next_step += "; a column that is not a key can also be left out with `columns`"
    return TerminalError("TYPE_UNSUPPORTED", f"column {name!r}: {what}", next_step=next_step)
