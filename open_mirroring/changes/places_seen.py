"""Where rows with one column list are: the lowest and the highest position, by stream incarnation."""

from __future__ import annotations

from typing import NamedTuple


class PlacesSeen(NamedTuple):
    """The lowest and the highest position of rows with one column list, in one stream incarnation.

    *whole_first* and *whole_last* count only rows that provably have every column; empty if there are none.
    """

    first: str
    last: str
    whole_first: str = ""
    whole_last: str = ""


Places = dict[str, PlacesSeen]
"""By stream incarnation."""


def joined(one: PlacesSeen, other: PlacesSeen) -> PlacesSeen:
    """The places of the rows of both."""
    return PlacesSeen(
        min(one.first, other.first),
        max(one.last, other.last),
        min(filter(None, (one.whole_first, other.whole_first)), default=""),
        max(one.whole_last, other.whole_last),
    )
