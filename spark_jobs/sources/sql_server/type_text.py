"""Parses the names of SQL Server's types (``decimal(8,2)``, ``varchar(max)``), and maps them to landing types.

A name that is none of these types is refused. Public source: Microsoft Learn, *Data types (Transact-SQL)*.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from open_mirroring.errors import TerminalError

_TYPE = re.compile(r"\s*([a-z_][a-z0-9_]*)\s*(?:\(\s*(max|[0-9]{1,5})\s*(?:,\s*([0-9]{1,3})\s*)?\))?\s*", re.IGNORECASE)
INTEGERS = {
    "tinyint": ("int16", 0, 255),
    "smallint": ("int16", -(2**15), 2**15 - 1),
    "int": ("int32", -(2**31), 2**31 - 1),
    "bigint": ("int64", -(2**63), 2**63 - 1),
}
MONEY = {
    "money": (19, 4, Decimal("922337203685477.5808")),
    "smallmoney": (10, 4, Decimal("214748.3648")),
}
TEXTS = {"char", "nchar", "varchar", "nvarchar", "text", "ntext", "xml", "sysname"}
BINARY = {"binary", "varbinary", "image"}
TIMESTAMPS = {"datetime", "smalldatetime", "datetime2", "datetimeoffset"}
SECOND_DIGITS = {"datetime2", "datetimeoffset", "time"}
"""Types that declare their digits of a second; 7 by default."""
LARGE = {"text", "ntext", "xml", "image"}
AS_TEXT = "land it as text (`types: {column: string}`); a column that is not a key can also be left out with `columns`"


class SqlType(NamedTuple):
    """A parsed SQL type: its name in lower case, and its numbers; ``length`` -1 stands for ``max``."""

    name: str
    length: int | None = None
    scale: int | None = None

    @property
    def digits(self) -> tuple[int, int]:
        """Precision and scale of a decimal type."""
        if self.name in MONEY:
            return MONEY[self.name][:2]
        return (18, 0) if self.length is None else (self.length, self.scale or 0)

    @property
    def second_digits(self) -> int:
        """The digits of a second that the type keeps."""
        if self.name in SECOND_DIGITS:
            return 7 if self.length is None else self.length
        return {"datetime": 3}.get(self.name, 0)

    @property
    def single(self) -> bool:
        """Whether a floating type has four bytes: ``real`` and ``float(1)`` to ``float(24)``."""
        return self.name == "real" or (self.name == "float" and self.length is not None and self.length <= 24)


@lru_cache(maxsize=4096)
def read_type(sql_type: str) -> SqlType:
    """Parses a SQL type such as ``varchar(max)``. Raises ``TYPE_UNSUPPORTED`` if the type cannot be mirrored."""
    match = _TYPE.fullmatch(sql_type)
    if match:
        length = None if match[2] is None else -1 if match[2].lower() == "max" else int(match[2])
        parsed = SqlType(match[1].lower(), length, None if match[3] is None else int(match[3]))
        if parsed.name == "numeric":
            parsed = parsed._replace(name="decimal")
        if _is_valid(parsed):
            return parsed
    raise TerminalError(
        "TYPE_UNSUPPORTED",
        f"{sql_type!r} is not an SQL Server type that can be mirrored",
        next_step=AS_TEXT,
    )


def read_any(sql_type: str) -> SqlType:
    """Parses a SQL type such as ``varchar(max)``, also if the type cannot be mirrored.

    A type that cannot be mirrored, such as an alias type, has only its name.
    """
    return read_type(sql_type) if is_known(sql_type) else SqlType(sql_type.casefold())


def is_known(sql_type: str) -> bool:
    """Whether values of a type can be mirrored; values of any other type can land only as text, as sent (G-110)."""
    try:
        read_type(sql_type)
    except TerminalError:
        return False
    return True


def _is_valid(parsed: SqlType) -> bool:
    name, length, scale = parsed
    if name == "decimal":
        return 1 <= parsed.digits[0] <= 38 and 0 <= parsed.digits[1] <= parsed.digits[0]
    if scale is not None:
        return False
    if name in SECOND_DIGITS:
        return length is None or 0 <= length <= 7
    if name == "float":
        return length is None or 1 <= length <= 53
    if name in ("varchar", "nvarchar", "varbinary"):
        return length is None or length == -1 or 1 <= length <= 8000
    if name in ("char", "nchar", "binary"):
        return length is None or 1 <= length <= 8000
    plain = {*INTEGERS, *MONEY, *LARGE, "bit", "real", "date", "datetime", "smalldatetime"}
    return length is None and name in {*plain, "uniqueidentifier", "sysname"}


@lru_cache(maxsize=4096)
def landing_type(sql_type: str) -> str:
    """The landing zone's type (``open_mirroring.landing_zone.schema.check_type``) for a SQL type."""
    parsed = read_type(sql_type)
    name = parsed.name
    if name in INTEGERS:
        return INTEGERS[name][0]
    if name == "decimal" or name in MONEY:
        return "decimal({},{})".format(*parsed.digits)
    if name in ("float", "real"):
        return "float32" if parsed.single else "float64"
    if name in TIMESTAMPS:
        return "timestamp"
    if name in BINARY:
        return "binary"
    # The rest is text: the target has no type for a guid or a time of day (F-80 to F-82).
    return {"bit": "bool", "date": "date"}.get(name, "string")


def is_large(sql_type: str) -> bool:
    """Whether a value of this type may be a large object.

    The source may leave the old value of a large object out of a change (C-70, A6).
    """
    try:
        parsed = read_type(sql_type)
    except TerminalError:
        return True
    return parsed.length == -1 or parsed.name in LARGE
