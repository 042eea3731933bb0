"""Reads dates, times and timestamps from strings, equally for all sources and transports (C-81, C-82, C-84).

A timestamp lands with six digits of a second: further digits are cut, never rounded. A timestamp without an offset is
read as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from spark_jobs.sources.contract.decoded import shown
from spark_jobs.sources.sql_server.type_text import SECOND_DIGITS, SqlType

_MOST_DIGITS = 7
"""The maximum digits of a second that a type declares; its values may have more."""
# Hours beyond a day are valid times in PostgreSQL, DB2 and MySQL.
_TIME = re.compile(r"(-?[0-9]{2,3}):([0-5][0-9]):([0-5][0-9])(?:\.([0-9]{1,12}))?")
# Only the shape: a zero date and a year beyond 9999 match, too.
_MOMENT = re.compile(
    r"(-?[0-9]{4,6})-([0-9]{2})-([0-9]{2})"
    r"(?:[ T]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,12}))?(?: ?(Z|[+-][0-9]{2}:[0-9]{2}))?)?"
)
_AS_TEXT = "`types: {column: string}` lands it as text"


def parse_date(text: str) -> date:
    """Reads ``yyyy-mm-dd``, also with the time of day 00:00:00; ValueError for any other string."""
    match = _MOMENT.fullmatch(text)
    if not match or not _is_midnight(match):
        raise ValueError(f"{shown(text)} is not a date: yyyy-mm-dd")
    try:
        return date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError as error:
        raise ValueError(f"{shown(text)} is not a date: {error}; {_AS_TEXT}") from None


def _is_midnight(match: re.Match[str]) -> bool:
    clock = "".join(part or "" for part in match.group(4, 5, 6, 7))
    return match[8] is None and not clock.strip("0")


def date_text(text: str) -> str:
    """The one spelling of a date that lands as text, even if the date is in no calendar."""
    match = _MOMENT.fullmatch(text)
    if not match or match[8] is not None:
        raise ValueError(f"{shown(text)} is not a date: yyyy-mm-dd")
    day = "-".join(match.group(1, 2, 3))
    if _is_midnight(match):
        return day
    return time_text(f"{day}T{match[4]}:{match[5]}:{match[6]}.{match[7] or ''}", 0)


def timestamp_parser(parsed: SqlType) -> Callable[[str], datetime]:
    """A function that reads strings of a timestamp type as times with zone UTC.

    The function raises ValueError for a string that is not a timestamp of this type.
    """
    with_offset = parsed.name == "datetimeoffset"
    # `datetime` counts in 1/300 s and may be printed with any number of digits: its digits prove nothing.
    digits = parsed.second_digits if parsed.name in SECOND_DIGITS else _MOST_DIGITS

    def parse(text: str) -> datetime:
        year, month, day, hour, minute, second, fraction, offset = _moment(text, parsed, digits)
        micros = int(fraction[:6].ljust(6, "0"))
        try:
            value = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), micros, UTC)
            return value - _offset(offset) if with_offset and offset != "Z" else value
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{shown(text)} is no {parsed.name}: {error}; {_AS_TEXT}") from None

    return parse


def timestamp_text(parsed: SqlType) -> Callable[[str], str]:
    """A function that converts strings of the timestamp type *parsed* to their one spelling (G-110).

    The spelling is ISO, with all digits of the type. A ``datetimeoffset`` keeps its offset; times that are in no
    calendar are allowed.
    """
    digits = parsed.second_digits

    def spelled(text: str) -> str:
        year, month, day, hour, minute, second, fraction, offset = _moment(text, parsed, digits)
        zone = "" if not offset else "+00:00" if offset in ("Z", "-00:00") else offset
        return time_text(f"{year}-{month}-{day}T{hour}:{minute}:{second}.{fraction}", digits) + zone

    return spelled


def _moment(text: str, parsed: SqlType, digits: int) -> tuple[str, ...]:
    match = _MOMENT.fullmatch(text)
    if not match or match[4] is None:
        raise ValueError(f"{shown(text)} is no {parsed.name}: yyyy-mm-dd hh:mm:ss[.fffffff]")
    with_offset = parsed.name == "datetimeoffset"
    if (match[8] is not None) != with_offset:
        raise ValueError(f"{shown(text)} has {'no' if with_offset else 'an'} offset from UTC")
    _refuse_digits(text, match[7] or "", digits)
    return tuple(part or "" for part in match.groups())


def _refuse_digits(text: str, fraction: str, digits: int) -> None:
    if digits < _MOST_DIGITS and fraction[digits:].strip("0"):
        raise ValueError(f"{shown(text)} has more than {digits} digits of a second")


def _offset(text: str) -> timedelta:
    hours, minutes = int(text[1:3]), int(text[4:6])
    if minutes > 59 or hours * 60 + minutes > 14 * 60:
        raise ValueError("the offset is beyond 14 hours")
    return timedelta(hours=hours, minutes=minutes) * (-1 if text[0] == "-" else 1)


def time_parser(parsed: SqlType) -> Callable[[str], str]:
    """A function that checks strings of the time type *parsed*.

    It returns the string unchanged, apart from zeros after the seventh digit, which are removed.
    """
    digits = parsed.second_digits

    def parse(text: str) -> str:
        match = _TIME.fullmatch(text)
        if not match:
            raise ValueError(f"{shown(text)} is not a time: hh:mm:ss[.fffffff]")
        fraction = match[4] or ""
        _refuse_digits(text, fraction, digits)
        return time_text(text, _MOST_DIGITS) if len(fraction) > _MOST_DIGITS else text

    return parse


def time_text(value: str, digits: int) -> str:
    """The time *value* with *digits* digits of a second; with more only if these are not 0."""
    whole, _, fraction = value.partition(".")
    fraction = fraction[:digits].ljust(digits, "0") + fraction[digits:].rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole
