"""Distinguishes two cases that show the same events (G-03).

A row took a key while another row stood there, or it took the key and left it again. The events are the same if the two
rows are equal but for their keys, as in a table that links two others. The row that was at the key before the
transaction decides; it is in files of the log that a plan rarely has to read.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Left
from spark_jobs.changelog.schema import DELETE, INSERT, KEY_LEFT, UPDATE
from spark_jobs.plan.logged_lines import KeysLeft, Line, place_of
from spark_jobs.plan.moved_rows import halves_at
from spark_jobs.plan.selection import CountingChanges, Read, of_keys
from spark_jobs.plan.table_plan import TablePlan


class TakenKeys:
    """Finds rows that came to keys which a row left in the same transaction."""

    def __init__(self, plan: TablePlan, counting: CountingChanges) -> None:
        self._plan, self._counting = plan, counting

    def learn(self, known: pa.Table) -> tuple[pa.Table, KeysLeft]:
        """The changes with the older ones of such keys, and which rows among them came from another key."""
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
            came += halves_at(read, places).values()
        epochs, untold = self._plan.epochs, self._plan.incomplete_up_to
        return {
            place_of(line): Left(LogPosition.parse(epochs[line["epoch"]], line["pos"]), None, (), untold=untold)
            for line in came
        }


def _taken_and_left(known: pa.Table) -> list[Line]:
    """The rows that came to keys which a row left in the same transaction.

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
