"""Tells two cases apart that show the same events (G-03).

A row took a key while another row stood there, or it took the key and left it again. The events are the same if the two
rows are equal but for their keys, as in a table that links two others. What the key held before the transaction tells
the cases apart; it lies in files of the log that a plan rarely has to read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Left
from spark_jobs.changelog.schema import DELETE, INSERT, KEY_LEFT, UPDATE
from spark_jobs.plan.moved_rows import KeyChangePlace, Read, place_of
from spark_jobs.plan.table_plan import TablePlan, eligible, of_keys
from spark_jobs.plan.transaction_cut import published


class TakenKeys:
    """What the log tells of keys that were taken and left in one transaction, beyond the files of a plan."""

    def __init__(self, plan: TablePlan, read_any: Read, read_older: Read) -> None:
        self._plan, self._read_any, self._read_older = plan, read_any, read_older

    def learn(self, known: pa.Table) -> tuple[pa.Table, Mapping[KeyChangePlace, Left]]:
        """The changes with the older ones of such keys, and by which of them a row came from another key."""
        moved = self._moved(known, self._read_any)
        taken = {line["key"] for line in _taken_and_left(known) if place_of(line) in moved} if moved else set()
        if not taken:
            return known, moved
        older = eligible(self._plan, self._read_older(pc.field("key").isin(sorted(taken))))
        known = pa.concat_tables([known, older if self._plan.cut is None else published(self._plan.cut, older)])
        # The row that stood there before may have come in the same way.
        return known, {**self._moved(known, self._read_any), **self._moved(known, self._read_older)}

    def _moved(self, known: pa.Table, read: Read) -> Mapping[KeyChangePlace, Left]:
        taken = _taken_and_left(known)
        # A row that was inserted came from no key; it is here where another one may have stood at its key.
        came = [line for line in taken if line["op"] == INSERT]
        if places := {place_of(line) for line in taken} - {place_of(line) for line in came}:
            halves = read((pc.field("op") == KEY_LEFT) & pc.field("pos").isin([f"{at}:0" for _, at in places]))
            came += [half for half in halves.to_pylist() if place_of(half) in places]
        epochs, untold = self._plan.epochs, self._plan.untold
        return {
            place_of(line): Left(LogPosition.parse(epochs[line["epoch"]], line["pos"]), None, (), untold=untold)
            for line in came
        }


def _taken_and_left(known: pa.Table) -> list[dict[str, Any]]:
    """The rows that came to keys which a row left in the same transaction.

    One that was inserted is among them where the row that was deleted had other values.
    """
    left = set(known["key"].filter(pc.is_in(known["op"], pa.array([KEY_LEFT, DELETE]))).to_pylist())
    lines = of_keys(known, left).to_pylist() if left else []
    leaving: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for line in lines:
        if line["op"] in (KEY_LEFT, DELETE):
            leaving.setdefault(_of_transaction(line), []).append(line)

    def may_stand_on_another(line: Mapping[str, Any]) -> bool:
        gone = [one for one in leaving.get(_of_transaction(line), ()) if one["pos"] > line["pos"]]
        is_other = any(one["op"] == DELETE and one["before"] != line["row"] for one in gone)
        return (bool(gone) and line["op"] == UPDATE) or (is_other and line["op"] == INSERT)

    return [line for line in lines if may_stand_on_another(line)]


def _of_transaction(line: Mapping[str, Any]) -> tuple[str, str, str]:
    return line["key"], line["epoch"], line["pos"].partition(":")[0]
