"""Reads SQL Server's dates, times and timestamps from text (C-81, C-82, C-84).

Digits of a second beyond the sixth are cut, never rounded; what has no offset from UTC is read as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from spark_jobs.sources.contract.decoded import shown
from spark_jobs.sources.sql_server.type_text import SECOND_DIGITS, SqlType

_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,7}))?")
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?"
    r"(?: ?(Z|[+-][0-9]{2}:[0-9]{2}))?"
)


def parse_date(text: str) -> date:
    """Read ``yyyy-mm-dd``.

    Raises:
        ValueError: the text is no date.
    """
    match = _DATE.fullmatch(text)
    if not match:
        raise ValueError(f"{shown(text)} is no date: yyyy-mm-dd")
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError as error:
        raise ValueError(f"{shown(text)} is no date: {error}") from None


def timestamp_parser(parsed: SqlType) -> Callable[[str], datetime]:
    """A reader of one timestamp type, whose values are aware and in UTC; it raises ValueError for any other text."""
    with_offset = parsed.name == "datetimeoffset"
    # `datetime` counts in 1/300 s, which a renderer may print with any number of digits: its digits prove nothing.
    digits = parsed.second_digits if parsed.name in SECOND_DIGITS else 7

    def parse(text: str) -> datetime:
        match = _TIMESTAMP.fullmatch(text)
        if not match:
            raise ValueError(f"{shown(text)} is no {parsed.name}: yyyy-mm-dd hh:mm:ss[.fffffff]")
        year, month, day, hour, minute, second, fraction, offset = match.groups()
        if (offset is not None) != with_offset:
            raise ValueError(f"{shown(text)} has {'no' if with_offset else 'an'} offset from UTC")
        micros = 0
        if fraction is not None:
            if fraction[digits:].strip("0"):
                raise ValueError(f"{shown(text)} has more than {digits} digits of a second")
            micros = int(fraction[:6].ljust(6, "0"))
        try:
            value = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, UTC)
            return value - _offset(offset) if with_offset and offset != "Z" else value
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{shown(text)} is no {parsed.name}: {error}") from None

    return parse


def timestamp_text(parsed: SqlType) -> Callable[[str], str]:
    """From a text of one timestamp type to its one spelling, in ISO form with all digits of the type (G-110).

    A ``datetimeoffset`` keeps its offset. The function raises ValueError for any other text.
    """
    read, digits = timestamp_parser(parsed), parsed.second_digits

    def spelled(text: str) -> str:
        read(text)
        match = _TIMESTAMP.fullmatch(text)
        assert match is not None  # it was read
        year, month, day, hour, minute, second, fraction, offset = match.groups()
        given = fraction or ""
        if given[digits:].strip("0"):
            raise ValueError(f"{shown(text)} has more than {digits} digits of a second")
        point = f".{given[:digits].ljust(digits, '0')}" if digits else ""
        zone = "" if offset is None else "+00:00" if offset in ("Z", "-00:00") else offset
        return f"{year}-{month}-{day}T{hour}:{minute}:{second}{point}{zone}"

    return spelled


def _offset(text: str) -> timedelta:
    hours, minutes = int(text[1:3]), int(text[4:6])
    if minutes > 59 or hours * 60 + minutes > 14 * 60:
        raise ValueError("the offset is beyond 14 hours")
    return timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1)


def time_parser(parsed: SqlType) -> Callable[[str], str]:
    """A reader of one time type, which checks the text and keeps it; it raises ValueError for any other text."""
    digits = parsed.second_digits

    def parse(text: str) -> str:
        match = _TIME.fullmatch(text)
        if not match:
            raise ValueError(f"{shown(text)} is no time: hh:mm:ss[.fffffff]")
        if (match[4] or "")[digits:].strip("0"):
            raise ValueError(f"{shown(text)} has more than {digits} digits of a second")
        return text

    return parse


def time_text(value: str, digits: int) -> str:
    """The time with exactly so many digits of a second."""
    whole, _, fraction = value.partition(".")
    return f"{whole}.{fraction[:digits].ljust(digits, '0')}" if digits else whole
