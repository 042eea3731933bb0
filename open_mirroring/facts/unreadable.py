"""Changes that could not be read and hide something: which row they change, or even which table."""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.codes import Trait, having
from open_mirroring.facts.kind import Kind

Stop = tuple[str, str]
"""A code, and what was found."""

READING_STOPS = Kind[Stop]("stops", Stop, min)
"""Of a table."""


class KeylessReject(NamedTuple):
    """A dead letter with a table and without a key, and the coordinates of its message."""

    code: str
    reason: str
    origin: str
    place: int

    @property
    def healed_by_copy(self) -> bool:
        """Whether another copy of its message can settle it."""
        return self.code in having(Trait.HEALED_BY_COPY)

    @property
    def what(self) -> str:
        """What to report of it."""
        lost = "changes that could not be read" if self.healed_by_copy else "a change without a readable key"
        return f"{lost}: {self.code}: {self.reason} at {self.origin}:{self.place}"


def _worse(one: KeylessReject, other: KeylessReject) -> KeylessReject:
    """The one that no other copy of its message can settle; of two that are alike the first one."""
    return min(one, other, key=lambda reject: (reject.healed_by_copy, reject.origin, reject.place))


KEYLESS = Kind[KeylessReject]("keyless", KeylessReject, _worse)
"""The dead letter of each table that needs most to be settled."""

WITHOUT_TABLE = Kind[int]("without_table", int, int.__add__)
"""How many dead letters have no table: any table may lack them."""
