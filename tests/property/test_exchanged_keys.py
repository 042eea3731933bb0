"""Rows that move, swap and rotate their keys, several times in one transaction, with whatever before images (G-03).

The truth is the source's own: a dictionary whose statements take all their rows away before they put them back. Every
row has a value of its own. The target is the truth, however it was delivered, or the table stops, which only a row that
no change told of can bring about (G-115).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.protocols.table_stops import SWAP_POSSIBLE
from spark_jobs.plan.table_plan import Beginning, PlannedRows, PlanStop, TablePlan
from tests.property.change_stories import Change, Message, Story
from tests.property.test_plan_rule import Target

Images = Literal["whole", "key", "unreadable"]
KEYS = "12345"
STATEMENTS = st.sampled_from(["insert", "update", "delete", "replace", "move", "exchange", "shift", "commit"])


class Exchanged(NamedTuple):
    """What the load brought, the batches of messages, and the table in the end."""

    loaded: Mapping[str, str] | None
    images: Images
    story: Story


@st.composite
def exchanges(draw: st.DrawFn) -> Exchanged:
    """Statements over few keys; the rows of the beginning are loaded, or the first to be inserted."""
    images: Images = draw(st.sampled_from(["whole", "key", "unreadable"]))
    is_loaded = draw(st.booleans())
    rows: dict[str, str] = {}
    messages: list[Message] = []
    transaction, minor, value = 1, 0, 100

    def say(op: str, old: str | None, new: str | None, text: str) -> None:
        nonlocal minor
        minor += 1
        place = (0, transaction, minor)
        row = (("id", new or ""), ("v", text))
        if op == "K":
            image = untold(images, rows_before[old or ""])
            leaving = Change((*place, 0), "K", old or "", None, (("id", old or ""), *image))
            messages.append((leaving, Change((*place, 1), "U", new or "", row)))
        elif op == "D":
            messages.append((Change((*place, 0), "D", old or "", None, (("id", old or ""), *untold(images, text))),))
        else:
            messages.append((Change((*place, 1), op, new or "", row),))

    for key in KEYS[: draw(st.integers(1, 4))]:
        value += 1
        rows[key] = str(value)
        if not is_loaded:
            say("I", None, key, rows[key])
    loaded = dict(rows) if is_loaded else None
    transaction += 1
    for kind in draw(st.lists(STATEMENTS, min_size=1, max_size=8)):
        there, free, rows_before = sorted(rows), [key for key in KEYS if key not in rows], dict(rows)
        value += 1
        if kind == "commit":
            transaction += 1
        elif kind == "insert" and free:
            key = draw(st.sampled_from(free))
            rows[key] = str(value)
            say("I", None, key, rows[key])
        elif not there:
            continue
        elif kind in ("update", "delete"):
            key = draw(st.sampled_from(there))
            if kind == "update":
                rows[key] = str(value)
            say("U" if kind == "update" else "D", key, key, rows[key])
            if kind == "delete":
                del rows[key]
        elif kind == "replace" and len(there) > 1:
            # One statement deletes a row and gives its key to another one, in either order.
            key, moved = draw(st.permutations(there))[:2]
            scene = draw(st.permutations([("D", key, None, rows[key]), ("K", moved, key, rows[moved])]))
            rows[key] = rows.pop(moved)
            for change in scene:
                say(*change)
        else:
            moves = _moves(draw, kind, there, free)
            for old in moves:
                del rows[old]
            rows |= {new: rows_before[old] for old, new in moves.items()}
            for old, new in moves.items():
                say("K", old, new, rows[new])
    lateness = draw(st.sampled_from([0, 2, 9]))
    delays = draw(st.lists(st.integers(0, lateness), min_size=len(messages), max_size=len(messages)))
    order = sorted(range(len(messages)), key=lambda at: at + delays[at])
    cut = draw(st.integers(0, len(messages)))
    batches = [[messages[at] for at in order[:cut]], [messages[at] for at in order[cut:]]]
    return Exchanged(loaded, images, Story(batches, [1, 2], rows))


def untold(images: Images, value: str) -> tuple[tuple[str, str], ...]:
    """What a before image tells beside the key."""
    return {"whole": (("v", value),), "key": (), "unreadable": (("v", "bad"),)}[images]


def _moves(draw: st.DrawFn, kind: str, there: Sequence[str], free: Sequence[str]) -> dict[str, str]:
    """The new key of each row that a statement moves, in the order in which its changes are logged."""
    if kind == "move" and free:
        return {draw(st.sampled_from(there)): draw(st.sampled_from(free))}
    chosen = draw(st.lists(st.sampled_from(there), unique=True, min_size=1, max_size=3))
    if kind == "shift" and free:
        return dict(draw(st.permutations([*zip(chosen, [*chosen[1:], free[0]], strict=True)])))
    return dict(zip(chosen, [*chosen[1:], chosen[0]], strict=True)) if len(chosen) > 1 else {}


class _Loaded(Target):
    """A target that began with rows of which the log has nothing."""

    def __init__(self, exchanged: Exchanged) -> None:
        super().__init__(exchanged.story)
        self.rows = dict(exchanged.loaded or {})
        self._is_loaded = exchanged.loaded is not None

    def _plan(self, old: Sequence[Change]) -> TablePlan:
        return replace(super()._plan(old), begins=Beginning(loaded=self._is_loaded))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(exchanged=exchanges())
def test_g115_g135_exchanged_keys_end_as_at_the_source_or_stop(exchanged: Exchanged) -> None:
    target = _Loaded(exchanged)
    stops: list[str] = []
    planned: list[PlannedRows] = []
    for up_to in exchanged.story.published_after:
        try:
            planned.append(target.publish(up_to))
            stops = []
        except PlanStop as stop:
            stops = [stop.code]
    if stops:
        assert stops == [SWAP_POSSIBLE]
        assert exchanged.loaded is not None and exchanged.images != "whole", "otherwise something tells"
    else:
        assert target.rows == exchanged.story.state
    assert exchanged.loaded is not None or all(one.unverified is None for one in planned)
