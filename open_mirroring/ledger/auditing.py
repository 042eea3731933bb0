"""The audit of the ledger: what was decided or found, by whom, when and why."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from open_mirroring.ledger import tables as t


class Reason(NamedTuple):
    """Who decided, and why; both are written into the audit."""

    who: str
    why: str

    def to_json(self) -> str:
        """The text in which a row keeps it."""
        return json.dumps(self._asdict(), ensure_ascii=False)

    @classmethod
    def of(cls, text: str | None) -> Reason | None:
        """What :meth:`to_json` wrote; None where nobody decided."""
        return None if text is None else cls(**json.loads(text))


def audit(db: Connection, mirror: str, source: str | None, event: str, detail: Mapping[str, Any]) -> None:
    """Write one entry inside a running transaction. *source* is None for the mirror as a whole."""
    db.execute(
        t.audit.insert().values(
            at=datetime.now(UTC),
            mirror=mirror,
            source=source,
            event=event,
            detail=json.dumps(detail, ensure_ascii=False),
        )
    )
