"""Reads a file of delimited text into typed columns, or reports why the table fails.

F-20 header row, F-22 separators, quotes, escapes, NULL and encoding, F-24 data types (Microsoft Learn: landing zone
format). Undocumented, and assumed to fail: a header that differs from ``SchemaDefinition`` in names or order, rows of
another length, a quote or line end in an unquoted value, a value outside its type, and a compressed file. A value is
NULL by its text alone, quoted or not (seen in stack traces of the service: the conversion of a value gets its text and
``NullValue``). ``ByteArray`` is Base64, and times are UTC (assumed).
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime, time
from functools import cache, partial
from typing import Any, NoReturn

import pyarrow as pa

from fabric_emulator.failures import bad_file
from fabric_emulator.text_format import DATA_TYPES, TextColumn, TextFormat
from open_mirroring.landing_zone.layout import ROW_MARKER

_MARKER = TextColumn(ROW_MARKER, "Int32", nullable=True)
_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?")

Row = list[str]


def read_delimited_text(content: bytes, name: str, text: TextFormat) -> pa.Table:
    """The columns of a file in the order of its header, including the marker column if it has one.

    Raises:
        TableFailure: ``InvalidTextFile``, with the first mistake.
    """
    if not content:
        _refuse(f"{name} has zero bytes.")
    try:
        decoded = content.decode(text.encoding)
    except UnicodeDecodeError as error:
        _refuse(f"{name} is not {text.encoding}: {error}.")
    rows = _rows(decoded.removeprefix("\ufeff"), name, text)
    header = next(rows, [])
    columns = _columns(header, name, text)
    cells: list[list[str | None]] = []
    for number, row in enumerate(rows, 1):
        if len(row) != len(header):
            _refuse(f"{name}: row {number} has {len(row)} values, the header {len(header)}.")
        cells.append([None if cell == text.null else cell for cell in row])
    schema = pa.schema([pa.field(c.name, DATA_TYPES[c.data_type], c.nullable) for c in columns])
    arrays = [_typed([row[at] for row in cells], column, name) for at, column in enumerate(columns)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _columns(header: Row, name: str, text: TextFormat) -> list[TextColumn]:
    known = {column.name: column for column in (*text.columns, _MARKER)}
    if len(set(header)) != len(header) or any(title not in known for title in header):
        _refuse(f"{name}: the header {header} has columns that SchemaDefinition lacks, or one twice.")
    columns = [known[title] for title in header]
    if [column for column in columns if column is not _MARKER] != list(text.columns):
        _refuse(f"{name}: the header {header} does not have the columns of SchemaDefinition in their order.")
    return columns


def _rows(text: str, name: str, form: TextFormat) -> Iterator[Row]:
    pattern, unescaped = _field_pattern(form)
    row: Row = []
    end = 0
    for match in pattern.finditer(text):
        if match.start() != end:
            break
        end = match.end()
        quoted, plain, separator = match.groups()
        if not separator and not row and not match[0]:
            return  # after the last row
        row.append(unescaped(quoted) if quoted is not None else plain)
        if separator != form.column_separator:
            yield row
            row = []
        if not separator:
            return
    _refuse(f"{name} cannot be read from character {end} on: {text[end : end + 20]!r}.")


@cache
def _field_pattern(form: TextFormat) -> tuple[re.Pattern[str], Callable[[str], str]]:
    """One value with the following separator as (quoted, plain, separator), and how a quoted value is unescaped."""
    quote, escape = re.escape(form.quote), re.escape(form.escape)
    unescaped: Callable[[str], str]
    quoted, unescaped = "(?!)()", _as_it_is  # without a quote character nothing is quoted
    if form.quote and not form.escape:
        quoted = f"{quote}([^{quote}]*){quote}"
    elif form.quote and form.escape == form.quote:
        quoted = f"{quote}((?:[^{quote}]++|{quote}{quote})*+){quote}"
        unescaped = partial(re.compile(quote + quote).sub, form.quote)
    elif form.quote:
        quoted = rf"{quote}((?:[^{quote}{escape}]++|{escape}[\s\S])*+){quote}"
        unescaped = partial(re.compile(f"{escape}([{quote}{escape}])").sub, r"\1")
    separator = re.escape(form.column_separator)
    plain = rf"([^{separator}{quote}\r\n]*)"
    return re.compile(rf"(?:{quoted}|{plain})({separator}|{re.escape(form.row_separator)}|\Z)"), unescaped


def _as_it_is(text: str) -> str:
    return text


def _typed(cells: list[str | None], column: TextColumn, name: str) -> pa.Array:
    read = _READERS[column.data_type]
    values: list[Any] = []
    for number, cell in enumerate(cells, 1):
        if cell is None and not column.nullable:
            _refuse(f"{name}: row {number} has no value in {column.name!r}, whose IsNullable is false.")
        try:
            values.append(None if cell is None else read(cell))
        except ValueError:
            _refuse(f"{name}: row {number}, column {column.name!r}: {cell!r} is no {column.data_type}.")
    return pa.array(values, DATA_TYPES[column.data_type])


def _integer(bits: int, text: str) -> int:
    _check(_INTEGER, text)
    value = int(text)
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(text)
    return value


def _float(limit: float, text: str) -> float:
    _check(_FLOAT, text)
    value = float(text)
    if abs(value) > limit:
        raise ValueError(text)
    return value


def _boolean(text: str) -> bool:
    if text.casefold() not in ("true", "false"):
        raise ValueError(text)
    return text.casefold() == "true"


def _date(text: str) -> date:
    _check(_DATE, text)
    return date.fromisoformat(text)


def _time(text: str) -> str:
    _check(_TIME, text)
    time.fromisoformat(text)
    return text


def _date_time(text: str) -> datetime:
    _check(_DATE, text[:10])
    _time(text[11:])
    if text[10] not in " T":
        raise ValueError(text)
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _check(pattern: re.Pattern[str], text: str) -> None:
    if not pattern.fullmatch(text):
        raise ValueError(text)


_READERS: Mapping[str, Callable[[str], Any]] = {
    "Double": partial(_float, 1.7976931348623157e308),
    "Single": partial(_float, 3.4028234663852886e38),
    "Int16": partial(_integer, 16),
    "Int32": partial(_integer, 32),
    "Int64": partial(_integer, 64),
    "DateTime": _date_time,
    "IDate": _date,
    "ITime": _time,
    "String": _as_it_is,
    "Boolean": _boolean,
    "ByteArray": partial(base64.b64decode, validate=True),
}


def _refuse(what: str) -> NoReturn:
    raise bad_file("InvalidTextFile", what)
