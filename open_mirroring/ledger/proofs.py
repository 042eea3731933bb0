"""Stores proofs: the results of comparing a table with its source, each with time and position."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason, audit
from open_mirroring.protocols.coverage import Coverage
from open_mirroring.protocols.proving import Proof

APPROVED = "CORRECTION_APPROVED"
_EVER = datetime(9999, 1, 1, tzinfo=UTC)


_proof_of = msgspec.json.Decoder(Proof).decode


class RecordedProof(NamedTuple):
    """A proof of a table as the ledger stores it; *generation* counts the resets of the table.

    *coverage* is which parts of the table this proof and the earlier ones compared; None if proofs always compare all
    rows.
    """

    id: str
    table_id: str
    generation: int
    proof: Proof
    coverage: Coverage | None = None


class _Document(msgspec.Struct):
    coverage: Coverage | None = None


_coverage_of = msgspec.json.Decoder(_Document).decode


class ProofLedger:
    """The proofs of all tables of a ledger."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def record(self, found: RecordedProof) -> None:
        of = {"id": found.id, "table_id": found.table_id, "generation": found.generation}
        document = {**msgspec.to_builtins(found.proof), "coverage": msgspec.to_builtins(found.coverage)}
        row = {**of, "proved_at": found.proof.proved_at, "document": msgspec.json.encode(document).decode()}
        with self._engine.begin() as db:
            db.execute(t.proof.insert().values(row))

    def newest(self, table_ids: Iterable[str]) -> dict[str, RecordedProof]:
        """The last proof of each table since its last reset, by table id."""
        return {one.table_id: one for one in self.since(_EVER, table_ids)}

    def since(self, moment: datetime, table_ids: Iterable[str]) -> list[RecordedProof]:
        """The proofs of tables since a moment, and the last proof of each table before this moment; oldest first.

        Proofs from before a table's last reset are left out.
        """
        c, m, earlier = t.proof.c, t.mirrored_table.c, t.proof.alias().c
        last = sa.select(sa.func.max(earlier.proved_at)).where(
            earlier.table_id == c.table_id, earlier.generation == c.generation, earlier.proved_at < moment
        )
        # Of this generation only: a proof from before a reset is not about the present table.
        query = (
            sa.select(t.proof)
            .join(t.mirrored_table, (c.table_id == m.id) & (c.generation == m.generation))
            .where(m.id.in_(list(table_ids)), c.proved_at >= sa.func.coalesce(last.scalar_subquery(), moment))
        )
        return [_recorded(row) for row in t.rows(self._engine, query.order_by(c.proved_at))]

    def history(self, table_id: str, generation: int, limit: int) -> list[Proof]:
        """The last *limit* proofs of a table, newest first; *generation* counts the resets of the table."""
        c = t.proof.c
        query = sa.select(c.document).where(c.table_id == table_id, c.generation == generation)
        return [_proof_of(text) for (text,) in t.rows(self._engine, query.order_by(c.proved_at.desc()).limit(limit))]

    def approve(self, mirror: str, source: str, found: RecordedProof, reason: Reason) -> None:
        """Record in the audit trail who approved that differing rows are corrected, and why; once per proof.

        *found* is the proof that found the differing rows.
        """
        c = t.audit.c
        said = sa.select(c.detail).where(c.mirror == mirror, c.source == source, c.event == APPROVED)
        detail = {"who": reason.who, "why": reason.why, "proof": found.id, "generation": found.generation}
        with self._engine.begin() as db:
            if any(json.loads(text)["proof"] == found.id for text in db.scalars(said)):
                return
            audit(db, mirror, source, APPROVED, {**detail, "keys": len(found.proof.keys)})

    def find(self, proof_id: str) -> RecordedProof | None:
        """The proof with this id; None if there is none."""
        with self._engine.connect() as db:
            row = db.execute(sa.select(t.proof).where(t.proof.c.id == proof_id)).one_or_none()
        return None if row is None else _recorded(row)


def _recorded(row: Any) -> RecordedProof:
    coverage = _coverage_of(row.document).coverage
    return RecordedProof(row.id, row.table_id, row.generation, _proof_of(row.document), coverage)
