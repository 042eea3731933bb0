r"""The rows of CES messages that are like a template: unescaped and proven, those of all tables by one query.

Rows reach it as they stand in the message, texts in a text in a text: ``\"{\\\"id\\\":\\\"7\\\"}\"``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple
from zlib import crc32

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.log_position import KEY_BUCKETS
from spark_jobs.change_log_schema import CHANGE
from spark_jobs.sources.ces_changes import SourceTable
from spark_jobs.sources.ces_rows import CUT_LENGTH, ColumnList
from spark_jobs.sources.ces_templates import Spans, Template
from spark_jobs.sources.message_block import MessageBlock
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

    name: str
    begin: str
    is_number: bool
    longest: int


_NO_KEY = _Key("", "", False, 0)


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


def read_rows(block: MessageBlock, matches: Sequence[Match]) -> tuple[pa.Table, Places]:
    """The log rows of those messages that are proven, and which these are."""
    matches = sorted(matches, key=lambda match: match.form)
    width = max(len(match.form.keys) for match in matches)
    db = _connection()
    db.register("pieces", _pieces(block.buffer, matches, width))
    try:
        read = db.sql(_sql("{}", width)).to_arrow_table().combine_chunks()
    except duckdb.Error:  # some piece is no text in a text: slower, and it alone is not proven
        read = db.sql(_sql("TRY({})", width)).to_arrow_table().combine_chunks()
    forms = sorted({match.form for match in matches})
    form = np.repeat([forms.index(match.form) for match in matches], [len(match.chosen) for match in matches])
    bounds = np.searchsorted(form, np.arange(len(forms) + 1)).tolist()
    are_rows = [_are_rows(read.slice(low, high - low), forms[at]) for at, (low, high) in enumerate(pairwise(bounds))]
    proven = pc.and_(read["proven"], pa.chunked_array(are_rows)).combine_chunks()
    deleted = pc.equal(read["op"], "D").combine_chunks()
    texts = {"row": _nulled(read["now"], pc.invert(deleted)), "before": _nulled(read["was"], deleted)}
    read = pa.table({**{name: read[name] for name in ("epoch", "op", "pos", "key", "whole")}, **texts}).filter(proven)
    is_proven = proven.to_numpy(zero_copy_only=False)
    taken, form = np.concatenate([match.chosen for match in matches])[is_proven], form[is_proven]
    table = pa.table(
        {
            "kind": _coded(np.zeros(len(taken), np.int32), [CHANGE]),
            "tbl": _coded(form, [one.table for one in forms]),
            "bucket": _buckets(read["key"]),
            "cols": _coded(form, [one.cols for one in forms]),
            "origin": pa.array([block.origins[at] for at in taken.tolist()], pa.string()).dictionary_encode(),
            "place": pa.array(block.places[taken]),
            "epoch": read["epoch"].combine_chunks().dictionary_encode(),
            "op": read["op"].combine_chunks().dictionary_encode(),
            **{name: read[name] for name in ("pos", "key", "whole", "row", "before")},
        }
    )
    return table, taken


def _pieces(buffer: TextBuffer, matches: Sequence[Match], width: int) -> pa.Table:
    counts = [len(match.chosen) for match in matches]
    codes = np.repeat(np.arange(len(matches), dtype=np.int32), counts)
    nowhere = [(np.zeros(count, dtype=np.int64),) * 2 for count in counts]

    def views(spans: Sequence[tuple[Places, Places]]) -> pa.Array:
        return buffer.views(*(np.concatenate(bounds) for bounds in zip(*spans, strict=True)))

    def each(values: Sequence[str | int | bool]) -> pa.Array:
        return pa.array(values).take(pa.array(codes)) if not isinstance(values[0], str) else _coded(codes, values)

    pieces = {
        name: views([match.spans[name] for match in matches]) for name in ("epoch", "lsn", "sequence", "old", "current")
    }
    pieces["op"] = each([match.template.operation for match in matches])
    for at in range(width):
        keys = [match.form.keys[at] if at < len(match.form.keys) else _NO_KEY for match in matches]
        spans = [
            match.spans[f"key{match.template.keys.index(key.name)}"] if key.name else none
            for match, key, none in zip(matches, keys, nowhere, strict=True)
        ]
        pieces |= {f"k{at}": views(spans), f"begin{at}": each([key.begin for key in keys])}
        pieces |= {f"number{at}": each([key.is_number for key in keys])}
        pieces |= {f"longest{at}": each([key.longest for key in keys])}
    for at in range(_MOST_COMPARED):
        compared = [match.form.compared[at] if at < len(match.form.compared) else ("", "") for match in matches]
        pieces |= {f"from{at}": each([begin for begin, _ in compared]), f"to{at}": each([end for _, end in compared])}
    return pa.table(pieces)


def _coded(codes: npt.NDArray[Any], values: Sequence[str]) -> pa.DictionaryArray:
    """Texts of which each value stands in the dictionary once."""
    distinct = list(dict.fromkeys(values))
    places = np.array([distinct.index(value) for value in values], dtype=np.int32)
    return pa.DictionaryArray.from_arrays(places[codes], distinct)


def _nulled(texts: pa.ChunkedArray, valid: pa.Array) -> pa.Array:
    """The texts with some made NULL, without copying one."""
    array = texts.combine_chunks()
    if array.offset or valid.offset:
        return pc.if_else(valid, array, None)
    _, offsets, content = array.buffers()
    return pa.StringArray.from_buffers(len(array), offsets, content, valid.buffers()[1])


def _are_rows(read: pa.Table, form: RowForm) -> pa.Array:
    """Whether both texts have the form of a row, or are none."""
    now, was = (read[name].combine_chunks() for name in ("now", "was"))
    now, was = (pc.or_(pc.equal(text, "{}"), pc.match_substring_regex(text, form.pattern)) for text in (now, was))
    return pc.and_(now, was)


def _buckets(keys: pa.ChunkedArray) -> pa.Array:
    """The bucket of each key, as for one (:func:`spark_jobs.sources.ces_changes.bucket`)."""
    texts = keys.cast(pa.binary()).to_pylist()
    return pa.array([-1 if text is None else crc32(text) % KEY_BUCKETS for text in texts], pa.int16())


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One connection for the worker process: opening one costs more than a query."""
    return duckdb.connect(config={"threads": 1})


def _sql(guarded: str, width: int) -> str:
    """The query over ``pieces`` of messages with up to *width* key columns; *guarded* is put around what may fail."""

    def unescaped(piece: str) -> str:
        text = guarded.format(f"""('"' || {piece} || '"')->>'$'""")
        return guarded.format(f"({text})->>'$'")

    keys = range(width)
    more = [f"CASE begin{at} WHEN '' THEN '' ELSE '\",\"' || k{at} END" for at in keys[1:]]
    key = " || ".join(["'[\"' || k0", *more, "'\"]'"])
    key = f"CASE begin0 WHEN '' THEN NULL ELSE {key} END" if width else "NULL::VARCHAR"
    in_row = [f"contains({{row}}, begin{at} || k{at} || CASE begin{at} WHEN '' THEN '' ELSE '\"' END)" for at in keys]
    has_key = " AND ".join(in_row) or "true"
    canonical = [
        f"strlen(k{at}) <= longest{at}"
        f" AND CASE WHEN number{at} THEN regexp_full_match(k{at}, '0|-?[1-9][0-9]*') ELSE true END"
        for at in keys
    ]
    # A name in plain quotes can only be a column's: inside a value quotes are escaped.
    same = [
        f"(from{at} <> '' AND contains(was, now[instr(now, from{at}):"
        f"CASE to{at} WHEN '' THEN strlen(now) ELSE instr(now, to{at}) END]))"
        for at in range(_MOST_COMPARED)
    ]
    return rf"""
        WITH read AS (
            SELECT * EXCLUDE (old, current),
                   {unescaped("current")} AS now, {unescaped("old")} AS was
            FROM pieces),
        spelled AS (SELECT * REPLACE ({_as_logged("now")} AS now, {_as_logged("was")} AS was) FROM read),
        judged AS (
            SELECT *, CASE WHEN op <> 'UPD' THEN true WHEN was = '{{}}' THEN false
                           WHEN {" OR ".join(same)} THEN true END AS whole
            FROM spelled)
        SELECT lower(epoch) AS epoch, op[1] AS op, now, was, whole, {key} AS key,
               lsn || ':' || sequence || CASE op WHEN 'DEL' THEN ':0' ELSE ':1' END AS pos,
               coalesce(whole IS NOT NULL AND strlen(now) < {CUT_LENGTH // 4} AND strlen(was) < {CUT_LENGTH // 4}
               AND CASE op WHEN 'INS' THEN was = '{{}}' WHEN 'DEL' THEN now = '{{}}' ELSE true END
               AND CASE op WHEN 'DEL' THEN true ELSE now <> '{{}}' AND {has_key.format(row="now")} END
               AND CASE WHEN op = 'DEL' OR was <> '{{}}' THEN was <> '{{}}' AND {has_key.format(row="was")} ELSE true END
               AND {" AND ".join(canonical) or "true"}, false) AS proven
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
