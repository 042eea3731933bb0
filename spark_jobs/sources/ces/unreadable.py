r"""Finds the table of an unreadable event, if the event's bytes still contain the table's name (C-95).

A dead letter without a table may concern every table of the mirror, so every table then counts as incomplete. A dead
letter with a table concerns only this table, or none if the table is not mirrored. So the name is searched in JSON that
is not an event, in cut or altered JSON, and at the beginning of Avro records. A name counts only if the bytes contain
no hint at a second table.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any, NamedTuple

DATUM_START = b"\x061.0"
"""The first bytes of a bare ``ChangeEvent``: the string "1.0" with its length."""
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


def table_in_body(body: bytes | None) -> NamedTable | None:
    """The only table that the bytes of a message name; None if they name no table or more than one."""
    if not body:
        return None
    try:
        return _of_json(body) or _of_text(body[:_MOST_BYTES]) or _of_avro(body)
    except (ValueError, RecursionError):
        return None


def table_in_data(data: object) -> NamedTable | None:
    """The only table in the member ``data`` of an event, or of the first piece of an event; None if unknown.

    Later pieces of a split event contain no table.
    """
    if isinstance(data, str):
        return _of_text(data.encode("utf-8", "replace")[:_MOST_BYTES])
    if not isinstance(data, bytes):
        return None
    return _of_text(data[:_MOST_BYTES]) or _of_record(data)


def _of_json(body: bytes) -> NamedTable | None:
    try:
        whole = json.loads(body)
    except (ValueError, RecursionError):
        return None
    data = _member(whole, "data")
    if data is None and isinstance(encoded := _member(whole, "data_base64"), str):
        return table_in_data(base64.b64decode(encoded))
    if isinstance(data, str):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError):
            return None
    source = _member(data, "eventsource")
    schema, tbl, db = (_member(source, name) for name in ("schema", "tbl", "db"))
    if not (isinstance(schema, str) and isinstance(tbl, str)):
        return None
    # A parser keeps the last one of duplicate names, so the text is searched, too.
    named, by_text = NamedTable(db if isinstance(db, str) else None, schema, tbl), _names(body[:_MOST_BYTES])
    return named if by_text is not None and by_text <= {named} else None


def _member(value: Any, name: str) -> Any:
    if not isinstance(value, dict):
        return None
    found = [member for key, member in value.items() if key.lower() == name]
    return found[0] if len(found) == 1 else None


def _of_text(body: bytes) -> NamedTable | None:
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


def _of_avro(body: bytes) -> NamedTable | None:
    start = 0 if body[:1] == DATUM_START[:1] else body.find(DATUM_START)
    if start < 0 or body.find(DATUM_START, start + 1) >= 0:
        return None
    from spark_jobs.sources.ces import avro  # with fastavro, which no run over JSON needs

    return table_in_data(avro.data_of_damaged(body[start:]))


def _of_record(data: bytes) -> NamedTable | None:
    from spark_jobs.sources.ces import avro

    names = avro.names_in_damaged(data)
    return None if names is None else NamedTable(*names)
