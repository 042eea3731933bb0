"""Stores which offsets of each partition were read, and closes gaps that an operator accepts as lost."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_notes import NoteKind
from open_mirroring.changes.manifest import Facts
from open_mirroring.facts.read_places import READ_PLACES, Run, begun_late, fold, gaps
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.columns import note_from_now
from open_mirroring.ledger.documents import PLACES
from open_mirroring.ledger.requests import ACCEPT_LETTERS, Asked, Effect

_NAME = 300
_NAMED = 290
_CAPTURED = ".avro"
"""Ends the name of a partition that is the name of a file: of another layout than the documented (C-93)."""


def record_places(db: Connection, mirror: str, number: int, facts: Facts) -> None:
    """Add the offsets that batch *number* read for the first time, inside the transaction that completes the batch.

    Rows are noted as unverified in two cases (G-143). If a partition appeared later than others and was not read from
    offset 0, the rows of tables with an initial load are noted. If the names of Event Hubs Capture files do not show
    their partition, the rows of all tables are noted.
    """
    found = {name[:_NAME]: runs for name, runs in READ_PLACES.of_mirror(facts).items()}
    if nameless := [name for name in found if name.casefold().endswith(_CAPTURED)]:
        found = {name: runs for name, runs in found.items() if name not in nameless}
        _note_rows(db, mirror, "the names of Capture files show no partition, so a missing file is not seen", number)
    if not found:
        return
    known = PLACES.of(db, mirror)
    if late := begun_late(known, found):
        named = ", ".join(f"{name!r} from {first} on" for name, first in [*late.items()][:3])
        _note_rows(db, mirror, f"what came before was not there to be read: {named}"[:_NAMED], number, only_loaded=True)
    PLACES.put(db, mirror, fold(known, found))


def _note_rows(db: Connection, mirror: str, why: str, number: int, *, only_loaded: bool = False) -> None:
    """Note of every table why any of its rows may lack changes; with *only_loaded*, only of those with an initial load.

    The others report it as ``BEGUN_LATE``.
    """
    m = t.mirrored_table.c
    which = (m.mirror == mirror) & (m.load_state == "loaded" if only_loaded else sa.true())
    note_from_now(db, db.execute(sa.select(m.id, m.generation).where(which)), NoteKind.ROWS, [why], number)


def close_gaps(db: Connection, mirror: str) -> dict[str, list[Run]]:
    """Mark unread offsets as read if later offsets of their partition were read.

    Returns the marked offsets by partition.
    """
    read = PLACES.of(db, mirror)
    missing = {name: found for name, runs in read.items() if (found := gaps(runs))}
    PLACES.put(db, mirror, {name: [Run(read[name][0].first, read[name][-1].last)] for name in missing})
    return missing


def accept_gaps(ledger: Engine, mirror: str, reason: Reason, *, request: str = "") -> int:
    """Accept offsets as lost that were not read although later offsets of their partition were. Returns how many.

    If an earlier call had the same *request* id, its result is returned (G-30).
    """

    def effect(db: Connection, _: Any) -> Effect | None:
        missing = close_gaps(db, mirror)
        count = sum(gap.last - gap.first + 1 for found in missing.values() for gap in found)
        return ({"accepted": count}, {"offsets": missing}) if count else None

    asked = Asked(request, ACCEPT_LETTERS)
    return int(requests.decide(ledger, mirror, asked, "OFFSETS_ACCEPTED", reason, effect).get("accepted", 0))
