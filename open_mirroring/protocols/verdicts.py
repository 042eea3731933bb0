"""The verdicts and codes of reconciliation, and which tables they let publish now.

Pure; a problem of one table never holds another one (I24).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from open_mirroring.codes import next_step
from open_mirroring.protocols.table_losses import Loss

OK = "OK"

FOREIGN_ITEM = "FOREIGN_ITEM"
"""Something in the table's folder is neither ours nor ignored by the service (I23), or came back to it (I8, F-37)."""
LEDGER_BEHIND = "LEDGER_BEHIND"
"""A number or batch is there that the ledger never gave away: it was restored, or somebody else writes (I7)."""
CONTENT_CHANGED = "CONTENT_CHANGED"
"""A number holds other bytes, or says of itself something else, than the ledger sealed (I8, I9, F-37)."""
FILE_MISSING = "FILE_MISSING"
"""A confirmed number is nowhere, and not provably purged: below another one (F-32), the last (F-35) or young (F-36)."""
TARGET_FAILED = "TARGET_FAILED"
"""The target says that the table failed, or that it or its database was stopped (I24)."""
TARGET_RESTARTED = "TARGET_RESTARTED"
"""The target counts fewer rows than before: its database was started from scratch, or its table was lost (F-76)."""
FOREIGN_WRITER = "FOREIGN_WRITER"
"""Before anything of ours was in the folder, another one's marker was: another ledger publishes there (I12, I23)."""
LEDGER_LOST = "LEDGER_LOST"
"""This mirror's files are in the folder, or its batches in the log, and the ledger knows nothing of them (G-31)."""

PAUSED, TARGET_BUSY, STATUS_UNKNOWN = "PAUSED", "TARGET_BUSY", "STATUS_UNKNOWN"
STATUS_REFUSED = "STATUS_REFUSED"
"""The login may not ask the target how it is: nothing would tell of a failed or stopped one (R-03, R-08)."""
BACKLOG = "BACKLOG"
"""More waits for the target than the limits allow (I18)."""
LOAD_PENDING = "LOAD_PENDING"
"""The initial load is not complete: changes are logged and wait."""
LOAD_AHEAD = "LOAD_AHEAD"
"""The position from which a load says that the stream goes on was not reached by the stream yet (G-84)."""

FILE_UNFIT = "FILE_UNFIT"
"""A published file's columns, keys or markers are not those of its table (I13, I26)."""
COUNTS_DIFFER = "COUNTS_DIFFER"
"""Counts that have to add up do not (I1), or publications do not follow each other (I7)."""
LOG_DAMAGED = "LOG_DAMAGED"
"""The change log holds more, fewer or other rows or files than were sealed, or cannot be read (I29)."""
UNREACHABLE, CHANGED_MEANWHILE = "UNREACHABLE", "CHANGED_MEANWHILE"
"""A file could not be read this time: a fault of the store, or it was moved away twice meanwhile."""


class Verdict(Enum):
    """PASS: the next number may be intended. HOLD: later, without anybody's help. STOP: an operator decides.

    LOSSES: the next number may be intended as with PASS, but some of the table's changes are missing.
    """

    PASS = "PASS"
    LOSSES = "LOSSES"
    HOLD = "HOLD"
    STOP = "STOP"


class Backlog(NamedTuple):
    """Confirmed files that the target has not applied: how many, their bytes, when the oldest was confirmed."""

    files: int = 0
    bytes: int = 0
    oldest: datetime | None = None


class Repair(NamedTuple):
    """Publish the same content (*digest*) under the same name once more (F-40); needs an approval of its own."""

    number: int
    digest: str


@dataclass(frozen=True)
class Finding:
    """The verdict on a table and its evidence.

    *evidence* holds plain JSON values. *applied* is the highest number that counts as applied. *lost* are the confirmed
    numbers that are nowhere and were not purged; *repairs* are those of them that are proved not to be applied. *notes*
    are shown in reports and change nothing. *losses* are reported with every verdict, and decide it only where nothing
    holds or stops the table. *left_over* is False when no staged object of an earlier run was seen.
    """

    verdict: Verdict
    code: str
    what: str
    evidence: dict[str, object]
    applied: int
    backlog: Backlog
    repairs: tuple[Repair, ...] = ()
    lost: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    left_over: bool = True
    losses: tuple[Loss, ...] = ()

    @property
    def way_out(self) -> str:
        """What to do about it; empty when nothing has to be done."""
        if self.verdict is Verdict.PASS:
            return ""
        return next_step(self.code)


class GateResult(NamedTuple):
    """Tables by what they may do; the values of *held* and *stopped* are ``CODE: what is the matter``.

    A table with losses passes: what is missing gets no more by waiting.
    """

    passing: tuple[str, ...]
    held: dict[str, str]
    stopped: dict[str, str]


def gate(findings: Mapping[str, Finding]) -> GateResult:
    """Sort tables by their findings; names in order, so that equal findings give equal results."""
    passing = tuple(t for t in sorted(findings) if findings[t].verdict in (Verdict.PASS, Verdict.LOSSES))
    reasons: dict[Verdict, dict[str, str]] = {verdict: {} for verdict in Verdict}
    for table in sorted(findings):
        finding = findings[table]
        reasons[finding.verdict][table] = f"{finding.code}: {finding.what}"
    return GateResult(passing, reasons[Verdict.HOLD], reasons[Verdict.STOP])
