"""Recording verdicts: what was found of a table, on what evidence, and when."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

from sqlalchemy import Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.upsert import upsert
from open_mirroring.publishing import TableRow
from open_mirroring.verdicts import Finding


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
