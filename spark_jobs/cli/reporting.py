"""Formats the results of commands as text."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import TextWrapper
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from open_mirroring.operate.job_story import story
from open_mirroring.operate.words import alike, amount, shown, to_copy

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from open_mirroring.ledger.dead_letters import LetterCounts
    from spark_jobs.cli.tick import Ticked
    from spark_jobs.dead_letters.listing import ListedLetters

WIDTH = 100
"""The width of text in a terminal, in characters."""
_SHOWN_KEYS = 10
_IGNORED_SHOWN = 10


def json_text(document: object) -> str:
    """A result as JSON; values of types that JSON does not have are written as strings."""
    return json.dumps(document, indent=2, ensure_ascii=False, default=str)


def request_of(arguments: argparse.Namespace) -> str:
    """The request id of the command line, or a new id, which is printed so that a retry can use the same id."""
    if arguments.request is not None:
        return str(arguments.request)
    request = uuid4().hex
    print(f"request {request}: to ask for it again, add --request {request}", file=sys.stderr)
    return request


def columns(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows as aligned columns under *headings*; columns of numbers are aligned to the right."""
    cells = [[shown(cell) for cell in row] for row in rows]
    numbers = [[cell.lstrip("-").replace(",", "").isdigit() for cell in row] for row in cells]
    right = [bool(cells) and all(row[at] for row in numbers) for at in range(len(headings))]
    widths = [max(len(row[at]) for row in [list(headings), *cells]) for at in range(len(headings))]
    lines = [
        "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)).rstrip()
        for row in [list(headings), *cells]
    ]
    return "\n".join(lines)


def wrapped(text: str, indent: int = 2) -> str:
    """A string with unprintable characters escaped; wrapped in a terminal, and one line in a file or pipe."""
    width = WIDTH if sys.stdout.isatty() else sys.maxsize
    wrapper = TextWrapper(width, " " * indent, " " * (indent + 2), break_long_words=False, break_on_hyphens=False)
    return wrapper.fill(shown(text))


def grouped(said: Iterable[tuple[str, str]], indent: int = 2) -> Iterator[str]:
    """Yield one line for each different message: all names that have the message, then the message.

    *said* are pairs of name and message.
    """
    yield from (wrapped(f"{names}: {text}", indent) for names, text in alike(said))


def ignored_text(tables: Mapping[str, Any]) -> str:
    """The tables that are not mirrored, with their message counts, the largest first; empty without such tables."""
    busiest = sorted(tables.items(), key=lambda item: (-item[1]["messages"], item[0]))
    named = [
        f"{shown(name)} {amount(one['messages'], 'message')} (since {str(one['since'])[:16].replace('T', ' ')} UTC)"
        for name, one in busiest[:_IGNORED_SHOWN]
    ]
    more = [f"and {len(busiest) - _IGNORED_SHOWN} other tables"] if len(busiest) > _IGNORED_SHOWN else []
    return ", ".join([*named, *more])


def tick_text(ticked: Ticked, file: Path) -> str:
    """The result of a tick (one run): one sentence, then what was read and published, then what needs attention."""
    done, read = ticked.document(), story("extract_changes", ticked.read._asdict())
    if ticked.failed is not None:
        read[0] = f"Read: FAILED, {shown(ticked.failed)}"
    left = {name: done.get(name) for name in ("files", "held", "stopped", "losses", "notes")}
    lines = [_answer(ticked), *read, *story("publish_changes", left), *_tolerated(ticked.loss_report, ticked.losses)]
    lines += [f"Awaited: {what}" for what in ticked.awaited]
    lines = [to_copy(text, file) for text in lines]
    return "\n".join(wrapped(text.lstrip(), len(text) - len(text.lstrip())) for text in lines)


def _answer(ticked: Ticked) -> str:
    said = [
        f"{amount(len(tables), 'table')} {state}"
        for tables, state in ((ticked.stopped, "stopped"), (ticked.losses, "with losses"), (ticked.held, "waiting"))
        if tables
    ]
    if ticked.failed is not None:
        said.insert(0, "reading failed")
    if ticked.did_nothing and not said and not ticked.awaited:
        return "Nothing to do: the target has all that the source has shown."
    return f"Needs attention: {', '.join(said)}." if ticked.exit else f"Done{': ' if said else ''}{', '.join(said)}."


def proved_text(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The result of a proof: one sentence, a line per table, then the differences and the tables not proved."""
    headings = ("table", "verdict", "rows", "equal", "missing", "extra", "different", "doubled", "unproven", "batch")
    rows = [
        (source, one["verdict"], one["rows_source"], *(one[name] for name in headings[3:9]), one["published_batch"])
        for source, one in tables.items()
    ]
    equal = sum(one["verdict"] == "EQUAL" for one in tables.values())
    is_all = all(one["part"] == "all rows" for one in tables.values())
    said = "proved equal to the source" if is_all else "equal to the source in what was compared"
    lines = [f"{equal} of {amount(len(tables), 'table')} {said}.", "", columns(headings, rows), ""]
    lines += grouped(((source, reason) for source, one in tables.items() for reason in one["reasons"]), 0)
    routine = ((source, one) for source, one in tables.items() if one["verified"])
    lines += grouped(((source, f"compared: {one['part']}; {one['verified']['text']}") for source, one in routine), 0)
    for source, one in tables.items():
        if one["columns"]:
            counted = ", ".join(f"{shown(name)} in {count}" for name, count in one["columns"].items())
            lines.append(wrapped(f"{source}: columns that differ: {counted} rows", 0))
        for key in one["keys"][:_SHOWN_KEYS]:
            where = f": {', '.join(key['columns'])}" if key["columns"] else ""
            lines.append(wrapped(f"{key['kind']} {key['key']}{where}"))
        if len(one["keys"]) > _SHOWN_KEYS:
            lines.append("  there are more: --json, or --repair-plan NEWFILE")
    return "\n".join(lines).rstrip()


def dead_letters_text(listed: ListedLetters, counts: LetterCounts, file: Path) -> str:
    """The number of open dead letters by table, then the dead letters grouped by code, newest first, with the fix."""
    if not listed.letters:
        return "no dead letters"
    concerned = [*counts.tables.items(), ("(no table)", counts.without_table)]
    per_table = [f"{shown(source)} {letters.count}" for source, letters in concerned if letters.count]
    foreign = f"; {counts.foreign} are about tables that are not mirrored" if counts.foreign else ""
    lines = [wrapped(f"open: {counts.count}" + (f" ({', '.join(per_table)})" if per_table else "") + foreign, 0)]
    place = "batch {0.batch}, {0.origin}:{0.place} ({0.kind})".format
    for code, next_step in {letter.code: letter.next_step for letter in listed.letters}.items():
        found = [letter for letter in listed.letters if letter.code == code]
        lines += ["", code, *grouped((place(one), f"{one.table or '(no table)'}: {one.reason}") for one in found)]
        lines.append(wrapped(f"Fix: {to_copy(next_step, file)}"))
    return "\n".join([*lines, "There are more: raise --limit."] if listed.more else lines)


def _tolerated(report: Mapping[str, Any], losses: Mapping[str, str]) -> list[str]:
    """Lines about what is open but no loss: tolerated dead letters and ignored tables."""
    letters = report.get("dead_letters", {}).get("tables", {})
    lines = [
        f"Tolerated: {shown(table)}: {amount(found['open'], 'dead letter is', 'dead letters are')} open"
        for table, found in letters.items()
        if table not in losses
    ]
    return lines + ([f"Ignored: {text}"] if (text := ignored_text(report.get("ignored", {}))) else [])
