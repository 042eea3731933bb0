"""What a chart of the page shows: one value an hour, and whether that gets better or worse; a template draws it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

_STEADY = 0.1
"""A change of less than this share of the highest value is no trend."""


class Chart(NamedTuple):
    """One chart: its *values*, the oldest hour first, as a line or as bars of the class *kind*.

    *top* is the value at the upper edge; *good* is the trend that is good, if one is.
    """

    title: str
    span: str
    values: Sequence[float]
    words: Callable[[float], str]
    top: float
    kind: str = "line"
    good: str = ""

    @property
    def trend(self) -> str:
        """Compares the mean of the newest quarter with that of the quarter before it."""
        quarter = max(1, len(self.values) // 4)
        change = sum(self.values[-quarter:]) - sum(self.values[-2 * quarter : -quarter])
        if abs(change) <= _STEADY * max(self.values) * quarter:
            return "steady"
        return "rising" if change > 0 else "falling"
