"""Rows that carry only what changed are completed from the log, or left alone: wherever batches are cut (G-04, G-09).

The plain meaning is a dictionary that goes through the changes once, oldest first; a value that no
change contains is unknown, and such a key is not published.
"""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import DELETE, INSERT, UPDATE, Logged
from open_mirroring.changes.plan_rule import plan_key

NAMES = ("a", "b", "c")
Row = dict[str, str | None]


@st.composite
def deliveries(draw: st.DrawFn) -> tuple[list[list[Logged]], list[int]]:
    """Changes of one key, each with a batch, and which batches are published together."""
    changes: list[Logged] = []
    is_there = False
    for minor in range(draw(st.integers(1, 7))):
        position = LogPosition(0, "A", f"{minor:02d}", 1)
        if is_there and draw(st.integers(0, 4)) == 0:
            changes.append(Logged(0, position._replace(sub=0), DELETE, None, None))
            is_there = False
            continue
        story: Row = {name: draw(st.none() | st.sampled_from("xyz")) for name in NAMES}
        if is_there or draw(st.integers(0, 4)) == 0:
            carried = draw(st.sets(st.sampled_from(NAMES)))
            changes.append(Logged(0, position, UPDATE, {n: story[n] for n in carried}, None, whole=False))
        else:
            changes.append(Logged(0, position, INSERT, story, None))
        is_there = True
    arrived: list[list[Logged]] = [[] for _ in range(draw(st.integers(1, 4)))]
    for change in changes + draw(st.lists(st.sampled_from(changes), max_size=2)):
        at = draw(st.integers(0, len(arrived) - 1))
        arrived[at].append(change._replace(batch=at + 1))
    cuts = sorted({*draw(st.lists(st.integers(1, len(arrived)))), len(arrived)})
    return arrived, cuts


def fold(changes: Sequence[Logged]) -> Row | str | None:
    """The row after these changes: None when there is none, "unknown" when a column of it was reported by no change."""
    row: Row | None = None
    whole = False
    for change in sorted(changes, key=lambda change: change.position):
        if change.after is None:
            row, whole = None, False
        else:
            row = {**(row or {}), **change.after} if not change.whole else dict(change.after)
            whole = whole or change.whole
    return row if row is None or whole else "unknown"


@settings(derandomize=True, deadline=None, max_examples=300)
@given(deliveries())
def test_a_completed_row_is_that_of_the_changes_before_it_wherever_batches_are_cut_g04_g09(
    delivery: tuple[list[list[Logged]], list[int]],
) -> None:
    arrived, cuts = delivery
    target: Row | None = None
    published = 0
    for up_to in cuts:
        known = [change for batch in arrived[:up_to] for change in batch]
        expected = fold(known)
        plan = plan_key(known, published)
        if expected == "unknown":
            assert plan.publish is None, "a column that nobody told is not NULL"
            assert plan.incomplete is not None, "a key that has to wait is named"
            return
        if plan.publish is not None:
            target = None if plan.publish.after is None else dict(plan.publish.after)
        assert target == expected
        published = up_to


def test_absent_is_not_null_g04() -> None:
    """A column that an update names as NULL becomes NULL; one that it does not name keeps its value."""
    first = Logged(1, LogPosition(0, "A", "1", 1), INSERT, {"a": "1", "b": "2"}, None)
    update = Logged(2, LogPosition(0, "A", "2", 1), UPDATE, {"a": None}, None, whole=False)
    published = plan_key([first, update], 1).publish
    assert published is not None
    assert published.after == {"a": None, "b": "2"}
    assert plan_key([update], 1).incomplete == update
