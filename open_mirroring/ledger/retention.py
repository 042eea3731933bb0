"""What the ledger forgets: entries that no protocol, check or decision asks for any more."""

from __future__ import annotations

import json
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.manifest import Manifest


def forget(ledger: Engine, mirror: str, *, dropped: int, audit_before: datetime) -> int:
    """Forget what concerns log batches up to *dropped*, and old audit entries; how many rows were removed or emptied.

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
        c = t.log_batch.c
        full = sa.select(c.number, c.manifest).where(c.mirror == mirror, c.number <= dropped, c.ranges != "[]")
        for number, text in db.execute(full).tuples().all():
            counts = Manifest(files=[], counts=json.loads(text)["counts"]).to_json()
            one = t.log_batch.update().where(c.mirror == mirror, c.number == number)
            gone += db.execute(one.values(ranges="[]", manifest=counts)).rowcount
    return gone
