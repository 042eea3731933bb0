"""Keeps in the ledger which places of each partition were read, as runs; closes gaps that somebody accepts as lost."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.manifest import Manifest
from open_mirroring.changes.read_places import Run, bounded, gaps, joined
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.column_notes import NoteKind, note_from_now
from open_mirroring.ledger.requests import ACCEPT_LETTERS, Asked, Effect
from open_mirroring.ledger.tables import upsert

_NAME = 300
_NAMED = 290
_CAPTURED = ".avro"
"""Ends the name of a partition that is the name of a file: of another layout than the documented (C-93)."""


def record_places(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    """Add the places that batch *number* read for the first time, inside the transaction that completes it.

    Two things are noted of the tables (G-143). A partition that comes up next to others, and not with its first
    message, may have had messages behind the initial load of a table. Files of a Capture whose names contain no
    partition do not show that one of them is missing.
    """
    noted = {name[:_NAME]: runs for name, runs in manifest.places.items()}
    if nameless := [name for name in noted if name.casefold().endswith(_CAPTURED)]:
        noted = {name: runs for name, runs in noted.items() if name not in nameless}
        _note_rows(db, mirror, "the names of Capture files tell no partition, so a missing file is not seen", number)
    if not noted:
        return
    c = t.read_place.c
    query = sa.select(c.partition, c.runs).where(c.mirror == mirror, c.partition.in_(noted))
    known = {name: json.loads(runs) for name, runs in db.execute(query).tuples()}
    late = {name: runs[0][0] for name, runs in sorted(noted.items()) if runs and runs[0][0] and name not in known}
    if late and db.scalar(sa.select(c.partition).where(c.mirror == mirror).limit(1)):
        named = ", ".join(f"{name!r} from {first} on" for name, first in [*late.items()][:3])
        _note_rows(db, mirror, f"what came before was not there to be read: {named}"[:_NAMED], number, only_loaded=True)
    rows = []
    for name, runs in noted.items():
        read = bounded(joined([*known.get(name, ()), *runs]))
        rows.append({"mirror": mirror, "partition": name, "runs": json.dumps(read)})
    upsert(db, t.read_place, rows, keys=["mirror", "partition"], update=["runs"])


def _note_rows(db: Connection, mirror: str, why: str, number: int, *, only_loaded: bool = False) -> None:
    """Note it of every table; *only_loaded* leaves out those of which reports tell it as ``BEGUN_LATE``."""
    m = t.mirrored_table.c
    which = (m.mirror == mirror) & (m.load_state == "loaded" if only_loaded else sa.true())
    note_from_now(db, db.execute(sa.select(m.id, m.generation).where(which)), NoteKind.ROWS, [why], number)


def read_places(db: Connection, mirror: str) -> dict[str, list[Run]]:
    """By partition the runs of places that were read."""
    c = t.read_place.c
    query = sa.select(c.partition, c.runs).where(c.mirror == mirror).order_by(c.partition)
    return {name: [Run(*run) for run in json.loads(runs)] for name, runs in db.execute(query).tuples()}


def close_gaps(db: Connection, mirror: str) -> dict[str, list[Run]]:
    """Count the places between those that were read as read, too; by partition which they are."""
    c, missing = t.read_place.c, dict[str, list[Run]]()
    for name, runs in read_places(db, mirror).items():
        if found := gaps(runs):
            missing[name] = found
            closed = json.dumps([(runs[0].first, runs[-1].last)])
            db.execute(t.read_place.update().where(c.mirror == mirror, c.partition == name).values(runs=closed))
    return missing


def accept_gaps(ledger: Engine, mirror: str, reason: Reason, *, request: str = "") -> int:
    """Accept that the offsets between those that were read are lost, with an entry in the audit; how many they are.

    Asked again by the id of its *request*, it accepts nothing more, whatever is missing then (G-30).
    """

    def effect(db: Connection, _: Any) -> Effect | None:
        missing = close_gaps(db, mirror)
        count = sum(gap.last - gap.first + 1 for found in missing.values() for gap in found)
        return Effect({"accepted": count}, {"offsets": missing}) if count else None

    asked = Asked(request, ACCEPT_LETTERS)
    return int(requests.decide(ledger, mirror, asked, "OFFSETS_ACCEPTED", reason, effect).get("accepted", 0))
