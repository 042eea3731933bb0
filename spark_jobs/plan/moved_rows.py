"""Finds earlier changes of rows that changed their key: partial changes are completed from them.

The two halves of a key change have the same position but for the half, so each half leads to the other. Several
workers plan the keys of one table. A worker may read old keys of any bucket here, but publishes only its own keys
(G-03, G-04).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import pyarrow.compute as pc
from pyarrow import Table

from open_mirroring.changes.row_key import key_bucket
from spark_jobs.changelog.schema import KEY_LEFT, UPDATE
from spark_jobs.plan.partial_rows import carries_all

Line = Mapping[str, Any]
KeyChangePlace = tuple[str, str]
"""Stream incarnation, and the position without its half."""

Read = Callable[[pc.Expression], Table]
"""The changes of a table that are in the set to publish and fulfil a condition, from any file and key bucket."""


def place_of(line: Line) -> KeyChangePlace:
    """What both halves of a key change have in common."""
    return line["epoch"], line["pos"][:-2]


class MovedRows:
    """Finds the earlier changes of a moved row among all changes of its table.

    Attributes:
        leaving: the half that leaves a key, by its place.
        lines: all changes of the keys that were left, by key.
    """

    def __init__(self, read: Read, types: Mapping[str, str]) -> None:
        self._read, self._types = read, types
        self.leaving: dict[KeyChangePlace, Line] = {}
        self.lines: dict[str, list[Line]] = {}

    def learn(self, lines: Collection[Line]) -> None:
        """Find the keys that updates among *lines* left and, for partial updates, all changes of those keys."""
        while places := {place_of(line) for line in lines if line["op"] == UPDATE} - self.leaving.keys():
            halves = self._read((pc.field("op") == KEY_LEFT) & pc.field("pos").isin([f"{at}:0" for _, at in places]))
            self.leaving |= {place_of(line): line for line in halves.to_pylist() if place_of(line) in places}
            partial = {place_of(line) for line in lines if self._is_partial(line)} & self.leaving.keys()
            keys = {self.leaving[place]["key"] for place in partial} - self.lines.keys()
            if not keys:
                return
            self.lines |= {key: [] for key in keys}
            for line in (lines := self._read(pc.field("key").isin(sorted(keys))).to_pylist()):
                self.lines[line["key"]].append(line)

    def destinations(self, keys: Collection[str], buckets: tuple[int, int]) -> set[str]:
        """The keys in a range of buckets to which rows of *keys* moved by an update that carries only some columns."""
        found: set[str] = set()
        frontier = set(keys)
        while frontier:
            halves = self._read((pc.field("op") == KEY_LEFT) & pc.field("key").isin(sorted(frontier))).to_pylist()
            places = {place_of(line) for line in halves}
            if not places:
                break
            taken = self._read((pc.field("op") == UPDATE) & pc.field("pos").isin([f"{at}:1" for _, at in places]))
            moved = {x["key"] for x in taken.to_pylist() if place_of(x) in places and self._is_partial(x)}
            frontier = moved - found
            found |= moved
        low, high = buckets
        return {key for key in found if low <= key_bucket(key) < high}

    def _is_partial(self, line: Line) -> bool:
        return line["op"] == UPDATE and not carries_all(line["cols"], self._types)
