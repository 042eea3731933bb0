"""Plans every change of a table in the order of the source, for targets that keep the history of rows (I14).

:func:`open_mirroring.changes.plan_rule.key_history` is the definition. Where no change of a key is repeated, late or
half of a key change, all its changes are published; the definition decides every other key. All changes are then
put into one order and written by one task, because the files of a publication follow each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Left, Logged, RowUntold
from open_mirroring.changes.plan_rule import key_history
from open_mirroring.landing_zone.arrow_schema import file_schema
from spark_jobs.changelog.schema import DELETE, KEY_LEFT
from spark_jobs.plan.moved_rows import KeyChangePlace
from spark_jobs.plan.table_plan import (
    Identity,
    PlannedRows,
    PlanStop,
    ReadHistory,
    TablePlan,
    arrived,
    conflict,
    eligible,
    identity_of,
    logged_change,
    of_keys,
    refuse_late,
    rejection,
    typed_changes,
    untold_row,
)
from spark_jobs.plan.taken_keys import TakenKeys
from spark_jobs.plan.transaction_cut import Cut, published, take


def plan_history(
    plan: TablePlan, late_up_to: str, new: pa.Table, read_history: ReadHistory, taken: TakenKeys | None = None
) -> PlannedRows:
    """Every new change of one table in order, typed; *late_up_to* is the plan's.

    Raises:
        PlanStop: ``CHANGE_LATE``, ``LATE_BELOW_HORIZON`` (G-05), ``IDENTITY_CONFLICT`` (G-02), ``KEYLESS_CHANGE``
            (F-12), ``EPOCH_UNKNOWN`` (G-01), ``SWAP_POSSIBLE`` (G-115).
    """
    cut = plan.cut
    if cut is None:
        raise ValueError("changes have one order up to a complete position only")
    eligible_changes = eligible(plan, new)
    refuse_late(plan, eligible_changes)
    changes, released, waiting = take(cut, plan.batch_from, eligible_changes)
    counts = Counter(changes=arrived(plan, new), released=released, waiting=waiting)
    counts["in_load"] = counts["changes"] - arrived(plan, eligible_changes)
    doubtful = _doubtful(changes, cut.position_from)
    certain = changes.filter(pc.invert(_is_of(changes, doubtful)))
    known = of_keys(changes, doubtful)
    if doubtful:
        known = pa.concat_tables([known, published(cut, eligible(plan, read_history(sorted(doubtful))))])
    known, left = (known, {}) if taken is None else taken.learn(known)
    rejected: dict[Identity, dict[str, Any]] = {}
    while True:
        decided, counted, unverified = _decided(plan, cut, late_up_to, known, {*plan.rejected, *rejected}, left)
        chosen = pa.concat_tables([certain, decided])
        chosen = chosen.take(pc.sort_indices(chosen, [("order", "ascending"), ("key", "ascending")]))
        if not plan.columns:
            # No change ever carried a row: these are deletes of what the target never had.
            counted["superseded"] += chosen.num_rows
            chosen = chosen.slice(0, 0)
        typed = typed_changes(plan, chosen)
        if not typed.failures:
            break
        # They are no changes: another half of a key change may remove something without them (G-09).
        lines = chosen.take(pa.array([failure.index for failure in typed.failures])).to_pylist()
        rejected |= {identity_of(line): rejection(line, f) for line, f in zip(lines, typed.failures, strict=True)}
        certain = certain.filter(pc.invert(_is_among(certain, rejected)))
    counts.update(counted, published=chosen.num_rows, rejected=len(rejected))
    # Rows come back by kind and list of columns: back into the order of their changes.
    rows = typed.rows.take(pc.sort_indices(typed.places)) if chosen.num_rows else _nothing(plan)
    orders = chosen["order"].combine_chunks()
    bounds = (orders[0].as_py(), orders[-1].as_py()) if len(orders) else ("", "")
    told = {name: count for name, count in counts.items() if count}
    return PlannedRows(rows, bounds, told, list(rejected.values()), orders, min(unverified, default=None))


def _doubtful(changes: pa.Table, published_position: str) -> set[str]:
    """The keys with a half of a key change, with two changes at one place, or with one the target may have.

    So is a key with a DELETE and another change in one transaction.
    """
    suspect = pc.or_(pc.equal(changes["op"], KEY_LEFT), pc.less_equal(changes["order"], published_position))
    deleted = of_keys(changes, set(changes["key"].filter(pc.equal(changes["op"], DELETE)).to_pylist()))
    places = pc.utf8_slice_codeunits(changes["order"], 0, stop=-1)
    transactions = pc.replace_substring_regex(deleted["order"], ":[^:]+:[01]$", "")
    return {
        *changes["key"].filter(suspect).to_pylist(),
        *_repeated(changes["key"], places),
        *_repeated(deleted["key"], transactions),
    }


def _repeated(keys: pa.ChunkedArray, places: pa.ChunkedArray) -> list[str]:
    counted = pa.table({"place": places, "key": keys}).group_by(["place", "key"]).aggregate([([], "count_all")])
    found: list[str] = counted.filter(pc.greater(counted["count_all"], 1))["key"].to_pylist()
    return found


def _decided(
    plan: TablePlan,
    cut: Cut,
    late_up_to: str,
    known: pa.Table,
    rejected: set[Identity],
    left: Mapping[KeyChangePlace, Left],
) -> tuple[pa.Table, Counter[str], list[str]]:
    """What the definition publishes of the keys of *known*, what became of the others, and what is unverified."""
    by_key: dict[str, list[Logged]] = {}
    untypable: dict[str, set[LogPosition]] = {}
    for at, line in enumerate(known.to_pylist()):
        change = logged_change(line, at, plan, left)
        by_key.setdefault(line["key"], []).append(change)
        if identity_of(line) in rejected:
            untypable.setdefault(line["key"], set()).add(change.position)
    handles: list[int] = []
    counts: Counter[str] = Counter()
    unverified: list[str] = []
    for key, changes in by_key.items():
        dead: Collection[LogPosition] = untypable.get(key, frozenset())
        try:
            decided = key_history(changes, plan.batch_from, cut.position_from, late_up_to, dead)
        except RowUntold as found:
            raise untold_row(key, found) from None
        if decided.conflict:
            raise conflict(key, *decided.conflict)
        if decided.late:
            raise PlanStop(
                "CHANGE_LATE",
                f"the change at position {decided.late.position.text} arrived in batch {decided.late.batch}, after "
                "changes behind it were published",
            )
        handles += [change.handle for change in decided.publish]
        unverified += [change.position.order for change in decided.publish[:1] if decided.unverified]
        counts.update(duplicates=decided.duplicates, superseded=decided.superseded)
    return known.take(pa.array(handles, pa.int64())), counts, unverified


def _is_of(changes: pa.Table, keys: set[str]) -> pa.ChunkedArray:
    return pc.is_in(changes["key"], pa.array(sorted(keys), pa.string()))


def _is_among(changes: pa.Table, identities: dict[Identity, dict[str, Any]]) -> pa.Array:
    lines = changes.select(["epoch", "pos", "key"]).to_pylist()
    return pa.array([identity_of(line) in identities for line in lines], pa.bool_())


def _nothing(plan: TablePlan) -> pa.Table:
    return file_schema(plan.columns, plan.keys, marker=True).empty_table()
