"""The audit trail in the ledger: what was decided or found, by whom, when and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from open_mirroring.ledger import tables as t


class Reason(NamedTuple):
    """Who decided something, and why; for the audit trail."""

    who: str
    why: str

    def to_json(self) -> str:
        return json.dumps(self._asdict(), ensure_ascii=False)

    @classmethod
    def of(cls, text: str | None) -> Reason | None:
        """Parse JSON that :meth:`to_json` returned; None if *text* is None."""
        return None if text is None else cls(**json.loads(text))


def audit(db: Connection, mirror: str, source: str | None, event: str, detail: Mapping[str, Any]) -> None:
    """Write an audit entry, inside a running transaction; *source* is None if the entry concerns the entire mirror."""
    db.execute(
        t.audit.insert().values(
            at=datetime.now(UTC),
            mirror=mirror,
            source=source,
            event=event,
            detail=json.dumps(detail, ensure_ascii=False),
        )
    )
