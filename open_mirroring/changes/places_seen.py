"""Records the positions between which rows with the same set of columns were seen."""

from __future__ import annotations

from typing import NamedTuple


class PlacesSeen(NamedTuple):
    """The lowest and highest position of rows with the same columns, in one stream.

    A stream is one enabling of streaming or one Qlik full load. *whole_first* and *whole_last* are the lowest and
    highest position of those rows that provably have every column of their table; empty if there are none.
    """

    first: str
    last: str
    whole_first: str = ""
    whole_last: str = ""


Places = dict[str, PlacesSeen]
"""The positions by stream."""


def joined(one: PlacesSeen, other: PlacesSeen) -> PlacesSeen:
    """Combine the positions of two sets of rows."""
    return PlacesSeen(
        min(one.first, other.first),
        max(one.last, other.last),
        min(filter(None, (one.whole_first, other.whole_first)), default=""),
        max(one.whole_last, other.whole_last),
    )
