"""Selects the logged changes that count for a table: changes of its present generation, not in its initial load.

They get the present column names, and in a history (a target table with one row for each logged change) the values of
removed rows (G-194).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.column_history import FormerColumn
from open_mirroring.changes.log_position import is_load_epoch, is_of_generation, position_order
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.protocols.table_stops import RELOAD_SEEN
from spark_jobs.changelog.origins import partition_of
from spark_jobs.changelog.schema import DELETE, INSERT, KEY_LEFT, LOAD_MAJOR
from spark_jobs.plan.table_plan import PlanStop, TablePlan
from spark_jobs.sources.sql_server.typed_rows import key_columns, key_types


def read_as_now(changes: pa.Table, former: Sequence[FormerColumn]) -> pa.Table:
    """Give rows the present column names: rename or drop each *former* column in rows up to its last position.

    *changes* need the column ``order``. Only rows that have a former column are decoded.
    """
    for one in former:
        changes = _renamed(changes, one)
    return changes


def _renamed(changes: pa.Table, former: FormerColumn) -> pa.Table:
    lists = changes["cols"].unify_dictionaries().combine_chunks().dictionary_encode()
    known = lists.dictionary.to_pylist()
    changed = {text: _list_of_now(text, former) for text in known if text is not None and _carries(text, former)}
    carrying = pa.array([text in changed for text in known], pa.bool_())
    chosen = pc.and_(
        pc.fill_null(carrying.take(lists.indices), False),
        pc.less_equal(changes["order"].combine_chunks(), former.up_to),
    )
    places = pc.indices_nonzero(chosen).to_pylist()
    if not places:
        return changes
    texts = {name: changes[name].to_pylist() for name in ("cols", "row", "before")}
    for place in places:
        texts["cols"][place] = changed[texts["cols"][place]]
        for name in ("row", "before"):
            if texts[name][place] is not None:
                texts[name][place] = _row_of_now(texts[name][place], former)
    for name, values in texts.items():
        changes = with_texts(changes, name, pa.array(values, pa.string()))
    return changes


def _carries(cols: str, former: FormerColumn) -> bool:
    """Whether rows with this list have the former column; with both names, they were read when the new one existed."""
    names = {name for name, *_ in msgspec.json.decode(cols)}
    return former.column in names and former.now not in names


def _list_of_now(cols: str, former: FormerColumn) -> str:
    now = [[former.now if name == former.column else name, *more] for name, *more in msgspec.json.decode(cols)]
    return msgspec.json.encode([one for one in now if one[0] is not None]).decode()


def _row_of_now(row: str, former: FormerColumn) -> str:
    values: dict[str, Any] = msgspec.json.decode(row)
    now = {former.now if name == former.column else name: value for name, value in values.items()}
    now.pop(None, None)
    return msgspec.json.encode(now).decode()


def history_rows(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """Give each change of a history a row, and a key that no other change has: its position and the row's key.

    The row of a change that removes a row has the values of its before image and of its key; without these values a
    history would not show which row was removed. The changes are returned unchanged if *plan* is not of a history, or
    is of a history of versions.
    """
    if plan.keys_of_rows is None or plan.has_versions:
        return changes
    removes = pc.and_(pc.is_in(changes["op"], pa.array([DELETE, KEY_LEFT])), pc.is_null(changes["row"]))
    if places := pc.indices_nonzero(removes).to_pylist():
        changes = _with_removed_rows(plan, changes, places)
    key = pc.binary_join_element_wise(changes["order"], pc.fill_null(changes["key"], "[]"), "")
    return with_texts(changes, "key", key)


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
    return with_texts(with_texts(changes, "row", pa.array(rows, pa.string())), "cols", pa.array(lists, pa.string()))


def with_texts(changes: pa.Table, name: str, texts: pa.Array | pa.ChunkedArray) -> pa.Table:
    """The changes with other texts in a column of the same type."""
    field = changes.schema.field(name)
    texts = texts.dictionary_encode().cast(field.type) if pa.types.is_dictionary(field.type) else texts
    return changes.set_column(changes.schema.get_field_index(name), field, texts)


Read = Callable[[pc.Expression], pa.Table]
"""Reads the changes of a table that meet a condition, of any key bucket."""


class CountingChanges:
    """Reads the changes of one table that count for its plan, each with ``order``, a string that sorts by position.

    The arguments are functions that read the change log: *of_keys* the changes of given keys in the plan's
    *history_files*; *any* changes in all files of the plan; *older* published changes in all other files of the change
    log.
    """

    def __init__(self, plan: TablePlan, of_keys: Callable[[Sequence[str]], pa.Table], any: Read, older: Read) -> None:
        self._plan, self._of_keys, self._any, self._older = plan, of_keys, any, older

    def history(self, keys: Iterable[str]) -> pa.Table:
        """The changes of *keys* that are already published."""
        return self._published(self._of_keys(sorted(keys)))

    def any(self, condition: pc.Expression) -> pa.Table:
        """The changes of any key bucket that meet *condition*, up to the position up to which this run publishes."""
        changes, cut = eligible(self._plan, self._any(condition)), self._plan.cut
        if cut is None or cut.position_to is None:
            return changes
        return changes.filter(pc.less_equal(changes["order"], cut.position_to))

    def older(self, condition: pc.Expression) -> pa.Table:
        """The published changes that meet *condition* in older files, which a plan rarely has to read."""
        return self._published(self._older(condition))

    def _published(self, changes: pa.Table) -> pa.Table:
        changes, cut = eligible(self._plan, changes), self._plan.cut
        return changes if cut is None else changes.filter(pc.less_equal(changes["order"], cut.position_from))


def eligible(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """The changes that count for the table's present generation, with a column ``order``.

    The strings in ``order`` sort by position. Raises PlanStop with ``EPOCH_UNKNOWN`` for a change of an unknown epoch
    (G-01); ``KEYLESS_CHANGE`` for an update or delete in a table without a key (F-12); ``RELOAD_SEEN`` if nothing shows
    whether a change is older than the newest full load (G-125).
    """
    # Without rows of another generation's initial load: otherwise old rows would come back.
    counts = _by_epoch(changes, lambda epoch: is_of_generation(epoch, plan.begins.generation), pa.bool_())
    changes = _in_order(plan, changes.filter(counts) if counts.false_count else changes)
    changes = read_as_now(_keyed_by_place(plan, changes), plan.columns.former)
    return _not_in_load(plan, history_rows(plan, changes))


def _in_order(plan: TablePlan, changes: pa.Table) -> pa.Table:
    ordinals = plan.epochs
    prefix = _by_epoch(changes, lambda e: position_order(ordinals[e], "") if e in ordinals else None, pa.string())
    if prefix.null_count:
        unknown = sorted({*pc.unique(changes["epoch"]).to_pylist()} - ordinals.keys())
        raise PlanStop("EPOCH_UNKNOWN", f"changes of an unknown stream arrived: {unknown}")
    return changes.append_column("order", pc.binary_join_element_wise(prefix, changes["pos"].combine_chunks(), ""))


def _keyed_by_place(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """In a table without a key, use each change's position as its key, because every change is a row of its own."""
    if plan.keys or plan.keys_of_rows is not None:
        return changes
    for line in changes.filter(pc.not_equal(changes["op"], INSERT)).slice(0, 1).to_pylist():
        raise PlanStop(
            "KEYLESS_CHANGE",
            f"a table without key got an update or delete ({line['op']} at {line['origin']}:{line['place']})",
        )
    return changes.set_column(changes.schema.get_field_index("key"), "key", changes["order"])


def _not_in_load(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """Remove changes that the initial load already contains, or that are older than the newest full load."""
    begins = plan.begins
    if begins.stream_from is None:
        return changes
    since = pc.greater_equal(changes["order"].combine_chunks(), position_order(begins.stream_epoch, begins.stream_from))
    if begins.newest_load is not None:
        return changes.filter(_since_newest_load(begins.newest_load, changes, since))
    return changes.filter(pc.or_(since, _by_epoch(changes, is_load_epoch, pa.bool_())))


def _since_newest_load(load: NewestLoad, changes: pa.Table, since: pa.Array) -> pa.Array:
    """For each row, whether it belongs to the newest full load or is newer; *since* is true for later positions."""
    origins, positions = changes["origin"].combine_chunks().dictionary_encode(), changes["pos"].combine_chunks()
    partitions = [partition_of(origin) for origin in origins.dictionary.to_pylist()]
    begins = pa.array([load.begins.get(one) for one in partitions], pa.int64()).take(origins.indices)
    is_of_stream = pc.equal(changes["epoch"].combine_chunks().cast(pa.string()), load.epoch)
    is_loaded = pc.and_(is_of_stream, pc.starts_with(positions, f"{LOAD_MAJOR}:"))
    is_newest = pc.greater_equal(changes["place"].combine_chunks(), pc.fill_null(begins, 0))
    if not load.is_closed:
        # A correction, whose position is above a complete transaction, was read from the source later than the load.
        is_sent = pc.and_not(is_of_stream, pc.or_(is_loaded, pc.match_substring(positions, "~")))
        unclear = pc.and_(is_sent, pc.and_(since, pc.is_null(begins)))
        if load.new_from is not None:
            unclear = pc.and_(unclear, pc.less(positions, load.new_from))
        for line in changes.filter(unclear).slice(0, 1).to_pylist():
            raise PlanStop(
                RELOAD_SEEN,
                f"a change at {line['pos']} came at {line['origin']}:{line['place']}, and nothing shows whether it is "
                "older than the full load with which the table began",
            )
    return pc.if_else(is_loaded, is_newest, since)


def loaded_rows(changes: pa.Table) -> pa.Table:
    """The rows of a Qlik full load among *changes* (K-18); rows of our initial load are left out."""
    return changes.filter(are_loaded(changes))


def are_loaded(changes: pa.Table) -> pa.Array:
    """For each row, whether it is a row of a Qlik full load."""
    is_theirs = pc.invert(_by_epoch(changes, is_load_epoch, pa.bool_()))
    return pc.and_(is_theirs, pc.starts_with(changes["pos"].combine_chunks(), f"{LOAD_MAJOR}:"))


def of_keys(changes: pa.Table, keys: Collection[str]) -> pa.Table:
    """The rows of *changes* with a key in *keys*."""
    return changes.filter(pc.is_in(changes["key"], pa.array(sorted(keys), pa.string())))


def _by_epoch(changes: pa.Table, answer: Callable[[str], Any], kind: pa.DataType) -> pa.Array:
    """An array with what *answer* returns for each row's epoch."""
    # Tables are read together and share a dictionary: it may name streams that only another table has.
    epochs = changes["epoch"].combine_chunks().dictionary_encode()
    return pa.array(map(answer, epochs.dictionary.to_pylist()), kind).take(epochs.indices)
