"""Records verdicts: what was found of a table, on what evidence, and when."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import audit
from open_mirroring.ledger.batch_contents import stop_table
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.publishing import TableRow
from open_mirroring.protocols.verdicts import Finding


def record_verdicts(ledger: Engine, findings: Mapping[str, tuple[Finding, TableRow]]) -> None:
    """Keep the newest verdict of each table, by table id, with the K that it was found for."""
    now = datetime.now(UTC)
    rows = [
        {
            "table_id": table_id,
            "verdict": finding.verdict.value,
            "code": finding.code,
            "what": finding.what,
            "evidence": json.dumps(finding.evidence, ensure_ascii=False, default=str),
            "confirmed": row.confirmed,
            "recorded_at": now,
        }
        for table_id, (finding, row) in findings.items()
    ]
    with ledger.begin() as db:
        update = ["verdict", "code", "what", "evidence", "confirmed", "recorded_at"]
        upsert(db, t.verdict, rows, keys=["table_id"], update=update)


class FoundInDepth(NamedTuple):
    """What a deep check found. *table_id* is None for the change log; *stops* asks to stop that table."""

    table_id: str | None
    source: str | None
    generation: int
    code: str
    what: str
    evidence: Mapping[str, object]
    stops: bool


def record_deep_findings(ledger: Engine, mirror: str, findings: Iterable[FoundInDepth]) -> set[str]:
    """Write findings into the audit and stop the tables they concern, in one transaction; the ids of those tables.

    A table that began another life since it was looked at is left alone: the finding was about the one before. A
    table that is stopped already keeps its reason.
    """
    stopped = set[str]()
    c = t.mirrored_table.c
    with ledger.begin() as db:
        for found in findings:
            if found.table_id is not None:
                query = sa.select(c.generation).where(c.id == found.table_id).with_for_update()
                if db.scalar(query) != found.generation:
                    continue
                if found.stops:
                    stop_table(db, found.table_id, found.code, found.what)
                    stopped.add(found.table_id)
            detail = {"code": found.code, "what": found.what, **found.evidence}
            audit(db, mirror, found.source, "DEEP_CHECK", detail)
    return stopped
