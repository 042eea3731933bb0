"""Records who sends the changes of a table: a database, or a Qlik task."""

from __future__ import annotations

from collections.abc import Iterable

from open_mirroring.changes.manifest import Facts
from open_mirroring.facts.kind import Kind, NewFacts

Sender = tuple[str, str]
"""A table as in the mirror file, and the name of the database or task that sends its changes."""

SENDERS = Kind[bool]("senders", bool, bool.__or__)
"""True, by the name of the sender."""


def note_senders(facts: NewFacts, senders: Iterable[Sender]) -> None:
    """Add senders to *facts*, each as a pair of the table and the database or Qlik task that sends its changes."""
    for table, sender in senders:
        SENDERS.add(facts, True, table=table, name=sender)


def senders_in(facts: Facts) -> set[Sender]:
    """The senders in *facts*, each as a pair of the table and the database or Qlik task that sends its changes."""
    return {(table, sender) for table, senders in SENDERS.of(facts).items() for sender in senders}
