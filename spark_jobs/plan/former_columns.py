"""Reads earlier log rows by today's columns, where a column's name was that of another column before (G-66, G-67)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.column_history import FormerColumn


def read_as_now(changes: pa.Table, former: Sequence[FormerColumn]) -> pa.Table:
    """Rename or leave out columns of rows up to the place of each former column; *changes* have their ``order``.

    Only rows that carry such a column are decoded.
    """
    for one in former:
        changes = _renamed(changes, one)
    return changes


def _renamed(changes: pa.Table, former: FormerColumn) -> pa.Table:
    lists = changes["cols"].unify_dictionaries().combine_chunks()
    lists = lists if pa.types.is_dictionary(lists.type) else lists.dictionary_encode()
    known = lists.dictionary.to_pylist()
    carrying = pa.array([text is not None and _carries(text, former) for text in known], pa.bool_())
    chosen = pc.and_(
        pc.fill_null(carrying.take(lists.indices), False),
        pc.less_equal(changes["order"].combine_chunks(), former.up_to),
    )
    places = pc.indices_nonzero(chosen).to_pylist()
    if not places:
        return changes
    changed = {text: _list_of_now(text, former) for text in known if text is not None and _carries(text, former)}
    texts = {name: changes[name].to_pylist() for name in ("cols", "row", "before")}
    for place in places:
        texts["cols"][place] = changed[texts["cols"][place]]
        for name in ("row", "before"):
            if texts[name][place] is not None:
                texts[name][place] = _row_of_now(texts[name][place], former)
    for name, values in texts.items():
        field = changes.schema.field(name)
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        array = pa.array(values, kind)
        array = array.dictionary_encode().cast(field.type) if pa.types.is_dictionary(field.type) else array
        changes = changes.set_column(changes.schema.get_field_index(name), field, array)
    return changes


def _carries(cols: str, former: FormerColumn) -> bool:
    """Whether rows with this list have the column; a row with both names was read when the other one was there."""
    names = {name for name, *_ in msgspec.json.decode(cols)}
    return former.column in names and former.now not in names


def _list_of_now(cols: str, former: FormerColumn) -> str:
    now = [[_name_of_now(name, former), *more] for name, *more in msgspec.json.decode(cols)]
    return msgspec.json.encode([one for one in now if one[0] is not None]).decode()


def _row_of_now(row: str, former: FormerColumn) -> str:
    values: dict[str, Any] = msgspec.json.decode(row)
    now = {_name_of_now(name, former): value for name, value in values.items()}
    return msgspec.json.encode({name: value for name, value in now.items() if name is not None}).decode()


def _name_of_now(name: str, former: FormerColumn) -> str | None:
    return former.now if name == former.column else name
