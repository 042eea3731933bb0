"""The status of a mirror as text for people: first whether all is well, then each table, then what to do."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from open_mirroring.operate.status import BoundOffsets, MirrorStatus, TableStatus
from open_mirroring.operate.status_gathering import NO_COMPLETE_POSITION
from open_mirroring.operate.words import age, amount, shown, size, verdict_words
from open_mirroring.protocols.proving import Kind
from open_mirroring.protocols.table_losses import WAYS_OUT
from open_mirroring.protocols.verdicts import Verdict
from spark_jobs.cli.reporting import columns, counts_text, ignored_text
from spark_jobs.sources.contract.decoded import Notices

_MB = 1_000_000
WIDTH = 100
"""Columns of a terminal that the short tables fit."""
_COLOURS = {Verdict.PASS: "32", Verdict.LOSSES: "33", Verdict.HOLD: "34", Verdict.STOP: "1;31", None: "35"}


def colours_wanted() -> bool:
    """Whether the output is a terminal, and nobody asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def short_status_text(status: MirrorStatus, *, coloured: bool = False) -> str:
    """The verdict in a sentence, what is stopped with the way out, and a narrow table."""
    lines = [headline(status)]
    if status.stop is not None:
        lines += _stopped("reading", status.stop.code, status.stop.what, "", coloured)
    for table in status.tables:
        if table.verdict == Verdict.STOP.value:
            lines += _stopped(table.source, table.code, table.what, table.way_out, coloured)
    if status.at_risk:
        lines.append(f"AT RISK: {shown(_at_risk(status))}; look at `dead-letters`")
    lines += [f"AT RISK: {shown(what)}; {WAYS_OUT[code]}" for code, what in status.unread.items()]
    lines += [f"note: {shown(note)}" for note in status.notes]
    if status.inspection_failed:
        lines.append(f"not inspected: {shown(status.inspection_failed)}")
    if status.ignored:
        lines.append(f"ignored: {ignored_text(status.ignored)}")
    noticed = {name: status.recent[name] for name in Notices._fields if status.recent.get(name)}
    if noticed:
        lines.append(f"read, and worth a look: {counts_text(noticed)} in the last {status.recent_batches} batches")
    lines += ["", _narrow_table(status, coloured)]
    for table in status.tables:
        lines += _remarks(table, status.taken_at, with_stop=False)
    return "\n".join(lines)


def headline(status: MirrorStatus) -> str:
    """``shop: 3 of 4 tables mirrored, lag 2 min``."""
    tables = status.tables
    mirrored = [table for table in tables if table.verdict in (Verdict.PASS.value, Verdict.LOSSES.value)]
    losses = sum(table.verdict == Verdict.LOSSES.value for table in mirrored)
    lossy = f" ({losses} with losses)" if losses else ""
    longest = max((lag(table, status.taken_at) for table in mirrored), default=timedelta(0))
    is_all = mirrored == [*tables] and not status.unread
    behind = f", lag {age(longest)}" if longest else ", nothing waits" if is_all else ""
    counted = f"{len(mirrored)} of {len(tables)} tables mirrored{lossy}{behind}"
    logged = "nothing logged yet" if status.last_commit is None else f"last logged {age(status.last_commit_age)} ago"
    return f"{status.mirror}: {counted}; {logged}"


def lag(table: TableStatus, now: datetime) -> timedelta:
    """The age of the oldest logged change that is not known to be applied."""
    since = [moment for moment in (table.waiting_since, table.backlog_oldest) if moment is not None]
    return max(timedelta(0), now - min(since)) if since else timedelta(0)


def _stopped(what: str, code: str, why: str, way_out: str, coloured: bool) -> list[str]:
    stopped = _painted("is stopped", Verdict.STOP, coloured)
    return [f"{shown(what)} {stopped}: {code}: {shown(why)}", *([f"  do: {shown(way_out)}"] if way_out else [])]


def _painted(text: str, verdict: Verdict | None, coloured: bool) -> str:
    return f"\x1b[{_COLOURS[verdict]}m{text}\x1b[0m" if coloured else text


_NARROW = ("table", "verdict", "lag", "in the log", "at the target", "letters", "load")


def _narrow_table(status: MirrorStatus, coloured: bool) -> str:
    rows = [_narrow_row(table, status.taken_at) for table in status.tables]
    others = sum(max(len(row[at]) for row in [_NARROW, *rows]) + 2 for at in range(1, len(_NARROW)))
    room = max(12, WIDTH - others)
    text = columns(_NARROW, [(_cut(shown(row[0]), room), *row[1:]) for row in rows])
    if not coloured:
        return text
    first, *lines = text.split("\n")
    painted = []
    for table, row, line in zip(status.tables, rows, lines, strict=True):
        # The name may hold the words of a verdict.
        name = _cut(shown(table.source), room)
        verdict = None if table.verdict is None else Verdict(table.verdict)
        painted.append(name + line[len(name) :].replace(row[1], _painted(row[1], verdict, True), 1))
    return "\n".join([first, *painted])


def _narrow_row(table: TableStatus, now: datetime) -> tuple[str, ...]:
    verdict = verdict_words(None if table.verdict is None else Verdict(table.verdict))
    late = lag(table, now)
    load = "" if table.load_state == "none" else table.load_state
    if table.load_state == "pending" and table.load_chunks is not None:
        load = "{} of {}".format(*table.load_chunks)
    return (
        table.source,
        verdict,
        age(late) if late else "-",
        f"{table.waiting_rows}",
        f"{table.backlog_files} ({size(table.backlog_bytes)})" if table.backlog_files else "0",
        f"{table.letters['open']}",
        load,
    )


def _cut(text: str, room: int) -> str:
    """Both ends of a text that is too long: names of one family differ at their ends."""
    if len(text) <= room:
        return text
    head = (room - 1) // 2
    return f"{text[:head]}…{text[len(text) - (room - 1 - head) :]}"


def status_text(status: MirrorStatus) -> str:
    """The status: the mirror, its tables with their four marks, and what needs somebody."""
    read = BoundOffsets.of(status.bound_offsets)
    bound = f"{read.places} files, partitions or tables, {read.total} bytes or offsets"
    last = "no batch yet" if status.last_commit is None else f"committed {age(status.last_commit_age)} ago"
    lines = [
        f"mirror {status.mirror}",
        f"  bound offsets     {bound}",
        f"  change log        batch {status.committed_batch}, {last}"
        + (f"; batch {status.open_batch} is open, the next run finishes it" if status.open_batch else ""),
        f"  open fragments    {status.open_fragments} wait for their pieces, or for a description of their structure",
        f"  last {status.recent_batches:>3} batches  {counts_text(status.recent)}",
    ]
    if status.horizon is not None:
        dropped = f"; batches up to {status.dropped_batch} are dropped from the log" if status.dropped_batch else ""
        lines.append(f"  horizon           {status.horizon:%Y-%m-%d %H:%M} UTC{dropped}")
    if status.at_risk:
        lines.append(f"  AT RISK           {shown(_at_risk(status))}; look at `dead-letters`")
    lines += [f"  AT RISK           {shown(what)}; {WAYS_OUT[code]}" for code, what in status.unread.items()]
    if status.ignored:
        lines.append(f"  ignored           {ignored_text(status.ignored)}")
    lines += [f"  note              {shown(note)}" for note in status.notes]
    if status.stop is not None:
        lines.append(f"  STOP              {shown(status.stop.code)}: {shown(status.stop.what)}")
    if status.inspection_failed:
        lines.append(f"  not inspected     {shown(status.inspection_failed)}")
    lines += ["", columns(_TABLE_HEADINGS, [_table_row(table, status.taken_at) for table in status.tables])]
    for table in status.tables:
        lines += _remarks(table, status.taken_at)
    return "\n".join(lines)


def _at_risk(status: MirrorStatus) -> str:
    counted = f"{status.homeless_rejects} dead letters tell no table: any table may lack a change"
    return counted if status.letters["known"] else f"at least {counted}: the log's were not counted yet"


_TABLE_HEADINGS = (
    "table",
    "verdict",
    "highest position",
    "complete position",
    "published batch",
    "last number",
    "waiting batches",
    "at the target",
    "rows out of date",
    "load",
)


def _table_row(table: TableStatus, now: datetime) -> tuple[object, ...]:
    backlog = "0"
    if table.backlog_files:
        backlog = f"{table.backlog_files} files, {table.backlog_bytes / _MB:.1f} MB"
        if table.backlog_oldest is not None:
            backlog += f", {age(now - table.backlog_oldest)}"
    load = table.load_state
    if load == "pending" and table.load_chunks is not None:
        load = "pending, {} of {} chunks".format(*table.load_chunks)
    return (
        table.source,
        table.verdict or "?",
        table.marks.highest_position or "-",
        # Said of every row of some sources, it would hide what differs.
        "-" if table.marks.complete_position == NO_COMPLETE_POSITION else table.marks.complete_position,
        table.marks.published_batch,
        table.confirmed,
        table.waiting_batches,
        backlog,
        table.stale_keys,
        load,
    )


def _remarks(table: TableStatus, now: datetime, *, with_stop: bool = True) -> list[str]:
    lines = []
    if table.verdict != "PASS" and (with_stop or table.verdict != "STOP"):
        since = f" since {table.since:%Y-%m-%d %H:%M} UTC" if table.since else ""
        said = verdict_words(None if table.verdict is None else Verdict(table.verdict))
        lines.append(f"{shown(table.source)}: {said}{since}: {table.code}: {shown(table.what)}")
        if table.way_out:
            lines.append(f"  do: {shown(table.way_out)}")
    lines += [
        f"{shown(table.source)}: LOSSES {shown(loss)}" for loss in table.losses if not loss.startswith(f"{table.code}:")
    ]
    if not table.losses and table.letters["open"]:
        lines.append(f"{shown(table.source)}: {table.letters['open']} dead letters are open, as many are tolerated")
    if table.open_intent:
        who = "goes on once the stop is lifted" if table.verdict == Verdict.STOP.value else "the next run finishes it"
        lines.append(f"{shown(table.source)}: unfinished, {who}: {table.open_intent}")
    if table.reset:
        lines.append(f"{shown(table.source)}: in a reset: {shown(table.reset)}")
    if table.waiting_rows and not table.waiting_batches:
        if table.verdict == Verdict.STOP.value:
            waiting = amount(table.waiting_rows, "change is waiting", "changes are waiting")
            lines.append(f"{shown(table.source)}: {waiting} until the stop is resolved")
        else:
            waiting = amount(table.waiting_rows, "change waits", "changes wait")
            lines.append(f"{shown(table.source)}: {waiting} for the end of their transactions")
    lines += [f"{shown(table.source)}: note: {shown(note)}" for note in table.notes]
    if table.proof is not None:
        lines.append(f"{shown(table.source)}: {_last_proof(table.proof, now)}")
    return ["", *lines] if lines else []


def _last_proof(proof: Mapping[str, Any], now: datetime) -> str:
    """``last proof 5 min ago at batch 7: EQUAL, 120 rows``."""
    ago = age(now - datetime.fromisoformat(proof["proved_at"]))
    counted = [f"{proof[kind]} {kind}" for kind in (*map(str, Kind), "unproven") if proof[kind]]
    found = [proof["verdict"], f"{proof['rows_source']} rows at the source", *counted]
    if proof["code"]:
        found = [proof["verdict"], proof["code"]]
    return f"last proof {ago} ago at batch {proof['published_batch']}: {', '.join(found)}"
