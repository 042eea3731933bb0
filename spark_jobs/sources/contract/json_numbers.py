"""Reads JSON without a guess: numbers digit for digit, and no numbers that may have lost digits.

A sender that writes exact numbers as JSON numbers may have read them as doubles, which hold 15 digits (G-112).
"""

from __future__ import annotations

import re

DOUBLE_DIGITS = 15
"""Decimals of so many digits survive a double."""
_MOST_DIGITS = 17
"""No double is written with more: a number that has more digits came exactly."""
_NUMBER = re.compile(r"-?0*([0-9]*)\.?([0-9]*)(?:[eE].*)?")


class JsonNumber(str):
    """A JSON number with its exact text, where no Python whole number has that text; so it differs from a string."""

    __slots__ = ()


def no_number(text: str) -> None:
    """Refuse NaN and Infinity, which JSON does not know."""
    raise ValueError(f"{text} is no JSON number")


def may_be_rounded(value: object) -> bool:
    """Whether a value is a number of JSON that looks like a double with all its digits used.

    Zeros at the end of a fraction, but for a lone one, are written by whoever knows the scale: a double has none.
    """
    if not isinstance(value, JsonNumber):
        return False
    found = _NUMBER.fullmatch(value)
    whole, fraction = found.groups() if found else ("", "")
    digits = (whole + fraction).lstrip("0")
    is_padded = len(fraction) > 1 and fraction.endswith("0")
    return DOUBLE_DIGITS < len(digits) <= _MOST_DIGITS and not is_padded


def rounded(name: str, value: object) -> str:
    """Why such a value of a column is refused; *name* as it is to be shown."""
    return (
        f"the value of {name}, {value}, is a number of JSON as a double is written, which may have lost digits: have "
        "the source write it as a text"
    )
