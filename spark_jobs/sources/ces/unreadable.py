r"""Finds the table of an unreadable event, if the event's text still contains the table's name (C-95).

A dead letter without a table may concern every table of the mirror, so every table then counts as incomplete. A dead
letter with a table concerns only this table, or none if the table is not mirrored. So the name is searched in JSON that
is not an event, and in cut or altered JSON. A name counts only if the text contains no hint at a second table.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

_MOST_BYTES = 4 * 2**20
"""An event begins with its table, so only this much of a longer one is searched."""

_BLANK = rb"(?:\s|\\+[nrt])*"
_DEEPEST = 1
"""The maximum of backslashes before the quotes of an event's payload; values in its images have more."""
_SOURCE = re.compile(rb'(?<!\\)(\\*)"event[sS]ource\1"' + _BLANK + rb":" + _BLANK + rb"\{")
_ENVELOPE = re.compile(rb'"specversion\\*"')


class NamedTable(NamedTuple):
    """The table that an event names; *db* is None if the database's name is not readable."""

    db: str | None
    schema: str
    tbl: str


def table_named_in(content: object) -> NamedTable | None:
    """The only table that a text names: a message, or the member ``data`` of an event or of its first piece.

    None if *content* names no table or more than one, as the later pieces of a split event and records of Avro do.
    """
    text = content.encode("utf-8", "replace") if isinstance(content, str) else content
    if not isinstance(text, bytes):
        return None
    body = text[:_MOST_BYTES]
    found = _names(body)
    has_other = len(_ENVELOPE.findall(body)) > len(_SOURCE.findall(body))
    return found.pop() if found and len(found) == 1 and not has_other else None


def _names(body: bytes) -> set[NamedTable] | None:
    found: set[NamedTable] = set()
    sources = [source for source in _SOURCE.finditer(body) if len(source[1]) <= _DEEPEST]
    for number, source in enumerate(sources):
        escape, end = source[1], sources[number + 1].start() if number + 1 < len(sources) else len(body)
        columns = re.compile(re.escape(escape) + rb'"(?:cols|pkkey|transaction)' + re.escape(escape) + rb'"')
        stop = columns.search(body, source.end(), end)
        names = {name: _values(body, name, escape, source.end(), end) for name in (b"db", b"schema", b"tbl")}
        if stop is not None:
            # Columns and keys contain names and values of their own, so only what precedes them counts, if it is
            # complete.
            before = {name: _values(body, name, escape, source.end(), stop.start()) for name in names}
            names = before if before[b"schema"] and before[b"tbl"] else names
        if len(names[b"schema"]) != 1 or len(names[b"tbl"]) != 1 or len(names[b"db"]) > 1:
            return None
        found.add(NamedTable(next(iter(names[b"db"]), None), names[b"schema"].pop(), names[b"tbl"].pop()))
    return found


def _values(body: bytes, name: bytes, escape: bytes, start: int, end: int) -> set[str]:
    quote = re.escape(escape) + rb'"'
    # Inside a name there are more backslashes before a quote than before the quotes around it.
    text = rb'((?:[^"\\]|\\+(?!["\\])|\\{%d,}")*?)' % (len(escape) + 1)
    pattern = quote + name + quote + _BLANK + rb":" + _BLANK + quote + text + rb"(?<!\\)" + quote
    return {_unescaped(match[1], escape) for match in re.compile(pattern, re.DOTALL).finditer(body, start, end)}


def _unescaped(text: bytes, escape: bytes) -> str:
    """A name as at the source; each level of JSON around it escaped it once."""
    found = text.decode("utf-8", "replace")
    for _ in range((len(escape) + 1).bit_length()):
        try:
            found = json.loads(f'"{found}"', strict=False)
        except ValueError:
            break
    return found
