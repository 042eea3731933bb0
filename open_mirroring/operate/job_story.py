"""Describes a job's result in a few sentences, for the job's output in Airflow and on the command line.

The result is the report, a JSON document that the job writes (:mod:`open_mirroring.operate.job_result`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from open_mirroring.codes import CODES
from open_mirroring.operate.words import alike, amount, shown, verdict_counts
from open_mirroring.protocols.verdicts import Verdict

SHOWN = 20
"""At most so many tables or findings are listed; the others are only counted."""

Report = Mapping[str, Any]


def story(job: str, report: Report) -> list[str]:
    """Return the result of a job in sentences: what was done, then each table on hold, stopped or with losses.

    The sentence about a table ends with the fix.
    """
    describe = _STORIES.get(job)
    done = [] if describe is None else [*describe(report)]
    return [shown(line) for line in [*done, *_left(report)]]


def _extract(report: Report) -> Iterator[str]:
    if report.get("batch") is None:
        yield "Read: nothing new at the source."
    else:
        yield f"Read: batch {report['batch']} of the change log, {counted(report.get('counts') or {})}."
    if waiting := report.get("waiting_files"):
        yield f"{amount(len(waiting), 'source file')} not ready yet, read once complete: {_some(waiting)}."
    if joined := report.get("joined"):
        yield from (f"New table: {table}: {what}" for table, what in sorted(joined.items()))
    if gone := report.get("gone"):
        yield f"The source no longer has what was to be read again: {_some(gone)}."


def _publish(report: Report) -> Iterator[str]:
    files = report.get("files") or {}
    rows = report.get("rows") or {}
    if not files and not rows:
        yield "Published: nothing, the target has all that was logged and may be published."
        return
    total = f", {amount(sum(rows.values()), 'row')}" if rows else ""
    yield f"Published: {amount(sum(map(len, files.values())), 'file')} of {amount(len(files), 'table')}{total}."
    yield from _per_table({**rows, **files}, lambda table: _files_of(files.get(table, ()), rows.get(table)))


def _files_of(numbers: Sequence[int], rows: int | None) -> str:
    said = []
    if numbers:
        span = str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]} to {numbers[-1]}"
        said.append(f"{'number' if len(numbers) == 1 else 'numbers'} {span}")
    if rows is not None:
        said.append(amount(rows, "row"))
    return ", ".join(said)


def _reload(report: Report) -> Iterator[str]:
    if waits_for := report.get("waits_for"):
        yield f"The reset of {report['table']} ({report.get('stage') or 'begun'}) waits for {waits_for}."
    elif stage := report.get("stage"):
        yield f"The reset of {report['table']} is recorded ({stage}); nothing is deleted yet."
    else:
        yield f"{report['table']} is built from scratch: its generation is {report.get('generation')}."


def _replay(report: Report) -> Iterator[str]:
    if report.get("batch") is None and not report.get("replayed"):
        yield "No dead letter was decoded."
    else:
        yield f"Decoded again: {amount(report.get('replayed') or 0, 'dead letter')}, in batch {report.get('batch')}."
        yield f"They hold {counted(report.get('counts') or {})}; the next run publishes what is still the newest."
    if left := report.get("left"):
        yield f"Still open, for today's decoder and settings do not read them either: {_by_code(left)}."
    if missing := report.get("no_message"):
        yield f"Of these the log has no message; the source has to deliver them again: {_by_code(missing)}."
    if healed := report.get("healed"):
        yield f"Nothing is missing any more in {_some(healed)}: lift the stop, `open-mirroring resume`."


def _prove(report: Report) -> Iterator[str]:
    tables = report.get("tables") or {}
    verdicts = [one["verdict"] for one in tables.values()]
    found = {"EQUAL": "equal", "DIFFERENT": "not equal", "UNPROVEN": "not proved"}
    said = [f"{verdicts.count(code)} {words}" for code, words in found.items() if code in verdicts]
    yield f"Compared with the source: {amount(len(tables), 'table')}: {', '.join(said) or 'none'}."
    odd = {source: one for source, one in tables.items() if one["verdict"] != "EQUAL"}
    yield from _per_table(odd, lambda table: found.get(odd[table]["verdict"], odd[table]["verdict"]))
    routine = {source: one["verified"]["text"] for source, one in tables.items() if one.get("verified")}
    yield from _per_table(routine, lambda table: routine[table])


def _correct(report: Report) -> Iterator[str]:
    if report.get("waits"):
        yield f"Not corrected yet: {report['waits']}."
    else:
        yield f"Logged again: the rows of {amount(report.get('keys') or 0, 'key')}; the next step publishes them."


def _repair(report: Report) -> Iterator[str]:
    yield f"Number {report['number']} is published again, {amount(report.get('rows') or 0, 'row')}."


def _maintain(report: Report) -> Iterator[str]:
    horizon = report.get("horizon")
    if horizon is None:
        yield "There is no horizon yet: nothing may be dropped."
    else:
        yield f"The horizon is {str(horizon)[:16].replace('T', ' ')} UTC, after batch {report.get('horizon_batch')}."
    if dropped := report.get("dropped_batch"):
        yield f"The change log keeps what came after batch {dropped}."
    removed = (report.get("vacuumed") or 0, report.get("swept") or 0, report.get("forgotten") or 0)
    log, zone = amount(removed[0], "file") + " of the log", amount(removed[1], "staged object")
    yield f"Removed: {log}, {zone}, {amount(removed[2], 'entry', 'entries')} of the ledger."
    yield from (f"The horizon waits: {what}." for what in report.get("held_by") or ())


def _reconcile(report: Report) -> Iterator[str]:
    verdicts = Counter[Verdict | None](map(Verdict, (report.get("verdicts") or {}).values()))
    read = f", {amount(sum(report['files'].values()), 'file')} read" if report.get("files") else ""
    yield f"Checked: {amount(verdicts.total(), 'table')}{read}: {verdict_counts(verdicts)}."
    findings = report.get("findings") or ()
    for table, code, what, _ in findings[:SHOWN]:
        yield f"{table or 'The change log'}: {code}: {what}"
    if len(findings) > SHOWN:
        yield f"and {len(findings) - SHOWN} findings more; `open-mirroring reconcile --json` lists all with evidence"


def _create(report: Report) -> Iterator[str]:
    yield f"The mirrored database {report['database']} in workspace {report['workspace']}: {report['state']}."
    rows = report.get("rows") or {}
    yield f"First rows: {amount(sum(rows.values()), 'row')} of {amount(len(rows), 'table')}."
    yield from _per_table(rows, lambda table: amount(rows[table], "row"))


_STORIES: Mapping[str, Callable[[Report], Iterator[str]]] = {
    "create": _create,
    "extract_changes": _extract,
    "publish_changes": _publish,
    "initial_load": _publish,
    "reload_table": _reload,
    "replay_dead_letters": _replay,
    "prove": _prove,
    "corrections": _correct,
    "repairs": _repair,
    "maintain": _maintain,
    "reconcile_sequence": _reconcile,
}


def _left(report: Report) -> Iterator[str]:
    """The tables on hold, stopped or with losses, with the next step, and notes."""
    for tables, why in alike(sorted((report.get("held") or {}).items())):
        yield f"On hold: {tables}: {why}"
    for kind in ("stopped", "losses"):
        for tables, why in alike(sorted((report.get(kind) or {}).items())):
            line, code = f"{kind.upper()}: {tables}: {why}", CODES.get(why.partition(":")[0])
            # The text of an error has its next step already.
            has_fix = code is None or code.next_step in line or ". Next step: " in line
            yield line if has_fix or code is None else f"{line}. Next step: {code.next_step}"
    for table, notes in sorted((report.get("notes") or {}).items()):
        yield from (f"Note: {table}: {note}" for note in notes)


def counted(counts: Mapping[str, int]) -> str:
    """Return a count of messages with its parts, such as ``12 messages (10 changes, 2 ignored)``."""
    kinds = [(name.replace("_", " "), count) for name, count in counts.items() if count and name != "messages"]
    parts = [amount(count, name.removesuffix("s"), name) for name, count in kinds]
    if "messages" not in counts:
        return ", ".join(parts) or "no messages"
    head = amount(counts["messages"], "message")
    return f"{head} ({', '.join(parts)})" if parts else head


def _per_table(tables: Mapping[str, Any], describe: Callable[[str], str]) -> Iterator[str]:
    for table in sorted(tables)[:SHOWN]:
        yield f"  {table}: {describe(table)}"
    if len(tables) > SHOWN:
        yield f"  and {amount(len(tables) - SHOWN, 'table')} more"


def _by_code(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {code}" for code, count in sorted(counts.items()))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(map(str, names[:3])) + more
