"""Records changes that could not be read, so that it is unknown which row, or even which table, they concern."""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.codes import Trait, having
from open_mirroring.facts.kind import Kind

Stop = tuple[str, str]
"""The code of a stop, and what was found."""

READING_STOPS = Kind[Stop]("stops", Stop, min)
"""The stop of a table that reading found."""


class KeylessReject(NamedTuple):
    """A dead letter that names its table but no key.

    *origin* and *place* say where the message of the dead letter is.
    """

    code: str
    reason: str
    origin: str
    place: int

    @property
    def healed_by_copy(self) -> bool:
        """Whether the dead letter can be settled by a copy of its message."""
        return self.code in having(Trait.HEALED_BY_COPY)

    @property
    def what(self) -> str:
        """The text of the stop that the dead letter causes."""
        lost = "changes that could not be read" if self.healed_by_copy else "a change without a readable key"
        return f"{lost}: {self.code}: {self.reason} at {self.origin}:{self.place}"


def _worse(one: KeylessReject, other: KeylessReject) -> KeylessReject:
    """The one that no other copy of its message can settle; of two that are alike the first one."""
    return min(one, other, key=lambda reject: (reject.healed_by_copy, reject.origin, reject.place))


KEYLESS = Kind[KeylessReject]("keyless", KeylessReject, _worse)
"""For each table the dead letter that is hardest to settle."""

WITHOUT_TABLE = Kind[int]("without_table", int, int.__add__)
"""The number of dead letters that name no table: any table may lack their changes."""
