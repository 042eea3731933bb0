"""Decides whether a changed column type keeps the values of rows that have not changed since (C-75).

`ALTER COLUMN` converts every row at the source, and sends no change event. Some conversions round, cut or pad values.
Public source: Microsoft Learn, *CAST and CONVERT (Transact-SQL)*.
"""

from __future__ import annotations

from functools import lru_cache

from spark_jobs.sources.sql_server.type_text import (
    BINARY,
    INTEGERS,
    MONEY,
    TIMESTAMPS,
    SqlType,
    read_any,
)

_VARYING = {"varchar", "nvarchar", "text", "ntext", "sysname"}
_PADDED = {"char", "nchar"}
_CODE_PAGE = {"varchar", "char", "text"}
_TEXTS = {*_VARYING, *_PADDED}
_EXACT_IN_FLOAT = {"tinyint", "smallint"}
_EXACT_IN_DOUBLE = {*_EXACT_IN_FLOAT, "int"}


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
