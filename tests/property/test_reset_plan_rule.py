"""The plan rule in a new generation: load and stream end in the state of the source, whatever the hand-over (G-08)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import DELETE, INSERT, KEY_LEFT, UPDATE, Logged, Row
from open_mirroring.changes.plan_rule import plan_key
from open_mirroring.ledger.load_ledger import HandOver

Rows = dict[str, Row]


class Change(NamedTuple):
    """A change of one key, in the order of the source."""

    key: str
    position: LogPosition
    operation: str
    after: Row | None
    before: Row | None


@st.composite
def histories(draw: st.DrawFn) -> list[Change]:
    """Transactions over three keys, among them rows that leave their key, and keys that are swapped."""
    rows: Rows = {}
    changes: list[Change] = []
    for commit in range(1, draw(st.integers(1, 7)) + 1):
        minor = 0

        def note(key: str, operation: str, after: Row | None, sub: int = 1) -> None:
            position = LogPosition(0, f"{commit:04d}", f"{minor:02d}", sub)  # noqa: B023
            changes.append(Change(key, position, operation, after, rows.get(key)))

        for _ in range(draw(st.integers(1, 2))):
            minor += 1
            key, other = draw(st.permutations(["a", "b", "c"]))[:2]
            value = {"v": f"{commit}.{minor}"}
            kind = draw(st.sampled_from(["write", "delete", "move", "swap"]))
            if kind == "swap" and key in rows and other in rows:
                here, there = rows[key], rows[other]
                note(key, KEY_LEFT, None, 0)
                note(other, UPDATE, here)
                minor += 1
                note(other, KEY_LEFT, None, 0)
                note(key, UPDATE, there)
                rows[key], rows[other] = there, here
            elif kind == "move" and key in rows and other not in rows:
                note(key, KEY_LEFT, None, 0)
                note(other, UPDATE, rows[key])
                rows[other] = rows.pop(key)
            elif kind == "delete" and key in rows:
                note(key, DELETE, None)
                del rows[key]
            else:
                note(key, UPDATE if key in rows else INSERT, value)
                rows[key] = value
    return changes


def state_after(changes: Sequence[Change], commit: str) -> Rows:
    """The source as of a commit: what decides each key among all changes up to it."""
    rows: Rows = {}
    for key in {change.key for change in changes}:
        logged = [logged_as(c, 1) for c in changes if c.key == key and c.position.major <= commit]
        decided = plan_key(logged, 0).publish
        if decided is not None and decided.after is not None:
            rows[key] = decided.after
    return rows


def logged_as(change: Change, batch: int) -> Logged:
    return Logged(batch, change.position, change.operation, change.after, change.before)


@given(histories(), st.data())
@settings(derandomize=True, deadline=None, max_examples=400)
def test_a_load_and_the_stream_over_it_end_in_the_sources_state(changes: list[Change], data: st.DataObject) -> None:
    """Changes come in any order and cut; those at or below the newest transaction logged are in the load (G-03, G-08).

    What was logged before the hand-over is not looked at again: it may be keyed by a key that is no longer true.
    """
    batches = [(change, data.draw(st.integers(1, 4))) for change in changes]
    begun_at = data.draw(st.integers(0, 4))
    logged = [change for change, batch in batches if batch <= begun_at]
    highest = max((change.position for change in logged), default=None)
    newest = changes[-1].position.major
    seen = "0000" if highest is None else highest.major
    # The load is read after the newest batch was noted: of any state of the source since.
    commit = data.draw(st.sampled_from([f"{n:04d}" for n in range(int(seen), int(newest) + 1)]))
    target = state_after(changes, commit)
    floor = HandOver(2, begun_at, begun_at, None if highest is None else highest.text, None).above
    assert floor is not None
    published = begun_at
    for upto in range(begun_at + 1, 5):
        for key in ("a", "b", "c"):
            known = [
                logged_as(change, batch)
                for change, batch in batches
                if change.key == key and batch <= upto and change.position.text >= floor
            ]
            assert all(change.batch > begun_at for change in known), "nothing of the old log is looked at"
            plan = plan_key(known, published)
            assert plan.conflict is None
            if plan.publish is not None and plan.publish.after is None:
                target.pop(key, None)
            elif plan.publish is not None and plan.publish.after is not None:
                target[key] = plan.publish.after
        published = upto
    assert target == state_after(changes, newest)
