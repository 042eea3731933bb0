"""The columns of an initial load, as plain values that workers take, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from open_mirroring.landing_zone.schema import LandingColumn


class LoadColumn(NamedTuple):
    """A column of the load: its landing type, its SQL type where one is known, and what differs at the target.

    *held* is of times whose SQL type nothing tells, and says what they are in their files: ``wall clock`` without a
    zone, moments in a ``zone`` other than UTC, in whole ``milliseconds``.
    """

    name: str
    type: str
    sql_type: str | None = None
    held: Sequence[str] = ()
    renamed: str | None = None
    salted: str | None = None

    @property
    def landing(self) -> LandingColumn:
        """The same as a column of the mirrored table."""
        return LandingColumn(self.name, self.type, self.renamed, self.salted)


def columns_of_both(one: Sequence[LoadColumn], other: Sequence[LoadColumn]) -> tuple[LoadColumn, ...] | None:
    """The columns of two files of one export, as the first has them in order; None if they differ."""
    others = {column.name: column for column in other}
    if sorted(column[:3] for column in one) != sorted(column[:3] for column in other):
        return None
    return tuple(column._replace(held=sorted({*column.held, *others[column.name].held})) for column in one)
