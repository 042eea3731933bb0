"""Decides which logged changes of one table are published next: for each key, the newest change.

:func:`open_mirroring.changes.plan_rule.plan_key` is the rule that decides for a key from all its changes. Most keys
need not be decided one by one: :mod:`spark_jobs.plan.certain_keys` finds keys whose newest change is certainly
published, all at once with Arrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Logged, RowUnknown, same_content
from open_mirroring.changes.plan_rule import KeyPlan, plan_key
from open_mirroring.changes.versions import Version, VersionsPlan, plan_versions
from open_mirroring.config.row_filter import Condition
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.delimited_text import reads_as_null
from open_mirroring.landing_zone.layout import RowMarker
from open_mirroring.protocols.table_stops import ROW_INCOMPLETE, SWAP_POSSIBLE
from spark_jobs.changelog.schema import DELETE, KEY_LEFT, LOAD_MAJOR
from spark_jobs.plan.certain_keys import certain_keys
from spark_jobs.plan.keys_left import MovedRows, TakenKeys, renewed_keys
from spark_jobs.plan.loaded_columns import doubt_by_deletes
from spark_jobs.plan.logged_lines import KeysLeft, Line, identity_of, logged_change, partial_keys, types_of, with_rows
from spark_jobs.plan.selection import CountingChanges, are_loaded, eligible, loaded_rows, of_keys, row_key_of
from spark_jobs.plan.table_plan import Identity, PlannedRows, PlanStop, TablePlan
from spark_jobs.sources.sql_server.row_filters import matching, refuse_undecided
from spark_jobs.sources.sql_server.target_columns import with_extra
from spark_jobs.sources.sql_server.typed_rows import Failure, Typed, type_rows

_EVERYTHING = "~"
"""A text that sorts above every position."""


def plan_table(plan: TablePlan, new: pa.Table, counting: CountingChanges) -> PlannedRows:
    """Plan the *new* changes of one table and the earlier changes that waited, and type the rows to publish.

    A change whose values do not fit the types becomes a dead letter: its key is decided again without this change, so
    the result does not depend on where batches begin (G-09).

    Raises PlanStop as :func:`~spark_jobs.plan.selection.eligible` and :func:`typed_changes` do. Also raises PlanStop
    with ``IDENTITY_CONFLICT`` if two changes have the same position and key, but different values (G-02);
    ``ROW_INCOMPLETE`` if no earlier change has the missing columns of a row (G-04); ``SWAP_POSSIBLE`` if it is unknown
    whether a key still has a row after one row left the key and another took it (G-115); ``LATE_BELOW_HORIZON`` if a
    change came so late that the change log may lack changes to compare it with (G-05).
    """
    planning = _Planning(plan, new, counting)
    _leave_out_loaded(planning)
    _leave_out_reloaded(planning)
    _refuse_late(planning)
    _hold_back(planning)
    _find_uncertain(planning)
    _publish(planning)
    return planning.result()


class _Planning:
    """The changes of one table as they pass through the stages of planning."""

    def __init__(self, plan: TablePlan, changes: pa.Table, counting: CountingChanges) -> None:
        self.plan, self.changes, self.counting = plan, changes, counting
        self.counts = Counter[str]()
        self.uncertain = {key for _, _, key in plan.rejected if key is not None}
        """Keys that the plan rule has to decide one by one."""
        self.renewed = set[str]()
        """Those of the uncertain keys that may have no new change."""
        self.rejected: dict[Identity, dict[str, Any]] = {}
        self.rows: list[pa.Table] = []
        self.places: list[str] = []
        """The lowest and highest position of each group of published changes."""
        self.unverified: list[str] = []
        """Positions of deletes that only a before image proves (G-115)."""

    @property
    def published_position(self) -> str | None:
        """The position up to which changes of earlier batches are published; None if all of them are published."""
        return None if self.plan.cut is None else self.plan.cut.position_from

    @property
    def floor(self) -> str:
        """The position up to which changes may be published already, as a string that sorts in order of positions."""
        highest = "" if self.plan.highest is None else self.plan.highest.order
        return highest if self.published_position is None else min(highest, self.published_position)

    def arrived(self) -> int:
        """The number of changes in new batches."""
        return pc.sum(pc.greater(self.changes["batch"], self.plan.batch_from)).as_py() or 0

    def result(self) -> PlannedRows:
        """The rows to publish, and the number of changes by outcome."""
        self.counts["rejected"] = len(self.rejected)
        counts = {name: count for name, count in self.counts.items() if count}
        nothing = file_schema(self.plan.columns.landing, self.plan.keys, marker=True).empty_table()
        return PlannedRows(
            pa.concat_tables([nothing, *self.rows]),
            (min(self.places, default=""), max(self.places, default="")),
            counts,
            list(self.rejected.values()),
            min(self.unverified, default=None),
        )


def _leave_out_loaded(planning: _Planning) -> None:
    """Leave out changes that the table's initial load already contains."""
    planning.counts["changes"] = arrived = planning.arrived()
    planning.changes = eligible(planning.plan, planning.changes)
    planning.counts["in_load"] = arrived - planning.arrived()


def _leave_out_reloaded(planning: _Planning) -> None:
    """Leave out of a history the rows that a source's own full load sends again (G-194).

    They are no changes, and nothing orders them among the rows of the first load. Below the horizon any is one of them.
    """
    plan, changes = planning.plan, planning.changes
    if plan.keys_of_rows is None or not loaded_rows(changes).num_rows:
        return
    bucket, (low, high) = pc.field("bucket"), plan.buckets
    of_load = (pc.field("pos") < f"{LOAD_MAJOR};") & (bucket >= low) & (bucket < high)
    known = planning.counting.any(of_load) if plan.horizon is None else changes.slice(0, 0)
    first: dict[str, tuple[int, int, str]] = {}
    for key, at in _places_of_loaded(known):
        first[key] = min(first.get(key, at), at)
    places = pc.indices_nonzero(are_loaded(changes)).to_pylist()
    loaded = zip(places, _places_of_loaded(changes), strict=True)
    again = [place for place, (key, at) in loaded if first.get(key) != at]
    arrived = planning.arrived()
    planning.changes = changes.filter(pc.invert(_mask(changes.num_rows, again)))
    planning.counts["duplicates"] += arrived - planning.arrived()


def _places_of_loaded(changes: pa.Table) -> Iterator[tuple[str, tuple[int, int, str]]]:
    """The row's key, and where it was read, of each row of a source's own full load."""
    for line in loaded_rows(changes).select(["key", "batch", "place", "origin"]).to_pylist():
        yield row_key_of(line["key"]), (line["batch"], line["place"], line["origin"])


def _refuse_late(planning: _Planning) -> None:
    """Refuse a new change below the horizon, because the change log may lack changes to compare it with (G-05).

    Changes of earlier batches that waited there are no problem: they were decided before the horizon passed them.
    """
    plan, changes, horizon = planning.plan, planning.changes, planning.plan.horizon
    if horizon is None:
        return
    oldest = pc.min(changes["order"].filter(pc.greater(changes["batch"], plan.batch_from))).as_py()
    if oldest is not None and oldest < (plan.incomplete_up_to or ""):
        raise PlanStop(
            "LATE_BELOW_HORIZON",
            f"a change at {oldest} arrived, at or below the horizon {horizon.ordinal:06d}:{horizon.major}, "
            "under which the log is no longer complete",
        )


def _hold_back(planning: _Planning) -> None:
    """Leave out changes whose transaction is not complete yet, and those that the target has (I4)."""
    plan, changes = planning.plan, planning.changes
    if plan.cut is None:
        return
    order, is_new = changes["order"], pc.greater(changes["batch"], plan.batch_from)
    waits = pc.greater(order, _EVERYTHING if plan.cut.position_to is None else plan.cut.position_to)
    planning.counts["waiting"] = pc.sum(pc.and_(is_new, waits)).as_py() or 0
    published = pc.and_not(pc.less_equal(order, plan.cut.position_from), is_new)
    planning.changes = changes.filter(pc.invert(pc.or_(waits, published)))
    planning.counts["released"] = planning.changes.num_rows - planning.arrived()


def _find_uncertain(planning: _Planning) -> None:
    """Find keys that the plan rule has to decide one by one, because earlier changes decide what is published.

    - Keys whose rows must be completed from earlier changes, or changed by late changes of another key (G-04).
    - Keys whose row is removed but stays at the target: its last values are in earlier changes (G-192).
    - Keys with several rows of the source's own full load, at least one of them new. Such rows have no position at the
      source, so it is unknown which of two rows in two partitions is newer (K-18).
    """
    plan, changes = planning.plan, planning.changes
    if plan.columns.completing:
        planning.renewed = renewed_keys(plan, planning.counting, planning.floor)
        planning.uncertain |= planning.renewed | partial_keys(changes, plan.columns.types)
    if plan.columns.keeping:
        removes = pc.is_in(changes["op"], pa.array([DELETE, KEY_LEFT]))
        planning.uncertain |= {*changes["key"].filter(removes).to_pylist()}
    if plan.keys:
        loaded = loaded_rows(changes)
        new = set(loaded["key"].filter(pc.greater(loaded["batch"], plan.batch_from)).to_pylist())
        if new:
            counted = Counter(loaded["key"].to_pylist())
            before = set(loaded_rows(planning.counting.history(new))["key"].to_pylist())
            planning.uncertain |= {key for key in new if counted[key] > 1 or key in before}


def _publish(planning: _Planning) -> None:
    """Publish the certain keys all at once, and let the plan rule decide each other key."""
    if planning.plan.has_versions and planning.plan.columns.landing:
        _publish_versions(planning)
        return
    certain = certain_keys(planning.changes, planning.floor, planning.uncertain)
    winners = planning.changes.filter(_mask(planning.changes.num_rows, certain.newest)).combine_chunks()
    failed = _publish_rows(planning, winners)
    logged, repeated = (int(np.delete(numbers, failed).sum()) for numbers in (certain.logged, certain.repeated))
    planning.counts["duplicates"] += repeated
    planning.counts["compacted"] += logged - repeated - (len(certain.newest) - len(failed))
    pending = certain.doubtful | planning.renewed | {winners["key"][at].as_py() for at in failed}
    if not pending:
        return
    history = planning.counting.history(pending)
    known = pa.concat_tables([of_keys(planning.changes, pending), history])
    is_completing = planning.plan.columns.completing
    keys_left = (MovedRows if is_completing else TakenKeys)(planning.plan, planning.counting)
    while pending:
        chosen = of_keys(known, pending)
        _refuse_two_loads(planning.plan, chosen)
        pending = _decide(planning, pending, *keys_left.learn(chosen))


def _publish_rows(planning: _Planning, winners: pa.Table) -> list[int]:
    """Convert the winning changes to the table's types and keep them; returns the indexes of those that do not fit."""
    if not (winners.num_rows and planning.plan.columns.landing):
        planning.counts["superseded"] += winners.num_rows  # no change ever carried a row: there is none to delete
        return []
    typed = typed_changes(planning.plan, winners)
    failed = [failure.index for failure in typed.failures]
    for failure in typed.failures:
        _reject(planning, winners.slice(failure.index, 1).to_pylist()[0], failure)
    planning.counts["published"] += typed.rows.num_rows
    planning.counts["filtered"] += winners.num_rows - len(failed) - typed.rows.num_rows
    planning.rows.append(typed.rows)
    order = winners["order"].filter(pc.invert(_mask(winners.num_rows, failed))) if failed else winners["order"]
    planning.places += [place for place in pc.min_max(order).as_py().values() if place is not None]
    return failed


def _reject(planning: _Planning, line: Line, failure: Failure) -> None:
    position = planning.published_position
    is_new = line["batch"] > planning.plan.batch_from or (position is not None and line["order"] > position)
    planning.counts["renewed"] += not is_new
    place = {name: line[name] for name in ("epoch", "pos", "key", "batch", "origin", "place")}
    planning.rejected[identity_of(line)] = {**place, "code": failure.code, "reason": failure.reason}


def _logged(
    planning: _Planning, keys: set[str], chosen: pa.Table, left: KeysLeft
) -> tuple[dict[str, list[Logged]], dict[str, set[LogPosition]], list[Logged]]:
    """The *chosen* changes by key, the positions of those that do not fit the types, and all changes in order."""
    plan = planning.plan
    logged: list[Logged] = []
    by_key: dict[str, list[Logged]] = {key: [] for key in keys}
    untypable: dict[str, set[LogPosition]] = {key: set() for key in keys}
    for at, line in enumerate(chosen.to_pylist()):
        logged.append(change := logged_change(plan, line, at, left))
        by_key[line["key"]].append(change)
        if identity_of(line) in planning.rejected or identity_of(line) in plan.rejected:
            untypable[line["key"]].add(change.position)
    return by_key, untypable, logged


def _decide(planning: _Planning, keys: set[str], chosen: pa.Table, left: KeysLeft) -> set[str]:
    """Apply the plan rule to each of *keys*; *chosen* are their changes.

    Returns the keys whose winning change does not fit the types: they are decided again without it.
    """
    plan = planning.plan
    by_key, untypable, logged = _logged(planning, keys, chosen, left)
    winners: list[int] = []
    completed: dict[int, Logged] = {}
    counted: dict[str, Counter[str]] = {}
    for key, changes in by_key.items():
        decided = _decided(planning, key, changes, untypable[key])
        counted[key] = Counter({name: getattr(decided, name) for name in _ACCOUNTS})
        winner = decided.publish
        if winner is None:
            continue
        if decided.unverified:
            planning.unverified.append(winner.position.order)
        if winner.after is not logged[winner.handle].after:
            completed[len(winners)] = winner
        winners.append(winner.handle)
    rows = with_rows(chosen.take(pa.array(winners, pa.int64())), completed, plan.columns.types)
    failed = {rows["key"][at].as_py() for at in _publish_rows(planning, rows)}
    for key in keys - failed:
        planning.counts.update(counted[key])
    return failed


def _publish_versions(planning: _Planning) -> None:
    """Publish the versions of each key that the target lacks, or of which it has another end (G-195)."""
    pending = {*planning.changes["key"].to_pylist()}
    known = pa.concat_tables([planning.changes, planning.counting.history(pending)])
    keys_left = TakenKeys(planning.plan, planning.counting)
    while pending:
        pending = _decide_versions(planning, pending, *keys_left.learn(of_keys(known, pending)))


def _decide_versions(planning: _Planning, keys: set[str], chosen: pa.Table, left: KeysLeft) -> set[str]:
    """Decide the versions of *keys*; returns the keys with a row that could not be typed, to be decided without it."""
    plan, (by_key, untypable, _) = planning.plan, _logged(planning, keys, chosen, left)
    decided = {key: _versions(planning, key, changes, untypable[key]) for key, changes in by_key.items()}
    rows = _rows_of(chosen, [version for one in decided.values() for version in one.publish])
    failures = typed_changes(plan, rows).failures if rows.num_rows and plan.columns.landing else []
    for failure in failures:
        _reject(planning, rows.slice(failure.index, 1).to_pylist()[0], failure)
    failed = {rows["key"][failure.index].as_py() for failure in failures}
    _publish_rows(planning, of_keys(rows, keys - failed))
    for key in keys - failed:
        planning.counts.update({name: getattr(decided[key], name) for name in ("duplicates", "compacted", "renewed")})
    return failed


def _rows_of(changes: pa.Table, versions: Sequence[Version]) -> pa.Table:
    """The changes that began versions, with what is known of the end of each."""
    ends = pa.array([None if one.ended is None else one.ended.handle for one in versions], pa.int64())
    rows = changes.take(pa.array([one.began.handle for one in versions], pa.int64())).combine_chunks()
    rows = rows.append_column("valid_to", changes["committed"].combine_chunks().take(ends))
    return rows.append_column("is_current", ends.is_null())


def _versions(planning: _Planning, key: str, changes: list[Logged], untypable: set[LogPosition]) -> VersionsPlan:
    try:
        decided = plan_versions(changes, planning.plan.batch_from, untypable, planning.published_position)
    except RowUnknown as found:
        raise _swap_possible(key, found) from None
    if decided.conflict:
        raise _conflict(key, *decided.conflict)
    return decided


_ACCOUNTS = ("duplicates", "superseded", "compacted", "renewed")


def _decided(planning: _Planning, key: str, changes: list[Logged], untypable: set[LogPosition]) -> KeyPlan:
    plan = planning.plan
    try:
        position, keeps = planning.published_position, plan.columns.keeping
        decided = plan_key(changes, plan.batch_from, untypable, position, keeps=keeps)
    except RowUnknown as found:
        raise _swap_possible(key, found) from None
    if decided.conflict:
        raise _conflict(key, *decided.conflict)
    if (change := decided.incomplete) is not None:
        absent = sorted(plan.columns.required_at(change.position.order) - (change.after or {}).keys())
        raise PlanStop(
            ROW_INCOMPLETE,
            f"the update at position {change.position.text} lacks {absent[:5]}, which no earlier change of its key "
            "contains",
        )
    removal = decided.publish if keeps else None
    if removal is not None and removal.after is None and plan.lacks_rows:
        raise PlanStop(
            ROW_INCOMPLETE,
            f"`on_delete: keep` needs the last values of the row that was deleted at position {removal.position.text}, "
            "and the log may lack them",
        )
    return decided


def _swap_possible(key: str, found: RowUnknown) -> PlanStop:
    return PlanStop(
        SWAP_POSSIBLE,
        f"at position {found.half.position.text} a row left a key of {len(key)} characters that another one had "
        "taken in the same transaction: neither its before image nor the log shows whether it was that one or a "
        "row which was there before",
    )


def _conflict(key: str, one: Logged, other: Logged) -> PlanStop:
    return PlanStop(
        "IDENTITY_CONFLICT",
        f"two changes at position {one.position.text} of one key differ: batches {one.batch} and {other.batch}; "
        f"key of {len(key)} characters",
    )


def _refuse_two_loads(plan: TablePlan, changes: pa.Table) -> None:
    """Refuse rows of a full load that differ for one key in two partitions: the right one is unknown (K-18)."""
    first: dict[tuple[str, str], Line] = {}
    for line in loaded_rows(changes).to_pylist():
        other = first.setdefault((line["epoch"], line["key"]), line)
        if other["origin"] == line["origin"] or same_content(*(logged_change(plan, one) for one in (other, line))):
            continue
        places = " and ".join(f"{one['origin']}:{one['place']}" for one in (other, line))
        raise PlanStop(
            "IDENTITY_CONFLICT",
            f"two rows of a full load differ in one key of {len(line['key'])} characters, at {places}: nothing orders "
            "the partitions of a load",
        )


def _mask(length: int, places: Sequence[int] | npt.NDArray[np.int64]) -> pa.Array:
    mask = np.zeros(length, np.bool_)
    mask[np.asarray(places, np.int64)] = True
    return pa.array(mask)


def typed_changes(plan: TablePlan, changes: pa.Table) -> Typed:
    """Convert changes to rows of the table's files.

    A change with a value that does not fit its type is returned as a failure. Raises PlanStop with ``SCHEMA_CHANGED``
    if a column cannot be converted to its type in the files; ``VALUE_INVALID`` if keys of the initial load may differ
    from the source; ``FILTER_UNDECIDED`` if rows lack a column that the condition ``where`` needs.
    """
    if found := doubt_by_deletes(plan.begins.loaded_keys, changes):
        raise PlanStop("VALUE_INVALID", found)
    landing = plan.columns.landing
    try:
        typed = type_rows(changes, landing, plan.keys, plan.columns.types)
    except TerminalError as error:
        raise PlanStop(error.code, error.what) from error
    if plan.columns.where is not None:
        typed = _only_matching(plan, typed, changes, plan.columns.where)
    if plan.columns.null_text is not None:
        typed = _is_not_null(plan, typed, plan.columns.null_text)
    if not any(column.content for column in landing):
        return typed
    made_by, placed = changes.take(typed.places), plan.keys_of_rows is not None
    return typed._replace(rows=with_extra(typed.rows, made_by, landing, plan.source, placed=placed))


def _only_matching(plan: TablePlan, typed: Typed, changes: pa.Table, where: Condition) -> Typed:
    """The rows that fulfil `where`; of any other only the delete of its key, as the target may have it (G-193)."""
    *names, marker = typed.rows.column_names
    removes = pc.equal(typed.rows[marker], int(RowMarker.DELETE)).combine_chunks()
    rows_set = pc.invert(removes)
    try:
        for cols in pc.unique(changes["cols"].take(typed.places.filter(rows_set))).to_pylist():
            refuse_undecided(where, types_of(cols))
        stays = pc.or_(removes, matching(typed.rows, where))
    except TerminalError as error:
        raise PlanStop(error.code, error.what) from error
    if not plan.keys:
        return typed._replace(rows=typed.rows.filter(stays), places=typed.places.filter(stays))
    columns = {name: typed.rows[name].combine_chunks() for name in names}
    emptied = {
        name: values if name in plan.keys else pc.if_else(stays, values, pa.scalar(None, values.type))
        for name, values in columns.items()
    }
    markers = pc.if_else(stays, typed.rows[marker].combine_chunks(), pa.scalar(int(RowMarker.DELETE), pa.int32()))
    return typed._replace(rows=pa.Table.from_arrays([*emptied.values(), markers], schema=typed.rows.schema))


def _is_not_null(plan: TablePlan, typed: Typed, null: str) -> Typed:
    """Remove rows with a value that the service would read as NULL in a text file; they become failures (F-22)."""
    bad: dict[int, Failure] = {}
    for column in plan.columns.landing:
        if column.content or column.salted:
            continue  # the file has another text; the file's writer compares that
        found = reads_as_null(typed.rows[column.name].combine_chunks(), null)
        for at in pc.indices_nonzero(found).to_pylist():
            what = f"column {column.name!r}: the value {null!r} stands for NULL in this table's text files"
            row = typed.places[at].as_py()
            bad.setdefault(row, Failure(row, "VALUE_INVALID", f"{what}; choose another `null_value` and reload"))
    if not bad:
        return typed
    good = pc.invert(pc.is_in(typed.places, pa.array(list(bad), pa.int64())))
    return Typed(typed.rows.filter(good), typed.places.filter(good), [*typed.failures, *bad.values()])
