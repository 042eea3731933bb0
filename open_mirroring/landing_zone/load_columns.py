"""The columns of an initial load, as plain values that can be sent to workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from open_mirroring.landing_zone.schema import LandingColumn


class LoadColumn(NamedTuple):
    """A column of an initial load: its type at the target, and its SQL type if that is known.

    *held* describes the values of a timestamp column of unknown SQL type: ``wall clock`` means values without zone,
    ``zone`` values in a zone other than UTC, ``milliseconds`` only whole milliseconds. *renamed* is the column's name
    at the target if it differs from *name*. *salted* is the check value of the salt if the column is hashed.
    """

    name: str
    type: str
    sql_type: str | None = None
    held: Sequence[str] = ()
    renamed: str | None = None
    salted: str | None = None

    @property
    def landing(self) -> LandingColumn:
        """The column of the mirrored table into which this column is loaded."""
        return LandingColumn(self.name, self.type, self.renamed, self.salted)


def columns_of_both(one: Sequence[LoadColumn], other: Sequence[LoadColumn]) -> tuple[LoadColumn, ...] | None:
    """Combine the columns of two files of one export, in the order of *one*; None if names or types differ."""
    others = {column.name: column for column in other}
    if sorted(column[:3] for column in one) != sorted(column[:3] for column in other):
        return None
    return tuple(column._replace(held=sorted({*column.held, *others[column.name].held})) for column in one)
