"""What an inspection of a table leaves for the next one, in the evidence of the verdict that it recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.ledger import tables as t
from open_mirroring.protocols.verdicts import TARGET_RESTARTED


class Remembered(NamedTuple):
    """What one look leaves to the next, in the evidence of its verdict.

    Attributes:
        metadata_etag: of the metadata object that was read and found to name the table's keys; empty without one.
        generation: the generation that was looked at.
        counted_rows: the highest count of processed rows that the target told of that generation.
    """

    metadata_etag: str = ""
    generation: int = 0
    counted_rows: int = 0

    def counted(self, generation: int) -> int:
        """The highest count of a generation; 0 when nothing is remembered of it."""
        return self.counted_rows if generation == self.generation else 0

    def evidence(self) -> dict[str, object]:
        """The entries that carry it."""
        kept: dict[str, object] = {"metadata_etag": self.metadata_etag} if self.metadata_etag else {}
        return kept | ({"counted_rows": self.counted_rows} if self.counted_rows else {})

    @classmethod
    def of(cls, evidence: Mapping[str, object]) -> Remembered:
        """From the evidence of a verdict."""
        etag, generation, counted = (evidence.get(name) for name in ("metadata_etag", "generation", "counted_rows"))
        return cls(
            etag if isinstance(etag, str) else "",
            generation if isinstance(generation, int) else 0,
            counted if isinstance(counted, int) else 0,
        )


def remembered(ledger: Engine, mirror: str) -> dict[str, Remembered]:
    """What the last looks at the tables of a mirror left, by table id."""
    query = sa.select(t.verdict.c.table_id, t.verdict.c.evidence).join(
        t.mirrored_table, t.mirrored_table.c.id == t.verdict.c.table_id
    )
    with ledger.connect() as db:
        rows = db.execute(query.where(t.mirrored_table.c.mirror == mirror)).all()
    return {row.table_id: Remembered.of(json.loads(row.evidence)) for row in rows}


def accept_count(db: Connection, table_id: str) -> tuple[str, datetime] | None:
    """Forget what the target counted before, if that stops the table: what was found, and when; else None."""
    c = t.verdict.c
    row = db.execute(sa.select(t.verdict).where(c.table_id == table_id).with_for_update()).one_or_none()
    if row is None or row.code != TARGET_RESTARTED:
        return None
    evidence = {**json.loads(row.evidence), "counted_rows": 0}
    db.execute(t.verdict.update().where(c.table_id == table_id).values(evidence=json.dumps(evidence)))
    return row.what, row.recorded_at
