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
from open_mirroring.ledger.requests import ACCEPT_LETTERS, Asked, Effect
from open_mirroring.ledger.tables import upsert

_BEFORE = ""
"""Stands for a partition: places were read that nobody noted."""
_NAME = 300


def record_places(db: Connection, mirror: str, manifest: Manifest) -> None:
    """Add the places that a batch read for the first time, inside the transaction that completes it.

    Where places were read that nobody noted, a partition that is new to the notes counts as read from its beginning:
    what is not known is not told as missing.
    """
    noted = {name[:_NAME]: runs for name, runs in (manifest.places or {}).items()}
    if manifest.places is None and manifest.counts.get("messages"):
        noted[_BEFORE] = []
    if not noted:
        return
    c = t.read_place.c
    query = sa.select(c.partition, c.runs).where(c.mirror == mirror, c.partition.in_([_BEFORE, *noted]))
    known = {name: json.loads(runs) for name, runs in db.execute(query).tuples()}
    rows = []
    for name, runs in noted.items():
        before = known.get(name)
        if before is None:
            before = [(0, min(first for first, _ in runs))] if runs and _BEFORE in known else []
        rows.append({"mirror": mirror, "partition": name, "runs": json.dumps(bounded(joined([*before, *runs])))})
    upsert(db, t.read_place, rows, keys=["mirror", "partition"], update=["runs"])


def read_places(db: Connection, mirror: str) -> dict[str, list[Run]]:
    """By partition the runs of places that were read."""
    c = t.read_place.c
    query = sa.select(c.partition, c.runs).where(c.mirror == mirror, c.partition != _BEFORE).order_by(c.partition)
    return {name: [Run(*run) for run in json.loads(runs)] for name, runs in db.execute(query).tuples()}


def accept_gaps(ledger: Engine, mirror: str, reason: Reason, *, request: str = "") -> int:
    """Accept that the offsets between those that were read are lost, with an entry in the audit; how many they are.

    Asked again by the id of its *request*, it accepts nothing more, whatever is missing then (G-30).
    """
    c = t.read_place.c

    def effect(db: Connection, _: Any) -> Effect | None:
        missing: dict[str, list[Run]] = {}
        for name, runs in read_places(db, mirror).items():
            if found := gaps(runs):
                missing[name] = found
                closed = json.dumps([(runs[0].first, runs[-1].last)])
                db.execute(t.read_place.update().where(c.mirror == mirror, c.partition == name).values(runs=closed))
        count = sum(gap.last - gap.first + 1 for found in missing.values() for gap in found)
        return Effect({"accepted": count}, {"offsets": missing}) if count else None

    asked = Asked(request, ACCEPT_LETTERS)
    return int(requests.decide(ledger, mirror, asked, "OFFSETS_ACCEPTED", reason, effect).get("accepted", 0))
