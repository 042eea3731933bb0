"""What the ledger forgets: entries that no protocol, check or decision asks for any more."""

from __future__ import annotations

import json
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.manifest import Manifest
from open_mirroring.ledger import tables as t


def forget(ledger: Engine, mirror: str, *, dropped: int, audit_before: datetime) -> int:
    """Forget what concerns log batches up to *dropped*, old audit entries and proofs; how many rows were changed.

    Of a dropped batch stay its number, its times and its counts: they have to add up for ever (I1).
    """
    with ledger.begin() as db:
        letters = t.settled_letter
        gone = db.execute(letters.delete().where(letters.c.mirror == mirror, letters.c.batch <= dropped)).rowcount
        # What is still open there is about tables that are not mirrored: nothing else lets a batch be dropped.
        c = t.open_letter.c
        gone += db.execute(t.open_letter.delete().where(c.mirror == mirror, c.batch <= dropped)).rowcount
        audit = t.audit
        gone += db.execute(audit.delete().where(audit.c.mirror == mirror, audit.c.at < audit_before)).rowcount
        gone += _forget_proofs(db, mirror, audit_before)
        c = t.log_batch.c
        full = sa.select(c.number, c.manifest).where(c.mirror == mirror, c.number <= dropped, c.ranges != "[]")
        for number, text in db.execute(full).tuples().all():
            counts = Manifest(files=[], counts=json.loads(text)["counts"]).to_json()
            one = t.log_batch.update().where(c.mirror == mirror, c.number == number)
            gone += db.execute(one.values(ranges="[]", manifest=counts)).rowcount
    return gone


def _forget_proofs(db: Connection, mirror: str, before: datetime) -> int:
    """Forget old proofs, but the newest of each table."""
    p, other, m = t.proof, t.proof.alias(), t.mirrored_table
    ours = p.c.table_id.in_(sa.select(m.c.id).where(m.c.mirror == mirror))
    newer = sa.exists().where(other.c.table_id == p.c.table_id, other.c.proved_at > p.c.proved_at)
    return db.execute(p.delete().where(ours, p.c.proved_at < before, newer)).rowcount
