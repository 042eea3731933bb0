"""Writes columns of strings as JSON rows, with the same bytes as a JSON writer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.sources.sql_server.type_text import read_any

_encode = msgspec.json.encode
_QUOTE, _BACKSLASH, _SPACE = b'"\\ '
SURE_DIGITS = {"tinyint": 2, "smallint": 4, "int": 9, "bigint": 18}
"""Integers with at most this many digits fit their type."""


def json_objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """For each row the compact JSON object of names and their strings or null; at least one column is needed."""
    return _in_a_row("{", [_encode(name).decode() + ":" for name in names], columns, "}")


def json_lists(columns: Sequence[pa.Array]) -> pa.Array:
    """For each row the compact JSON array of the columns' strings or null; there must be at least one column."""
    return _in_a_row("[", [""] * len(columns), columns, "]")


def _in_a_row(opened: str, ahead: Sequence[str], columns: Sequence[pa.Array], closed: str) -> pa.Array:
    parts: list[pa.Array | str] = []
    between = opened
    for name, column in zip(ahead, columns, strict=True):
        text = escaped(column)
        if column.null_count:
            parts += [between + name, pc.binary_join_element_wise('"', text, '"', "")]
            between = ","
        else:
            # The quotes are part of the constants: that saves a copy of the column.
            parts += [between + name + '"', text]
            between = '",'
    closing = between.removesuffix(",") + closed
    return pc.binary_join_element_wise(*parts, closing, "", null_handling="replace", null_replacement="null")


def escaped(column: pa.Array) -> pa.Array:
    """The strings of a column as they are inside of a JSON string, without the quotes."""
    found = _needing_escape(column)
    for character in found:
        written = _encode(chr(character)).decode()[1:-1]
        column = pc.replace_substring(column, chr(character), written)
    return column


def _needing_escape(column: pa.Array) -> list[int]:
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return []
    borders = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(content, np.uint8)[borders[0] : borders[-1]]
    special = text[(text < _SPACE) | (text == _QUOTE) | (text == _BACKSLASH)]
    return sorted(set(np.unique(special).tolist()), key=lambda character: character != _BACKSLASH)


def canonical_column(sql_type: str, convert: Callable[[str], str], column: pa.Array) -> pa.Array:
    """The canonical strings of a key column; NULL for a string that is not certainly valid.

    *convert* is the function that converts a string of *sql_type* to canonical form.
    """
    name = read_any(sql_type).name
    digits = SURE_DIGITS.get(name)
    if digits is not None:
        minus = "" if name == "tinyint" else "-?"
        is_plain = pc.match_substring_regex(column, f"^(0|{minus}[1-9][0-9]{{0,{digits - 1}}})$")
        return pc.if_else(is_plain, column, pa.scalar(None, pa.string()))
    if convert is str:
        return column
    return pa.array([None if text is None else _converted(convert, text) for text in column.to_pylist()], pa.string())


def _converted(convert: Callable[[str], str], text: str) -> str | None:
    try:
        return convert(text)
    except ValueError:
        return None
