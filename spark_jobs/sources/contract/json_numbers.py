"""Keeps the exact digits of JSON numbers, and finds numbers that may have been rounded before.

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
    """Raises ValueError for NaN and Infinity, which are not valid JSON; for ``parse_constant``."""
    raise ValueError(f"{text} is no JSON number")


def may_be_rounded(value: object) -> bool:
    """Whether a value is a :class:`JsonNumber` with 16 or 17 digits, as a rounded double would have.

    A fraction that ends with padding zeros is not one: only a sender that knows the scale writes them.
    """
    if not isinstance(value, JsonNumber):
        return False
    found = _NUMBER.fullmatch(value)
    whole, fraction = found.groups() if found else ("", "")
    digits = (whole + fraction).lstrip("0")
    is_padded = len(fraction) > 1 and fraction.endswith("0")
    return DOUBLE_DIGITS < len(digits) <= _MOST_DIGITS and not is_padded


def rounded(name: str, value: object) -> str:
    """The reason for refusing a value for which :func:`may_be_rounded` is true; *name* is the column's name."""
    return (
        f"the value of {name}, {value}, is a number of JSON as a double is written, which may have lost digits: have "
        "the source write it as a text"
    )
