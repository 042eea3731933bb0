"""Stores the verdict of the last inspection of each table, with its evidence and what the next inspection needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import audit
from open_mirroring.ledger.batch_contents import stop_table
from open_mirroring.ledger.documents import VERDICTS, KeptVerdict
from open_mirroring.ledger.reading import TableState
from open_mirroring.protocols.publishing import TableRow
from open_mirroring.protocols.verdicts import TARGET_RESTARTED, Backlog, DeepFinding, Finding, Verdict


def record_verdicts(ledger: Engine, findings: Mapping[str, tuple[Finding, TableRow]]) -> None:
    """Store the newest verdict of each table by id, with the highest file number that was confirmed at that time."""
    now = datetime.now(UTC)
    with ledger.begin() as db:
        kept: dict[str, dict[str, KeptVerdict]] = {}
        for table_id, (finding, row) in findings.items():
            evidence = {**finding.evidence, "applied": finding.applied, "backlog": finding.backlog}
            plain = msgspec.to_builtins(evidence, enc_hook=str)
            kept[table_id] = {"": KeptVerdict(finding.verdict, finding.code, finding.what, plain, row.confirmed, now)}
        VERDICTS.put_each(db, kept)


def recorded_verdicts(ledger: Engine, mirror: str) -> dict[str, Finding]:
    """The last verdict of each table by source name.

    Verdicts that a later decision of an operator made void are left out.
    """
    m, a = t.mirrored_table.c, t.audit.c
    decided = sa.select(a.source, sa.func.max(a.at)).where(a.mirror == mirror, a.event.in_(_LIFTING)).group_by(a.source)
    found: dict[str, Finding] = {}
    with ledger.connect() as db:
        lifted = dict(db.execute(decided).tuples().all())
        sources = dict(db.execute(sa.select(m.id, m.source).where(m.mirror == mirror)).tuples().all())
        kept = {sources[table_id]: one[""] for table_id, one in VERDICTS.of_each(db, sources).items()}
    for source, one in kept.items():
        if source in lifted and lifted[source] > one.recorded_at:
            continue
        applied, backlog = one.evidence["applied"], msgspec.convert(one.evidence["backlog"], Backlog)
        found[source] = Finding(one.verdict, one.code, one.what, one.evidence, applied, backlog, at=one.recorded_at)
    return found


_LIFTING = ("RESUMED", "EPOCH_ACCEPTED", "SCHEMA_ACCEPTED")
"""Audit events of decisions that may lift a table's stop."""


class Remembered(msgspec.Struct, frozen=True):
    """What an inspection of a table remembers for the next one, stored in the evidence of its verdict.

    *metadata_etag* is the ETag of the table's ``_metadata.json``; empty if the file did not exist. *counted_rows* is
    the highest row count that the target reported for this *generation* of the table (a reset begins the next
    generation). *applied* is the highest file number that the target had applied; 0 if the table was to be stopped, so
    that everything is looked at again.
    """

    metadata_etag: str = ""
    generation: int = 0
    counted_rows: int = 0
    applied: int = 0

    def counted(self, generation: int) -> int:
        """The highest row count for a generation; 0 if no count of this generation is remembered."""
        return self.counted_rows if generation == self.generation else 0

    def evidence(self) -> dict[str, object]:
        """The remembered values as entries for the evidence of a verdict."""
        entries = {"metadata_etag": self.metadata_etag, "counted_rows": self.counted_rows}
        return {name: kept for name, kept in entries.items() if kept}


def remembered(ledger: Engine, mirror: str) -> dict[str, Remembered]:
    """What the last inspection of each table remembered for the next one, by table id."""
    with ledger.connect() as db:
        ids = db.scalars(sa.select(t.mirrored_table.c.id).where(t.mirrored_table.c.mirror == mirror)).all()
        kept = VERDICTS.of_each(db, ids)
    found: dict[str, Remembered] = {}
    for table_id, verdicts in kept.items():
        last = verdicts[""]
        of_last = msgspec.convert(last.evidence, Remembered)
        found[table_id] = msgspec.structs.replace(of_last, applied=0) if last.verdict is Verdict.STOP else of_last
    return found


def accept_count(db: Connection, table_id: str) -> tuple[str, datetime] | None:
    """Forget the former row count of the target table, if the table is stopped because its row count fell.

    Returns what was found and when; None if the table is not stopped for this reason.
    """
    kept = VERDICTS.one(db, table_id)
    if kept is None or kept.code != TARGET_RESTARTED:
        return None
    VERDICTS.put(db, table_id, {"": kept._replace(evidence={**kept.evidence, "counted_rows": 0})})
    return kept.what, kept.recorded_at


def record_deep_findings(
    ledger: Engine, mirror: str, found: Iterable[tuple[DeepFinding, TableState | None]]
) -> set[str]:
    """Write findings of the deep check into the audit trail, and stop tables whose findings require a stop.

    Returns the ids of the stopped tables. Tables that were reset since the deep check are skipped.
    """
    stopped = set[str]()
    c = t.mirrored_table.c
    with ledger.begin() as db:
        for finding, state in found:
            if state is not None:
                query = sa.select(c.generation).where(c.id == state.id).with_for_update()
                if db.scalar(query) != state.row.generation:
                    continue
                if finding.stops:
                    stop_table(db, state.id, finding.code, finding.what)
                    stopped.add(state.id)
            detail = {"code": finding.code, "what": finding.what, **finding.evidence}
            audit(db, mirror, finding.table, "DEEP_CHECK", detail)
    return stopped
