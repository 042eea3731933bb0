"""Decides whether a lost file may be published again under its number, and records such repairs in the audit trail.

This repair is the only one that Fabric permits. A file that Fabric has not applied may be published again with the same
content (F-40). A file without rows may always be published again (F-41), an applied file with rows never (F-37). If no
counter of Fabric shows whether the file was applied, an operator has to state how they know that it was not.

Each entry (requested, sealed, done) is written before the step that it describes, so a repair that was interrupted is
continued.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.codes import Kind, Trait, having, of_kind
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason, audit
from open_mirroring.ledger.reading import PublishedFile
from open_mirroring.ledger.requests import REPAIR, Asked, locked_table
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.publishing import StagedFile
from open_mirroring.protocols.verdicts import Finding

REQUESTED, SEALED, REPAIRED = "REPAIR_REQUESTED", "REPAIR_SEALED", "REPAIRED"


def check_permitted(
    table: str, number: int, finding: Finding, published: Mapping[int, PublishedFile], *, not_applied: str
) -> str:
    """Return the proof that the file *number* of a table may be published again, as a string for the audit.

    *not_applied* is an operator's statement how they know that the file was not applied. Raises ``REPAIR_REFUSED``,
    with the reason and the next step, if the file is not lost or may have been applied, or if the table is stopped by
    another code.
    """

    def refused(why: str, next_step: str) -> TerminalError:
        what = f"number {number} of table {table!r} is not published again: {why}"
        return TerminalError("REPAIR_REFUSED", what, next_step=next_step)

    no_matter = having(Trait.REPAIRED) | of_kind(Kind.HOLD) | of_kind(Kind.LOSS) | {v.OK}
    also = finding.evidence.get("also")
    others = sorted({finding.code, *(also if isinstance(also, list) else ())} - no_matter)
    record = published.get(number)
    if record is None:
        raise refused("the ledger has no confirmed file of this number", "look at `status` for K")
    if others:
        raise refused(f"the table is stopped by {', '.join(others)}", "see to that first")
    if number not in finding.lost:
        next_step = "nothing is missing; a broken file under its name has to be moved away first"
        raise refused("it is there, or was processed and purged", next_step)
    if number <= finding.applied:
        why = f"the target counts as having applied everything up to {finding.applied}, and reads no number twice"
        next_step = "compare the target with the source; if rows are missing, reset the table"
        raise refused(why, f"{next_step}: `open-mirroring reload-table`")
    if record.rows == 0:
        return "it has no rows"
    if not not_applied:
        why = "nothing proves that the target has not applied it"
        raise refused(why, "look for its rows at the target, and give how you know by `--not-applied`")
    return f"an operator looked: {not_applied}"


class RepairLedger:
    """The repairs of one mirror: each repair publishes a lost file again under its number.

    The methods `request`, `seal` and `confirm` raise ``REPAIR_REFUSED`` if the table was reset since *generation* was
    read.
    """

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine, self._mirror = engine, mirror

    def open_repair(self, source: str, generation: int, number: int) -> StagedFile | None:
        """The staged file of a repair that is fixed (sealed) but not published yet; None if there is no such file."""
        c = t.audit.c
        query = sa.select(c.event, c.detail).where(c.mirror == self._mirror, c.source == source)
        found: StagedFile | None = None
        for event, text in t.rows(self._engine, query.where(c.event.in_((SEALED, REPAIRED))).order_by(c.id)):
            detail = json.loads(text)
            if (detail["generation"], detail["number"]) == (generation, number):
                found = StagedFile(**detail["object"]) if event == SEALED else None
        return found

    def join(self, source: str, asked: Asked) -> Mapping[str, Any] | None:
        """Record a request for a repair. Returns the outcome if the request is finished already, else None."""
        with self._engine.begin() as db:
            locked_table(db, self._mirror, source)
            found = requests.known(db, self._mirror, asked)
            if found is None:
                requests.record(db, self._mirror, asked)
        return found or None

    def request(self, source: str, generation: int, number: int, digest: str, proof: str, reason: Reason) -> None:
        """Record who wants a file number published again, why, and what proves that this is safe."""
        with self._engine.begin() as db:
            detail = {**reason._asdict(), "proof": proof, "digest": digest}
            self._write(db, source, REQUESTED, generation, number, detail)

    def seal(self, source: str, generation: int, number: int, staged: StagedFile) -> None:
        """Record the one staged file that may get the lost file number."""
        with self._engine.begin() as db:
            self._write(db, source, SEALED, generation, number, {"object": asdict(staged)})

    def confirm(self, source: str, generation: int, number: int, digest: str, etag: str, size: int) -> None:
        """Record that the file number exists again with the same digest. Stores the ETag and size of the new file."""
        c = t.published_file.c
        with self._engine.begin() as db:
            row = locked_table(db, self._mirror, source)
            same = (c.table_id == row.id) & (c.generation == generation) & (c.number == number) & (c.digest == digest)
            before = db.execute(sa.select(c.etag, c.rows).where(same)).one_or_none()
            if before is None:
                raise _another_life(source, number)
            db.execute(t.published_file.update().where(same).values(etag=etag, size=size))
            self._write(db, source, REPAIRED, generation, number, {"etag_before": before.etag, "etag": etag})
            outcome = {"number": number, "rows": before.rows, "etag": etag}
            requests.finish(db, self._mirror, source, (REPAIR,), outcome, str(number))

    def _write(
        self, db: Connection, source: str, event: str, generation: int, number: int, detail: dict[str, Any]
    ) -> None:
        if locked_table(db, self._mirror, source).generation != generation:
            raise _another_life(source, number)
        audit(db, self._mirror, source, event, {"generation": generation, "number": number, **detail})


def _another_life(source: str, number: int) -> TerminalError:
    return TerminalError(
        "REPAIR_REFUSED",
        f"table {source!r} was reset meanwhile: its number {number} is another file now",
        next_step="run `open-mirroring status` again",
    )
