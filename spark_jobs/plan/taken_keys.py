"""Tells a key that a row took while another row stood there from a key that a row took and left again (G-03).

Both show the same events if the two rows are equal but for their keys: rows of a table that links two others, for one.
What the key held before the transaction tells them apart, in files of the log that a plan mostly need not read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Left
from spark_jobs.changelog.schema import KEY_LEFT, UPDATE
from spark_jobs.plan.moved_rows import KeyChangePlace, Read, place_of
from spark_jobs.plan.table_plan import ReadHistory, TablePlan, eligible, of_keys
from spark_jobs.plan.transaction_cut import published


class TakenKeys:
    """What the log tells of keys that were taken and left in one transaction, beyond the files of a plan."""

    def __init__(self, plan: TablePlan, read_any: Read, read_older: ReadHistory) -> None:
        self._plan, self._read_any, self._read_older = plan, read_any, read_older

    def learn(self, known: pa.Table) -> tuple[pa.Table, Mapping[KeyChangePlace, Left]]:
        """The changes with the older ones of such keys, and by which of them a row came from another key."""
        left = set(known["key"].filter(pc.equal(known["op"], KEY_LEFT)).to_pylist())
        lines = of_keys(known, left).to_pylist() if left else []
        leaving = {_of_transaction(line) for line in lines if line["op"] == KEY_LEFT}
        setting = [line for line in lines if line["op"] == UPDATE and _of_transaction(line) in leaving]
        if not setting:
            return known, {}
        places = {place_of(line) for line in setting}
        halves = self._read_any((pc.field("op") == KEY_LEFT) & pc.field("pos").isin([f"{at}:0" for _, at in places]))
        epochs = self._plan.epochs
        moved = {
            place_of(half): Left(LogPosition.parse(epochs[half["epoch"]], half["pos"]), None, ())
            for half in halves.to_pylist()
            if place_of(half) in places
        }
        taken = sorted({line["key"] for line in setting if place_of(line) in moved})
        if taken:
            older = eligible(self._plan, self._read_older(taken))
            known = pa.concat_tables([known, older if self._plan.cut is None else published(self._plan.cut, older)])
        return known, moved


def _of_transaction(line: Mapping[str, Any]) -> tuple[str, str, str]:
    return line["key"], line["epoch"], line["pos"].partition(":")[0]
