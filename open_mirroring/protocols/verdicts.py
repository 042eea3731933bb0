"""The verdicts and codes of reconciliation, the way out of each, and which tables they let publish now.

Pure; a problem of one table never holds another one (I24).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import NamedTuple

from open_mirroring.protocols import table_losses, table_stops
from open_mirroring.protocols.publishing import AMBIGUOUS, CONFLICT, INCARNATION_CHANGED, METADATA_CHANGED
from open_mirroring.protocols.resetting import RESET_OPEN
from open_mirroring.protocols.table_losses import Loss

OK = "OK"

FOREIGN_ITEM = "FOREIGN_ITEM"
"""Something in the table's folder is neither ours nor ignored by the service (I23)."""
LEDGER_BEHIND = "LEDGER_BEHIND"
"""A number is visible that the ledger never gave away: the ledger was restored, or somebody else writes (I7)."""
REAPPEARED = "REAPPEARED"
"""A number lies in the folder although it was moved to a processed folder already (I8, F-37)."""
CONTENT_CHANGED = "CONTENT_CHANGED"
"""A number holds other bytes than were published (I8, F-37)."""
GAP = "GAP"
"""A number is missing below a visible one, and was not purged: the target waits for it for ever (F-32)."""
LAST_FILE_MISSING = "LAST_FILE_MISSING"
"""The last file, which always stays (F-35), is nowhere."""
MISSING = "MISSING"
"""A number is nowhere, too young to have been purged (F-36, I22)."""
TABLE_FAILED = "TABLE_FAILED"
"""The target says that the table failed, or that it or its database was stopped (I24)."""

TARGET_RESTARTED = "TARGET_RESTARTED"
"""The target counts fewer rows than before: its database was started from scratch, or its table was lost (F-76)."""
FOREIGN_WRITER = "FOREIGN_WRITER"
"""Before anything of ours was in the folder, another one's marker was: another ledger publishes there (I12, I23)."""

LEDGER_LOST = "LEDGER_LOST"
"""This mirror's files are in the folder, or its batches in the log, and the ledger knows nothing of them (G-31)."""

PAUSED, THROTTLED, STATUS_UNKNOWN = "PAUSED", "THROTTLED", "STATUS_UNKNOWN"
NOT_READY = "NOT_READY"
"""The target's database is initializing or starting."""
STATUS_REFUSED = "STATUS_REFUSED"
"""The login may not ask the target how it is: nothing would tell of a failed or stopped one (R-03, R-08)."""
BACKLOG = "BACKLOG"
"""More waits for the target than the limits allow (I18)."""
LOAD_PENDING = "LOAD_PENDING"
"""The initial load is not complete: changes are logged and wait."""

LOAD_AHEAD = "LOAD_AHEAD"
"""The position from which a load says that the stream goes on was not reached by the stream yet (G-84)."""

OTHER_WAY_OUT = "do what the message says, then clear the stop of this table (`open-mirroring resume`)"
"""The way out of a stop that has no other one of its own."""

HOLDS = frozenset(
    {PAUSED, THROTTLED, NOT_READY, STATUS_UNKNOWN, STATUS_REFUSED, BACKLOG, RESET_OPEN, LOAD_PENDING, LOAD_AHEAD}
)
"""The codes that hold a table; every other one but OK, and those of losses, stops it."""
HOLDS_FOR_SOMEBODY = frozenset({STATUS_REFUSED})
"""Holds that pass as soon as their cause is gone, like all others, but whose cause nothing but an operator removes."""

FOOTER_MISMATCH = "FOOTER_MISMATCH"
"""A file says of itself something else than the ledger sealed (I9)."""
FILE_UNFIT = "FILE_UNFIT"
"""A published file's columns, keys or markers are not those of its table (I13, I26)."""
PUBLICATION_GAP = "PUBLICATION_GAP"
"""Publications do not follow each other: a batch or a number is in none of them, or in two (I7)."""
COUNTS_DIFFER = "COUNTS_DIFFER"
"""Counts that have to add up do not (I1)."""
LOG_MISSING_BATCH = "LOG_MISSING_BATCH"
"""A committed batch is not in the change log (I29)."""
LOG_COUNT_DIFFERS = "LOG_COUNT_DIFFERS"
"""The change log holds more, fewer or other rows of a batch than were sealed (I29)."""
LOG_UNREADABLE, LOG_UNKNOWN_BATCH = "LOG_UNREADABLE", "LOG_UNKNOWN_BATCH"
LOG_FILES_DIFFER = "LOG_FILES_DIFFER"
"""The change log consists of other files than were sealed: somebody rewrote or removed some."""
FILE_UNREAD, FILE_MOVED = "FILE_UNREAD", "FILE_MOVED"
"""A file could not be read this time: a fault of the store, or it was moved away twice meanwhile."""

_RESET = table_stops.RESET
_BRING_BACK = (
    "find out who removed the file and move that very file back; if it is lost and the target has not applied it, "
    f"publish it again (`open-mirroring repair`); else {_RESET}"
)
WAYS_OUT = {
    **table_stops.WAYS_OUT,
    **table_losses.WAYS_OUT,
    INCARNATION_CHANGED: f"find out who deleted or replaced the folder, then {_RESET}",
    FOREIGN_WRITER: "find the other deployment that publishes there: end one of the two, give this one a landing zone "
    f"or `target` of its own, or let both use one ledger; if the other's ledger is lost, {_RESET}",
    LEDGER_LOST: "put the newest ledger back, or name it in the mirror file (`ledger`): it goes on where it was; if "
    "another deployment of this mirror publishes there, end one of the two, or let both use one ledger; without any "
    f"ledger, make it again (`open-mirroring rebuild-ledger`), or {_RESET}",
    METADATA_CHANGED: f"restore the _metadata.json of the table's creation; if the service read other keys, {_RESET}",
    FOREIGN_ITEM: f"find out who wrote it and move it away; if the service has applied it, {_RESET}",
    LEDGER_BEHIND: f"stop the other writer, or restore the newest ledger; if there is none, {_RESET}",
    REAPPEARED: "find out who put the file back, compare it with the processed one, and remove it",
    CONTENT_CHANGED: f"find out who replaced the file; if the service may have applied it, {_RESET}",
    GAP: _BRING_BACK,
    LAST_FILE_MISSING: _BRING_BACK,
    MISSING: _BRING_BACK,
    TABLE_FAILED: f"read the error at the target and mend its cause, or {_RESET}; never restart the target's database "
    "for one table",
    TARGET_RESTARTED: "find out who stopped and started mirroring, or touched the table at the target; its rows "
    f"are not ours any more: {_RESET}, and so every table that says so; if its rows are all there and only the count "
    "began anew, `open-mirroring resume`",
    CONFLICT: f"find out who wrote under this number; if the service may have applied it, {_RESET}",
    AMBIGUOUS: f"nothing here tells whether the number was applied before it was lost: {_RESET}",
    FOOTER_MISMATCH: "find out who exchanged the file or edited the ledger; if the service may have applied other rows "
    f"than the ledger says, {_RESET}",
    FILE_UNFIT: f"find out which version wrote the file, and compare the target's rows with the source's; {_RESET}",
    PUBLICATION_GAP: f"find out who edited the ledger, or restored it; restore the newest one, or {_RESET}",
    COUNTS_DIFFER: "find out who edited the ledger; if nobody did, changes may be lost: report it, and compare the "
    f"target with the source or {_RESET}",
    LOG_MISSING_BATCH: "restore the change log from a backup or by its Delta history; a batch that cannot be restored "
    f"has to be read again, or {_RESET}",
    LOG_COUNT_DIFFERS: "find out from the change log's Delta history who rewrote it, and restore that version; what "
    f"was published from it since has to be compared with the source, or {_RESET}",
    LOG_UNREADABLE: "mend the change log's folder from a backup; nothing is published meanwhile",
    LOG_UNKNOWN_BATCH: "restore the newest ledger: the change log is ahead of it",
    LOG_FILES_DIFFER: "find out from the change log's Delta history who rewrote it, and restore that version: "
    "publishing reads the sealed files by name, so nobody else may compact, delete from or vacuum this table",
    FILE_UNREAD: "look at the store; the next check reads the file again",
    FILE_MOVED: "nothing: the next check looks for it again",
    PAUSED: "resume the capacity; changes are logged meanwhile",
    THROTTLED: "wait until the time that the target names; changes are logged meanwhile",
    NOT_READY: "wait until the database runs; changes are logged meanwhile",
    STATUS_UNKNOWN: "look whether the target's status call works; the next run asks again",
    STATUS_REFUSED: "let the connection's identity ask: give it Contributor in the workspace, or read and write on the "
    "item; the tenant must let service principals use Fabric APIs; `open-mirroring check` tries it; or publish without "
    "asking: `gate.status: none`",
    BACKLOG: "wait: publishing goes on when the target has caught up; if it never does, look at its status",
    RESET_OPEN: "let `open-mirroring reload-table` (or `drop-table`, as it was asked for) come to its end: it goes on "
    "where it stopped; changes are logged meanwhile",
    LOAD_PENDING: "mend what refused it, if anything did, and run the initial load to its end; changes are logged "
    "meanwhile",
    LOAD_AHEAD: "compare `stream_from` with the last commit before the export began: if it is right, wait until the "
    f"source commits a change above it; if it is too high, mend it and {table_stops.RESET}",
}
"""What to do, by code."""


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
        return WAYS_OUT.get(self.code, OTHER_WAY_OUT)


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
