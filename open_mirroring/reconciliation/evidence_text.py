"""Formats evidence: numbers as ranges, foreign text escaped and short."""

from __future__ import annotations

from collections.abc import Iterable

_SHOWN_RANGES, _SHOWN_CHARACTERS = 10, 80


def ranges(numbers: Iterable[int]) -> str:
    """``1-3, 7``; shortened when there are many ranges."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in found]
    more = len(texts) - _SHOWN_RANGES
    return ", ".join(texts[:_SHOWN_RANGES]) + (f" and {more} more ranges" if more > 0 else "")


def shown(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    """Foreign text as it may be shown: escaped and short; never part of a path or a query."""
    return repr(text if len(text) <= characters else f"{text[:characters]}…")
