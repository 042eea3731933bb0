"""Records the places of a table's changes and of the rows of its full load by a Qlik task, by partition.

A row of a full load after a change of the same table shows that the Qlik task reloaded the table (K-18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from open_mirroring.facts.kind import Kind

SHORTEST_VALUES = Kind[int]("shortest", int, min)
"""The length in bytes of the shortest value, by column."""


class LoadPlaces(NamedTuple):
    """Where a partition has the last row of a table's full load, and the first change of the table.

    Both places are an offset or a line; None if the partition has no such row or change.
    """

    last_loaded: int | None = None
    first_change: int | None = None

    @property
    def is_reload(self) -> bool:
        """Whether a row of a full load came after a change."""
        return self.last_loaded is not None and self.first_change is not None and self.last_loaded > self.first_change


def _merge(one: LoadPlaces, other: LoadPlaces) -> LoadPlaces:
    last = max((place for place in (one[0], other[0]) if place is not None), default=None)
    first = min((place for place in (one[1], other[1]) if place is not None), default=None)
    return LoadPlaces(last, first)


FULL_LOADS = Kind[LoadPlaces]("full_loads", LoadPlaces, _merge)
"""The places by partition."""


def fold(
    known: Mapping[str, int], found: Mapping[str, LoadPlaces], begins: Mapping[str, int], read_to_end: Mapping[str, int]
) -> tuple[dict[str, int], str | None]:
    """Add a batch's places to the known places; return where changes begin by partition, and a reload.

    The reload is a string that names a row of a full load after a change; None if there is no such row. *begins* is, by
    partition, the place where the newest known full load begins; changes before this place are ignored. *read_to_end*
    is the last place of each partition that was read to its end. There the changes of a partition without changes
    begin, once another partition has changes. Rows of a full load that are still to be read from a slow partition are
    no reload.
    """
    starts, reloaded = dict(known), None
    for origin, (last_loaded, first_change) in sorted(found.items()):
        if first_change is not None and first_change >= begins.get(origin, 0):
            starts[origin] = min(first_change, starts.get(origin, first_change))
        if reloaded is None and last_loaded is not None and last_loaded > starts.get(origin, last_loaded):
            reloaded = f"a row of a full load came at {origin}:{last_loaded}, after changes of this table"
    return ({**read_to_end, **starts} if starts else {}), reloaded
