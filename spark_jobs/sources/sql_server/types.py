"""Reads SQL Server's values from strings, and gives each key value one spelling.

A string is a value of its type, or reading it raises :class:`ValueError` (G-06). Digits of a second beyond the sixth
are cut (C-82), and a ``datetimeoffset`` is converted to UTC. Public source: Microsoft Learn, *Data types
(Transact-SQL)* (C-84).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Literal

from open_mirroring.errors import TerminalError
from spark_jobs.sources.contract.decoded import shown
from spark_jobs.sources.sql_server.times import parse_date, time_parser, time_text, timestamp_parser
from spark_jobs.sources.sql_server.type_text import (
    BINARY,
    INTEGERS,
    MONEY,
    TIMESTAMPS,
    SqlType,
    landing_type,
    read_type,
)

BinaryText = Literal["hex", "base64"]
"""The source's encoding of binary values: ``0x…`` or bare hexadecimal, or base64. The log has hexadecimal only."""

_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,3}))?")
_ROUNDED_DIGITS = 6
"""Spreadsheets and consoles round numbers with an exponent to this few digits."""
_FLOAT = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_NOT_ZERO = re.compile(r"[+.0-]*[1-9]")
_GUID = re.compile(r"[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}")
_HEX = re.compile(r"(?:0[xX])?((?:[0-9A-Fa-f]{2})*)")
_BITS = {"0": False, "1": True, "false": False, "true": True}
_EXACT = Context(prec=100)


def hex_of_base64(text: str) -> str:
    """The hexadecimal spelling of a binary value in base64; ValueError for any other string."""
    try:
        return "0x" + base64.b64decode(text, validate=True).hex().upper()
    except (binascii.Error, ValueError):
        raise ValueError(f"{shown(text)} is no base64") from None


def is_same_value(sql_type: str, one: str | None, other: str | None) -> bool:
    """Whether two strings, or None for NULL, are the same value of *sql_type*.

    A string that is not a value of the type is equal only to the same string.
    """
    if one == other:
        return True
    if one is None or other is None:
        return False
    try:
        return bool(converter(sql_type)(one) == converter(sql_type)(other))
    except (TerminalError, ValueError):
        return False


def is_another_row(sql_type: str, one: str | None, other: str | None) -> bool:
    """Whether two strings of a key column certainly belong to different rows at the source, whatever its collation."""
    if one is None or other is None or one == other:
        return False
    try:
        left, right = map(converter(sql_type), (one, other))
    except (TerminalError, ValueError):
        return False
    if isinstance(left, float):
        return not math.isclose(left, right, rel_tol=1e-4)
    if isinstance(left, datetime):
        return bool(abs(left - right) >= timedelta(seconds=1))
    if read_type(sql_type).name == "time":
        return bool(left.partition(".")[0] != right.partition(".")[0])
    return _folded(left) != _folded(right) if isinstance(left, str) else bool(left != right)


def is_unfilled(sql_type: str, text: str | None) -> bool:
    """Whether a string lacks the blanks with which the source pads values of ``char(n)`` or ``nchar(n)``."""
    length = filled_length(sql_type)
    if text is None or length is None or read_type(sql_type).name == "binary":
        return False
    return max(len(text.encode()), len(text.encode("utf-16-le")) // 2) < length


def filled_length(sql_type: str) -> int | None:
    """The minimum number of bytes of each value of a type that the source pads; None for types without padding."""
    try:
        parsed = read_type(sql_type)
    except TerminalError:
        return None
    return (parsed.length or 1) if parsed.name in ("char", "nchar", "binary") else None


def _folded(text: str) -> str:
    return unicodedata.normalize("NFC", text.rstrip(" ")).casefold()


@lru_cache(maxsize=4096)
def converter(sql_type: str) -> Callable[[str], Any]:
    """A function that reads strings of *sql_type*, and raises ValueError, with the reason, for any other string.

    It returns int, Decimal, float, bool, str, bytes, date or datetime (with zone, in UTC). Raises ``TYPE_UNSUPPORTED``
    if the type cannot be mirrored.
    """
    parsed = read_type(sql_type)
    name = parsed.name
    if name in INTEGERS:
        return _integer(name, *INTEGERS[name][1:])
    if name == "decimal" or name in MONEY:
        return _decimal(name, *parsed.digits)
    if name in ("float", "real"):
        return _float(parsed.single)
    if name in TIMESTAMPS:
        return timestamp_parser(parsed)
    if name in BINARY:
        return _bytes(parsed)
    if name == "time":
        return time_parser(parsed)
    if name in ("nvarchar", "nchar", "sysname", "varchar", "char"):
        return _text(name, 128 if name == "sysname" else parsed.length)
    return {"bit": _bit, "date": parse_date, "uniqueidentifier": _guid}.get(name, str)


def _integer(name: str, low: int, high: int) -> Callable[[str], int]:
    # No range needs more than 19 digits: longer texts are refused before Python converts them.
    most = len(str(high))

    def parse(text: str) -> int:
        if len(text) < most and text.isdecimal() and text.isascii():
            return int(text)
        if not _INTEGER.fullmatch(text):
            raise ValueError(f"{shown(text)} is not a whole number")
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) > 19 or not low <= (value := int(text)) <= high:
            raise ValueError(f"{shown(text)} is out of range for {name}")
        return value

    return parse


def _decimal(name: str, precision: int, scale: int) -> Callable[[str], Decimal]:
    limit = MONEY[name][2] if name in MONEY else None

    def parse(text: str) -> Decimal:
        match = _DECIMAL.fullmatch(text)
        if not match or not (match[2] or match[3]):
            raise ValueError(f"{shown(text)} is not a decimal number")
        whole, fraction = match[2], match[3] or ""
        if match[4]:
            whole, fraction = _without_exponent(text, whole, fraction, int(match[4]))
        whole = whole.lstrip("0")
        if len(whole) > precision - scale:
            raise ValueError(f"{shown(text)} has more than {precision - scale} digits before the point")
        if fraction[scale:].strip("0"):
            raise ValueError(f"{shown(text)} has more than {scale} digits after the point")
        value = Decimal(f"{match[1]}{whole or '0'}.{fraction[:scale].ljust(scale, '0')}")
        if limit is not None and not -limit <= value < limit:
            raise ValueError(f"{shown(text)} is out of range for {name}")
        return value if value else abs(value)

    return parse


def _without_exponent(text: str, whole: str, fraction: str, exponent: int) -> tuple[str, str]:
    digits, point = whole + fraction, len(whole) + exponent
    if point > len(digits) and len(digits.lstrip("0")) >= _ROUNDED_DIGITS:
        raise ValueError(f"{shown(text)} may have been rounded: write the number without an exponent")
    if point > len(digits):
        return digits.ljust(point, "0"), ""
    digits = digits.rjust(len(digits) - point, "0") if point < 0 else digits
    return digits[: max(point, 0)], digits[max(point, 0) :]


def _float(single: bool) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not _FLOAT.fullmatch(text):
            raise ValueError(f"{shown(text)} is not a finite floating-point number")
        exact = value = float(text)
        if single and math.isfinite(value):
            try:
                value = struct.unpack("<f", struct.pack("<f", value))[0]
            except OverflowError:
                value = math.inf
        if not value and (exact or _NOT_ZERO.match(text)):
            raise ValueError(f"{shown(text)} is too near to 0 for {'real' if single else 'float'}")
        if not math.isfinite(value):
            raise ValueError(f"{shown(text)} is too large for {'real' if single else 'float'}")
        return value

    return parse


def _bit(text: str) -> bool:
    value = _BITS.get(text.lower())
    if value is None:
        raise ValueError(f"{shown(text)} is not a bit: 0, 1, true or false")
    return value


def _guid(text: str) -> str:
    if not _GUID.fullmatch(text):
        raise ValueError(f"{shown(text)} is not a uniqueidentifier")
    return text.upper()


def _text(name: str, length: int | None) -> Callable[[str], str]:
    if length is None or length == -1:
        return str
    # The length counts UTF-16 units, or bytes of an unknown code page, in which each character has at least one.
    counts_units = name not in ("varchar", "char")

    def parse(text: str) -> str:
        may_be_long = counts_units and len(text) * 2 > length
        if len(text) > length or (may_be_long and len(text.encode("utf-16-le")) > 2 * length):
            raise ValueError(f"{shown(text)} is longer than {length} {'UTF-16 units' if counts_units else 'bytes'}")
        return text

    return parse


def _bytes(parsed: SqlType) -> Callable[[str], bytes]:
    def parse(text: str) -> bytes:
        match = _HEX.fullmatch(text)
        if not match:
            raise ValueError(f"{shown(text)} is not a hexadecimal number of complete bytes")
        value = bytes.fromhex(match[1])
        if parsed.length is not None and parsed.length != -1 and len(value) > parsed.length:
            raise ValueError(f"{len(value)} bytes are more than {parsed.length}")
        if parsed.name == "binary" and len(value) < (parsed.length or 1):
            # The source pads them to their length, so a shorter value is not the source's.
            raise ValueError(f"{len(value)} bytes are less than {parsed.length or 1}")
        return value

    return parse


def canonical_text(sql_type: str, value: Any) -> str:
    """The one spelling of a typed key value (G-02): equal values have equal strings from any producer."""
    return _spelling(sql_type)(value)


@lru_cache(maxsize=4096)
def key_converter(sql_type: str) -> Callable[[str], str]:
    """A function that converts a key value's string to its :func:`canonical_text`.

    Raises:
        TerminalError: ``TYPE_UNSUPPORTED`` if *sql_type* cannot be mirrored.
        ValueError: *sql_type* loses digits as a key; the returned function raises it for a string that is not a value.
    """
    parse, spell = converter(sql_type), _spelling(sql_type)
    if spell is str and landing_type(sql_type) == "string":
        return parse  # already text
    return lambda text: spell(parse(text))


@lru_cache(maxsize=4096)
def _spelling(sql_type: str) -> Callable[[Any], str]:
    parsed = read_type(sql_type)
    name = parsed.name
    if name == "decimal" or name in MONEY:
        return lambda value: _decimal_text(value, *parsed.digits)
    if name in ("float", "real"):
        # Adding zero makes -0.0 and 0.0 one key, as at the source; nine digits distinguish all four-byte floats.
        return (lambda value: format(value + 0.0, ".9g")) if parsed.single else (lambda value: repr(value + 0.0))
    if name in TIMESTAMPS:
        if parsed.second_digits > 6:
            raise ValueError(
                f"{sql_type} keeps {parsed.second_digits} digits of a second and the target 6: as a key it loses "
                "digits; `types: {column: string}` lands it as text with all of them"
            )
        return lambda value: value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    if name == "time":
        return lambda value: time_text(value, parsed.second_digits)
    if name in BINARY:
        return lambda value: value.hex().upper()
    spellings: dict[str, Callable[[Any], str]] = {
        "bit": lambda value: "1" if value else "0",
        "date": lambda value: value.isoformat(),
        "uniqueidentifier": lambda value: value.upper(),
    }
    return spellings.get(name, str)


def type_of_key_text(sql_type: str) -> str:
    """The type with which a key's :func:`canonical_text` is read back.

    For a ``datetimeoffset`` it is a ``datetime2``, because the canonical text is in UTC without offset; else it is
    *sql_type*.
    """
    parsed = read_type(sql_type)
    return f"datetime2({parsed.second_digits})" if parsed.name == "datetimeoffset" else sql_type


def type_of_landed_key(landing: str) -> str:
    """The SQL type that reads back the :func:`canonical_text` of a key with the landing type *landing*."""
    return _LANDED.get(landing, landing)


_LANDED = {
    "bool": "bit",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "real",
    "float64": "float",
    "string": "nvarchar(max)",
    "binary": "varbinary(max)",
    "timestamp": "datetime2(6)",
}
"""Dates and decimals have the same name in both."""


def _decimal_text(value: Decimal | int, precision: int, scale: int) -> str:
    try:
        exact = Decimal(value).quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation:
        exact = Decimal("NaN")
    if exact != value or len(exact.as_tuple().digits) > precision:
        raise ValueError(f"{value} does not fit decimal({precision},{scale})")
    return format(exact if exact else abs(exact), "f")
