"""Columns of texts written as JSON, row by row the bytes that a JSON writer would give."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_encode = msgspec.json.encode
_QUOTE, _BACKSLASH, _SPACE = b'"\\ '


def json_objects(names: Sequence[str], columns: Sequence[pa.Array]) -> pa.Array:
    """For each row the compact JSON object of the names with their texts, or null."""
    parts: list[pa.Array | pa.Scalar] = []
    before = "{"
    for name, column in zip(names, columns, strict=True):
        parts += [before + _encode(name).decode() + ":", quoted(column)]
        before = ","
    return _in_a_row([*parts, "}" if columns else "{}"], len(columns[0]) if columns else 0)


def json_list(columns: Sequence[pa.Array]) -> pa.Array:
    """For each row the compact JSON array of the columns' texts; there is one column at least."""
    parts: list[pa.Array | str] = []
    before = "["
    for column in columns:
        parts += [before, quoted(column)]
        before = ","
    return _in_a_row([*parts, "]"], len(columns[0]))


def quoted(column: pa.Array) -> pa.Array:
    """Each text as a JSON string; null stays null."""
    return pc.binary_join_element_wise('"', escaped(column), '"', "")


def escaped(column: pa.Array) -> pa.Array:
    """What stands between the quotes of each text's JSON string."""
    found = _needing_escape(column)
    for character in found:
        written = _encode(chr(character)).decode()[1:-1]
        column = pc.replace_substring(column, chr(character), written)
    return column


def _needing_escape(column: pa.Array) -> list[int]:
    """The different characters of a column that JSON writes otherwise, the backslash first."""
    _, offsets, content = column.buffers()
    if content is None or not len(column):
        return []
    borders = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(content, np.uint8)[borders[0] : borders[-1]]
    special = text[(text < _SPACE) | (text == _QUOTE) | (text == _BACKSLASH)]
    return sorted(set(np.unique(special).tolist()), key=lambda character: character != _BACKSLASH)


def _in_a_row(parts: Sequence[pa.Array | str], rows: int) -> pa.Array:
    joined = pc.binary_join_element_wise(*parts, "", null_handling="replace", null_replacement="null")
    return joined if isinstance(joined, pa.Array) else pa.array([joined.as_py()] * rows, pa.string())
