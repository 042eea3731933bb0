"""Random histories of one table: what happened at the source, how it was delivered, and what it comes to.

The fold here is the plain meaning of a history, written without a look at the product's rule: it goes through the
changes once, oldest first.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hypothesis import strategies as st

from open_mirroring.changes.row_key import KEY_BUCKETS, encode_key
from spark_jobs.changelog.schema import CHANGE, LogRow

TABLE = "dbo.stock"
COLS = '[["id","int",0],["v","int",1]]'
EPOCHS = ("ffffffff", "11111111", "88888888")
"""Names of stream incarnations in the order of their ordinals, which is not the order of their names."""

Row = dict[str, str | None]
Place = tuple[int, int, int, int]
"""Epoch ordinal, transaction, place in it, half of a key change."""


@dataclass(frozen=True)
class Change:
    """A change of one key; *after* is the row it leaves, *before* the row that a key change takes away."""

    place: Place
    op: str
    key: str
    after: tuple[tuple[str, str], ...] | None
    before: tuple[tuple[str, str], ...] | None = None

    @property
    def transaction(self) -> tuple[int, int]:
        return self.place[:2]

    @property
    def typable(self) -> bool:
        return self.after is None or dict(self.after)["v"].isdigit()

    def logged(self, delivery: int) -> LogRow:
        """The change as a row of the change log."""
        epoch, transaction, minor, sub = self.place
        key = encode_key([self.key])
        after, before = (None if image is None else json.dumps(dict(image)) for image in (self.after, self.before))
        return LogRow(
            CHANGE, "in.jsonl", delivery, TABLE, zlib.crc32(key.encode()) % KEY_BUCKETS, EPOCHS[epoch],
            f"{transaction:020X}:{minor:020d}:{sub}", self.op, key, COLS, True, after, before,
        )  # fmt: skip


Message = tuple[Change, ...]
"""What one event says: a change, or the two halves of a key change."""


class Story(NamedTuple):
    """Batches of messages as they were delivered, which of them are published together, and what is true at the end.

    *state* is the source's own at the end: equal to the fold of everything if every value could be typed.
    """

    batches: list[list[Message]]
    published_after: list[int]
    state: dict[str, str]


_KEYS = st.sampled_from("123")
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "set", "set", "delete", "move", "move", "swap", "commit", "epoch"]),
        _KEYS,
        _KEYS,
        st.integers(0, 9),
    ),
    min_size=6,
    max_size=25,
)


@st.composite
def stories(draw: st.DrawFn, *, bad: bool = False, conflicts: bool = False, keyless: bool = False) -> Story:
    """A history with its delivery: any cut, any order, repetitions; on demand untypable rows and contradictions."""
    history = _Source(bad)
    for kind, one, other, chance in draw(_STEPS):
        history.step("set" if keyless and kind not in ("commit", "epoch") else kind, one, other, chance, keyless)
    messages = history.messages
    deliveries = [(message, at) for at, message in enumerate(messages)]
    if messages:
        deliveries += draw(st.lists(st.sampled_from(deliveries), max_size=4))
    if conflicts and messages:
        message, at = draw(st.sampled_from(deliveries))
        deliveries.append((tuple(_contradicted(change) for change in message), at))
    # Mostly in order with a few late ones, or in any order at all.
    lateness = draw(st.sampled_from([0, 3, 1000]))
    delays = draw(st.lists(st.integers(0, lateness), min_size=len(deliveries), max_size=len(deliveries)))
    arrived = [message for _, message in sorted(zip(delays, deliveries, strict=True), key=lambda d: d[0] + d[1][1])]
    cuts = sorted(draw(st.lists(st.integers(0, len(arrived)), min_size=1, max_size=7)))
    bounds = [0, *cuts, len(arrived)]
    batches = [[message for message, _ in arrived[low:high]] for low, high in pairwise(bounds)]
    chosen = draw(st.lists(st.sampled_from([True, True, False]), min_size=len(batches), max_size=len(batches)))
    published = sorted({number for number, yes in enumerate(chosen, 1) if yes} | {len(batches)})
    return Story(batches, published, history.state)


class _Source:
    """A table at the source: every write has a value of its own, so that no two rows are alike by chance."""

    def __init__(self, bad: bool) -> None:
        self._bad = bad
        self._epoch, self._transaction, self._minor, self._value = 0, 5, 0, 100
        self.state: dict[str, str] = {}
        self.messages: list[Message] = []

    def step(self, kind: str, one: str, other: str, chance: int, keyless: bool) -> None:
        if kind == "epoch" and self._epoch < len(EPOCHS) - 1:
            # A new stream may begin at any position of the log, mostly at lower ones.
            self._epoch, self._transaction, self._minor = self._epoch + 1, chance, 0
        elif kind == "commit":
            self._transaction, self._minor = self._transaction + 1, 0
        elif kind == "set":
            op = "U" if one in self.state and not keyless else "I"
            self._say(Change(self._place(1), op, one, self._write(one, self._fresh(chance))))
        elif kind == "delete" and one in self.state:
            gone = self._image(one, self.state.pop(one))
            self._say(Change(self._place(0), "D", one, None, gone))
        elif kind == "move" and one in self.state and other not in self.state:
            self._move(one, other, self.state.pop(one), self._fresh(chance))
        elif kind == "swap" and one != other and {one, other} <= self.state.keys():
            first, second = self.state.pop(one), self.state.pop(other)
            self._move(one, other, first, first)
            self._move(other, one, second, second)

    def _move(self, left: str, taken: str, value: str, new: str) -> None:
        before = self._image(left, value)
        leaving = Change(self._place(0), "K", left, None, before)
        self._say(leaving, Change((*leaving.place[:3], 1), "U", taken, self._write(taken, new)))

    def _fresh(self, chance: int) -> str:
        self._value += 1
        return f"bad-{self._value}" if self._bad and chance < 3 else str(self._value)

    def _write(self, key: str, value: str) -> tuple[tuple[str, str], ...]:
        self.state[key] = value
        return self._image(key, value)

    @staticmethod
    def _image(key: str, value: str) -> tuple[tuple[str, str], ...]:
        return (("id", key), ("v", value))

    def _place(self, sub: int) -> Place:
        self._minor += 1
        return (self._epoch, self._transaction, self._minor, sub)

    def _say(self, *message: Change) -> None:
        self.messages.append(message)


def _contradicted(change: Change) -> Change:
    """The same identity with another content."""
    if change.after is None:
        row = (("id", change.key), ("v", "7"))
        return Change(change.place, "U", change.key, row, None)
    return Change(change.place, change.op, change.key, (("id", change.key), ("v", "7")), change.before)


def contradictory(changes: Iterable[Change]) -> bool:
    """Whether one place and key has two contents (G-02)."""
    seen: dict[tuple[Place, str], Change] = {}
    return any(seen.setdefault((change.place, change.key), change).after != change.after for change in changes)


def fold(changes: Iterable[Change]) -> dict[str, str]:
    """The table after all these changes in their order; what cannot be typed leaves a key as it was."""
    in_order = sorted(set(changes), key=lambda change: change.place)
    moves = {change.place[:3] for change in in_order if change.op == "K"}
    table = {}
    for key in {change.key for change in in_order}:
        of_key = [change for change in in_order if change.key == key]
        while (row := _standing(of_key, moves)) is not None and not row.typable:
            of_key.remove(row)
        if row is not None:
            table[key] = dict(row.after or ())["v"]
    return table


def _standing(changes: Iterable[Change], moves: Collection[tuple[int, ...]]) -> Change | None:
    """The row that stands at a key in the end, going through its changes once, oldest first.

    While rows swap their keys, two stand at one: the one that was there leaves it before the one that took it does.
    """
    rows: list[Change] = []
    for change in changes:
        if rows and rows[-1].transaction != change.transaction:
            rows = rows[-1:] if change.op != "K" else []
        if change.op == "K":
            rows = _left(rows, change)
        elif change.after is None:
            rows = []
        else:
            rows = [*rows[-1:], change] if change.place[:3] in moves else [change]
    return rows[-1] if rows else None


def _left(rows: list[Change], leaving: Change) -> list[Change]:
    """What stays of the rows at a key when one of them leaves it: the one whose values the before image has."""
    if not rows:
        return []
    story, has = dict(leaving.before or ())["v"], dict(rows[-1].after or ())["v"]
    is_another = story != has and not story.startswith("bad") and not has.startswith("bad")
    return rows[-1:] if len(rows) > 1 or is_another else []
