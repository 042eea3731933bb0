r"""The rows of CES messages that are like a template: unescaped and proven, those of all tables by one query.

Rows reach it as they stand in the message, texts in a text in a text: ``\"{\\\"id\\\":\\\"7\\\"}\"``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.change_log_schema import CHANGE, RawMessage
from spark_jobs.sources.ces_changes import SourceTable, bucket
from spark_jobs.sources.ces_rows import CUT_LENGTH, ColumnList
from spark_jobs.sources.ces_templates import Spans, Template
from spark_jobs.sources.decoded import Damage
from spark_jobs.sources.sql_server_type_text import read_type
from spark_jobs.sources.text_buffer import Places, TextBuffer

_MOST_KEYS, _MOST_COMPARED = 3, 3
_SURE_LENGTH = {"smallint": 4, "int": 9, "bigint": 18}
"""Whole numbers of so many characters are within the range of their type."""
_TEXT_TYPES = ("char", "varchar", "nchar", "nvarchar", "sysname")
_VALUE = r'(?:null|"(?:[^"\\\x00-\x1f]|\\["\\bfnrt])*")'
_NAME = re.compile(r"[^\W\d][\w $@#-]*")


class _Key(NamedTuple):
    """A key column: its name, what stands before its value, and what proves a text to be canonical as it stands."""

    name: str | None
    begin: str | None
    is_whole_number: bool
    longest: int


_NO_KEY = _Key(None, None, False, 0)


class RowForm(NamedTuple):
    """What rows of one table and column list must look like.

    Args:
        table: the table at the source.
        cols: the column list as the log has it.
        pattern: of a whole row in the log's spelling.
        keys: the key columns.
        compared: of some columns that often stay as they are the texts at which they and the next one begin.
    """

    table: str
    cols: str
    pattern: str
    keys: tuple[_Key, ...]
    compared: tuple[tuple[str, str], ...]


class Match(NamedTuple):
    """Messages (indexes) of one form that are like a template, and where their variable places are."""

    form: RowForm
    template: Template
    chosen: Places
    spans: Spans


def form_of(table: SourceTable, columns: ColumnList, old: str | None, row: str | None) -> RowForm | None:
    """The form of a table's rows, compared as a sample's rows suggest; None where only the exact decoder can tell.

    Raises:
        TerminalError: ``TYPE_UNKNOWN``.
    """
    names = columns.names
    if columns.kept != names or not all(map(_NAME.fullmatch, names)) or not set(table.key) <= set(names):
        return None
    keys = [_key(name, columns.types[name]) for name in table.key]
    if None in keys or len(keys) > _MOST_KEYS:
        return None
    others = [name for name in names if name not in table.key]
    before, after = (json.loads(text) if text else {} for text in (old, row))
    others.sort(key=lambda name: before.get(name, "") != after.get(name))
    begins = {name: f'{"," if at else "{"}"{name}":' for at, name in enumerate(names)}
    ends = dict(zip(names, [*list(begins.values())[1:], ""], strict=True))
    compared = tuple((begins[name], ends[name]) for name in others[:_MOST_COMPARED])
    pattern = ",".join(f'"{_literal(name)}":{_VALUE}' for name in names)
    return RowForm(table.source, columns.text, rf"^\{{{pattern}\}}$", tuple(key for key in keys if key), compared)


def read_rows(
    buffer: TextBuffer, matches: Sequence[Match], messages: Sequence[RawMessage | Damage]
) -> tuple[pa.Table, Places]:
    """The log rows of those messages that are proven, and which these are."""
    db = _connection()
    width = max(len(match.form.keys) for match in matches)
    db.register("pieces", pa.concat_tables([_pieces(buffer, match, width) for match in matches]).unify_dictionaries())
    try:
        read = db.sql(_sql("{}", width)).to_arrow_table()
    except duckdb.Error:  # some piece is no text in a text: slower, and it alone is not proven
        read = db.sql(_sql("TRY({})", width)).to_arrow_table()
    starts = np.cumsum([0, *(len(match.chosen) for match in matches)])
    forms = pa.array(np.repeat(np.arange(len(matches), dtype=np.int32), np.diff(starts)))
    proven = pa.chunked_array(
        [_are_rows(read.slice(start, len(match.chosen)), match) for start, match in zip(starts, matches, strict=False)]
    )
    deleted = pc.equal(read["op"], "D")
    read = read.append_column("row", _nulled(read["now"], deleted))
    read = read.append_column("before", _nulled(read["was"], pc.invert(deleted)))
    read, forms = read.filter(proven), forms.filter(proven.combine_chunks())
    taken = np.concatenate([match.chosen for match in matches])[read["index"].to_numpy()]
    table = pa.table(
        {
            "kind": pa.DictionaryArray.from_arrays(np.zeros(len(taken), np.int32), [CHANGE]),
            "tbl": pa.DictionaryArray.from_arrays(forms, [match.form.table for match in matches]),
            "bucket": pa.array([bucket(key) for key in read["key"].to_pylist()], pa.int16()),
            "epoch": read["epoch"].combine_chunks().dictionary_encode(),
            "op": read["op"].combine_chunks().dictionary_encode(),
            "cols": pa.DictionaryArray.from_arrays(forms, [match.form.cols for match in matches]),
            "origin": pa.array([messages[at].origin for at in taken], pa.string()).dictionary_encode(),
            "place": pa.array([messages[at].place for at in taken], pa.int64()),
            **{name: read[name] for name in ("pos", "key", "whole", "row", "before")},
        }
    )
    return table, taken


def _pieces(buffer: TextBuffer, match: Match, width: int) -> pa.Table:
    form, template, chosen, spans = match
    rows = len(chosen)
    pieces = {name: buffer.views(*spans[name]) for name in ("epoch", "lsn", "sequence", "old", "current")}
    pieces["op"] = _constant(template.operation, rows)
    for at in range(width):
        key = form.keys[at] if at < len(form.keys) else _NO_KEY
        values = pa.nulls(rows, pa.string_view())
        if key.name is not None:
            values = buffer.views(*spans[f"key{template.keys.index(key.name)}"])
        whole_number, longest = pa.repeat(key.is_whole_number, rows), pa.repeat(key.longest, rows)
        pieces |= {f"k{at}": values, f"begin{at}": _constant(key.begin, rows)}
        pieces |= {f"whole_number{at}": whole_number, f"longest{at}": longest}
    for at in range(_MOST_COMPARED):
        begin, end = form.compared[at] if at < len(form.compared) else (None, None)
        pieces |= {f"from{at}": _constant(begin, rows), f"to{at}": _constant(end, rows)}
    return pa.table(pieces)


def _nulled(texts: pa.ChunkedArray, nulls: pa.ChunkedArray) -> pa.Array:
    """The texts with some made NULL, without copying one."""
    array = texts.combine_chunks()
    valid = pc.invert(nulls.combine_chunks())
    _, offsets, content = array.buffers()
    return pa.StringArray.from_buffers(len(array), offsets, content, valid.buffers()[1], -1, array.offset)


def _are_rows(read: pa.Table, match: Match) -> pa.Array:
    """Whether the query proved all but the form of the rows, and that form."""
    proven = read["proven"].combine_chunks()
    for name in ("now", "was"):
        texts = read[name].combine_chunks()
        is_row = pc.or_(pc.equal(texts, "{}"), pc.match_substring_regex(texts, match.form.pattern))
        proven = pc.and_(proven, is_row)
    return proven.fill_null(False)


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One connection for the worker process: opening one costs more than a query."""
    return duckdb.connect(config={"threads": 1})


def _constant(value: str | None, rows: int) -> pa.DictionaryArray:
    codes = pa.array(np.zeros(rows, dtype=np.int32)) if value is not None else pa.nulls(rows, pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array([value or ""]))


def _sql(guarded: str, width: int) -> str:
    """The query over ``pieces`` of messages with up to *width* key columns; *guarded* is put around what may fail."""

    def unescaped(piece: str) -> str:
        text = guarded.format(f"""('"' || {piece} || '"')->>'$'""")
        return guarded.format(f"({text})->>'$'")

    keys = range(width)
    key = " || ".join(["'[\"' || k0", *(f"coalesce('\",\"' || k{at}, '')" for at in keys[1:]), "'\"]'"])
    in_row = [f"coalesce(contains({{row}}, begin{at} || k{at} || '\"'), k{at} IS NULL)" for at in keys]
    has_key = " AND ".join(in_row) or "true"
    canonical = [
        f"coalesce(strlen(k{at}) <= longest{at}, true)"
        f" AND CASE WHEN whole_number{at} THEN regexp_full_match(k{at}, '0|-?[1-9][0-9]*') ELSE true END"
        for at in keys
    ]
    # A name in plain quotes can only be a column's: inside a value quotes are escaped.
    same = [
        f"contains(was, now[instr(now, from{at}):CASE to{at} WHEN '' THEN strlen(now) ELSE instr(now, to{at}) END])"
        for at in range(_MOST_COMPARED)
    ]
    return rf"""
        WITH read AS (
            SELECT row_number() OVER () - 1 AS index, * EXCLUDE (old, current),
                   {unescaped("current")} AS now, {unescaped("old")} AS was
            FROM pieces),
        spelled AS (SELECT * REPLACE ({_as_logged("now")} AS now, {_as_logged("was")} AS was) FROM read),
        judged AS (
            SELECT *, CASE WHEN op <> 'UPD' THEN true WHEN was = '{{}}' THEN false
                           WHEN {" OR ".join(same)} THEN true END AS whole
            FROM spelled)
        SELECT index, lower(epoch) AS epoch, op[1] AS op, now, was, whole, {key if width else "NULL::VARCHAR"} AS key,
               lsn || ':' || sequence || CASE op WHEN 'DEL' THEN ':0' ELSE ':1' END AS pos,
               whole IS NOT NULL AND strlen(now) < {CUT_LENGTH // 4} AND strlen(was) < {CUT_LENGTH // 4}
               AND CASE op WHEN 'INS' THEN was = '{{}}' WHEN 'DEL' THEN now = '{{}}' ELSE true END
               AND CASE op WHEN 'DEL' THEN true ELSE now <> '{{}}' AND {has_key.format(row="now")} END
               AND CASE WHEN op = 'DEL' OR was <> '{{}}' THEN was <> '{{}}' AND {has_key.format(row="was")} ELSE true END
               AND {" AND ".join(canonical) or "true"} AS proven
        FROM judged"""


def _as_logged(text: str) -> str:
    """Without the escapes of slashes, which the source writes; where backslashes are escaped, too, nobody can tell."""
    plain = rf"replace({text}, '\/', '/')"
    return rf"CASE WHEN contains({text}, '\/') AND NOT contains({text}, '\\') THEN {plain} ELSE {text} END"


def _key(name: str, sql_type: str) -> _Key | None:
    """How to prove a key text canonical (G-02); None for types whose texts have to be read first."""
    kind, begin = read_type(sql_type), f'"{name}":"'
    if kind.name in _SURE_LENGTH:
        return _Key(name, begin, True, _SURE_LENGTH[kind.name])
    if kind.name in _TEXT_TYPES:
        declared = 128 if kind.name == "sysname" else kind.length or -1
        return _Key(name, begin, False, declared if declared > 0 else CUT_LENGTH)
    return None


def _literal(name: str) -> str:
    return name.replace("$", r"\$")
