"""The verdicts and codes of reconciliation, and which tables may publish now.

The functions are pure. A problem of one table never keeps another table from publishing (I24).
:mod:`open_mirroring.codes` explains each code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from open_mirroring.codes import Trait, having, next_step_of
from open_mirroring.protocols.table_losses import Loss

OK = "OK"

FOREIGN_ITEM = "FOREIGN_ITEM"  # I23, I8, F-37
LEDGER_BEHIND = "LEDGER_BEHIND"  # I7
CONTENT_CHANGED = "CONTENT_CHANGED"  # I8, I9, F-37
FILE_MISSING = "FILE_MISSING"  # F-32, F-35, F-36
TARGET_FAILED = "TARGET_FAILED"  # I24
TARGET_RESTARTED = "TARGET_RESTARTED"  # F-76
FOREIGN_WRITER = "FOREIGN_WRITER"  # I12, I23
LEDGER_LOST = "LEDGER_LOST"  # G-31

PAUSED, TARGET_BUSY, STATUS_UNKNOWN = "PAUSED", "TARGET_BUSY", "STATUS_UNKNOWN"
STATUS_REFUSED = "STATUS_REFUSED"
BACKLOG = "BACKLOG"  # I18
LOAD_PENDING = "LOAD_PENDING"
LOAD_AHEAD = "LOAD_AHEAD"  # G-84

FILE_UNFIT = "FILE_UNFIT"  # I13, I26
COUNTS_DIFFER = "COUNTS_DIFFER"  # I1, I7
LOG_DAMAGED = "LOG_DAMAGED"  # I29
UNREACHABLE, CHANGED_MEANWHILE = "UNREACHABLE", "CHANGED_MEANWHILE"


class Verdict(Enum):
    """What a table may do: PASS and LOSSES publish, HOLD waits without an operator, STOP waits for an operator.

    LOSSES means that some changes of the table are missing at the target.
    """

    PASS = "PASS"
    LOSSES = "LOSSES"
    HOLD = "HOLD"
    STOP = "STOP"


class Backlog(NamedTuple):
    """Confirmed files that Fabric has not applied: their number and bytes, and the time of the oldest confirmation."""

    files: int = 0
    bytes: int = 0
    oldest: datetime | None = None


@dataclass(frozen=True)
class Finding:
    """The verdict on a table and its evidence.

    *evidence* holds plain JSON values. *applied* is the highest file number that counts as applied by Fabric. *lost*
    are confirmed file numbers whose files are missing although Fabric did not purge them. *notes* are shown in reports
    and change nothing. *losses* are reported with every verdict; they make the verdict LOSSES only if nothing holds or
    stops the table. *left_over* is False if the inspection saw no staged object of an earlier run. *at* is when the
    landing zone was inspected.
    """

    verdict: Verdict
    code: str
    what: str
    evidence: dict[str, object]
    applied: int
    backlog: Backlog
    lost: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    left_over: bool = True
    losses: tuple[Loss, ...] = ()
    at: datetime | None = None

    @property
    def next_step(self) -> str:
        """The next step for an operator; empty if there is nothing to do."""
        if self.verdict is Verdict.PASS:
            return ""
        return next_step_of(self.code)


class DeepFinding(NamedTuple):
    """A defect that the deep check found; *table* is None if the defect concerns the change log itself.

    *evidence* holds plain JSON values: ``count`` is the number of problems with this code, ``problems`` lists the first
    ones.
    """

    table: str | None
    code: str
    what: str
    evidence: dict[str, object]

    @property
    def stops(self) -> bool:
        """Whether the table must stop. Temporary problems, and problems of the change log itself, stop no table."""
        return self.table is not None and self.code not in having(Trait.PASSES)


class GateResult(NamedTuple):
    """Which tables may publish, wait, or are stopped; the values of *held* and *stopped* are ``CODE: problem``.

    A table with losses may publish, because waiting would not restore what is missing.
    """

    passing: tuple[str, ...]
    held: dict[str, str]
    stopped: dict[str, str]


def gate(findings: Mapping[str, Finding]) -> GateResult:
    """Sort tables by their verdicts, in the order of their names."""
    passing = tuple(t for t in sorted(findings) if findings[t].verdict in (Verdict.PASS, Verdict.LOSSES))
    reasons: dict[Verdict, dict[str, str]] = {verdict: {} for verdict in Verdict}
    for table in sorted(findings):
        finding = findings[table]
        reasons[finding.verdict][table] = f"{finding.code}: {finding.what}"
    return GateResult(passing, reasons[Verdict.HOLD], reasons[Verdict.STOP])
