"""Reads facts in tests, and makes some by hand."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Connection

from open_mirroring.changes.manifest import Facts
from open_mirroring.facts.foreign_tables import FOREIGN, fold, note_foreign
from open_mirroring.facts.kind import Kind, NewFacts
from open_mirroring.ledger.documents import FOREIGN_TABLES


def facts_about(kind: Kind[Any], tables: Mapping[str, Mapping[str, Any]]) -> NewFacts:
    """Facts of one kind: values by table (empty: the mirror) and name."""
    facts: NewFacts = {}
    for table, values in tables.items():
        for name, value in values.items():
            kind.add(facts, value, table=table, name=name)
    return facts


def ignored(facts: Facts) -> dict[str, int]:
    """How many messages were ignored of each table that is not mirrored."""
    return {name: found.messages for name, found in FOREIGN.of_mirror(facts).items()}


def ignored_up_to(facts: Facts) -> dict[str, str]:
    """Up to which position they were, for tables of which that is known."""
    return {name: found.highest for name, found in FOREIGN.of_mirror(facts).items() if found.highest}


def record_foreign(
    db: Connection, mirror: str, batch: int, at: datetime, messages: Mapping[str, int], up_to: Mapping[str, str] = {}
) -> None:
    """Ignored messages of a batch, as its completion leaves them."""
    facts: NewFacts = {}
    note_foreign(facts, messages, up_to)
    FOREIGN_TABLES.put(db, mirror, fold(FOREIGN_TABLES.of(db, mirror), FOREIGN.of_mirror(facts), batch, at))
