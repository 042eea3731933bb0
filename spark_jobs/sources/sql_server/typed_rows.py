"""Converts strings of the change log to typed columns: the rows of one table as in a data file.

The exact reader of values defines the result; Arrow casts columns if the same result is proved. A value that does not
fit its type is a failure of its row, never a NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import arrow_type, file_schema, landing_columns
from open_mirroring.landing_zone.layout import RowMarker
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.changelog.schema import DELETE, KEY_LEFT
from spark_jobs.sources.sql_server.chosen_types import number_reader, text_reader
from spark_jobs.sources.sql_server.type_text import (
    INTEGERS,
    MONEY,
    SECOND_DIGITS,
    TEXTS,
    SqlType,
    is_known,
    landing_type,
    read_type,
)
from spark_jobs.sources.sql_server.types import converter, type_of_key_text, type_of_landed_key

_ROW_BY_ROW_BELOW = 250
"""Fewer rows than this are read one by one, because a vectorized reader takes time to set up."""

_READ_AT_ONCE = 1 << 30
_Cast = Callable[[pa.Array, str, pa.DataType], pa.Array | None]
"""Converts texts, given source type and wanted type, to a column; None if the result is not certain."""
_GUID = "^[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}$"


@dataclass(frozen=True)
class Failure:
    """Why row *index* of the input does not fit its columns' types."""

    index: int
    code: str
    reason: str


class Typed(NamedTuple):
    """The rows that fit their types, as a table with the file's columns, and the failures of all other rows.

    The row marker is the last column. *places* are the rows' indexes in the input, because the rows are in another
    order.
    """

    rows: pa.Table
    places: pa.Array
    failures: list[Failure]


def type_rows(
    changes: pa.Table, columns: Sequence[LandingColumn], keys: Sequence[str], types: Mapping[str, str]
) -> Typed:
    """Types the changes that are published next, at most one for each key; a column that a row lacks becomes NULL.

    A delete is written with *keys* only (F-55), read by their *types* at the source. A delete that comes with a row is
    written as an upsert of this row (G-192). Without *keys* the table accepts only inserts, which have the row marker
    0.
    """
    schema = file_schema(columns, keys, marker=True)
    failures: list[Failure] = []
    pieces: list[tuple[pa.Table, pa.Array]] = []
    index = pa.array(np.arange(changes.num_rows))
    deletes = pc.is_in(changes["op"].combine_chunks(), pa.array([DELETE, KEY_LEFT]))
    deletes = pc.and_(deletes, changes["row"].combine_chunks().is_null())
    gone = index.filter(deletes)
    if len(gone):
        # A key's canonical text is in its type's spelling, so the current type reads it.
        values = key_columns(changes["key"].filter(deletes).combine_chunks(), keys)
        known = key_types(columns, keys, types)
        pieces.append(_typed(values, known, RowMarker.DELETE, gone, schema, failures))
    if len(gone) < len(index):
        upserts = pc.invert(deletes)
        index, texts = index.filter(upserts), changes["row"].filter(upserts).combine_chunks()
        lists = changes["cols"].filter(upserts).unify_dictionaries().combine_chunks().dictionary_encode()
        for code, text in enumerate(lists.dictionary.to_pylist()):
            chosen = pc.equal(lists.indices, code)
            rows = pc.sum(chosen).as_py()
            if rows == 0:  # a dictionary may have values that no row has
                continue
            whole = rows == len(index)
            some, places = (texts, index) if whole else (texts.filter(chosen), index.filter(chosen))
            source_types = {name: sql_type for name, sql_type, _ in msgspec.json.decode(text)}
            wanted = [name for name in schema.names if name in source_types]
            values = (_read_each if len(some) < _ROW_BY_ROW_BELOW else _read_together)(some, wanted)
            marker = RowMarker.UPSERT if keys else RowMarker.INSERT
            pieces.append(_typed(values, source_types, marker, places, schema, failures))
    rows = pa.concat_tables([schema.empty_table(), *(rows for rows, _ in pieces)])
    places = pa.concat_arrays([pa.array([], pa.int64()), *(places for _, places in pieces)])
    return Typed(rows, places, failures)


def key_types(columns: Sequence[LandingColumn], keys: Sequence[str], types: Mapping[str, str]) -> dict[str, str]:
    """For each column, the type by which its string in a canonical key is read.

    If the column lands as the landing type of its source type, the string is read by the source type. If it lands as
    another type, the string is read by this landing type. *types* are the source types of the *keys*.
    """
    landed = {column.name: type_of_landed_key(column.type) for column in columns if not column.content}
    lands = {column.name: column.type for column in columns}
    known = {name: types[name] for name in keys if name in types and is_known(types[name])}
    own = [name for name, sql_type in known.items() if landing_type(sql_type) == lands.get(name)]
    return landed | {name: type_of_key_text(types[name]) for name in own}


def _typed(
    values: Mapping[str, pa.Array],
    types: Mapping[str, str],
    marker: RowMarker,
    index: pa.Array,
    schema: pa.Schema,
    failures: list[Failure],
) -> tuple[pa.Table, pa.Array]:
    """Type the strings in *values* by *types*; columns without strings are NULL. Leaves out the rows that fail."""
    bad: dict[int, Failure] = {}
    arrays = [
        typed_column(values[field.name], types[field.name], field, index, bad)
        if field.name in values
        else pa.nulls(len(index), field.type)
        for field in list(schema)[:-1]
    ]
    arrays.append(pa.repeat(pa.scalar(int(marker), pa.int32()), len(index)))
    if bad:
        failures.extend(bad.values())
        good = pc.invert(pc.is_in(index, pa.array(list(bad), pa.int64())))
        arrays, index = [array.filter(good) for array in arrays], index.filter(good)
    return pa.Table.from_arrays(arrays, schema=schema), index


def key_columns(texts: pa.Array, keys: Sequence[str]) -> dict[str, pa.Array]:
    """The strings of each key column, from *texts*, the canonical keys of changes."""
    if len(keys) == 1 and _matches(texts, r'^\["[^"\\]*"\]$'):
        return {keys[0]: pc.utf8_slice_codeunits(texts, 2, -2)}
    values = msgspec.json.decode(f"[{','.join(texts.to_pylist())}]", type=list[list[str]])
    return {name: pa.array([row[at] for row in values], pa.string()) for at, name in enumerate(keys)}


def _read_each(texts: pa.Array, wanted: Sequence[str]) -> dict[str, pa.Array]:
    rows = [msgspec.json.decode(text) for text in texts.to_pylist()]
    return {name: pa.array([row.get(name) for row in rows], pa.string()) for name in wanted}


def _read_together(texts: pa.Array, wanted: Sequence[str]) -> dict[str, pa.Array]:
    # The decoder wrote these texts: each is one object, so their concatenation can be read at once. Arrow limits one
    # read to 31 bits.
    if texts.nbytes >= _READ_AT_ONCE and len(texts) > 1:
        halves = [_read_together(half, wanted) for half in (texts[: len(texts) // 2], texts[len(texts) // 2 :])]
        return {name: pa.concat_arrays([half[name] for half in halves]) for name in wanted}
    bounds = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset :][: len(texts) + 1]
    objects = texts.buffers()[2][int(bounds[0]) : int(bounds[-1])]
    fields = pa.schema([pa.field(name, pa.string()) for name in wanted])
    table = pj.read_json(
        pa.BufferReader(objects),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(1, objects.size)),
        parse_options=pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != len(texts):
        raise ValueError(f"{len(texts)} row texts were read as {table.num_rows} rows")
    return {name: table[name].combine_chunks() for name in wanted}


def typed_column(texts: pa.Array, sql_type: str, field: pa.Field, index: pa.Array, bad: dict[int, Failure]) -> pa.Array:
    """Types one column of strings. Rows that fail become NULL, and are added to *bad* under their *index*."""
    # A value is read by its type when it was logged. The column may be wider now (G-65), or land as another type
    # (G-110).
    lands_as_text = pa.types.is_string(field.type)
    is_text = is_known(sql_type) and landing_type(sql_type) == "string"
    own = field if lands_as_text else field.with_type(arrow_type(landing_type(sql_type)))
    # A text that only the mirror file chooses has one spelling.
    cast = _cast_to(own.type) if is_text or not lands_as_text else None
    array = cast(texts, sql_type, own.type) if cast and len(texts) >= _ROW_BY_ROW_BELOW else None
    if array is None:
        # A key that lands as text has one spelling, too, the only one that a delete knows (G-02).
        is_key = not field.nullable
        is_spelled = lands_as_text and (is_key or not is_text)
        read = text_reader(sql_type, is_key=is_key) if is_spelled else converter(sql_type)
        array = _one_by_one(texts, read, sql_type, own, index, bad)
    if own.type != field.type:
        array = _as_field(array, sql_type, field, index, bad)
    if not field.nullable and array.null_count:
        for at in pc.indices_nonzero(array.is_null()).to_pylist():
            row = index[at].as_py()
            bad.setdefault(row, Failure(row, "KEY_INVALID", f"the key column {field.name!r} is NULL"))
    return array


def _as_field(array: pa.Array, sql_type: str, field: pa.Field, index: pa.Array, bad: dict[int, Failure]) -> pa.Array:
    kind = array.type
    try:
        if pa.types.is_boolean(kind) and pa.types.is_decimal(field.type):
            # Arrow makes no decimal of a boolean, and of a byte none with fewer than three digits.
            array = array.cast(pa.int8()).cast(pa.decimal128(3))
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        if all(pa.types.is_integer(one) or pa.types.is_decimal(one) for one in (kind, field.type)):
            (lands,) = (column.type for column in landing_columns(pa.schema([field])))
            return _one_by_one(array, number_reader(lands), f"{sql_type} as {lands}", field, index, bad)
        raise TerminalError(
            "SCHEMA_CHANGED",
            f"values of column {field.name!r}, which were read as {kind}, do not fit {field.type}: {error}",
            next_step="reload this table",
        ) from error


def _one_by_one(
    given: pa.Array, read: Callable[[Any], Any], types: str, field: pa.Field, index: pa.Array, bad: dict[int, Failure]
) -> pa.Array:
    values: list[Any] = []
    for at, value in enumerate(given.to_pylist()):
        try:
            values.append(None if value is None else read(value))
        except ValueError as error:
            values.append(None)
            row = index[at].as_py()
            bad.setdefault(row, Failure(row, "VALUE_INVALID", f"column {field.name!r} ({types}): {error}"))
    return pa.array(values, field.type)


def _cast_to(kind: pa.DataType) -> _Cast | None:
    """The function that casts a column of strings to the Arrow type *kind*; None if only the exact reader can do it."""
    return _CASTS.get(str(kind).split("(")[0].split("[")[0])


def _matches(texts: pa.Array, pattern: str) -> bool:
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
        return pc.ascii_upper(texts) if _matches(texts, _GUID) else None
    if parsed.name not in TEXTS:
        return None
    length = 128 if parsed.name == "sysname" else parsed.length
    if length is None or length == -1:
        return texts
    # A text has at most as many characters as UTF-8 bytes, in any unit of the declared length.
    longest = pc.max(pc.binary_length(texts)).as_py()
    return texts if longest is None or longest <= length else None


def _guarded(pattern: str, prepare: Callable[[pa.Array], pa.Array] = lambda texts: texts) -> _Cast:
    def cast(texts: pa.Array, sql_type: str, kind: pa.DataType) -> pa.Array | None:
        if not _matches(texts, pattern):
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


_CASTS: dict[str, _Cast] = {
    "string": _cast_text,
    "bool": lambda texts, _type, _kind: pc.equal(texts, "1") if _matches(texts, "^[01]$") else None,
    "int16": _cast_integer,
    "int32": _cast_integer,
    "int64": _cast_integer,
    "float": _cast_single,
    "double": _cast_double,
    "decimal128": _cast_decimal,
    "timestamp": _cast_timestamp,
    "date32": _guarded(rf"^{_YEAR}-[0-9]{{2}}-[0-9]{{2}}$"),
}
