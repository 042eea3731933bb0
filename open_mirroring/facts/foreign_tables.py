"""Counts messages of source tables that are not mirrored, so that an operator can see what is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.facts.kind import Kind, NewFacts

NAMES_KEPT = 1_000
"""The number of tables of a mirror that are counted by name; all others are counted together under an empty name."""
_NAME = 300


class Ignored(NamedTuple):
    """The number of ignored messages of a table that is not mirrored, and their highest position.

    The position is empty if the source format has none.
    """

    messages: int
    highest: str = ""


class ForeignTable(NamedTuple):
    """A table that is not mirrored, and its ignored messages.

    An empty *name* stands for all such tables beyond the first :data:`NAMES_KEPT`.
    """

    name: str
    messages: int
    first_batch: int
    first_seen: datetime
    last_batch: int
    last_seen: datetime
    highest: str = ""


def _merge(one: Ignored, other: Ignored) -> Ignored:
    return Ignored(one.messages + other.messages, max(one.highest, other.highest))


FOREIGN = Kind[Ignored]("foreign", Ignored, _merge)
"""The ignored messages, by the table's name at the source."""


def note_foreign(facts: NewFacts, messages: Mapping[str, int], up_to: Mapping[str, str] = MappingProxyType({})) -> None:
    """Add the number of ignored messages of each table to *facts*; *up_to* has their highest positions, if known."""
    for name, count in messages.items():
        FOREIGN.add(facts, Ignored(count, up_to.get(name, "")), name=name)


def fold(
    known: Mapping[str, ForeignTable], found: Mapping[str, Ignored], batch: int, at: datetime
) -> dict[str, ForeignTable]:
    """Add the ignored messages of a batch to the known counts. Returns the tables whose count changed, by name."""
    counted = dict[str, Ignored]()
    room = NAMES_KEPT - len(known.keys() - {""})
    for full, ignored in sorted(found.items()):
        name = full[:_NAME]
        if name and name not in known and name not in counted:
            name = name if room > 0 else ""
            room -= bool(name)
        counted[name] = _merge(counted.get(name, Ignored(0)), ignored)
    folded = {}
    for name, ignored in counted.items():
        before = known.get(name, ForeignTable(name, 0, batch, at, batch, at))
        both = _merge(Ignored(before.messages, before.highest), ignored)
        folded[name] = before._replace(messages=both.messages, highest=both.highest, last_batch=batch, last_seen=at)
    return folded
