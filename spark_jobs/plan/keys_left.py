"""Finds the key that a row had before a key change, if the old key decides which changes are published.

A key change is logged as two rows, the *halves*: the first half leaves the old key, the second half comes to the new
key. The positions of the halves differ only in the last number. A worker may read old keys of any key bucket, but
publishes only keys in its own buckets (G-03, G-04).
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition, not_above
from open_mirroring.changes.logged_change import Left, Logged, first_of_each
from open_mirroring.changes.row_key import key_bucket
from spark_jobs.changelog.schema import DELETE, INSERT, KEY_LEFT, UPDATE
from spark_jobs.plan.logged_lines import KeyChangePlace, KeysLeft, Line, is_partial, logged_change, place_of
from spark_jobs.plan.selection import CountingChanges, Read, of_keys
from spark_jobs.plan.table_plan import TablePlan


class MovedRows:
    """For tables with partial rows: finds the key that a row had before a key change, and that key's changes.

    If a logged row has only the changed columns, the changes of its old key have the other values.
    """

    def __init__(self, plan: TablePlan, counting: CountingChanges) -> None:
        self._plan, self._counting = plan, counting
        self._halves: dict[KeyChangePlace, Line] = {}
        self._changes: dict[str, list[Line]] = {}

    def learn(self, known: pa.Table) -> tuple[pa.Table, KeysLeft]:
        """Return the changes unchanged, and the key that each row among them had before its key changed."""
        self._read(known.to_pylist())
        return known, self._keys_left()

    def _read(self, lines: list[Line]) -> None:
        """Read the keys that updates among *lines* left and, for partial updates, all changes of those keys."""
        while places := {place_of(line) for line in lines if line["op"] == UPDATE} - self._halves.keys():
            self._halves |= _halves_at(self._counting.any, places)
            partial = {place_of(line) for line in lines if is_partial(line, self._plan)} & self._halves.keys()
            keys = {self._halves[place]["key"] for place in partial} - self._changes.keys()
            if not keys:
                return
            self._changes |= {key: [] for key in keys}
            for line in (lines := self._counting.any(pc.field("key").isin(sorted(keys))).to_pylist()):
                self._changes[line["key"]].append(line)

    def _keys_left(self) -> KeysLeft:
        """The key that each moved row had before, with the changes of that key, oldest key change first.

        They include rows that had moved to that key before. For a complete row, the old key alone is enough.
        """
        found: dict[KeyChangePlace, Left] = {}
        logged: dict[int, Logged] = {}
        taking = {
            key: [(line["order"], logged_change(self._plan, line)) for line in lines if line["op"] in (INSERT, UPDATE)]
            for key, lines in self._changes.items()
        }
        for place, half in sorted(self._halves.items(), key=lambda one: one[1]["order"]):
            lines = [line for line in self._changes.get(half["key"], ()) if line["order"] < half["order"]]
            for line in lines:
                if id(line) not in logged:
                    logged[id(line)] = logged_change(self._plan, line, left=found)
            leaving = logged_change(self._plan, half)
            later = [change for order, change in taking.get(half["key"], ()) if order > half["order"]]
            changes = first_of_each([logged[id(line)] for line in lines])
            found[place] = Left(leaving.position, leaving.before, changes, later)
        return found


class TakenKeys:
    """For tables without partial rows: finds rows that came to a key which another row left in the same transaction.

    Two cases produce the same events (G-03): a row came to a key while another row still had the key, or a row came to
    the key and left it again. If the two rows are equal except for the key, the row that had the key before the
    transaction decides which case it is. To find this row, older files of the change log are read.
    """

    def __init__(self, plan: TablePlan, counting: CountingChanges) -> None:
        self._plan, self._counting = plan, counting

    def learn(self, known: pa.Table) -> tuple[pa.Table, KeysLeft]:
        """Return the changes, and the rows among them that came to a key which another row left.

        Older changes of these keys are added to the changes.
        """
        left = self._keys_left(known, self._counting.any)
        taken = {line["key"] for line in _taken_and_left(known) if place_of(line) in left} if left else set()
        if not taken:
            return known, left
        known = pa.concat_tables([known, self._counting.older(pc.field("key").isin(sorted(taken)))])
        # The row that was there before may have come in the same way.
        return known, {**self._keys_left(known, self._counting.any), **self._keys_left(known, self._counting.older)}

    def _keys_left(self, known: pa.Table, read: Read) -> KeysLeft:
        taken = _taken_and_left(known)
        # A row that was inserted came from no key; it is here where another one may have been at its key.
        came = [line for line in taken if line["op"] == INSERT]
        if places := {place_of(line) for line in taken} - {place_of(line) for line in came}:
            came += _halves_at(read, places).values()
        epochs, unsure_to = self._plan.epochs, self._plan.incomplete_up_to
        return {
            place_of(line): Left(LogPosition.parse(epochs[line["epoch"]], line["pos"]), None, (), unsure_to=unsure_to)
            for line in came
        }


def _halves_at(read: Read, places: Collection[KeyChangePlace]) -> dict[KeyChangePlace, Line]:
    """The halves of key changes at these positions that leave the old key."""
    is_half = (pc.field("op") == KEY_LEFT) & pc.field("pos").isin([f"{at}:0" for _, at in places])
    return {place_of(line): line for line in read(is_half).to_pylist() if place_of(line) in places}


def _taken_and_left(known: pa.Table) -> list[Line]:
    """Rows that came to a key which a row left in the same transaction.

    An inserted row is among them only if the deleted row had other values.
    """
    left = set(known["key"].filter(pc.is_in(known["op"], pa.array([KEY_LEFT, DELETE]))).to_pylist())
    lines = of_keys(known, left).to_pylist() if left else []
    leaving: dict[tuple[str, str, str], list[Line]] = {}
    for line in lines:
        if line["op"] in (KEY_LEFT, DELETE):
            leaving.setdefault(_of_transaction(line), []).append(line)

    def may_stand_on_another(line: Line) -> bool:
        gone = [one for one in leaving.get(_of_transaction(line), ()) if one["pos"] > line["pos"]]
        is_other = any(one["op"] == DELETE and one["before"] != line["row"] for one in gone)
        return (bool(gone) and line["op"] == UPDATE) or (is_other and line["op"] == INSERT)

    return [line for line in lines if may_stand_on_another(line)]


def _of_transaction(line: Line) -> tuple[str, str, str]:
    return line["key"], line["epoch"], line["pos"].partition(":")[0]


def renewed_keys(plan: TablePlan, counting: CountingChanges, floor: str) -> set[str]:
    """Keys in the plan's buckets whose row may change although there is no new change of the key itself.

    A published partial update moved the row to the key, and a new change of the row's old key has a position at or
    below *floor*, the published position.
    """
    found: set[str] = set()
    frontier = found
    if floor:
        late = pc.scalar(False)
        for epoch, text in not_above(floor, plan.epochs).items():
            late |= (pc.field("epoch") == epoch) & (pc.scalar(True) if text is None else pc.field("pos") <= text)
        frontier = set(counting.any((pc.field("batch") > plan.batch_from) & late)["key"].to_pylist())
    while frontier:
        halves = counting.any((pc.field("op") == KEY_LEFT) & pc.field("key").isin(sorted(frontier))).to_pylist()
        places = {place_of(line) for line in halves}
        if not places:
            break
        taken = counting.any((pc.field("op") == UPDATE) & pc.field("pos").isin([f"{at}:1" for _, at in places]))
        moved = {line["key"] for line in taken.to_pylist() if place_of(line) in places and is_partial(line, plan)}
        frontier = moved - found
        found |= moved
    low, high = plan.buckets
    return {key for key in found if low <= key_bucket(key) < high}
