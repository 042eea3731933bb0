"""Who sends the changes of a table: a database, or a task."""

from __future__ import annotations

from collections.abc import Iterable

from open_mirroring.changes.manifest import Facts
from open_mirroring.facts.kind import Kind, NewFacts

Sender = tuple[str, str]
"""A mirrored table as the mirror file names it, and who sends its changes."""

SENDERS = Kind[bool]("senders", bool, bool.__or__)
"""By the name of the sender."""


def note_senders(facts: NewFacts, senders: Iterable[Sender]) -> None:
    """Add senders."""
    for table, sender in senders:
        SENDERS.add(facts, True, table=table, name=sender)


def senders_in(facts: Facts) -> set[Sender]:
    """The senders in *facts*."""
    return {(table, sender) for table, senders in SENDERS.of(facts).items() for sender in senders}
