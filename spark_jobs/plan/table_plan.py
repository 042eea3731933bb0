"""Holds the input and the result of planning a table, and selects the logged changes that a plan looks at."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.column_history import FormerColumn, place_text
from open_mirroring.changes.horizon import TableHorizon
from open_mirroring.changes.log_position import LogPosition, is_load_epoch, is_of_generation, not_above, position_order
from open_mirroring.changes.logged_change import Left, Logged, Meaning, RowUntold, Unreadable, first_of_each
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.delimited_text import reads_as_null
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.protocols.table_stops import RELOAD_SEEN, SWAP_POSSIBLE
from spark_jobs.changelog.origins import partition_of
from spark_jobs.changelog.schema import INSERT, LOAD_MAJOR, UPDATE
from spark_jobs.plan.former_columns import read_as_now
from spark_jobs.plan.loaded_columns import LoadedColumn, doubt_by_deletes
from spark_jobs.plan.moved_rows import KeyChangePlace, MovedRows, Read, place_of
from spark_jobs.plan.partial_rows import carries_all, types_of
from spark_jobs.plan.transaction_cut import Cut
from spark_jobs.sources.sql_server.extra_columns import with_extra
from spark_jobs.sources.sql_server.times import time_text
from spark_jobs.sources.sql_server.type_text import TIMESTAMPS, is_known, read_type
from spark_jobs.sources.sql_server.typed_rows import Failure, Typed, type_rows
from spark_jobs.sources.sql_server.types import converter, is_large

ReadHistory = Callable[[Sequence[str]], pa.Table]
"""Given keys, reads their changes in a plan's *history_files*."""

Identity = tuple[str, str, str | None]
"""Epoch, position text and key of a change."""
_CUT_DIGITS = re.compile(r"\.[0-9]{6}([0-9]+)")


@dataclass(frozen=True)
class TablePlan:
    """What a worker must know to plan one table, or some key buckets of it.

    Attributes:
        batch_from: the batch the target has; changes of later batches are new.
        history_files: earlier log files that may hold changes as new as the oldest new one.
        highest: highest position among the changes up to *batch_from*; None when there is none.
        epochs: ordinal of every stream incarnation the ledger knows.
        stream_from: changes below this text are in the initial load already: positions of the stream incarnation of
            ordinal *stream_epoch*, and all of earlier ones.
        newest_load: the full load of the source with which the table begins, instead of a load of ours (G-125).
        lives_above: every row of the table has its newest change above this order; None: nobody looked.
        rejected: changes that are dead letters already, and so no changes.
        types: source type of every known column.
        cut: where transactions are held back, which positions are published; None: all.
        completing: whether updates may carry only what changed, so that earlier changes complete them (G-04); then
            *history_files* are all that hold the table.
        horizon: the log may lack changes of this transaction and earlier ones.
        generation: the table's life; loaded rows that an earlier one left in the log do not count in it.
        former: how columns of earlier rows are read, otherwise than they were logged.
        gone: columns that the source has dropped, each with the place of the last row that carries it: a change behind
            it has no value for it to tell.
        unread: columns that `columns` leaves out, or left out of rows that were read before.
        loaded_keys: the key columns of the initial load.
        of_reading: rows have the columns of the time when they were read.
        loaded: the table began with an initial load that is not in the log.
        null_text: the text that stands for NULL in the table's files; None where these are Parquet.
    """

    table_id: str
    source: str
    keys: tuple[str, ...]
    batch_from: int
    new_files: tuple[str, ...]
    history_files: tuple[str, ...]
    highest: LogPosition | None
    epochs: Mapping[str, int]
    stream_from: str | None
    rejected: frozenset[Identity]
    columns: tuple[LandingColumn, ...]
    types: Mapping[str, str]
    buckets: tuple[int, int] = (-1, 64)
    completing: bool = False
    cut: Cut | None = None
    stream_epoch: int = 0
    horizon: TableHorizon | None = None
    generation: int = 1
    gone: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    former: tuple[FormerColumn, ...] = ()
    lives_above: str | None = None
    loaded_keys: Mapping[str, LoadedColumn] = field(default_factory=dict)
    newest_load: NewestLoad | None = None
    of_reading: bool = False
    loaded: bool = False
    null_text: str | None = None

    @property
    def untold(self) -> str | None:
        """The order up to which the log may lack rows of the table; None: it has them all."""
        if self.horizon is not None:
            # A semicolon sorts behind the colon that follows the transaction: its own changes are below it.
            return f"{self.horizon.ordinal:06d}:{self.horizon.major};"
        return "" if self.loaded else None

    @property
    def logs_transactions(self) -> bool:
        """Whether commit time or transaction of each change are asked for (G-118)."""
        return any(column.tells in ("commit_time", "transaction") for column in self.columns)

    def lacking(self, order: str) -> set[str]:
        """The columns for which a change at this place has no value to tell."""
        return {column for column, after in self.gone.items() if order > after}


class PlannedRows(NamedTuple):
    """What a plan publishes, typed, and what became of every new change.

    *counts* add up: changes + released + renewed = published + compacted + duplicates + superseded + in_load + rejected
    + waiting (I1); *waiting* changes are released by a later plan. *rejected* are the dead letters found here, as the
    ledger records them. From the place *unverified* on, a before image alone tells that keys have no row (G-115).
    """

    rows: pa.Table
    positions: tuple[str, str]
    counts: dict[str, int]
    rejected: list[dict[str, Any]]
    unverified: str | None = None


class PlanStop(Exception):
    """The table cannot be published as it is: a stable code and what was found.

    *at* is the place from which on that is so; None where no place divides what can be published from what cannot.
    """

    def __init__(self, code: str, what: str, at: str | None = None) -> None:
        super().__init__(code, what)
        self.code, self.what, self.at = code, what, at


def typed_changes(plan: TablePlan, changes: pa.Table) -> Typed:
    """The changes that are published, typed by the plan's columns.

    Raises:
        PlanStop: ``SCHEMA_CHANGED`` where a column's type does not take the values of an earlier one, ``VALUE_INVALID``
            where deletes may miss their loaded rows: it stops this table alone.
    """
    if found := doubt_by_deletes(plan.loaded_keys, changes):
        raise PlanStop("VALUE_INVALID", found)
    try:
        typed = type_rows(changes, plan.columns, plan.keys, plan.types)
    except TerminalError as error:
        raise PlanStop(error.code, error.what) from error
    if plan.null_text is not None:
        typed = _told_from_null(typed, plan.columns, plan.null_text)
    if not any(column.tells for column in plan.columns):
        return typed
    return typed._replace(rows=with_extra(typed.rows, changes.take(typed.places), plan.columns, plan.source))


def _told_from_null(typed: Typed, columns: Sequence[LandingColumn], null: str) -> Typed:
    """The rows without those of which the service would read a value as NULL; these are failures (F-22)."""
    bad: dict[int, Failure] = {}
    for column in columns:
        if column.tells or column.salted:
            continue  # what stands in the file is not this text: the file's writer compares that
        found = reads_as_null(typed.rows[column.name].combine_chunks(), null)
        for at in pc.indices_nonzero(found).to_pylist():
            what = f"column {column.name!r}: the value {null!r} stands for NULL in this table's text files"
            row = typed.places[at].as_py()
            bad.setdefault(row, Failure(row, "VALUE_INVALID", f"{what}; choose another `null_value` and reload"))
    if not bad:
        return typed
    good = pc.invert(pc.is_in(typed.places, pa.array(list(bad), pa.int64())))
    return Typed(typed.rows.filter(good), typed.places.filter(good), [*typed.failures, *bad.values()])


def above_the_gone(plan: TablePlan, winners: pa.Table) -> pa.Array:
    """The indexes of the winners that the target can have; the others are deletes of rows that it never had.

    Raises:
        PlanStop: ``SCHEMA_CHANGED`` where one of the others sets a row, for it may have other values by now (G-106).
    """
    assert plan.lives_above is not None
    above = pc.greater(winners["order"].combine_chunks(), plan.lives_above)
    sets_row = pc.is_in(winners["op"].combine_chunks(), pa.array([INSERT, UPDATE]))
    late = winners["order"].filter(pc.and_not(sets_row, above))
    if len(late):
        raise PlanStop(
            "SCHEMA_CHANGED",
            f"a late row was last changed at position {place_text(pc.max(late).as_py())}: the table was built anew "
            f"from the log as one of which no row up to {place_text(plan.lives_above)} is left, and their columns were "
            "forgotten",
        )
    return pc.indices_nonzero(above)


def identity_of(line: Mapping[str, Any]) -> Identity:
    """The identity of a log row."""
    return (line["epoch"], line["pos"], line["key"])


def rejection(line: Mapping[str, Any], failure: Failure) -> dict[str, Any]:
    """The dead letter of a log row that could not be typed, as the ledger records it."""
    place = {name: line[name] for name in ("epoch", "pos", "key", "batch", "origin", "place")}
    return {**place, "code": failure.code, "reason": failure.reason}


def logged_change(
    line: Mapping[str, Any], handle: int, plan: TablePlan, left: Mapping[KeyChangePlace, Left] | None = None
) -> Logged:
    """A log row as the definition of the rule takes it; *handle* is the caller's own.

    Where rows are completed, *left* tells which key each of them had before (:func:`left_keys`).
    """
    position = LogPosition.parse(plan.epochs[line["epoch"]], line["pos"])
    after = None if line["row"] is None else msgspec.json.decode(line["row"])
    before = None if line["before"] is None else msgspec.json.decode(line["before"])
    whole = not plan.completing or line["op"] != UPDATE or carries_all(line["cols"], plan.types)
    types = types_of(line["cols"]) if plan.completing and after is not None else None
    had = left.get(place_of(line)) if left and after is not None else None
    meaning = None if line["cols"] is None else meaning_of(line["cols"])
    loaded = plan.completing and is_load_epoch(line["epoch"])
    change = Logged(line["batch"], position, line["op"], after, before, handle, whole, types, had, meaning, loaded)
    if plan.of_reading:
        change = change._replace(of_reading=True)
    if had is not None:
        change = change._replace(telling=_telling(line["cols"], plan.keys))
    if not plan.gone:
        return change._replace(dropped=plan.unread) if plan.unread else change
    dropped = plan.unread.union(plan.gone)
    return change._replace(required=plan.types.keys() - plan.lacking(position.order), dropped=dropped)


@lru_cache(maxsize=4096)
def _telling(cols: str, keys: tuple[str, ...]) -> frozenset[str]:
    """The columns of a list, but for the key, that a before image tells: not large objects (C-71, K-22)."""
    return frozenset(name for name, sql_type in types_of(cols).items() if name not in keys and not is_large(sql_type))


def left_keys(moved: MovedRows, plan: TablePlan) -> Mapping[KeyChangePlace, Left]:
    """The key that each moved row had before, by the place of its key change.

    They come oldest first, and each change once: those of a key include rows that had moved there before. Of a
    whole row, which needs no completing, it is enough to know that it came from another key.
    """
    found: dict[KeyChangePlace, Left] = {}
    logged: dict[int, Logged] = {}
    taking = {
        key: [(line["order"], logged_change(line, -1, plan)) for line in lines if line["op"] in (INSERT, UPDATE)]
        for key, lines in moved.lines.items()
    }
    for place, half in sorted(moved.leaving.items(), key=lambda one: one[1]["order"]):
        lines = [line for line in moved.lines.get(half["key"], ()) if line["order"] < half["order"]]
        for line in lines:
            if id(line) not in logged:
                logged[id(line)] = logged_change(line, -1, plan, found)
        leaving = logged_change(half, -1, plan)
        changes = first_of_each([logged[id(line)] for line in lines])
        later = [change for order, change in taking.get(half["key"], ()) if order > half["order"]]
        found[place] = Left(leaving.position, leaving.before, changes, later)
    return found


def untold_row(key: str, found: RowUntold) -> PlanStop:
    """The stop for a row of which nobody knows whether it still stands at its key (G-115)."""
    return PlanStop(
        SWAP_POSSIBLE,
        f"at position {found.half.position.text} a row left a key of {len(key)} characters that another one had "
        "taken in the same transaction: neither its before image nor the log tells whether it was that one or a row "
        "which stood there before",
    )


def conflict(key: str | None, one: Logged, other: Logged) -> PlanStop:
    """The stop for two contents of one identity (G-02)."""
    return PlanStop(
        "IDENTITY_CONFLICT",
        f"two changes at position {one.position.text} of one key differ: batches {one.batch} and {other.batch}; "
        f"key of {len(key or '')} characters",
    )


def eligible(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """The changes that count over the initial load, each with its sortable ``order`` over all epochs.

    Raises:
        PlanStop: ``EPOCH_UNKNOWN`` (G-01), ``KEYLESS_CHANGE`` (F-12).
    """
    epochs = changes["epoch"].combine_chunks().dictionary_encode()
    # Tables are read together and share a dictionary: it may name streams that only another one has.
    spelled = epochs.dictionary.to_pylist()
    seen = {spelled[code] for code in pc.unique(epochs.indices).to_pylist()}
    if not all(is_of_generation(epoch, plan.generation) for epoch in seen):
        counting = pa.array([is_of_generation(epoch, plan.generation) for epoch in spelled], pa.bool_())
        return eligible(plan, changes.filter(counting.take(epochs.indices)))
    unknown = sorted(seen - plan.epochs.keys())
    if unknown:
        raise PlanStop("EPOCH_UNKNOWN", f"changes of an unknown stream incarnation arrived: {unknown}")
    if not plan.keys:
        _refuse_keyless(changes)
    names = pa.array([position_order(plan.epochs.get(epoch, 0), "") for epoch in spelled], pa.string())
    prefix = names.take(epochs.indices)
    changes = changes.append_column("order", pc.binary_join_element_wise(prefix, changes["pos"].combine_chunks(), ""))
    if not plan.keys:
        # Without a key every change is a row of its own: its place in the order stands for the key.
        changes = changes.set_column(changes.schema.get_field_index("key"), "key", changes["order"])
    if plan.former:
        changes = read_as_now(changes, plan.former)
    if plan.stream_from is None:
        return changes
    since = pc.greater_equal(changes["order"], f"{plan.stream_epoch:06d}:{plan.stream_from}")
    if plan.newest_load is not None:
        return changes.filter(_from_load_on(plan.newest_load, changes, since))
    loaded = pa.array([is_load_epoch(epoch) for epoch in spelled], pa.bool_()).take(epochs.indices)
    return changes.filter(pc.or_(since, loaded))


def _from_load_on(load: NewestLoad, changes: pa.Table, since: pa.Array) -> pa.Array:
    """Which rows are of the newest load, or of the changes behind it; *since* says which lie above the older ones.

    Raises:
        PlanStop: ``RELOAD_SEEN`` for a change that came since, and of which nothing tells whether it is older.
    """
    origins = changes["origin"].combine_chunks()
    origins = origins if pa.types.is_dictionary(origins.type) else origins.dictionary_encode()
    partitions = [partition_of(origin) for origin in origins.dictionary.to_pylist()]
    begins = pa.array([load.begins.get(one) for one in partitions], pa.int64()).take(origins.indices)
    is_of_stream = pc.equal(changes["epoch"].combine_chunks().cast(pa.string()), load.epoch)
    is_loaded = pc.and_(is_of_stream, pc.starts_with(changes["pos"].combine_chunks(), f"{LOAD_MAJOR}:"))
    is_newest = pc.greater_equal(changes["place"].combine_chunks(), pc.fill_null(begins, 0))
    if not load.is_closed:
        # A correction, which stands above a whole transaction, was read from the source later than the load.
        is_sent = pc.and_not(is_of_stream, pc.or_(is_loaded, pc.match_substring(changes["pos"].combine_chunks(), "~")))
        unclear = pc.and_(is_sent, pc.and_(since, pc.is_null(begins)))
        if load.new_from is not None:
            unclear = pc.and_(unclear, pc.less(changes["pos"].combine_chunks(), load.new_from))
        if (found := changes.filter(unclear)).num_rows:
            line = found.slice(0, 1).to_pylist()[0]
            raise PlanStop(
                RELOAD_SEEN,
                f"a change at {line['pos']} came at {line['origin']}:{line['place']}, and nothing tells whether it is "
                "older than the full load with which the table began",
            )
    return pc.if_else(is_loaded, is_newest, since)


def refuse_late(plan: TablePlan, changes: pa.Table) -> None:
    """Refuse a new change below the horizon: the log may lack the changes that it must be compared with (G-05).

    Changes of published batches lie beside those that waited there, and were decided before the horizon passed them.

    Raises:
        PlanStop: ``LATE_BELOW_HORIZON``.
    """
    if plan.horizon is None:
        return
    oldest = pc.min(changes["order"].filter(pc.greater(changes["batch"], plan.batch_from))).as_py()
    if oldest is not None and oldest < (plan.untold or ""):
        raise PlanStop(
            "LATE_BELOW_HORIZON",
            f"a change at {oldest} arrived, at or below the horizon {plan.horizon.ordinal:06d}:{plan.horizon.major}, "
            "under which the log is no longer complete",
        )


def _refuse_keyless(changes: pa.Table) -> None:
    other = changes.filter(pc.not_equal(changes["op"], INSERT))
    if other.num_rows:
        line = other.slice(0, 1).to_pylist()[0]
        raise PlanStop(
            "KEYLESS_CHANGE",
            f"a table without key got an update or delete ({line['op']} at {line['origin']}:{line['place']})",
        )


def in_set(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """The changes that lie in the set to publish, with their ``order``."""
    changes = eligible(plan, changes)
    if plan.cut is None or plan.cut.position_to is None:
        return changes
    return changes.filter(pc.less_equal(changes["order"], plan.cut.position_to))


def late_keys(plan: TablePlan, read_any: Read, floor: str) -> set[str]:
    """The keys, of any bucket, with a new change that is not above everything published."""
    if not floor:
        return set()
    late = pc.scalar(False)
    for epoch, text in not_above(floor, plan.epochs).items():
        late |= (pc.field("epoch") == epoch) & (pc.scalar(True) if text is None else pc.field("pos") <= text)
    return set(in_set(plan, read_any((pc.field("batch") > plan.batch_from) & late))["key"].to_pylist())


def loaded_twice(plan: TablePlan, changes: pa.Table, read_history: ReadHistory) -> set[str]:
    """The keys that have several rows of a source's own full load, at least one of them new (K-18).

    Such rows have no position at the source, so of rows in two partitions nothing says which is newer.
    """
    if not plan.keys:
        return set()
    every = _loaded(changes)
    loaded = every.filter(pc.greater(every["batch"], plan.batch_from))
    if not loaded.num_rows:
        return set()
    counted = pc.value_counts(every["key"].combine_chunks())
    found = set(counted.filter(pc.greater(counted.field("counts"), 1)).field("values").to_pylist())
    if plan.history_files:
        keys = pc.unique(loaded["key"]).to_pylist()
        found |= set(_loaded(eligible(plan, read_history(sorted(keys))))["key"].to_pylist())
    return found & set(loaded["key"].to_pylist())


def refuse_two_loads(changes: pa.Table) -> None:
    """Refuse rows of a full load that differ for one key in two partitions: nothing says which is true (K-18).

    Raises:
        PlanStop: ``IDENTITY_CONFLICT``.
    """
    first: dict[tuple[str, str], dict[str, Any]] = {}
    for line in _loaded(changes).to_pylist():
        other = first.setdefault((line["epoch"], line["key"]), line)
        if other["origin"] != line["origin"] and not _say_alike(other, line):
            places = " and ".join(f"{one['origin']}:{one['place']}" for one in (other, line))
            raise PlanStop(
                "IDENTITY_CONFLICT",
                f"two rows of a full load differ in one key of {len(line['key'])} characters, at {places}: nothing "
                "orders the partitions of a load",
            )


def _loaded(changes: pa.Table) -> pa.Table:
    """The rows of a source's own full load; an initial load of ours is recognised by its epoch, and left out."""
    if not changes.num_rows:
        return changes
    epochs = [epoch for epoch in pc.unique(changes["epoch"]).to_pylist() if not is_load_epoch(epoch)]
    theirs = pc.is_in(changes["epoch"], pa.array(epochs, pa.string()))
    return changes.filter(pc.and_(theirs, pc.starts_with(changes["pos"], f"{LOAD_MAJOR}:")))


def _say_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    known, again = (
        {n: v for n, v in msgspec.json.decode(line["row"]).items() if v is not None} for line in (one, other)
    )
    meaning = meaning_of(one["cols"])
    return known.keys() == again.keys() and all(
        known[name] == again[name] or meaning(name, known[name]) == meaning(name, again[name]) for name in known
    )


def arrived(plan: TablePlan, changes: pa.Table) -> int:
    """How many of the changes lie in new batches."""
    return pc.sum(pc.greater(changes["batch"], plan.batch_from)).as_py() or 0


def of_keys(changes: pa.Table, keys: set[str]) -> pa.Table:
    """The changes of these keys."""
    return changes.filter(pc.is_in(changes["key"], pa.array(sorted(keys), pa.string())))


@lru_cache(maxsize=4096)
def meaning_of(cols: str) -> Meaning:
    """The values of rows with this list of columns, and which texts are none of their type (G-06)."""
    types = types_of(cols)

    def meaning(name: str, text: str) -> Hashable:
        try:
            return _value(types[name], text)
        except (KeyError, TerminalError, ValueError):
            return Unreadable(text)

    return meaning


def _value(sql_type: str, text: str) -> Hashable:
    """Equal for two spellings of one value, with all digits that the source keeps."""
    if not is_known(sql_type):
        return text
    parsed = read_type(sql_type)
    value: Hashable = converter(sql_type)(text)
    if parsed.name in TIMESTAMPS:
        # The target has six digits of a second; a row that differs in a further one is another one all the same.
        cut = _CUT_DIGITS.search(text)
        return value, "" if cut is None else cut[1].rstrip("0")
    return time_text(text, parsed.second_digits) if parsed.name == "time" else value
