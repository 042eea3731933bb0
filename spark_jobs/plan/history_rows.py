"""Makes the rows of a history (a target table with one row for each logged change) (G-194)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.changelog.schema import DELETE, KEY_LEFT
from spark_jobs.plan.table_plan import TablePlan
from spark_jobs.sources.sql_server.typed_rows import key_columns, key_types


def history_rows(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """Give each change of a history a row, and a key that no other change has: its position and the row's key.

    The row of a change that removes a row has the values of its before image and of its key; without these values a
    history would not show which row was removed. If *plan* is not of a history, the changes are returned unchanged.
    """
    if plan.keys_of_rows is None or plan.has_versions:
        return changes
    removes = pc.and_(pc.is_in(changes["op"], pa.array([DELETE, KEY_LEFT])), pc.is_null(changes["row"]))
    if places := pc.indices_nonzero(removes).to_pylist():
        changes = _with_removed_rows(plan, changes, places)
    key = pc.binary_join_element_wise(changes["order"], pc.fill_null(changes["key"], "[]"), "")
    return _with(changes, "key", key)


def place_of_key(key: str) -> str:
    """The position of a change, from the key that :func:`history_rows` gave the change."""
    return key.partition(":")[2].partition("[")[0]


def row_key_of(key: str) -> str:
    """The key of the changed row, from the key that :func:`history_rows` gave the change."""
    return key[key.index("[") :]


def _with_removed_rows(plan: TablePlan, changes: pa.Table, places: Sequence[int]) -> pa.Table:
    rows, lists = changes["row"].to_pylist(), changes["cols"].to_pylist()
    removed = changes.select(["key", "cols", "before"]).take(pa.array(places))
    types = key_types(plan.columns.landing, plan.keys_of_rows or (), plan.columns.types)
    keys = key_columns(removed["key"].combine_chunks(), plan.keys_of_rows or ())
    of_keys = {name: keys[name].to_pylist() for name in keys if name in types}
    for at, (place, line) in enumerate(zip(places, removed.to_pylist(), strict=True)):
        kinds = {} if line["cols"] is None else {name: kind for name, kind, _ in msgspec.json.decode(line["cols"])}
        image = {} if line["before"] is None else msgspec.json.decode(line["before"])
        row = {name: text for name, text in image.items() if name in kinds}
        own = {name: texts[at] for name, texts in of_keys.items() if name not in row}
        named = [*((name, kinds[name]) for name in row), *((name, types[name]) for name in own)]
        rows[place] = msgspec.json.encode({**row, **own}).decode()
        lists[place] = msgspec.json.encode([[name, kind, index] for index, (name, kind) in enumerate(named)]).decode()
    return _with(_with(changes, "row", pa.array(rows, pa.string())), "cols", pa.array(lists, pa.string()))


def _with(changes: pa.Table, name: str, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The changes with other texts in a column of the same type."""
    field = changes.schema.field(name)
    texts = texts.dictionary_encode().cast(field.type) if pa.types.is_dictionary(field.type) else texts
    return changes.set_column(changes.schema.get_field_index(name), field, texts)
