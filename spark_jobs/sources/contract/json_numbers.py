"""Keeps the exact digits of JSON numbers, and finds numbers that the sender may have rounded.

A sender may have converted an exact number to a double, which keeps only 15 digits (G-112).
"""

from __future__ import annotations

import re

DOUBLE_DIGITS = 15
"""A decimal with at most this many digits survives conversion to a double."""
_MOST_DIGITS = 17
"""No double is written with more digits, so a longer number was not rounded to a double."""
_NUMBER = re.compile(r"-?0*([0-9]*)\.?([0-9]*)(?:[eE].*)?")


class JsonNumber(str):
    """The exact text of a JSON number with fraction or exponent; a class of its own, to differ from JSON strings."""

    __slots__ = ()


def no_number(text: str) -> None:
    """Raises ValueError for NaN and Infinity, which are not valid JSON; for ``parse_constant`` of Python's parser."""
    raise ValueError(f"{text} is no JSON number")


def may_be_rounded(value: object) -> bool:
    """Whether a value is a :class:`JsonNumber` with 16 or 17 digits, as a rounded double would have.

    A number whose fraction ends with zeros was not rounded: only a sender that knows the column's scale writes such
    zeros.
    """
    if not isinstance(value, JsonNumber):
        return False
    found = _NUMBER.fullmatch(value)
    whole, fraction = found.groups() if found else ("", "")
    digits = (whole + fraction).lstrip("0")
    is_padded = len(fraction) > 1 and fraction.endswith("0")
    return DOUBLE_DIGITS < len(digits) <= _MOST_DIGITS and not is_padded


def rounded(name: str, value: object) -> str:
    """The reason for refusing a number that may have been rounded; *name* is the column's name."""
    return (
        f"the value of {name}, {value}, is a number of JSON as a double is written, which may have lost digits: have "
        "the source write it as a text"
    )
