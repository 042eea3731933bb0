r"""The query that unescapes the rows of CES messages and proves them: one for each table and column list.

Rows reach it as they stand in the message, texts in a text in a text: ``\"{\\\"id\\\":\\\"7\\\"}\"``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

import duckdb
import numpy as np
import pyarrow as pa

from spark_jobs.change_log_schema import CHANGE, RawMessage
from spark_jobs.sources.ces_changes import SourceTable, bucket
from spark_jobs.sources.ces_rows import CUT_LENGTH, ColumnList
from spark_jobs.sources.ces_templates import Spans, Template
from spark_jobs.sources.decoded import Damage
from spark_jobs.sources.sql_server_type_text import read_type
from spark_jobs.sources.text_buffer import Places, TextBuffer

Match = tuple[Template, Places, Spans]
"""Messages (indexes) that are like a template, and where their variable places are."""

_SURE_LENGTH = {"smallint": 4, "int": 9, "bigint": 18}
"""Whole numbers of so many characters are within the range of their type."""
_TEXT_TYPES = ("char", "varchar", "nchar", "nvarchar", "sysname")
_VALUE = r'(?:null|"(?:[^"\\\x00-\x1f]|\\["\\bfnrt])*")'
_NAME = r"[^\W\d][\w $@#-]*"


class RowQuery:
    """Reads the rows of messages that are like a template of one table and column list."""

    def __init__(self, table: SourceTable, columns: ColumnList) -> None:
        self._table, self._columns = table, columns
        self._sql = _sql(table.key, columns)

    @classmethod
    def of(cls, table: SourceTable, columns: ColumnList) -> RowQuery | None:
        """The query for these columns; None where their messages are for the exact decoder.

        Raises:
            TerminalError: ``TYPE_UNKNOWN``.
        """
        plain = all(re.fullmatch(_NAME, name) for name in columns.names)
        keys = all(name in columns.types and _key_proof("", columns.types[name]) for name in table.key)
        return cls(table, columns) if plain and keys and columns.kept == columns.names else None

    def rows(
        self, buffer: TextBuffer, matches: Sequence[Match], messages: Sequence[RawMessage | Damage]
    ) -> tuple[pa.Table, Places]:
        """The log rows of those messages that are proven, and which these are."""
        parts = [self._part(buffer, *match) for match in matches]
        message = np.concatenate([chosen for _, chosen, _ in matches])
        db = _connection()
        db.register("pieces", pa.concat_tables(parts))
        read = db.sql(self._sql).to_arrow_table()
        read = read.filter(read["proven"])
        taken = message[read["index"].to_numpy()]
        count = len(taken)
        places = np.fromiter((messages[at].place for at in taken), dtype=np.int64, count=count)
        table = pa.table(
            {
                "kind": _constant(CHANGE, count),
                "tbl": _constant(self._table.source, count),
                "bucket": pa.array([bucket(key) for key in read["key"].to_pylist()], pa.int16()),
                "epoch": read["epoch"].dictionary_encode(),
                "op": read["op"].dictionary_encode(),
                "cols": _constant(self._columns.text, count),
                "origin": pa.array([messages[at].origin for at in taken], pa.string()).dictionary_encode(),
                "place": pa.array(places),
                **{name: read[name] for name in ("pos", "key", "whole", "row", "before")},
            }
        )
        return table, taken

    def _part(self, buffer: TextBuffer, template: Template, chosen: Places, spans: Spans) -> pa.Table:
        named = {f"k{self._table.key.index(key)}": f"key{at}" for at, key in enumerate(template.keys)}
        pieces = {"epoch": "epoch", "lsn": "lsn", "sequence": "sequence", "old": "old", "current": "current", **named}
        views = {name: buffer.views(*spans[span]) for name, span in sorted(pieces.items())}
        return pa.table({"op": pa.array([template.operation] * len(chosen), pa.string()), **views})


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    """One connection for the worker process: opening one costs more than a query."""
    return duckdb.connect(config={"threads": 1})


def _constant(value: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(np.zeros(rows, dtype=np.int32), pa.array([value]))


def _sql(keys: Sequence[str], columns: ColumnList) -> str:
    names = [_text(f'"{name}":') for name in columns.names]
    texts = [f"k{at}" for at in range(len(keys))]
    needles = [f"""'"{key}":"' || k{at} || '"'""" for at, key in enumerate(keys)]
    row = _text(r"\{" + ",".join(f'"{_literal(name)}":{_VALUE}' for name in columns.names) + r"\}")
    key = "'[\"' || " + " || '\",\"' || ".join(texts) + " || '\"]'" if keys else "NULL::VARCHAR"
    has_key = [f"contains({{row}}, {needle})" for needle in needles]
    proofs = [_key_proof(f"k{at}", columns.types[key]) or "false" for at, key in enumerate(keys)]

    def is_row(text: str) -> str:
        return " AND ".join([f"regexp_full_match({text}, {row})", *(one.format(row=text) for one in has_key)])

    unchanged = [_same(names, at) for at, name in enumerate(columns.names) if name not in keys]
    return rf"""
        WITH read AS (
            SELECT row_number() OVER () - 1 AS index, * EXCLUDE (old, current),
                   {_unescaped("current")} AS now, {_unescaped("old")} AS was
            FROM pieces),
        spelled AS (SELECT * REPLACE ({_as_logged("now")} AS now, {_as_logged("was")} AS was) FROM read)
        SELECT index, lower(epoch) AS epoch, op[1] AS op,
               lsn || ':' || sequence || CASE op WHEN 'DEL' THEN ':0' ELSE ':1' END AS pos,
               {key} AS key,
               CASE WHEN op <> 'UPD' THEN true WHEN was = '{{}}' THEN false
                    ELSE {" OR ".join(unchanged) or "false"} END AS whole,
               CASE WHEN op <> 'DEL' THEN now END AS row, CASE WHEN op = 'DEL' THEN was END AS before,
               coalesce(strlen(now) < {CUT_LENGTH // 4} AND strlen(was) < {CUT_LENGTH // 4}
                   AND CASE WHEN op = 'DEL' THEN now = '{{}}' ELSE {is_row("now")} END
                   AND CASE WHEN op = 'INS' THEN was = '{{}}' WHEN op = 'UPD' AND was = '{{}}' THEN true
                            ELSE {is_row("was")} END
                   AND {" AND ".join(proofs) or "true"}, false) AS proven
        FROM spelled"""


def _unescaped(piece: str) -> str:
    """The text of a JSON string in a JSON string; NULL, or what proves nothing, if it is none."""
    return f"""TRY(TRY(('"' || {piece} || '"')->>'$')->>'$')"""


def _as_logged(text: str) -> str:
    """Without the escapes of slashes, which the source writes; where backslashes are escaped, too, nobody can tell."""
    plain = rf"replace({text}, '\/', '/')"
    return rf"CASE WHEN contains({text}, '\/') AND NOT contains({text}, '\\') THEN {plain} ELSE {text} END"


def _same(names: Sequence[str], at: int) -> str:
    """Whether a column has the same value in both rows, each of which is a proven row.

    A comma and a name in plain quotes can only be the beginning of that column.
    """
    start, end = "1", "strlen(now)"
    if at:
        start = f"instr(now, ',' || {names[at]})"
    if at + 1 < len(names):
        end = f"instr(now, ',' || {names[at + 1]})"
    return f"contains(was, now[{start}:{end}])"


def _key_proof(text: str, sql_type: str) -> str | None:
    """A condition that a text is the canonical one of its value (G-02) as it stands; None for types without one."""
    kind = read_type(sql_type)
    if kind.name in _SURE_LENGTH:
        return f"regexp_full_match({text}, '0|-?[1-9][0-9]*') AND strlen({text}) <= {_SURE_LENGTH[kind.name]}"
    if kind.name in _TEXT_TYPES:
        length = 128 if kind.name == "sysname" else kind.length or -1
        return f"strlen({text}) <= {length}" if length > 0 else "true"
    return None


def _literal(name: str) -> str:
    return name.replace("$", r"\$")


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
