r"""Finds the table of an unreadable event, if the event's bytes still contain the table's name (C-95).

A dead letter without a table may concern every table of the mirror, so every table then counts as incomplete. A dead
letter with a table concerns only this table, or none if the table is not mirrored. So the name is searched in JSON that
is not an event, in cut or altered JSON, and at the start of Avro records. A name counts only if the bytes contain no
hint at a second table.
"""

from __future__ import annotations

import base64
import json
import re
from typing import NamedTuple

DATUM_START = b"\x061.0"
"""The first bytes of a bare ``ChangeEvent``: the string "1.0" with its length."""
_MOST_BYTES = 4 * 2**20
"""An event begins with its table, so only this much of a longer one is searched."""

_BLANK = rb"(?:\s|\\+[nrt])*"
_DEEPEST = 1
"""The maximum of backslashes before the quotes of an event's payload; values in its images have more."""
_SOURCE = re.compile(rb'(?<!\\)(\\*)"event[sS]ource\1"' + _BLANK + rb":" + _BLANK + rb"\{")
_ENVELOPE = re.compile(rb'"specversion\\*"')
_VALUE = re.compile(rb'"value"\s*:\s*"([A-Za-z0-9+/]{40,})')


class NamedTable(NamedTuple):
    """The table that an event names; *db* is None if the database's name is not readable."""

    db: str | None
    schema: str
    tbl: str


def table_in_line(line: bytes | None) -> NamedTable | None:
    """The table named in a line of JSON that wraps a message as escaped text or base64; None if unknown."""
    match = _VALUE.search(line or b"")
    if match is None:
        return table_named_in(line, deepest=3)
    return table_named_in(base64.b64decode(match[1][: len(match[1]) // 4 * 4]))


def table_named_in(message: bytes | None, deepest: int = _DEEPEST) -> NamedTable | None:
    """The table that the text or the Avro record of a message names.

    None if the message names no table, as the later pieces of a split event, or contains more than one event.
    """
    body = (message or b"")[:_MOST_BYTES]
    sources = [source for source in _SOURCE.finditer(body) if len(source[1]) <= deepest]
    if not sources and body.count(DATUM_START) == 1:
        from spark_jobs.sources.ces import avro  # with fastavro, which no run over JSON needs

        names = avro.names_in_damaged(body[body.find(DATUM_START) :])
        return None if names is None else NamedTable(*names)
    if len(sources) != 1 or len(_ENVELOPE.findall(body)) > len(_SOURCE.findall(body)):
        return None
    escape, start = sources[0][1], sources[0].end()
    # Columns and keys contain names and values of their own, so only what precedes them counts, if it is complete.
    columns = re.compile(re.escape(escape) + rb'"(?:cols|pkkey|transaction)' + re.escape(escape) + rb'"')
    stop = columns.search(body, start)
    parts = (b"db", b"schema", b"tbl")
    end = len(body) if stop is None else stop.start()
    db, schema, tbl = (_values(body, part, escape, start, end) for part in parts)
    if not (schema and tbl):
        db, schema, tbl = (_values(body, part, escape, start, len(body)) for part in parts)
    if len(schema) != 1 or len(tbl) != 1 or len(db) > 1:
        return None
    return NamedTable(next(iter(db), None), schema.pop(), tbl.pop())


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
