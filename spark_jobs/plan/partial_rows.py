"""Finds rows that carry only what changed, and makes log rows of the completed ones.

:mod:`open_mirroring.changes.completion` decides what completes a row; this module only reads and makes log rows
(C-44, K-23, G-04).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.logged_change import Logged
from spark_jobs.changelog.schema import UPDATE


def carries_all(cols: str, types: Mapping[str, str]) -> bool:
    """Whether a row with this list of columns has a value for every column known of its table."""
    return types.keys() <= _names(cols)


@lru_cache(maxsize=4096)
def types_of(cols: str) -> Mapping[str, str]:
    """The source type of each column in a list."""
    return {name: sql_type for name, sql_type, _ in msgspec.json.decode(cols)}


@lru_cache(maxsize=4096)
def _names(cols: str) -> frozenset[str]:
    return frozenset(types_of(cols))


def partial_keys(changes: pa.Table, types: Mapping[str, str]) -> set[str]:
    """The keys of which an update carries less than all known columns."""
    if not changes.num_rows:
        return set()
    lists = changes["cols"].unify_dictionaries().combine_chunks()
    lists = lists if pa.types.is_dictionary(lists.type) else lists.dictionary_encode()
    partial = pa.array([not carries_all(text, types) for text in lists.dictionary.to_pylist()], pa.bool_())
    chosen = pc.and_(pc.equal(changes["op"], UPDATE).combine_chunks(), partial.take(lists.indices))
    return set(changes["key"].filter(chosen).to_pylist())


def with_rows(changes: pa.Table, completed: Mapping[int, Logged], order: Iterable[str]) -> pa.Table:
    """*changes* with completed rows at some places, each with the list of its columns in the *order* of all names."""
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
