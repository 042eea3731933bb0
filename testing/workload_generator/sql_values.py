"""SQL Server values: creates random ones as the text SQL Server prints, and converts them to Python and Arrow values.

Texts are those of a CES row image: integers and decimals with all their digits, floats as the shortest text that reads
back, ``datetime2(7)`` as ``YYYY-MM-DD HH:MM:SS.fffffff``, ``bit`` as 0 or 1, binary as 0x and hex digits. One value has
exactly one text, so texts of one column can be compared.
"""

from __future__ import annotations

import re
import struct
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa


class SqlType(NamedTuple):
    """A parsed SQL type: ``decimal(12,2)`` is ``("decimal", 12, 2)``; ``(max)`` is size -1."""

    base: str
    size: int
    scale: int


_TYPE = re.compile(r"^([a-z0-9]+)(?:\((max|\d+)(?:, ?(\d+))?\))?$")
_SIZE_WHEN_UNSAID = {"decimal": 18, "numeric": 18, "datetime2": 7, "datetimeoffset": 7, "time": 7}
_INTEGERS = {"tinyint": (0, 255), "smallint": (-(2**15), 2**15 - 1), "int": (-(2**31), 2**31 - 1)}
_INTEGERS["bigint"] = (-(2**63), 2**63 - 1)
_ARROW_INTEGERS = {"tinyint": pa.uint8(), "smallint": pa.int16(), "int": pa.int32(), "bigint": pa.int64()}
_DECIMALS = ("decimal", "numeric", "money", "smallmoney")
_MONEY_DIGITS = {"money": 19, "smallmoney": 10}
_EPOCH = date(2020, 1, 1)


@lru_cache(maxsize=256)
def parse_type(sql_type: str) -> SqlType:
    """Parse a SQL type text.

    Raises:
        ValueError: for an unknown type.
    """
    match = _TYPE.match(sql_type.lower())
    if match is None or (match[1] not in _RANDOM and match[1] not in _INTEGERS):
        raise ValueError(f"unknown SQL type {sql_type!r}")
    base, size, scale = match.groups()
    if base in _MONEY_DIGITS:
        return SqlType(base, _MONEY_DIGITS[base], 4)
    return SqlType(base, -1 if size == "max" else int(size or _SIZE_WHEN_UNSAID.get(base, 0)), int(scale or 0))


def random_text(sql_type: str, rng: Random) -> str:
    """Any value of the type, as text; difficult ones (extremes, empty text, quotes, emoji) are frequent."""
    kind = parse_type(sql_type)
    if kind.base in _INTEGERS:
        low, high = _INTEGERS[kind.base]
        return str(rng.choice((low, high, 0)) if rng.random() < 0.04 else rng.randint(0, min(high, 100_000)))
    return _RANDOM[kind.base](kind, rng)


def key_text(sql_type: str, number: int, rng: Random) -> str:
    """A key value from a rising *number*: distinct numbers give distinct values, within the range of the type."""
    kind = parse_type(sql_type)
    if kind.base in _INTEGERS:
        high = _INTEGERS[kind.base][1]
        return str((number - 1) % high + 1)
    if kind.base in _DECIMALS:
        return _decimal_text(number * 10**kind.scale, kind.scale)
    if kind.base in ("varchar", "nvarchar"):
        # The number comes first, so that cutting to the column's length keeps keys distinct.
        return f"{number:05d}{_KEY_ENDINGS[number % len(_KEY_ENDINGS)]}"[: kind.size if kind.size > 0 else None]
    if kind.base == "date":
        return (_EPOCH + timedelta(days=number)).isoformat()
    return random_text(sql_type, rng)


_KEY_ENDINGS = ("", "-A", "-ü", "-O'B", "-x/y", "-a b", '-"q"', "-\\")


def typed(sql_type: str, text: str | None) -> Any:
    """The Python value of a text; digits finer than a microsecond are cut, not rounded."""
    if text is None:
        return None
    kind = parse_type(sql_type)
    if kind.base in _INTEGERS:
        return int(text)
    if kind.base in _DECIMALS:
        return Decimal(text)
    if kind.base in ("float", "real"):
        return float(text)
    if kind.base == "bit":
        return {"0": False, "1": True}[text]
    if kind.base == "date":
        return date.fromisoformat(text)
    if kind.base in ("datetime", "datetime2", "smalldatetime"):
        return datetime.fromisoformat(text[:26])
    if kind.base == "time":
        return time.fromisoformat(text[:15])
    if kind.base in ("binary", "varbinary"):
        return bytes.fromhex(text[2:])
    return text


def arrow_type(sql_type: str) -> pa.DataType:
    """The Arrow type of a snapshot column; a GUID is a string, ``datetime2`` a zone-less ``timestamp[us]``."""
    kind = parse_type(sql_type)
    if kind.base in _ARROW_INTEGERS:
        return _ARROW_INTEGERS[kind.base]
    if kind.base in _DECIMALS:
        return pa.decimal128(kind.size, kind.scale)
    named: dict[str, pa.DataType] = {
        "float": pa.float64(),
        "real": pa.float32(),
        "bit": pa.bool_(),
        "date": pa.date32(),
        "time": pa.time64("us"),
        "varbinary": pa.binary(),
        "binary": pa.binary(),
    }
    if kind.base in ("datetime", "datetime2", "smalldatetime"):
        return pa.timestamp("us")
    return named.get(kind.base, pa.string())


def _decimal_text(unscaled: int, scale: int) -> str:
    digits = f"{abs(unscaled):0{scale + 1}d}"
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"


def _random_decimal(kind: SqlType, rng: Random) -> str:
    limit = 10 ** rng.randint(1, kind.size)
    if kind.base in _MONEY_DIGITS:
        limit = min(limit, 2 ** (63 if kind.base == "money" else 31))
    return _decimal_text(rng.randrange(limit) * rng.choice((1, 1, 1, -1)), kind.scale)


def _random_float(_kind: SqlType, rng: Random) -> str:
    special = (0.1 + 0.2, 1e-300, 1.7976931348623157e308, 5e-324, 1 / 3, 0.0, -1e21)
    return repr(rng.choice(special) if rng.random() < 0.15 else round(rng.uniform(-1000, 1000), rng.randint(0, 14)))


def _random_real(_kind: SqlType, rng: Random) -> str:
    single = struct.unpack("<f", struct.pack("<f", rng.uniform(-1000, 1000)))[0]
    texts = (f"{single:.{digits}g}" for digits in range(1, 10))
    return next(text for text in texts if struct.pack("<f", float(text)) == struct.pack("<f", single))


def _random_date(_kind: SqlType, rng: Random) -> str:
    if rng.random() < 0.04:
        return rng.choice(("0001-01-01", "9999-12-31"))
    return date.fromordinal(rng.randint(date(1950, 1, 1).toordinal(), date(2050, 1, 1).toordinal())).isoformat()


def _random_time(kind: SqlType, rng: Random) -> str:
    seconds = rng.randrange(86_400)
    digits = f".{rng.randrange(10**kind.size):0{kind.size}d}" if kind.size else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{digits}"


def _random_datetime2(kind: SqlType, rng: Random) -> str:
    if rng.random() < 0.02:
        # A common value for "for ever": rounded instead of cut to microseconds it leaves the calendar.
        return "9999-12-31 23:59:59" + ("." + "9" * kind.size if kind.size else "")
    return f"{_random_date(kind, rng)} {_random_time(kind, rng)}"


def _random_datetime(kind: SqlType, rng: Random) -> str:
    # datetime counts in 1/300 s, prints three digits and begins in 1753.
    day = date.fromordinal(rng.randint(date(1753, 1, 1).toordinal(), date(2050, 1, 1).toordinal()))
    return f"{day} {_random_time(SqlType('time', 0, 0), rng)}.{rng.randrange(100):02d}{rng.choice('037')}"


def _random_smalldatetime(_kind: SqlType, rng: Random) -> str:
    return f"{date.fromordinal(rng.randint(693_596, 748_000))} {rng.randrange(24):02d}:{rng.randrange(60):02d}:00"


def _random_datetimeoffset(kind: SqlType, rng: Random) -> str:
    zone = f"{rng.choice('+-')}{rng.randrange(14):02d}:{rng.choice(('00', '30', '45'))}"
    day = date.fromordinal(rng.randint(date(1950, 1, 1).toordinal(), date(2050, 1, 1).toordinal()))
    return f"{day} {_random_time(kind, rng)} {zone}"


def _random_guid(_kind: SqlType, rng: Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4)).upper()


def _random_binary(kind: SqlType, rng: Random) -> str:
    size = kind.size if kind.base == "binary" else rng.randrange((kind.size if kind.size > 0 else 200) + 1)
    return "0x" + rng.randbytes(size).hex().upper()


# varchar holds one code page (here 1252), nvarchar all of Unicode; the second list is for nvarchar only.
_WORDS: tuple[str, ...] = (
    *("Apfel", "blue", "Crème brûlée", "Zürich", "€ 5", "50 %", "a/b", "null", "{}", "<b>", "  padded "),
    *("O'Brien", 'say "hi"', "\u201cquoted\u201d", "back\\slash", "\\u0041", "line\nbreak", "tab\there", "comma, x;"),
)
_WIDE_WORDS: tuple[str, ...] = (
    *("東京", "Ελλάδα", "שלום", "😀", "👩\u200d🚀 crew", "naïve\u0301", "\u2028separator", "\ufb01n", "bell\x07"),
)


def _random_words(kind: SqlType, rng: Random) -> str:
    if rng.random() < 0.08:
        return ""
    words = _WORDS + _WIDE_WORDS if kind.base == "nvarchar" else _WORDS
    long = kind.size < 0 and rng.random() < 0.08
    text = " ".join(rng.choices(words, k=rng.randint(200, 500) if long else rng.randint(1, 4)))
    return text if kind.size < 0 else _fit(text, kind)


def _fit(text: str, kind: SqlType) -> str:
    """Cut to the column's size, which nvarchar counts in UTF-16 units."""
    if kind.base == "varchar":
        return text[: kind.size]
    return text.encode("utf-16-le")[: 2 * kind.size].decode("utf-16-le", "ignore")


_RANDOM: dict[str, Callable[[SqlType, Random], str]] = {
    "decimal": _random_decimal,
    "numeric": _random_decimal,
    "money": _random_decimal,
    "smallmoney": _random_decimal,
    "float": _random_float,
    "real": _random_real,
    "bit": lambda _kind, rng: rng.choice("01"),
    "date": _random_date,
    "time": _random_time,
    "datetime": _random_datetime,
    "datetime2": _random_datetime2,
    "smalldatetime": _random_smalldatetime,
    "datetimeoffset": _random_datetimeoffset,
    "uniqueidentifier": _random_guid,
    "binary": _random_binary,
    "varbinary": _random_binary,
    "varchar": _random_words,
    "nvarchar": _random_words,
}
