"""The deep check of the change log: does it contain exactly what the ledger recorded for each batch?

Every committed batch is in the change log once (I29), with its sealed files, and every message has one outcome (I1).
The functions here are pure; a job counts the rows.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from open_mirroring.changes.history_names import is_history, logged_as
from open_mirroring.changes.horizon import BatchContents
from open_mirroring.changes.manifest import Manifest
from open_mirroring.protocols import verdicts as v
from open_mirroring.protocols.verdicts import DeepFinding
from open_mirroring.reconciliation.deep_check import Problems

MESSAGE_DISPOSITIONS = ("changes", "fragments", "metadata", "ignored", "rejected")
"""The possible outcomes of a message; every message read has exactly one (I1)."""

PIECE_ENDS = ("joined", "refused", "repeated", "expired")
"""The possible outcomes of a logged piece of a split message; pieces without one still wait (I1)."""

CHANGE, FRAGMENT = "change", "fragment"


class LogCount(NamedTuple):
    """The rows of one batch, kind, table and epoch in the change log: their number, lowest and highest position.

    The epoch is the stream of the rows: one enabling of streaming or one Qlik full load.
    """

    batch: int
    kind: str
    table: str | None
    epoch: str | None
    rows: int
    lowest: str | None
    highest: str | None


class PieceCount(NamedTuple):
    """The number of pieces of one split message in one batch of the change log."""

    identity: str
    batch: int
    rows: int


class LogFile(NamedTuple):
    """The number of rows and bytes of one file of the change log."""

    rows: int
    size: int


@dataclass(frozen=True)
class LogState:
    """What the change log contains: rows, *pieces* of incomplete split messages, and *files* by path.

    If the change log cannot be read, *unreadable* is the reason.
    """

    counts: Sequence[LogCount] = ()
    pieces: Sequence[PieceCount] = ()
    files: Mapping[str, LogFile] = field(default_factory=dict)
    unreadable: str = ""


@dataclass(frozen=True)
class LogRecord:
    """What the ledger recorded about the change log.

    *committed* is the newest batch that the ledger recorded as committed. Batches up to *newest* may be in the change
    log already, because the change log is read after the ledger. Batches up to *dropped* may be gone from the change
    log. *waiting* has for each split message the first batch with a piece of it.
    """

    committed: int
    newest: int
    manifests: Mapping[int, Manifest]
    contents: Mapping[str, Sequence[BatchContents]]
    waiting: Mapping[str, int]
    dropped: int = 0

    @property
    def kept(self) -> LogRecord:
        """The record without the batches that maintenance removed from the change log."""
        manifests = {number: manifest for number, manifest in self.manifests.items() if number > self.dropped}
        contents = {s: [part for part in parts if part.batch > self.dropped] for s, parts in self.contents.items()}
        return replace(self, manifests=manifests, contents=contents)


_Bounds = tuple[int, str, str]


def check_log(record: LogRecord, log: LogState) -> list[DeepFinding]:
    """Compare the change log with the ledger.

    The findings have the codes LOG_DAMAGED, COUNTS_DIFFER and LEDGER_BEHIND.
    """
    whole = Problems(None)
    tables = {source: Problems(source) for source in record.contents}
    kept = record.kept
    _check_manifests(kept, whole, tables)
    if log.unreadable:
        whole.add(v.LOG_DAMAGED, log.unreadable)
    else:
        unknown = sorted({count.batch for count in log.counts if not 1 <= count.batch <= record.newest})
        if unknown:
            whole.add(v.LEDGER_BEHIND, f"the change log has batches {unknown[:10]}, the ledger ends at {record.newest}")
        committed = [count for count in log.counts if record.dropped < count.batch <= record.committed]
        _check_changes(kept, committed, whole, tables)
        _check_other_rows(kept, committed, whole)
        _check_pieces(record, log.pieces, whole)
        _check_files(kept, log.files, whole)
    return [finding for problems in (*tables.values(), whole) for finding in problems.findings()]


def _check_manifests(record: LogRecord, whole: Problems, tables: Mapping[str, Problems]) -> None:
    """Check the ledger against itself: no batch is missing, messages add up, contents match the sealed files."""
    missing = sorted(set(range(record.dropped + 1, record.committed + 1)) - record.manifests.keys())
    if missing:
        whole.add(v.LOG_DAMAGED, f"the ledger has no record of the committed batches {missing[:10]}")
    for batch, manifest in sorted(record.manifests.items()):
        messages = manifest.counts.get("messages", 0)
        accounted = sum(manifest.counts.get(name, 0) for name in MESSAGE_DISPOSITIONS)
        if messages != accounted:
            whole.add(v.COUNTS_DIFFER, f"batch {batch}: {messages} messages were read, the ledger counts {accounted}")
        if _other_rows(manifest)[1] < manifest.counts.get("rejected", 0):
            whole.add(v.COUNTS_DIFFER, f"batch {batch}: fewer dead letters were written than messages rejected")
    for source, problems in tables.items():
        recorded = {(c.batch, c.epoch): (c.rows, c.lowest, c.highest) for c in record.contents[source]}
        sealed = {
            (batch, epoch): bounds
            for batch, manifest in record.manifests.items()
            for epoch, bounds in _sealed_bounds(manifest, logged_as(source)).items()
            if batch >= _first_batch(record, source)
        }
        for batch, epoch in sorted(recorded.keys() | sealed.keys()):
            if batch in record.manifests and recorded.get((batch, epoch)) != sealed.get((batch, epoch)):
                said = _described(recorded.get((batch, epoch)))
                problems.add(
                    v.COUNTS_DIFFER,
                    f"batch {batch}: {said} recorded, {_described(sealed.get((batch, epoch)))} in its sealed files",
                )


def _check_changes(
    record: LogRecord, counts: Iterable[LogCount], whole: Problems, tables: Mapping[str, Problems]
) -> None:
    found: dict[str, dict[tuple[int, str], _Bounds]] = defaultdict(dict)
    for count in counts:
        if count.kind != CHANGE:
            continue
        if count.table is None or count.table not in tables:
            manifest = record.manifests.get(count.batch)
            sealed = {} if manifest is None else _sealed_bounds(manifest, count.table or "")
            if sealed.get(count.epoch or "") == (count.rows, count.lowest, count.highest):
                continue  # the table was mirrored then, and was dropped since
            text = f"batch {count.batch}: {count.rows} changes of {count.table!r}, which is not mirrored"
            whole.add(v.LOG_DAMAGED, text)
            continue
        found[count.table][count.batch, count.epoch or ""] = (count.rows, count.lowest or "", count.highest or "")
    for source, problems in tables.items():
        first = _first_batch(record, source)
        logged = {at: bounds for at, bounds in found.get(logged_as(source), {}).items() if at[0] >= first}
        present = {batch for batch, _ in logged}
        recorded = {(c.batch, c.epoch): (c.rows, c.lowest, c.highest) for c in record.contents[source]}
        for batch in sorted({batch for batch, _ in recorded} - present):
            rows = sum(bounds[0] for (number, _), bounds in recorded.items() if number == batch)
            problems.add(v.LOG_DAMAGED, f"batch {batch}: the ledger recorded {rows} changes, the change log has none")
        for batch, epoch in sorted(recorded.keys() | logged.keys()):
            known, there = recorded.get((batch, epoch)), logged.get((batch, epoch))
            if batch in present and known != there:
                text = f"batch {batch}: {_described(known)} recorded, {_described(there)} in the log"
                problems.add(v.LOG_DAMAGED, text)


def _check_other_rows(record: LogRecord, counts: Sequence[LogCount], whole: Problems) -> None:
    rows: dict[int, Counter[str]] = defaultdict(Counter)
    for count in counts:
        rows[count.batch][count.kind] += count.rows
    for batch in sorted(rows.keys() - record.manifests.keys()):
        whole.add(v.LEDGER_BEHIND, f"the change log contains batch {batch}, of which the ledger has no record")
    for batch, manifest in sorted(record.manifests.items()):
        there = rows.get(batch, Counter())
        if manifest.files and not there:
            whole.add(v.LOG_DAMAGED, f"batch {batch}: the change log contains nothing of this batch")
            continue
        fragments, rejected = there[FRAGMENT], there.total() - there[CHANGE] - there[FRAGMENT]
        if (fragments, rejected) != _other_rows(manifest):
            sealed = "{} fragments and {} dead letters".format(*_other_rows(manifest))
            text = f"batch {batch}: {fragments} fragments and {rejected} dead letters in the log, sealed were {sealed}"
            whole.add(v.LOG_DAMAGED, text)


def _check_pieces(record: LogRecord, pieces: Iterable[PieceCount], whole: Problems) -> None:
    logged = sum(manifest.counts.get("fragments", 0) for manifest in record.manifests.values())
    ended = sum(manifest.counts.get(end, 0) for manifest in record.manifests.values() for end in PIECE_ENDS)
    waiting = sum(
        piece.rows
        for piece in pieces
        # A piece in an older batch than the event's first one belonged to an event that was joined or refused.
        if record.waiting.get(piece.identity, record.newest + 1) <= piece.batch <= record.committed
    )
    if logged != ended + waiting:
        text = f"{logged} pieces of split messages were logged, {ended} were joined or ended otherwise"
        whole.add(v.COUNTS_DIFFER, f"{text}, {waiting} wait for others")


def _check_files(record: LogRecord, files: Mapping[str, LogFile], whole: Problems) -> None:
    sealed = {
        str(file["path"]): LogFile(file["rows"], file["size"])
        for manifest in record.manifests.values()
        for file in manifest.files
    }
    for path in sorted(sealed.keys() - files.keys()):
        whole.add(v.LOG_DAMAGED, f"{path} was committed and is no longer part of the change log")
    for path in sorted(sealed.keys() & files.keys()):
        if sealed[path] != files[path]:
            text = f"{path} has {files[path].rows} rows and {files[path].size} bytes, sealed were"
            whole.add(v.LOG_DAMAGED, f"{text} {sealed[path].rows} and {sealed[path].size}")
    for path in sorted(files.keys() - sealed.keys()):
        number = path.rpartition("/")[2].partition("-")[0]
        # A batch that was committed after the ledger was read is not judged. Files of a dropped batch may remain.
        if not number.isdigit() or record.dropped < int(number) <= record.committed or int(number) > record.newest:
            whole.add(v.LOG_DAMAGED, f"{path} is part of the change log, but the ledger has no record of this file")


def _other_rows(manifest: Manifest) -> tuple[int, int]:
    """The numbers of fragments and dead letters in a batch: the rows of its files that are not changes."""
    rows = sum(int(file["rows"]) for file in manifest.files)
    changes = sum(seen[0] for file in manifest.files for epochs in file["tables"].values() for seen in epochs.values())
    fragments = manifest.counts.get("fragments", 0)
    return fragments, rows - int(changes) - fragments


def _first_batch(record: LogRecord, source: str) -> int:
    """The first batch with changes of a table: a history may have been declared after others (G-194)."""
    if not is_history(source):
        return 0
    return min((part.batch for part in record.contents[source]), default=record.committed + 1)


def _sealed_bounds(manifest: Manifest, source: str) -> dict[str, _Bounds]:
    merged: dict[str, _Bounds] = {}
    for file in manifest.files:
        for epoch, (rows, lowest, highest) in file["tables"].get(source, {}).items():
            before = merged.get(epoch, (0, lowest, highest))
            merged[epoch] = (before[0] + rows, min(before[1], lowest), max(before[2], highest))
    return merged


def _described(bounds: _Bounds | None) -> str:
    return "no changes" if bounds is None else f"{bounds[0]} changes from {bounds[1]} to {bounds[2]}"
