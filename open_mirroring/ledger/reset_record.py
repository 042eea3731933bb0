"""The document of a reset in its table's ledger row."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime

from open_mirroring.protocols.resetting import Stage


@dataclass(frozen=True)
class ResetRecord:
    """The reset that a table is in.

    Attributes:
        stage: its last record.
        drops: the table shall not come back.
        loads: the new generation begins with an initial load; else with what the log holds.
        folders: what has to be deleted.
        absent: the target was seen without the table once.
        who: who approved it, and *why*.
        since: when it was asked for, in ISO form.
    """

    stage: Stage
    drops: bool
    loads: bool
    folders: tuple[str, ...]
    absent: bool
    who: str
    why: str
    since: str

    def to_json(self) -> str:
        """The ledger's text."""
        return json.dumps({**asdict(self), "stage": self.stage.value}, ensure_ascii=False)

    @classmethod
    def of(cls, text: str | None) -> ResetRecord | None:
        """The record that :meth:`to_json` wrote; None where there is none."""
        if text is None:
            return None
        document = json.loads(text)
        return cls(**{**document, "stage": Stage(document["stage"]), "folders": tuple(document["folders"])})

    @property
    def begun(self) -> datetime:
        """When it was asked for."""
        return datetime.fromisoformat(self.since)

    def __str__(self) -> str:
        kind = "drop" if self.drops else "reload"
        return f"{kind} asked for by {self.who} at {self.begun:%Y-%m-%d %H:%M} UTC ({self.why}): {self.stage.value}"


def is_dropping(text: str | None) -> bool:
    """Whether the ledger's text is that of a reset after which the table does not come back."""
    reset = ResetRecord.of(text)
    return reset is not None and reset.drops
