"""Formats evidence for messages: numbers as ranges, and text from outside, which is escaped and shortened."""

from __future__ import annotations

from collections.abc import Iterable

from open_mirroring.facts.read_places import joined

_SHOWN_RANGES, _SHOWN_CHARACTERS = 10, 80


def ranges(numbers: Iterable[int]) -> str:
    """Return numbers as a string, ``1-3, 7``.

    After ten ranges the string only shows how many more ranges there are.
    """
    found = joined((number, number) for number in numbers)
    texts = [f"{first}" if first == last else f"{first}-{last}" for first, last in found]
    more = len(texts) - _SHOWN_RANGES
    return ", ".join(texts[:_SHOWN_RANGES]) + (f" and {more} more ranges" if more > 0 else "")


def shown(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    """Return text from outside, escaped and shortened so that it is safe to show; not for use as a path or query."""
    return repr(text if len(text) <= characters else f"{text[:characters]}…")
