"""Where the rows of full loads that a source sends into its stream, and the changes of a table, are by partition.

A row of a full load behind the first change of its table means that the source was loaded again (K-18).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from open_mirroring.facts.kind import Kind

SHORTEST_VALUES = Kind[int]("shortest", int, min)
"""Bytes of the shortest value, by column."""


class LoadPlaces(NamedTuple):
    """The last row of a full load and the first change in a partition; None where there is none."""

    last_loaded: int | None = None
    first_change: int | None = None

    @property
    def is_reload(self) -> bool:
        """Whether a row of a full load came behind a change."""
        return self.last_loaded is not None and self.first_change is not None and self.last_loaded > self.first_change


def _merge(one: LoadPlaces, other: LoadPlaces) -> LoadPlaces:
    last = max((place for place in (one[0], other[0]) if place is not None), default=None)
    first = min((place for place in (one[1], other[1]) if place is not None), default=None)
    return LoadPlaces(last, first)


FULL_LOADS = Kind[LoadPlaces]("full_loads", LoadPlaces, _merge)
"""By partition."""


def fold(
    known: Mapping[str, int], found: Mapping[str, LoadPlaces], begins: Mapping[str, int], read_to_end: Mapping[str, int]
) -> tuple[dict[str, int], str | None]:
    """Where the changes of a table begin after a batch, by partition, and a row that came after them; None: none did.

    What is read again from before *begins*, where the newest full load begins, shows nothing. Only a partition that was
    *read_to_end* has a place before it has a change: a load that is still read from a slow partition is no reload.
    """
    starts, reloaded = dict(known), None
    for origin, (last_loaded, first_change) in sorted(found.items()):
        if first_change is not None and first_change >= begins.get(origin, 0):
            starts[origin] = min(first_change, starts.get(origin, first_change))
        if reloaded is None and last_loaded is not None and last_loaded > starts.get(origin, last_loaded):
            reloaded = f"a row of a full load came at {origin}:{last_loaded}, after changes of this table"
    return ({**read_to_end, **starts} if starts else {}), reloaded
