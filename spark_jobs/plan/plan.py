"""The plan rule over log rows: which changes of one table are published next.

:func:`open_mirroring.changes.plan_rule.plan_key` is the definition. Keys for which its answer is proven
(:mod:`spark_jobs.plan.certain_keys`) are taken all together; the definition decides every other key over all its
changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Left, Logged, RowUntold
from open_mirroring.changes.plan_rule import plan_key
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.protocols.table_stops import ROW_INCOMPLETE
from spark_jobs.plan.certain_keys import certain_keys
from spark_jobs.plan.moved_rows import KeyChangePlace, MovedRows, Read
from spark_jobs.plan.partial_rows import Completed, partial_keys, with_rows
from spark_jobs.plan.table_plan import (
    Identity,
    PlannedRows,
    PlanStop,
    ReadHistory,
    TablePlan,
    above_the_gone,
    arrived,
    conflict,
    eligible,
    identity_of,
    in_set,
    late_keys,
    left_keys,
    loaded_twice,
    logged_change,
    of_keys,
    refuse_late,
    refuse_two_loads,
    rejection,
    typed_changes,
    untold_row,
)
from spark_jobs.plan.taken_keys import TakenKeys
from spark_jobs.plan.transaction_cut import published, take
from spark_jobs.sources.sql_server.typed_rows import Failure

__all__ = ["Identity", "PlanStop", "PlannedRows", "TablePlan", "plan_table"]


def plan_table(
    plan: TablePlan,
    new: pa.Table,
    read_history: ReadHistory,
    read_any: Read | None = None,
    read_older: Read | None = None,
) -> PlannedRows:
    """Apply the plan rule to the new changes of one table and type what it publishes.

    A change that cannot be typed is a dead letter, and so no change: its key is decided again without it, which
    makes the result independent of where batches were cut (G-09).

    Args:
        plan: the table and what is known of it.
        new: the table's changes in the new batches; where transactions are held back, those that waited too.
        read_history: given keys, their changes in *history_files*.
        read_any: given a condition, the changes of all files, whatever their key bucket, that fulfil it; for rows that
            changed their keys.
        read_older: given a condition, the published changes of all other files of the log that fulfil it.

    Raises:
        PlanStop: ``IDENTITY_CONFLICT`` (G-02), ``KEYLESS_CHANGE`` (F-12), ``EPOCH_UNKNOWN`` (G-01),
            ``ROW_INCOMPLETE`` (G-04), ``SWAP_POSSIBLE`` (G-115), ``LATE_BELOW_HORIZON`` (G-05).
    """
    taken = TakenKeys(plan, read_any, read_older) if read_any is not None and read_older is not None else None
    floor = "" if plan.highest is None else plan.highest.order
    changes = eligible(plan, new)
    refuse_late(plan, changes)
    if plan.cut is None:
        result = _Result(plan, new.num_rows)
        result.counts["in_load"] = new.num_rows - changes.num_rows
    else:
        floor = min(floor, plan.cut.position_from)
        result = _Result(plan, arrived(plan, new))
        result.counts["in_load"] = arrived(plan, new) - arrived(plan, changes)
        changes, result.counts["released"], result.counts["waiting"] = take(plan.cut, plan.batch_from, changes)
    uncertain = {key for _, _, key in plan.rejected if key is not None}
    renewed: set[str] = set()
    if plan.completing:
        uncertain |= partial_keys(changes, plan.types)
        if read_any is not None:
            result.moved = MovedRows(lambda condition: in_set(plan, read_any(condition)), plan.types)
            renewed = result.moved.destinations(late_keys(plan, read_any, floor), plan.buckets)
            uncertain |= renewed
    else:
        result.taken = taken
    twice = loaded_twice(plan, changes, read_history)
    certain = certain_keys(changes, floor, uncertain | twice)
    winners = changes.filter(_mask(changes.num_rows, certain.index)).combine_chunks()
    failed = result.take(winners)
    counted = np.delete(certain.logged, failed), np.delete(certain.repeated, failed)
    logged, repeated = (int(numbers.sum()) for numbers in counted)
    result.counts["duplicates"] += repeated
    result.counts["compacted"] += logged - repeated - len(counted[0])
    pending = certain.doubtful | renewed | {winners["key"][at].as_py() for at in failed}
    if pending:
        history = eligible(plan, read_history(sorted(pending)))
        history = history if plan.cut is None else published(plan.cut, history)
        known = pa.concat_tables([of_keys(changes, pending), history])
        while pending:
            pending = result.decide(known, pending)
    return result.finish()


class _Result:
    """Collects what is published; knows the dead letters, which are no changes any more."""

    def __init__(self, plan: TablePlan, logged: int) -> None:
        self._plan = plan
        self._rejected_before = plan.rejected
        self._published_position = None if plan.cut is None else plan.cut.position_from
        self._rejected: dict[Identity, dict[str, Any]] = {}
        self._rows: list[pa.Table] = []
        self._bounds: list[str] = []
        self._unverified: list[str] = []
        self.counts: Counter[str] = Counter(changes=logged)
        self.moved: MovedRows | None = None
        self.taken: TakenKeys | None = None

    def take(self, winners: pa.Table) -> list[int]:
        """Type and keep winners; the indexes of those that could not be typed."""
        plan = self._plan
        if not plan.columns:
            # No change ever carried a row: these are deletes of what the target never had.
            self.counts["superseded"] += winners.num_rows
            return []
        if plan.lives_above is not None:
            kept = above_the_gone(plan, winners)
            if len(kept) < winners.num_rows:
                self.counts["superseded"] += winners.num_rows - len(kept)
                return [kept[at].as_py() for at in self.take(winners.take(kept))]
        typed = typed_changes(plan, winners)
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
        chosen = of_keys(known, keys)
        refuse_two_loads(chosen)
        by_handle: list[Logged] = []
        by_key: dict[str, list[Logged]] = {key: [] for key in keys}
        untypable: dict[str, set[LogPosition]] = {key: set() for key in keys}
        left: Mapping[KeyChangePlace, Left] = {}
        if self.taken is not None:
            chosen, left = self.taken.learn(chosen)
        lines = chosen.to_pylist()
        if self.moved is not None:
            self.moved.learn(lines)
            left = left_keys(self.moved, self._plan)
        for at, line in enumerate(lines):
            logged = logged_change(line, at, self._plan, left)
            by_handle.append(logged)
            by_key[line["key"]].append(logged)
            if self._is_rejected(line):
                untypable[line["key"]].add(logged.position)
        winners: list[int] = []
        completed: dict[int, Completed] = {}
        counted: dict[str, Counter[str]] = {}
        for key, changes in by_key.items():
            try:
                decided = plan_key(changes, self._plan.batch_from, untypable[key], self._published_position)
            except RowUntold as found:
                raise untold_row(key, found) from None
            if decided.conflict:
                raise conflict(key, *decided.conflict)
            if decided.incomplete:
                raise _incomplete(decided.incomplete, self._plan)
            counted[key] = Counter(
                duplicates=decided.duplicates,
                superseded=decided.superseded,
                compacted=decided.compacted,
                renewed=decided.renewed,
            )
            if decided.unverified and decided.publish is not None:
                self._unverified.append(decided.publish.position.order)
            if decided.publish is not None:
                if decided.publish.after is not by_handle[decided.publish.handle].after:
                    completed[len(winners)] = Completed(decided.publish.after or {}, decided.publish.types or {})
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
        rows, rejected = pa.concat_tables([nothing, *self._rows]), list(self._rejected.values())
        return PlannedRows(rows, bounds, counts, rejected, unverified=min(self._unverified, default=None))

    def _reject(self, line: dict[str, Any], failure: Failure) -> None:
        position = self._published_position
        is_new = line["batch"] > self._plan.batch_from or (position is not None and line["order"] > position)
        self.counts["renewed"] += not is_new
        self._rejected[identity_of(line)] = rejection(line, failure)

    def _is_rejected(self, line: dict[str, Any]) -> bool:
        identity = identity_of(line)
        return identity in self._rejected or identity in self._rejected_before


def _incomplete(change: Logged, plan: TablePlan) -> PlanStop:
    absent = sorted(plan.types.keys() - plan.lacking(change.position.order) - (change.after or {}).keys())
    return PlanStop(
        ROW_INCOMPLETE,
        f"the update at position {change.position.text} lacks {absent[:5]}, which no earlier change of its key tells",
    )


def _mask(length: int, places: Sequence[int] | npt.NDArray[np.int64]) -> pa.Array:
    mask = np.zeros(length, np.bool_)
    mask[np.asarray(places, np.int64)] = True
    return pa.array(mask)
