"""Messages of source tables that are not mirrored: counted by name, so that nothing is ignored unseen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.facts.kind import Kind, NewFacts

NAMES_KEPT = 1_000
"""Of so many tables of a mirror the names are kept; the others are counted together, under the empty name."""
_NAME = 300


class Ignored(NamedTuple):
    """How many messages, and the highest position among them; empty where their format does not contain it."""

    messages: int
    highest: str = ""


class ForeignTable(NamedTuple):
    """A table that is not mirrored, or all those beyond :data:`NAMES_KEPT` (*name* is empty)."""

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
"""By the table's name at the source."""


def note_foreign(facts: NewFacts, messages: Mapping[str, int], up_to: Mapping[str, str] = MappingProxyType({})) -> None:
    """Add counts of ignored messages by table; *up_to* has the highest position of those that contain one."""
    for name, count in messages.items():
        FOREIGN.add(facts, Ignored(count, up_to.get(name, "")), name=name)


def fold(
    known: Mapping[str, ForeignTable], found: Mapping[str, Ignored], batch: int, at: datetime
) -> dict[str, ForeignTable]:
    """The tables that batch number *batch* has messages of, as they are known now."""
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
