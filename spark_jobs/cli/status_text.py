"""Formats the status of a mirror: one sentence, then a line per table, then what needs attention."""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from open_mirroring.codes import next_step_of
from open_mirroring.operate.job_story import counted
from open_mirroring.operate.mirror_view import BoundOffsets, MirrorView, TableView
from open_mirroring.operate.viewing import NO_COMPLETE_POSITION
from open_mirroring.operate.words import SEVERITY, age, amount, shown, size, to_copy, verdict_words, verified_words
from open_mirroring.protocols.proving import Kind, Proof, ProofVerdict
from open_mirroring.protocols.verdicts import Verdict
from spark_jobs.cli.reporting import WIDTH, columns, grouped, ignored_text, wrapped

_COLOURS = {Verdict.PASS: "32", Verdict.LOSSES: "33", Verdict.HOLD: "34", Verdict.STOP: "1;31", None: "35"}


def colours_wanted() -> bool:
    """Whether the output is a terminal and colors are not turned off (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def status_text(status: MirrorView, file: Path = Path("FILE"), *, wide: bool = False, coloured: bool = False) -> str:
    """The status of a mirror: one sentence, a line per table, what needs attention, and notes.

    Equal notes of several tables are one line. *file* is the mirror file, for commands to copy. *wide* adds the
    internal positions of mirror and tables; *coloured* prints verdicts in color.
    """
    sections = [[wrapped(headline(status), 0), *(_positions(status) if wide else ())], [_table(status, wide, coloured)]]
    if attention := [*_attention(status, file, coloured)]:
        sections.append(["Needs attention", *attention])
    if notes := [*_notes(status)]:
        sections.append(["Notes", *notes])
    return "\n\n".join("\n".join(section) for section in sections)


def _attention(status: MirrorView, file: Path, coloured: bool) -> Iterator[str]:
    """Yield what is stopped, lost or on hold: the causes by table, then one fix for all with the same code."""
    alike = defaultdict[tuple[Verdict | None, str], list[tuple[str, str]]](list)
    if status.stop is not None:
        alike[Verdict.STOP, status.stop.code].append(("reading", status.stop.what))
    for table in status.tables:
        if table.verdict is not Verdict.PASS:
            since = f" (since {table.since:%Y-%m-%d %H:%M} UTC)" if table.since else ""
            alike[table.verdict, table.code].append((table.source, f"{table.what}{since}"))
    for (verdict, code), said in sorted(alike.items(), key=lambda item: SEVERITY.index(item[0][0])):
        yield f"  {_painted(verdict_words(verdict).capitalize(), verdict, coloured)}: {code}"
        yield from grouped(said, 4)
        if code:
            yield wrapped(f"Fix: {to_copy(next_step_of(code), file)}", 4)
    yield from grouped(
        (table.source, f"LOSSES {one}") for table in status.tables for one in table.losses if one.code != table.code
    )
    yield from (wrapped(f"{name}: {to_copy(text, file)}") for name, text in _of_mirror(status))


def _notes(status: MirrorView) -> Iterator[str]:
    """Yield what is good to know: tables not mirrored, unfinished work, notes on columns, the last proofs."""
    yield from map(wrapped, status.notes)
    if status.report.ignored:
        yield wrapped(f"not mirrored: {ignored_text(status.report.document()['ignored'])}")
    yield from grouped((table.source, text) for table in status.tables for text in _remarks(table, status.taken_at))


def _positions(status: MirrorView) -> Iterator[str]:
    """Yield lines on how far reading is."""
    read, state = BoundOffsets.of(status.bound_offsets), status.state
    at = status.last_commit
    last = "no batch yet" if at is None else f"committed {age(status.taken_at - at)} ago"
    is_open = f"; batch {state.open_batch} is open, the next run finishes it" if state.open_batch else ""
    yield f"  bound offsets     {read.places} files, partitions or tables, {read.total} bytes or offsets"
    yield f"  change log        batch {state.committed}, {last}{is_open}"
    yield f"  open fragments    {len(status.fragments)} wait for other pieces, or for a description of their structure"
    yield wrapped(f"last {len(status.batches):>3} batches  {counted(status.recent)}")
    if status.horizon is not None:
        up_to = status.horizon.dropped
        dropped = f"; batches up to {up_to} are dropped from the log" if up_to else ""
        yield f"  horizon           {status.horizon.at:%Y-%m-%d %H:%M} UTC{dropped}"


def _of_mirror(status: MirrorView) -> Iterator[tuple[str, str]]:
    """Yield what needs attention but belongs to no table, as pairs of heading and text."""
    letters = status.report.letters
    if status.at_risk:
        nameless = amount(letters.without_table.count, "dead letter names no table", "dead letters name no table")
        counted = f"{nameless}: any table may lack a change"
        counted = counted if letters.known else f"at least {counted}: the log's were not counted yet"
        yield "AT RISK", f"{counted}; run `open-mirroring dead-letters FILE`"
    yield from (("AT RISK", f"{what}. Fix: {next_step_of(code)}") for code, what in status.report.unread.items())
    if status.not_inspected:
        yield "Not inspected", status.not_inspected


def headline(status: MirrorView) -> str:
    """One sentence: ``shop: 3 of 4 tables mirrored, lag 2 min; last logged 1 min ago``."""
    tables = status.tables
    mirrored = [table for table in tables if table.verdict in (Verdict.PASS, Verdict.LOSSES)]
    losses = sum(table.verdict is Verdict.LOSSES for table in mirrored)
    stopped = sum(table.verdict is Verdict.STOP for table in tables)
    others = (f" ({losses} with losses)" if losses else "") + (f", {stopped} stopped" if stopped else "")
    longest = max((table.lag for table in mirrored), default=timedelta(0))
    is_all = mirrored == [*tables] and not status.report.unread
    behind = f", lag {age(longest)}" if longest else ", nothing waits" if is_all else ""
    counted = f"{len(mirrored)} of {len(tables)} tables mirrored{others}{behind}"
    last = status.last_commit
    logged = "nothing logged yet" if last is None else f"last logged {age(status.taken_at - last)} ago"
    return f"{status.mirror}: {counted}; {logged}"


def _painted(text: str, verdict: Verdict | None, coloured: bool) -> str:
    return f"\x1b[{_COLOURS[verdict]}m{text}\x1b[0m" if coloured else text


_HEADINGS = ("table", "verdict", "lag", "changes", "files", "dead letters", "load")
_MARKS = (
    *("highest position", "complete position", "published batch", "batches in the log", "last number"),
    *("oldest at the target", "rows out of date"),
)


def _table(status: MirrorView, wide: bool, coloured: bool) -> str:
    headings = (*_HEADINGS, *(_MARKS if wide else ()))
    rows = [(*_row(table), *(_marks(table, status.taken_at) if wide else ())) for table in status.tables]
    if not wide and not any(row[-1] for row in rows):
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    others = sum(max(len(row[at]) for row in [headings, *rows]) + 2 for at in range(1, len(headings)))
    # Among the marks a name has all the room that it needs.
    room = sys.maxsize if wide else max(12, WIDTH - others)
    text = columns(headings, [(_cut(shown(row[0]), room), *row[1:]) for row in rows])
    if not coloured:
        return text
    first, *lines = text.split("\n")
    painted = []
    for table, row, line in zip(status.tables, rows, lines, strict=True):
        # The name may hold the words of a verdict.
        name = _cut(shown(table.source), room)
        painted.append(name + line[len(name) :].replace(row[1], _painted(row[1], table.verdict, True), 1))
    return "\n".join([first, *painted])


def _row(table: TableView) -> tuple[str, ...]:
    load = "" if table.state.start.load_state == "none" else table.state.start.load_state
    if table.state.start.load_state == "pending" and table.load_chunks is not None:
        load = "{} of {}".format(*table.load_chunks)
    return (
        table.source,
        verdict_words(table.verdict),
        age(table.lag) if table.lag else "-",
        f"{table.waiting.changes:,}",
        f"{table.backlog.files} ({size(table.backlog.bytes)})" if table.backlog.files else "0",
        f"{table.dead_letters.count}",
        load,
    )


def _marks(table: TableView, now: datetime) -> tuple[str, ...]:
    marks, row, oldest = table.marks, table.state.row, table.backlog.oldest
    complete = NO_COMPLETE_POSITION if marks is None else marks.complete_position
    return (
        (marks and marks.highest_position) or "-",
        # Shown in every row of some sources, it would hide what differs.
        "-" if complete == NO_COMPLETE_POSITION else complete,
        f"{row.published_batch}",
        f"{table.waiting.batches}",
        f"{row.confirmed}",
        age(now - oldest) if oldest else "-",
        f"{table.dead_letters.keys}",
    )


def _cut(text: str, room: int) -> str:
    """Shorten a text in the middle, because similar table names often differ at their ends."""
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def _remarks(table: TableView, now: datetime) -> Iterator[str]:
    is_stopped = table.verdict is Verdict.STOP
    if not table.losses and table.dead_letters.count:
        are_open = amount(table.dead_letters.count, "dead letter is open", "dead letters are open")
        yield f"{are_open}, as many are tolerated"
    if table.open_intent:
        when = "goes on once the stop is lifted" if is_stopped else "the next run finishes it"
        yield f"unfinished, {when}: {table.open_intent}"
    if table.reset:
        yield f"in a reset: {table.reset}"
    if table.waiting.changes and not table.waiting.batches:
        one, many = ("change is waiting", "changes are waiting") if is_stopped else ("change waits", "changes wait")
        until = "until the stop is resolved" if is_stopped else "for the end of their transactions"
        yield f"{amount(table.waiting.changes, one, many)} {until}"
    yield from table.notes
    if table.proof is not None:
        yield _last_proof(table.proof, now)
    if table.verified is not None:
        yield verified_words(table.verified, now)


def _last_proof(proof: Proof, now: datetime) -> str:
    """``last proof EQUAL, 5 min ago``; for other verdicts also the counts."""
    ago = age(None if proof.proved_at is None else now - proof.proved_at)
    if proof.verdict is ProofVerdict.EQUAL:
        return f"last proof {proof.verdict}, {ago} ago"
    counted = [f"{proof.counts[kind]} {kind}" for kind in Kind if proof.counts.get(kind)]
    counted += [f"{proof.unproven} unproven"] if proof.unproven else []
    said = proof.code or ", ".join([f"{proof.rows_source} rows at the source", *counted])
    return f"last proof {proof.verdict}, {ago} ago: {said}"
