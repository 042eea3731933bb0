"""The verdicts and codes of reconciliation, and which tables may publish now.

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
"""An object in the table's folder is neither ours nor ignored by the service (I23), or it returned there (I8, F-37)."""
LEDGER_BEHIND = "LEDGER_BEHIND"
"""A number or batch exists that the ledger never issued: the ledger was restored, or another process writes (I7)."""
CONTENT_CHANGED = "CONTENT_CHANGED"
"""A number has other bytes or another footer than the ledger sealed (I8, I9, F-37)."""
FILE_MISSING = "FILE_MISSING"
"""A confirmed number is missing without proof of a purge: it is below another one (F-32), the last (F-35) or young
(F-36)."""
TARGET_FAILED = "TARGET_FAILED"
"""The target reports that the table failed, or that the table or its database was stopped (I24)."""
TARGET_RESTARTED = "TARGET_RESTARTED"
"""The target counts fewer rows than before: its database was rebuilt from scratch, or its table was lost (F-76)."""
FOREIGN_WRITER = "FOREIGN_WRITER"
"""Another marker was in the folder before our first file: another ledger publishes there (I12, I23)."""
LEDGER_LOST = "LEDGER_LOST"
"""The folder contains this mirror's files, or the log its batches, but the ledger knows none of them (G-31)."""

PAUSED, TARGET_BUSY, STATUS_UNKNOWN = "PAUSED", "TARGET_BUSY", "STATUS_UNKNOWN"
STATUS_REFUSED = "STATUS_REFUSED"
"""The login may not read the target's status, so a failed or stopped target would go unnoticed (R-03, R-08)."""
BACKLOG = "BACKLOG"
"""More files wait for the target than the limits allow (I18)."""
LOAD_PENDING = "LOAD_PENDING"
"""The initial load is incomplete: changes are logged and wait."""
LOAD_AHEAD = "LOAD_AHEAD"
"""The stream has not yet reached the position from which it continues a load (G-84)."""

FILE_UNFIT = "FILE_UNFIT"
"""A published file's columns, keys or markers are not those of its table (I13, I26)."""
COUNTS_DIFFER = "COUNTS_DIFFER"
"""Counts that should add up do not (I1), or a publication is missing in the sequence (I7)."""
LOG_DAMAGED = "LOG_DAMAGED"
"""The change log has other rows or files than were sealed, or cannot be read (I29)."""
UNREACHABLE, CHANGED_MEANWHILE = "UNREACHABLE", "CHANGED_MEANWHILE"
"""A file could not be read this time: a fault of the store, or it was moved twice meanwhile."""


class Verdict(Enum):
    """PASS: the next number may be intended. HOLD: later, without an operator. STOP: an operator decides.

    LOSSES: the next number may be intended as with PASS, but some of the table's changes are missing.
    """

    PASS = "PASS"
    LOSSES = "LOSSES"
    HOLD = "HOLD"
    STOP = "STOP"


class Backlog(NamedTuple):
    """Confirmed files that the target has not applied: number, bytes, and time of the oldest confirmation."""

    files: int = 0
    bytes: int = 0
    oldest: datetime | None = None


class Repair(NamedTuple):
    """Publish the same content (*digest*) under the same name again (F-40); needs a separate approval."""

    number: int
    digest: str


@dataclass(frozen=True)
class Finding:
    """The verdict on a table and its evidence.

    *evidence* holds plain JSON values. *applied* is the highest number that counts as applied. *lost* are confirmed
    numbers that are missing without a purge. *repairs* are those of them that were provably not applied. *notes* are
    shown in reports and change nothing. *losses* are reported with every verdict; they decide it only if nothing holds
    or stops the table. *left_over* is False when no staged object of an earlier run was seen.
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
        """The next step for an operator; empty when there is none."""
        if self.verdict is Verdict.PASS:
            return ""
        return next_step(self.code)


class GateResult(NamedTuple):
    """Tables by what they may do; the values of *held* and *stopped* are ``CODE: problem``.

    A table with losses passes, because waiting does not restore what is missing.
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
