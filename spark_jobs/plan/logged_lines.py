"""Converts logged rows of one table into changes for the plan rule, and completed changes back into logged rows.

:mod:`open_mirroring.changes.completion` decides how a partial row is completed (C-44, K-23, G-04).
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition, is_load_epoch
from open_mirroring.changes.logged_change import Left, Logged, Meaning, RowColumns, Unreadable
from open_mirroring.errors import TerminalError
from spark_jobs.changelog.schema import UPDATE
from spark_jobs.plan.table_plan import Identity, TablePlan
from spark_jobs.sources.sql_server.times import time_text
from spark_jobs.sources.sql_server.type_text import TIMESTAMPS, is_known, is_large, read_type
from spark_jobs.sources.sql_server.types import converter

Line = Mapping[str, Any]
"""A row of the change log with its ``order``, a string that sorts by position over all epochs."""

KeyChangePlace = tuple[str, str]
"""Epoch and position of a key change, without the last number, which differs between its two halves."""

KeysLeft = Mapping[KeyChangePlace, Left]
"""The key that a moved row had before, by the position of its key change."""

_CUT_DIGITS = re.compile(r"\.[0-9]{6}([0-9]+)")


def place_of(line: Line) -> KeyChangePlace:
    """The epoch, and the part of the position that both halves of a key change share."""
    return line["epoch"], line["pos"][:-2]


def identity_of(line: Line) -> Identity:
    """Epoch, position and key of a log row."""
    return line["epoch"], line["pos"], line["key"]


def is_partial(line: Line, plan: TablePlan) -> bool:
    """Whether a log row may contain only the changed columns, so that earlier changes complete the row (G-04)."""
    columns = plan.columns
    return columns.completing and line["op"] == UPDATE and not carries_all(line["cols"], columns.types)


def logged_change(plan: TablePlan, line: Line, handle: int = -1, left: KeysLeft | None = None) -> Logged:
    """Convert a logged row into a change for the plan rule; *handle* is a number by which the caller finds the row.

    *left* has the key that each moved row had before.
    """
    columns, cols = plan.columns, line["cols"]
    position = LogPosition.parse(plan.epochs[line["epoch"]], line["pos"])
    sets_row = line["row"] is not None
    return Logged(
        line["batch"],
        position,
        line["op"],
        msgspec.json.decode(line["row"]) if sets_row else None,
        None if line["before"] is None else msgspec.json.decode(line["before"]),
        handle,
        whole=not is_partial(line, plan),
        types=types_of(cols) if (columns.completing or columns.keeping) and sets_row else None,
        left=left.get(place_of(line)) if left and sets_row else None,
        loaded=columns.completing and is_load_epoch(line["epoch"]),
        required=columns.required_at(position.order) if columns.gone else None,
        columns=_row_columns(cols, plan.keys, columns.unread.union(columns.gone), columns.of_reading),
    )


@lru_cache(maxsize=4096)
def _row_columns(cols: str | None, keys: tuple[str, ...], dropped: frozenset[str], of_reading: bool) -> RowColumns:
    if cols is None:
        return RowColumns(None, frozenset(), dropped, of_reading)
    # A before image has all values but those of the key's columns and of large objects (C-71, K-22).
    always_sent = {name for name, sql_type in types_of(cols).items() if name not in keys and not is_large(sql_type)}
    return RowColumns(meaning_of(cols), frozenset(always_sent), dropped, of_reading)


@lru_cache(maxsize=4096)
def meaning_of(cols: str) -> Meaning:
    """A function that converts values of rows with the column list *cols*; invalid values become Unreadable (G-06)."""
    types = types_of(cols)

    def meaning(name: str, text: str) -> Hashable:
        try:
            return _value(types[name], text)
        except (KeyError, TerminalError, ValueError):
            return Unreadable(text)

    return meaning


def _value(sql_type: str, text: str) -> Hashable:
    """A value that is equal for two spellings of one value, with all digits that the source keeps."""
    if not is_known(sql_type):
        return text
    parsed = read_type(sql_type)
    value: Hashable = converter(sql_type)(text)
    if parsed.name in TIMESTAMPS:
        # The target has six digits of a second; a row that differs in a further one is another one all the same.
        cut = _CUT_DIGITS.search(text)
        return value, "" if cut is None else cut[1].rstrip("0")
    return time_text(text, parsed.second_digits) if parsed.name == "time" else value


def carries_all(cols: str, types: Mapping[str, str]) -> bool:
    """Whether rows with the column list *cols* have a value for every known column of the table (*types*)."""
    return types.keys() <= types_of(cols).keys()


@lru_cache(maxsize=4096)
def types_of(cols: str) -> Mapping[str, str]:
    """The source type of each column in a column list."""
    return {name: sql_type for name, sql_type, _ in msgspec.json.decode(cols)}


def partial_keys(changes: pa.Table, types: Mapping[str, str]) -> set[str]:
    """The keys that have an update without all known columns."""
    if not changes.num_rows:
        return set()
    lists = changes["cols"].unify_dictionaries().combine_chunks().dictionary_encode()
    partial = pa.array([not carries_all(text, types) for text in lists.dictionary.to_pylist()], pa.bool_())
    chosen = pc.and_(pc.equal(changes["op"], UPDATE).combine_chunks(), partial.take(lists.indices))
    return set(changes["key"].filter(chosen).to_pylist())


def with_rows(changes: pa.Table, completed: Mapping[int, Logged], order: Iterable[str]) -> pa.Table:
    """Replace rows of *changes* by *completed* rows, given by index.

    *order* has the names of all columns, in the order in which the completed rows get their columns.
    """
    if not completed:
        return changes
    rows, lists = changes["row"].to_pylist(), changes["cols"].to_pylist()
    known = list(order)
    for place, change in completed.items():
        row, types = change.after or {}, change.types or {}
        names = [name for name in known if name in row]
        rows[place] = msgspec.json.encode({name: row[name] for name in names}).decode()
        lists[place] = msgspec.json.encode([[name, types[name], at] for at, name in enumerate(names)]).decode()
    for name, values in (("row", rows), ("cols", lists)):
        at = changes.schema.get_field_index(name)
        changes = changes.set_column(at, name, pa.array(values, pa.string()))
    return changes
