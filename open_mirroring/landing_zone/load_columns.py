"""The columns of an initial load, as plain values for workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from open_mirroring.landing_zone.schema import LandingColumn


class LoadColumn(NamedTuple):
    """A column of the load: landing type, SQL type if known, and what differs at the target.

    *held* describes times whose SQL type is unknown: ``wall clock`` without a zone, ``zone`` in another one than UTC,
    ``milliseconds`` for whole milliseconds.
    """

    name: str
    type: str
    sql_type: str | None = None
    held: Sequence[str] = ()
    renamed: str | None = None
    salted: str | None = None

    @property
    def landing(self) -> LandingColumn:
        """The corresponding column of the mirrored table."""
        return LandingColumn(self.name, self.type, self.renamed, self.salted)


def columns_of_both(one: Sequence[LoadColumn], other: Sequence[LoadColumn]) -> tuple[LoadColumn, ...] | None:
    """The columns of two files of one export, in the order of the first; None if they differ."""
    others = {column.name: column for column in other}
    if sorted(column[:3] for column in one) != sorted(column[:3] for column in other):
        return None
    return tuple(column._replace(held=sorted({*column.held, *others[column.name].held})) for column in one)
