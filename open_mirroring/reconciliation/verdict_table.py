"""Decides from ledger, landing zone and target whether a table may publish its next file.

The decision is a pure function: every combination of facts has one verdict. If several verdicts apply, the order is
STOP, HOLD, LOSSES, PASS. The facts must belong together: the caller reads the ledger's row before and after the listing
of the landing zone, and begins again if the version of the row changed (I21, I22). The caller accepts a STOP only if a
second listing agrees, because files may move while they are listed. Time only decides how old a backlog is, and which
files Fabric may have removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from open_mirroring.fabric.target_status import TargetState, TargetStatus
from open_mirroring.landing_zone.layout import INCARNATION_FILE, METADATA_FILE
from open_mirroring.landing_zone.listing import FileStage, ListedItem
from open_mirroring.landing_zone.store import FoundMarker
from open_mirroring.ledger.reading import PublishedFile, TableState
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.publishing import INCARNATION_CHANGED, METADATA_CHANGED, TableRow
from open_mirroring.protocols.resetting import RESET_OPEN
from open_mirroring.protocols.table_losses import Loss
from open_mirroring.protocols.verdicts import Backlog, Finding, Verdict
from open_mirroring.reconciliation.evidence_text import ranges, shown
from open_mirroring.reconciliation.file_sequence import FileSequence, file_sequence

PURGED_AFTER = timedelta(days=7)
"""The service keeps a processed file for seven days (F-36)."""

_SHOWN_NAMES = 5
_SHOWN_WORDS = 400
"""The maximum number of characters shown of the target's own error text."""
_HELD = {
    TargetState.PAUSED: (v.PAUSED, "is paused"),
    TargetState.THROTTLED: (v.TARGET_BUSY, "is throttled"),
    TargetState.NOT_READY: (v.TARGET_BUSY, "is not ready"),
    TargetState.UNKNOWN: (v.STATUS_UNKNOWN, "gives no status that is understood"),
    TargetState.REFUSED: (v.STATUS_REFUSED, "refuses to show its status"),
}


class Limits(NamedTuple):
    """How much may wait at the target before a table is put on hold: published files, their bytes, and their age (I18).

    None means that the amount is not limited.
    """

    max_files: int | None = None
    max_bytes: int | None = None
    max_age: timedelta | None = None


NO_LIMITS = Limits()


class Folder(NamedTuple):
    """What was found in a table's folder of the landing zone.

    *metadata_matches* is whether ``_metadata.json`` names our keys; None if the folder has no such file. *lost* is
    evidence that this mirror published the table although the ledger does not know it. *foreign* is evidence that
    another writer published the table. Both are empty without such evidence.
    """

    items: tuple[ListedItem, ...]
    marker: FoundMarker
    metadata_matches: bool | None
    metadata_etag: str = ""
    lost: str = ""
    foreign: str = ""


@dataclass(frozen=True)
class TableFacts:
    """All facts about one table at one time; *target* is None if Fabric is not asked for its status.

    *published* are the files in the ledger. Files up to number *settled* may be missing, because they are older than
    Fabric keeps files. *load_ahead* is a message if the initial load claims to contain more than the stream has
    reached, and empty if not. *counted_before* is the highest row count that Fabric ever reported for the table since
    its last reset.
    """

    state: TableState
    published: Mapping[int, PublishedFile]
    folder: Folder
    now: datetime
    settled: int = 0
    load_ahead: str = ""
    target: TargetStatus | None = None
    limits: Limits = NO_LIMITS
    counted_before: int = 0
    losses: tuple[Loss, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def row(self) -> TableRow:
        """The table's row in the ledger, including the stop recorded there."""
        return self.state.row

    @property
    def reset(self) -> str:
        """The reset under way of the table, as a string; empty if there is none."""
        return "" if self.state.reset is None else str(self.state.reset)


def reconcile(facts: TableFacts) -> Finding:
    """Return the verdict on one table. The function raises no error, whatever the facts are.

    For PASS the code of the finding is ``OK``. For any other verdict it is the code of the first problem, in this
    order: the stop in the ledger, other stops, holds, losses; the evidence lists the remaining codes under ``also``.
    File numbers of an unfinished publication are not judged here: the publish job judges them. A table whose reset has
    not yet begun a new generation is on hold (RESET_OPEN).
    """
    if facts.row.resetting:
        seen: dict[str, object] = {"generation": facts.row.generation, "confirmed": facts.row.confirmed, "also": []}
        on_hold = Finding(Verdict.HOLD, RESET_OPEN, facts.reset, seen, 0, Backlog())
        return replace(on_hold, notes=facts.remarks, losses=facts.losses)
    sequence = file_sequence(
        facts.folder.items,
        facts.row.confirmed,
        facts.published,
        settled=facts.settled,
        purged_before=facts.now - PURGED_AFTER,
    )
    backlog = _backlog(facts, sequence)
    lacking = [_Problem(Verdict.LOSSES, loss.code, loss.what, {}) for loss in facts.losses]
    found = [*_stops(facts, sequence), *_holds(facts, backlog), *lacking]
    evidence = {
        "generation": facts.row.generation,
        "confirmed": facts.row.confirmed,
        "final": ranges(sequence.final),
        "processed": ranges(sequence.moved),
        "applied_by": list(sequence.applied_by),
        "target": _target_evidence(facts.target),
    }
    verdict, code, what = Verdict.PASS, v.OK, "ledger, folder and target agree"
    if not facts.row.established:
        what = "no rows yet: the target gets the table with its first row"
    if found:
        verdict, code, what, details = found[0]
        evidence |= details
        evidence["also"] = list(dict.fromkeys(problem.code for problem in found if problem.code != code))
    notes = (*_notes(facts, sequence), *facts.remarks)
    left_over = any(item.stage is FileStage.STAGING for item in facts.folder.items)
    applied, lost = sequence.applied, sequence.lost
    return Finding(verdict, code, what, evidence, applied, backlog, lost, notes, left_over, facts.losses)


class _Problem(NamedTuple):
    verdict: Verdict
    code: str
    what: str
    evidence: dict[str, object]


def _stop(code: str, what: str, **evidence: object) -> _Problem:
    return _Problem(Verdict.STOP, code, what, evidence)


def _hold(code: str, what: str, **evidence: object) -> _Problem:
    return _Problem(Verdict.HOLD, code, what, evidence)


def _stops(facts: TableFacts, sequence: FileSequence) -> Iterator[_Problem]:
    """Yield all reasons for a stop, the most important first."""
    if facts.row.stop is not None:
        yield _stop(facts.row.stop, facts.state.stop_what or "the table was stopped earlier")
    yield from _folder_stops(facts)
    yield from _number_stops(facts, sequence)
    if sequence.gaps:
        text = ranges(sequence.gaps)
        yield _stop(v.FILE_MISSING, f"{text} missing between numbers that are there", gaps=text)
    if sequence.last_missing:
        yield _stop(v.FILE_MISSING, f"number {facts.row.confirmed}, the last one published, cannot be found")
    if sequence.missing:
        text = ranges(sequence.missing)
        yield _stop(v.FILE_MISSING, f"{text} cannot be found, and nothing shows that Fabric deleted it", missing=text)
    if facts.target is None:
        return
    if facts.target.state in (TargetState.FAILED, TargetState.STOPPED):
        said = shown(facts.target.detail, _SHOWN_WORDS)
        yield _stop(v.TARGET_FAILED, f"the target says {facts.target.state.value}: {said}")
    counted = facts.target.counted_rows
    if counted is not None and counted < facts.counted_before:
        what = f"the target has processed {counted} rows of the table, after it had reported {facts.counted_before}"
        yield _stop(v.TARGET_RESTARTED, what)


def _folder_stops(facts: TableFacts) -> Iterator[_Problem]:
    row, folder = facts.row, facts.folder
    marker = folder.marker.incarnation
    if folder.lost:
        yield _stop(v.LEDGER_LOST, folder.lost)
    # Until the table is established, its marker and metadata may be missing, but they must not differ.
    if marker != row.incarnation and (row.established or marker is not None):
        code, what = INCARNATION_CHANGED, f"the folder's {INCARNATION_FILE} is missing, or belongs to another mirror"
        if not row.established:
            code = v.FOREIGN_WRITER
            what = f"the folder has the {INCARNATION_FILE} of another owner, and this mirror published nothing there"
        yield _stop(code, what, marker=None if marker is None else shown(marker), expected=row.incarnation)
    elif row.established and folder.marker.etag != row.marker_etag:
        what = f"the folder's {INCARNATION_FILE} has the right id, but was replaced by another object"
        etags = {"marker_etag": shown(folder.marker.etag), "expected_etag": row.marker_etag}
        yield _stop(INCARNATION_CHANGED, what, **etags)
    if not folder.metadata_matches and (row.established or folder.metadata_matches is not None):
        state = "is missing" if folder.metadata_matches is None else "names other key columns than the mirror file"
        yield _stop(METADATA_CHANGED, f"the folder's {METADATA_FILE} {state}")
    foreign = sorted(item.name for item in folder.items if item.stage is FileStage.FOREIGN)
    if foreign:
        names = [shown(name) for name in foreign[:_SHOWN_NAMES]]
        what = f"{len(foreign)} items in the folder are not of this mirror: {', '.join(names)}"
        yield _stop(v.FOREIGN_ITEM, what, foreign=names, foreign_count=len(foreign))


def _number_stops(facts: TableFacts, sequence: FileSequence) -> Iterator[_Problem]:
    row, visible = facts.row, sequence.final | sequence.moved
    unknown = {n for n in visible if n > row.intended or (n <= row.confirmed and n not in facts.published)}
    if unknown:
        text = ranges(unknown)
        what = f"{text} exists, but not in the ledger: a second writer published it, or the ledger is an older copy"
        code = v.FOREIGN_WRITER if facts.folder.foreign else v.LEDGER_BEHIND
        yield _stop(code, facts.folder.foreign or what, unknown=text)
    if both := sequence.final & sequence.moved:
        text = ranges(both)
        yield _stop(v.FOREIGN_ITEM, f"{text} is both in the folder and in a folder of processed files", reappeared=text)
    if changed := {item.number for item in facts.folder.items if _changed(facts, item)} - {None}:
        text = ranges(n for n in changed if n is not None)
        yield _stop(v.CONTENT_CHANGED, f"{text} has another size or ETag than the published file", changed=text)


def _changed(facts: TableFacts, item: ListedItem) -> bool:
    number = item.number
    record = None if number is None or number > facts.row.confirmed else facts.published.get(number)
    if record is None:
        return False
    # No document states whether a move by Fabric keeps the ETag, so only the size of a moved file is compared.
    return item.size != record.size or (item.stage is FileStage.FINAL and item.etag != record.etag)


def _holds(facts: TableFacts, backlog: Backlog) -> Iterator[_Problem]:
    if facts.target and facts.target.state in _HELD:
        code, what = _HELD[facts.target.state]
        yield _hold(code, f"the target {what}: {shown(facts.target.detail, _SHOWN_WORDS)}")
    age = facts.now - backlog.oldest if backlog.oldest else timedelta(0)
    over = []
    if facts.limits.max_files is not None and backlog.files > facts.limits.max_files:
        over.append(f"{backlog.files} files")
    if facts.limits.max_bytes is not None and backlog.bytes > facts.limits.max_bytes:
        over.append(f"{backlog.bytes} bytes")
    if facts.limits.max_age is not None and age > facts.limits.max_age:
        over.append(f"for {age}")
    if over:
        yield _hold(v.BACKLOG, f"more waits for the target than allowed: {', '.join(over)}", over=over)
    if facts.reset and not facts.state.is_beginning:
        # Changes are published only after the target shows the table again (F-75).
        yield _hold(RESET_OPEN, facts.reset)
    if facts.state.start.load_state == "pending":
        why = facts.state.start.load_refused
        refused = f"; it was refused when it was tried last: {why}" if why else ""
        yield _hold(v.LOAD_PENDING, f"the initial load is not complete{refused}")
    if facts.load_ahead:
        yield _hold(v.LOAD_AHEAD, facts.load_ahead)


def _backlog(facts: TableFacts, sequence: FileSequence) -> Backlog:
    sizes = {item.number: item.size for item in facts.folder.items if item.stage is FileStage.FINAL}
    records = [facts.published[number] for number in sequence.waiting if number in facts.published]
    return Backlog(
        len(sequence.waiting),
        sum(sizes[number] for number in sequence.waiting),
        min((record.confirmed_at for record in records), default=None),
    )


def _notes(facts: TableFacts, sequence: FileSequence) -> Iterator[str]:
    confirmed, intent = facts.row.confirmed, facts.row.intent
    if confirmed and confirmed == sequence.highest and confirmed not in sequence.final:
        yield f"LAST_NOT_KEPT: number {confirmed} left the folder although it is the last"
    if behind := [number for number in sequence.final if number < max(sequence.moved, default=0)]:
        yield f"LEFT_BEHIND: {ranges(behind)} in the folder although a higher number was processed"
    if facts.target and facts.target.state is TargetState.NOT_STARTED:
        yield "NOT_STARTED: the target was never started; structure and first files come before"
    if sequence.purged:
        yield f"PURGED: {ranges(sequence.purged)}"
    if intent is not None:
        state = "unsealed" if intent.manifest is None else f"{len(intent.manifest)} files sealed"
        yield f"INTENT_OPEN: from number {intent.first_number}, {state}; the publisher finishes it"


def _target_evidence(target: TargetStatus | None) -> dict[str, object] | None:
    if target is None:
        return None
    return {
        "state": target.state.value,
        "said": shown(target.detail, _SHOWN_WORDS),
        "processed_rows": target.counted_rows,
        "processed_bytes": target.counted_bytes,
        "last_sync": shown(target.last_sync),
    }
