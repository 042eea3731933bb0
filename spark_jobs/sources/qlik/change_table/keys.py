"""Makes the keys of many change table rows at once, as columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.errors import TerminalError
from spark_jobs.sources.qlik.change_table.rows import RowLayout
from spark_jobs.sources.sql_server.json_columns import json_lists
from spark_jobs.sources.sql_server.type_text import read_type
from spark_jobs.sources.sql_server.types import key_converter

_SURE_DIGITS = {"tinyint": 2, "smallint": 4, "int": 9, "bigint": 18}
"""Whole numbers of so many digits fit their type."""


def canonical_texts(
    layout: RowLayout, texts: pa.RecordBatch, rows: npt.NDArray[np.int64]
) -> tuple[pa.Array, npt.NDArray[np.bool_]] | None:
    """The canonical key of some rows, and for which of them it is proven; None where none can be.

    A table without key has none: its keys are null, and that is proven.
    """
    proven = np.ones(len(rows), bool)
    columns = []
    for at in layout.key_in_order:
        if at is None:
            return None
        column = texts.column(at).take(pa.array(rows))
        spelled = _canonical(layout.type_at(at), column)
        if spelled is None:
            return None
        proven &= spelled.is_valid().to_numpy(zero_copy_only=False)
        columns.append(spelled)
    return (json_lists(columns) if columns else pa.nulls(len(rows), pa.string())), proven


def _canonical(sql_type: str, column: pa.Array) -> pa.Array | None:
    """The canonical texts of key values, null where they are not proven; None for a type that is no key."""
    try:
        name, convert = read_type(sql_type).name, key_converter(sql_type)
    except (TerminalError, ValueError):
        return None
    digits = _SURE_DIGITS.get(name)
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
