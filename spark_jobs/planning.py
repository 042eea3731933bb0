"""The plan rule over log rows: which changes of one table are published next.

:func:`open_mirroring.planning.plan_key` is the definition. Keys of which it is proved what the definition would say
(:mod:`spark_jobs.certain_keys`) are taken all together; every other key is decided by the definition, over all its
changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.landing_zone.schema import LandingColumn, file_schema
from open_mirroring.ledger.horizon import TableHorizon
from open_mirroring.log_position import LogPosition
from open_mirroring.planning import Logged, Row, plan_key
from spark_jobs.certain_keys import certain_keys
from spark_jobs.change_log_schema import INSERT, UPDATE
from spark_jobs.partial_rows import carries_all, partial_keys, with_rows
from spark_jobs.typed_rows import Failure, type_rows

Identity = tuple[str, str, str | None]
"""Epoch, position text and key of a change."""


@dataclass(frozen=True)
class TablePlan:
    """What a worker must know to plan one table, or some key buckets of it.

    Attributes:
        batch_from: the batch the target has; changes of later batches are new.
        history_files: earlier log files that may hold changes as new as the oldest new one.
        highest: highest position among the changes up to *batch_from*; None when there is none.
        epochs: ordinal of every stream incarnation the ledger knows.
        stream_from: changes below this commit are in the initial load already (first incarnation only).
        rejected: changes that are dead letters already, and so no changes.
        types: source type of every known column.
        completing: whether updates may carry only what changed, so that earlier changes complete them (G-04); then
            *history_files* are all that hold the table.
        horizon: the log may lack changes of this transaction and earlier ones.
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
    horizon: TableHorizon | None = None


class PlannedRows(NamedTuple):
    """What a plan publishes, typed, and what became of every new change.

    *counts* add up: changes = published + compacted + duplicates + superseded + in_load + rejected (I1). *rejected*
    are the dead letters found here, as the ledger records them.
    """

    rows: pa.Table
    positions: tuple[str, str]
    counts: dict[str, int]
    rejected: list[dict[str, Any]]


class PlanStop(Exception):
    """The table cannot be published as it is: a stable code and what was found."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(code, what)
        self.code, self.what = code, what


def plan_table(plan: TablePlan, new: pa.Table, read_history: Callable[[Sequence[str]], pa.Table]) -> PlannedRows:
    """Apply the plan rule to the new changes of one table and type what it publishes.

    A change that cannot be typed is a dead letter, and so no change: its key is decided again without it, which
    makes the result independent of where batches were cut (G-09).

    Args:
        plan: the table and what is known of it.
        new: the table's changes in the new batches.
        read_history: given keys, their changes in *history_files*.

    Raises:
        PlanStop: ``IDENTITY_CONFLICT`` (G-02), ``KEYLESS_CHANGE`` (F-12), ``EPOCH_UNKNOWN`` (G-01),
            ``ROW_INCOMPLETE`` (G-04), ``LATE_BELOW_HORIZON`` (G-05).
    """
    floor = "" if plan.highest is None else f"{plan.highest.epoch:06d}:{plan.highest.text}"
    result = _Result(plan, new.num_rows)
    changes = _eligible(plan, new)
    _refuse_late(plan, changes)
    result.counts["in_load"] = new.num_rows - changes.num_rows
    uncertain = {key for _, _, key in plan.rejected if key is not None}
    if plan.completing:
        uncertain |= partial_keys(changes, plan.types)
    certain = certain_keys(changes, floor, uncertain)
    winners = changes.filter(_mask(changes.num_rows, certain.index)).combine_chunks()
    failed = result.take(winners)
    counted = np.delete(certain.logged, failed), np.delete(certain.repeated, failed)
    logged, repeated = (int(numbers.sum()) for numbers in counted)
    result.counts["duplicates"] += repeated
    result.counts["compacted"] += logged - repeated - len(counted[0])
    pending = certain.doubtful | {winners["key"][at].as_py() for at in failed}
    if pending:
        history = _eligible(plan, read_history(sorted(pending)))
        known = pa.concat_tables([_of_keys(changes, pending), history])
        while pending:
            pending = result.decide(known, pending)
    return result.finish()


class _Result:
    """Collects what is published; knows the dead letters, which are no changes any more."""

    def __init__(self, plan: TablePlan, logged: int) -> None:
        self._plan = plan
        self._rejected_before = plan.rejected
        self._rejected: dict[Identity, dict[str, Any]] = {}
        self._rows: list[pa.Table] = []
        self._bounds: list[str] = []
        self.counts: Counter[str] = Counter(changes=logged)

    def take(self, winners: pa.Table) -> list[int]:
        """Type and keep winners; the indexes of those that could not be typed."""
        plan = self._plan
        if not plan.columns:
            # No change ever carried a row: these are deletes of what the target never had.
            self.counts["superseded"] += winners.num_rows
            return []
        typed = type_rows(winners, plan.columns, plan.keys, plan.types)
        failed = [failure.index for failure in typed.failures]
        for failure in typed.failures:
            self._reject(winners.slice(failure.index, 1).to_pylist()[0], failure)
        self.counts["published"] += typed.rows.num_rows
        self._rows.append(typed.rows)
        if typed.rows.num_rows:
            kept = pc.invert(_mask(winners.num_rows, failed))
            lowest_highest = pc.min_max(winners["order"].filter(kept) if failed else winners["order"]).as_py()
            self._bounds += [lowest_highest["min"], lowest_highest["max"]]
        return failed

    def decide(self, known: pa.Table, keys: set[str]) -> set[str]:
        """Decide *keys* by the definition; the keys to be decided again because their winner was a dead letter."""
        chosen = _of_keys(known, keys)
        by_handle: list[Logged] = []
        by_key: dict[str, list[Logged]] = {key: [] for key in keys}
        untypable: dict[str, set[LogPosition]] = {key: set() for key in keys}
        for at, line in enumerate(chosen.to_pylist()):
            logged = _logged(line, at, self._plan)
            by_handle.append(logged)
            by_key[line["key"]].append(logged)
            if self._is_rejected(line):
                untypable[line["key"]].add(logged.position)
        winners: list[int] = []
        completed: dict[int, Row] = {}
        counted: dict[str, Counter[str]] = {}
        for key, changes in by_key.items():
            decided = plan_key(changes, self._plan.batch_from, untypable[key])
            if decided.conflict:
                raise _conflict(key, *decided.conflict)
            if decided.incomplete:
                raise _incomplete(decided.incomplete, self._plan.types)
            counted[key] = Counter(
                duplicates=decided.duplicates,
                superseded=decided.superseded,
                compacted=decided.compacted,
            )
            if decided.publish is not None:
                if decided.publish.after is not by_handle[decided.publish.handle].after:
                    completed[len(winners)] = decided.publish.after or {}
                winners.append(decided.publish.handle)
        rows = with_rows(chosen.take(pa.array(winners, pa.int64())), completed, self._plan.types)
        failed = {rows["key"][at].as_py() for at in self.take(rows)}
        for key in keys - failed:
            self.counts.update(counted[key])
        return failed

    def finish(self) -> PlannedRows:
        self.counts["rejected"] = len(self._rejected)
        bounds = (min(self._bounds), max(self._bounds)) if self._bounds else ("", "")
        counts = {name: count for name, count in self.counts.items() if count}
        nothing = file_schema(self._plan.columns, self._plan.keys, marker=True).empty_table()
        return PlannedRows(pa.concat_tables([nothing, *self._rows]), bounds, counts, list(self._rejected.values()))

    def _reject(self, line: dict[str, Any], failure: Failure) -> None:
        self._rejected[_identity(line)] = {
            **{name: line[name] for name in ("epoch", "pos", "key", "batch", "origin", "place")},
            "code": failure.code,
            "reason": failure.reason,
        }

    def _is_rejected(self, line: dict[str, Any]) -> bool:
        identity = _identity(line)
        return identity in self._rejected or identity in self._rejected_before


def _identity(line: Mapping[str, Any]) -> Identity:
    return (line["epoch"], line["pos"], line["key"])


def _logged(line: Mapping[str, Any], handle: int, plan: TablePlan) -> Logged:
    position = LogPosition.parse(plan.epochs[line["epoch"]], line["pos"])
    after = None if line["row"] is None else msgspec.json.decode(line["row"])
    before = None if line["before"] is None else msgspec.json.decode(line["before"])
    whole = not plan.completing or line["op"] != UPDATE or carries_all(line["cols"], plan.types)
    return Logged(line["batch"], position, line["op"], after, before, handle, whole)


def _conflict(key: str | None, one: Logged, other: Logged) -> PlanStop:
    return PlanStop(
        "IDENTITY_CONFLICT",
        f"two changes at position {one.position.text} of one key differ: batches {one.batch} and {other.batch}; "
        f"key of {len(key or '')} characters",
    )


def _incomplete(change: Logged, types: Mapping[str, str]) -> PlanStop:
    absent = sorted(types.keys() - (change.after or {}).keys())
    return PlanStop(
        "ROW_INCOMPLETE",
        f"the update at position {change.position.text} lacks {absent[:5]}, which no earlier change of its key tells",
    )


def _eligible(plan: TablePlan, changes: pa.Table) -> pa.Table:
    """The changes that are not in the initial load, each with its sortable ``order`` over all epochs."""
    epochs = changes["epoch"].combine_chunks().dictionary_encode()
    # Tables are read together and share a dictionary: it may name streams that only another one has.
    spelled = epochs.dictionary.to_pylist()
    unknown = sorted({spelled[code] for code in pc.unique(epochs.indices).to_pylist()} - plan.epochs.keys())
    if unknown:
        raise PlanStop("EPOCH_UNKNOWN", f"changes of an unknown stream incarnation arrived: {unknown}")
    if not plan.keys:
        _refuse_keyless(changes)
    names = pa.array([f"{plan.epochs.get(epoch, 0):06d}:" for epoch in spelled], pa.string())
    prefix = names.take(epochs.indices)
    changes = changes.append_column("order", pc.binary_join_element_wise(prefix, changes["pos"].combine_chunks(), ""))
    if not plan.keys:
        # Without a key every change is a row of its own: its place in the order stands for the key.
        changes = changes.set_column(changes.schema.get_field_index("key"), "key", changes["order"])
    if plan.stream_from is None:
        return changes
    return changes.filter(pc.greater_equal(changes["order"], f"{0:06d}:{plan.stream_from}"))


def _refuse_late(plan: TablePlan, changes: pa.Table) -> None:
    """Stop at a new change of which the log may no longer hold what it has to be compared with (G-05)."""
    if plan.horizon is None or not changes.num_rows:
        return
    oldest = pc.min(changes["order"]).as_py()
    # A semicolon sorts behind the colon that follows the transaction: its own changes are below, later ones above.
    if oldest < f"{plan.horizon.ordinal:06d}:{plan.horizon.major};":
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


def _of_keys(changes: pa.Table, keys: set[str]) -> pa.Table:
    return changes.filter(pc.is_in(changes["key"], pa.array(sorted(keys), pa.string())))


def _mask(length: int, places: Sequence[int] | npt.NDArray[np.int64]) -> pa.Array:
    mask = np.zeros(length, np.bool_)
    mask[np.asarray(places, np.int64)] = True
    return pa.array(mask)
