"""Decides what values become in another type than their source's.

The other type may be the one under `types` of a table in the mirror file (G-110): a value lands in it unchanged, or its
row becomes a dead letter. A value that lands as text has exactly one spelling, with all digits. Or the other type is
the one that `ALTER COLUMN` gave the column (C-75): it converts every row at the source, and sends no change event. Some
conversions round, cut or pad values. Public source: Microsoft Learn, *CAST and CONVERT (Transact-SQL)*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import is_exact_number, wider
from spark_jobs.sources.sql_server.times import date_text, timestamp_text
from spark_jobs.sources.sql_server.type_text import (
    BINARY,
    INTEGERS,
    MONEY,
    TEXTS,
    TIMESTAMPS,
    SqlType,
    is_known,
    landing_type,
    read_any,
    read_type,
)
from spark_jobs.sources.sql_server.types import converter, key_converter, type_of_landed_key

_VARYING = {"varchar", "nvarchar", "text", "ntext", "sysname"}
_PADDED = {"char", "nchar"}
_CODE_PAGE = {"varchar", "char", "text"}
_TEXTS = {*_VARYING, *_PADDED}
_EXACT_IN_FLOAT = {"tinyint", "smallint"}
_EXACT_IN_DOUBLE = {*_EXACT_IN_FLOAT, "int"}


@lru_cache(maxsize=4096)
def landed_as(sql_type: str, chosen: str | None) -> str:
    """The landing type of a column with the source type *sql_type*.

    *chosen* is the column's type under `types` of the table in the mirror file, and is the result unless it is None.
    If *chosen* is None, the result is the landing type of *sql_type*.

    Raises:
        TerminalError: ``TYPE_UNSUPPORTED`` if *sql_type* cannot be mirrored, or if *chosen* would always lose
            information.
    """
    if chosen == "string" and not is_known(sql_type):
        return chosen
    own = landing_type(sql_type)
    if chosen is None or can_land(own, chosen):
        return chosen or own
    raise TerminalError(
        "TYPE_UNSUPPORTED",
        f"{sql_type} cannot land as {chosen}, which `types` says: it lands as {own}",
        next_step=f"set it to string, {own} or a type that holds it; or leave the column out of `types`",
    )


def can_land(own: str, chosen: str) -> bool:
    """Whether values of the landing type *own* can land as *chosen*: text, a wider type, or another exact number."""
    return chosen == "string" or wider(own, chosen) == chosen or (is_exact_number(own) and is_exact_number(chosen))


def chosen_digits(kind: str, chosen: str | None) -> str | None:
    """The decimal type *chosen* in the mirror file, for a column whose source type *kind* is NUMERIC without digits.

    None for any other column.
    """
    is_decimal = chosen is not None and chosen.startswith("decimal(")
    return chosen if is_decimal and kind.casefold() == "numeric" else None


def as_wide_as(loaded: str, streamed: Collection[str]) -> str:
    """The landing type *loaded* of a column of an initial load, widened so that values of changes fit.

    *streamed* are the SQL types of the column in changes. If the initial load may have cut values, the type stays
    *loaded*; publishing then stops the table, because the two types differ.
    """
    try:
        carried = {landing_type(sql_type) for sql_type in streamed}
    except TerminalError:
        return loaded  # publishing stops for a type that cannot be mirrored
    numbers = {loaded, *carried}
    is_alike = all(map(is_exact_number, numbers)) and len(set(map(_landed_scale, numbers))) == 1
    found: str | None = loaded
    for kind in sorted(carried) if loaded in carried or is_alike else ():
        found = found and wider(found, kind)
    return found or loaded


@lru_cache(maxsize=4096)
def text_reader(sql_type: str, *, is_key: bool) -> Callable[[str], str]:
    """A function that converts a value's string to the one spelling with which the value lands as text.

    In a key (*is_key*) -0 becomes 0. If *sql_type* cannot be mirrored, values land as they were sent. The function
    raises ValueError for a string that is not a value of *sql_type*.
    """
    if not is_known(sql_type):
        return str
    parsed = read_type(sql_type)
    if parsed.name in TIMESTAMPS:
        return timestamp_text(parsed)
    if parsed.name == "date":
        return date_text
    spelled = key_converter(sql_type)
    if is_key or parsed.name not in ("float", "real"):
        return spelled
    read = converter(sql_type)
    return lambda text: f"-{spelled(text)}" if str(read(text)) == "-0.0" else spelled(text)


@lru_cache(maxsize=4096)
def chosen_key_converter(sql_type: str, chosen: str | None) -> Callable[[str], str]:
    """A function that converts a key value's string to its canonical form in the landing type *chosen*.

    The function works as :func:`~spark_jobs.sources.sql_server.types.key_converter`, for a key column with a type under
    `types` of the table in the mirror file. Raises ``TYPE_UNSUPPORTED`` if :func:`landed_as` raises it, or if *chosen*
    is not text and a key has another spelling in *chosen*. Raises ValueError if *sql_type* loses digits as a key; the
    returned function raises ValueError for a string that is not a value.
    """
    landing = landed_as(sql_type, chosen)
    own = landing_type(sql_type) if is_known(sql_type) else ""
    if landing == own:
        return key_converter(sql_type)
    if landing == "string":
        return text_reader(sql_type, is_key=True)
    if wider(own, landing) != landing or not keeps_key(sql_type, type_of_landed_key(landing)):
        raise TerminalError(
            "TYPE_UNSUPPORTED",
            f"a key of type {sql_type} cannot land as {landing}, which `types` says",
            next_step="set it to string, or to a wider number with the same digits behind the point",
        )
    return key_converter(sql_type)


@lru_cache(maxsize=4096)
def number_reader(landing: str) -> Callable[[Any], Any]:
    """A function that converts an exact number or a boolean to the type *landing*; ValueError if it does not fit."""
    read = converter(type_of_landed_key(landing))

    def fitted(value: Any) -> Any:
        text = format(Decimal(value), "f")
        return read(text.rstrip("0").rstrip(".") if "." in text and "(" not in landing else text)

    return fitted


def type_of_landed(column: LoadColumn) -> str:
    """The change log's type of a column whose typed values are written to the change log.

    A column that lands as text only because the mirror file says so keeps its source's type.
    """
    is_chosen = column.type == "string" and column.sql_type is not None and landing_type(column.sql_type) != "string"
    return column.sql_type if is_chosen and column.sql_type else type_of_landed_key(column.type)


def keeps_spelling(old: str, new: str) -> bool:
    """Whether every value of the source type *old*, landed as text, has the same text in the source type *new*."""
    one, other = read_any(old), read_any(new)
    if not keeps_key(old, new):
        return False
    return one.name not in TIMESTAMPS or (one.second_digits == other.second_digits and one.name == other.name)


def is_spelled_alike(one: str, other: str) -> bool:
    """Whether a value, landed as text, has the same text from a source type *one* and from *other* (G-114).

    *one* is the type in an initial load, *other* the type in changes.
    """
    left, right = read_any(one), read_any(other)
    if left.name in TEXTS:
        return right.name in TEXTS or not is_known(other)
    if not (is_known(one) and is_known(other)):
        return left.name == right.name or left.name in INTEGERS
    if left.name == right.name == "time":
        return left.second_digits == right.second_digits
    if left.name in TIMESTAMPS and right.name in TIMESTAMPS:
        is_same_kind = (left.name == "datetimeoffset") == (right.name == "datetimeoffset")
        return is_same_kind and left.second_digits == right.second_digits
    if "date" in (left.name, right.name):
        return not {left.name, right.name} & TIMESTAMPS
    numbers = landing_type(one), landing_type(other)
    if all(map(is_exact_number, numbers)):
        return _landed_scale(numbers[0]) == _landed_scale(numbers[1])
    return not all(number.startswith("float") for number in numbers) or numbers[0] == numbers[1]


def spelled_as_streamed(columns: Sequence[LoadColumn], streamed: Mapping[str, str]) -> tuple[LoadColumn, ...]:
    """Columns of an initial load from a database, read so that text has the spelling of changes (G-114).

    *streamed* has the SQL types of columns in change events. A column that lands as text, and that changes would spell
    differently, may be read as its type in *streamed*. It is if both types have one name (such as `decimal`), if both
    are date-times without offset, or if the column's own type is a text.
    """
    return tuple(_as_streamed(column, streamed.get(column.name)) for column in columns)


def _as_streamed(column: LoadColumn, streamed: str | None) -> LoadColumn:
    own = column.sql_type
    if streamed is None or own is None or column.type != "string" or is_spelled_alike(own, streamed):
        return column
    kinds = {read_any(own).name, read_any(streamed).name}
    has_other_digits = len(kinds) == 1 or kinds <= TIMESTAMPS - {"datetimeoffset"} or read_any(own).name in TEXTS
    return column._replace(sql_type=streamed) if has_other_digits else column


def _landed_scale(landing: str) -> int:
    return int(landing.rpartition(",")[2].rstrip(")")) if landing.startswith("decimal") else 0


@lru_cache(maxsize=4096)
def keeps_values(old: str, new: str) -> bool:
    """Whether the source can convert a column from the SQL type *old* to *new* without changing any value."""
    one, other = read_any(old), read_any(new)
    if one == other:
        return True
    if _is_exact(one):
        if other.name in ("float", "real"):
            return one.name in (_EXACT_IN_FLOAT if other.single else _EXACT_IN_DOUBLE)
        return _is_exact(other) and _scale(one) <= _scale(other)
    if one.name == "bit":
        return _is_exact(other)
    if one.name in ("float", "real"):
        return other.name in ("float", "real") and (one.single or not other.single)
    if one.name == "date":
        return other.name in TIMESTAMPS
    if one.name in TIMESTAMPS:
        return other.name in TIMESTAMPS and _keeps_moments(one, other)
    if one.name == "time":
        return other.name == "time" and one.second_digits == other.second_digits  # it lands as its text
    if one.name in BINARY:
        return other.name in ("varbinary", "image")
    return _keeps_texts(one, other)


@lru_cache(maxsize=4096)
def keeps_key(old: str, new: str) -> bool:
    """Whether a key value has the same spelling in the SQL types *old* and *new*.

    Only then the earlier changes of the key are found (G-02).
    """
    one, other = read_any(old), read_any(new)
    if one == other:
        return True
    if not keeps_values(old, new):
        return False
    if one.name in INTEGERS and other.name in INTEGERS:
        return True
    if _is_exact(one) and _is_exact(other):
        return _scale(one) == _scale(other)
    return (one.name in TIMESTAMPS and other.name in TIMESTAMPS) or (
        one.name in {*_TEXTS, *BINARY} and other.name in {*_TEXTS, *BINARY}
    )


def _is_exact(one: SqlType) -> bool:
    return one.name in INTEGERS or one.name in MONEY or one.name == "decimal"


def _scale(one: SqlType) -> int:
    return 0 if one.name in INTEGERS else one.digits[1]


def _keeps_moments(one: SqlType, other: SqlType) -> bool:
    if one.name == "datetimeoffset":
        # Any other type keeps the wall clock and drops the offset from UTC.
        return other.name == "datetimeoffset" and one.second_digits <= other.second_digits
    if other.name in ("datetime", "smalldatetime"):
        # They have whole minutes, and 300ths of a second.
        return one.name == "smalldatetime" or (other.name == "datetime" and one.second_digits == 0)
    # A `datetime` becomes its exact 300ths of a second if there are enough digits.
    return one.second_digits <= other.second_digits and (one.name != "datetime" or other.second_digits == 3)


def _keeps_texts(one: SqlType, other: SqlType) -> bool:
    if one.name == "uniqueidentifier":
        return other.name in _VARYING
    if one.name == "xml":
        return other.name in ("nvarchar", "ntext")
    if one.name not in _TEXTS or other.name not in _TEXTS:
        return False
    if other.name in _CODE_PAGE and one.name not in _CODE_PAGE:
        return False  # characters outside the code page become question marks
    return other.name in _VARYING or (one.name in _PADDED and one.length == other.length)
