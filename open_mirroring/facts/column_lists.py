"""Records the sets of columns ("column lists") that rows of a table had, and the positions of these rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from open_mirroring.changes.column_history import BEHIND
from open_mirroring.changes.places_seen import Places, PlacesSeen, joined
from open_mirroring.facts.kind import Kind


class ColumnList(NamedTuple):
    """A column list (names, types and ordinals as JSON) and what is known of the rows with these columns.

    *whole* is True if a row proved that these were all columns of the table. *first_pos* is the lowest position of all
    rows with these columns. *seen* has the positions by stream (one enabling of streaming or one Qlik full load).
    """

    cols: str
    whole: bool
    first_pos: str
    seen: Places

    @property
    def names(self) -> set[str]:
        """The names of the columns in the column list."""
        return {name for name, *_ in json.loads(self.cols)}


def _merge(one: Places, other: Places) -> Places:
    return {**one, **{epoch: joined(one.get(epoch, seen), seen) for epoch, seen in other.items()}}


COLUMN_LISTS = Kind[Places]("columns", Places, _merge)
"""The positions of rows, by the JSON text of their column list."""


def fold(
    known: Mapping[str, ColumnList], found: Mapping[str, Places], *, of_reading: bool
) -> tuple[dict[str, ColumnList], bool]:
    """Add the column lists of a batch to the known column lists.

    Returns the changed column lists, and whether a row proved a known column list to be complete (*whole*). With
    *of_reading*, rows have the columns of the time of reading, so a column list counts as newer than all that was read
    before (G-60).
    """
    lists, proved, changed = dict(known), False, dict[str, ColumnList]()
    for cols, places in found.items():
        before = lists.get(cols)
        whole, first = any(seen.whole_last for seen in places.values()), min(seen.first for seen in places.values())
        proved = proved or (whole and before is not None and not before.whole)
        at = dict(before.seen) if before is not None else {}
        for epoch, seen in places.items():
            if of_reading:
                others = [one.seen[epoch].last for other, one in lists.items() if other != cols and epoch in one.seen]
                if others:
                    place = seen.last if seen.last > max(others) else f"{max(others)}{BEHIND}"
                    seen = PlacesSeen(place, place, *((place, place) if seen.whole_last else ()))
            at[epoch] = joined(at[epoch], seen) if epoch in at else seen
        first = first if before is None else min(before.first_pos, first)
        lists[cols] = changed[cols] = ColumnList(cols, whole or (before is not None and before.whole), first, at)
    return changed, proved
