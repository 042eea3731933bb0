"""Every change in source order: what the files hold is the history itself, and applying it ends in its fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from open_mirroring.changes.horizon import TableHorizon
from open_mirroring.landing_zone.layout import ROW_MARKER
from spark_jobs.plan.plan import PlannedRows, PlanStop, TablePlan
from spark_jobs.plan.transaction_cut import Cut
from tests.property.change_stories import Change, Story, fold, stories
from tests.property.test_transaction_cut import EVERYTHING, CutTarget

EXPLORING = settings(derandomize=True, deadline=None, max_examples=120)

Row = tuple[str, str | None, int]
"""Key, value and marker of a published row."""


class HistoryTarget(CutTarget):
    """A table whose files hold every change; *history* is what stands in them, one behind the other."""

    def __init__(self, story: Story, keys: tuple[str, ...] = ("id",)) -> None:
        super().__init__(story, keys)
        self.history: list[Row] = []
        self.orders: list[str] = []

    def publish(self, up_to: int, below: tuple[int, int] | None) -> PlannedRows:
        planned = super().publish(up_to, below)
        for row in planned.rows.to_pylist():
            self.history.append((str(row["id"]), None if row["v"] is None else str(row["v"]), row[ROW_MARKER]))
        assert planned.orders is not None and len(planned.orders) == planned.rows.num_rows
        orders = planned.orders.to_pylist()
        assert planned.positions == ((orders[0], orders[-1]) if orders else ("", ""))
        self.orders += orders
        return planned

    def _plan(self, cut: Cut) -> TablePlan:
        return replace(super()._plan(cut), late_up_to=cut.position_from)


def history_of(changes: Sequence[Change], insert: int = 4) -> list[Row]:
    """What the target is to get, written without a look at the rule: a delete with its key, else the whole row.

    A key change that found another row on its key took nothing away (G-03); what cannot be typed is no change.
    """
    rows: list[Row] = []
    ordered = sorted(set(changes), key=lambda change: change.place)
    for at, change in enumerate(ordered):
        before, after = (fold(ordered[:end]).get(change.key) for end in (at, at + 1))
        if change.after is not None and change.typable:
            rows.append((change.key, dict(change.after)["v"], insert))
        elif change.after is None and not (change.op == "K" and before is not None and before == after):
            rows.append((change.key, None, 2))
    return rows


def complete_after(target: CutTarget, up_to: int) -> tuple[int, int]:
    """The transaction below which nothing comes after these batches that was not there before."""
    known = set(target.held(up_to, None))
    coming = {change for batch in target.arrived[up_to:] for change in batch} - known
    return min((change.transaction for change in coming), default=EVERYTHING)


@EXPLORING
@given(story=stories(bad=True), wait=st.lists(st.integers(0, 3), min_size=10, max_size=10))
def test_the_files_hold_every_change_once_and_in_order_wherever_batches_are_cut(story: Story, wait: list[int]) -> None:
    """I4, I14, I16, F-34, G-03, G-09: repeated, delayed, cut anywhere, published up to any complete position.

    Row by row it is the history, so that also the files of several publications applied one after the other are its
    fold, which equals the target where only the newest of each key is published.
    """
    target = HistoryTarget(story)
    below = (0, 0)
    for up_to, less in [*zip(story.published_after, wait, strict=False), (len(story.batches), 0)]:
        epoch, transaction = complete_after(target, up_to)
        below = max(below, (epoch, transaction - less))
        target.publish(up_to, below)
        assert target.history == history_of(target.held(up_to, below))
        assert target.rows == fold(target.held(up_to, below))
        target.assert_waiting(up_to, below)
    assert target.orders == sorted(target.orders)
    assert target.rows == fold(target.held(len(story.batches), None))


@EXPLORING
@given(story=stories(keyless=True))
def test_a_table_without_key_gets_its_inserts_in_order(story: Story) -> None:
    """I14, I16, F-12: each once, marker 0."""
    target = HistoryTarget(story, keys=())
    for up_to in story.published_after:
        below = complete_after(target, up_to)
        target.publish(up_to, below)
        assert target.history == history_of(target.held(up_to, below), insert=0)


@EXPLORING
@given(story=stories(), data=st.data())
def test_a_change_whose_place_is_published_already_stops_the_table(story: Story, data: st.DataObject) -> None:
    """I17, G-05: never published behind its successors; only what repeats a published one passes, as a duplicate."""
    transactions = sorted({change.transaction for batch in story.batches for message in batch for change in message})
    ends = sorted(data.draw(st.lists(st.sampled_from([*transactions, EVERYTHING]), min_size=1, max_size=5)))
    ends += [EVERYTHING] * (len(story.published_after) - len(ends))
    target = HistoryTarget(story)
    had: tuple[int, tuple[int, int]] = (0, (-1, 0))
    for up_to, below in zip(story.published_after, ends, strict=False):
        known = set(target.held(had[0], None))
        late = [c for c in target.held(up_to, None) if c.transaction < had[1] and c not in known]
        if late:
            with pytest.raises(PlanStop) as stop:
                target.publish(up_to, below)
            assert stop.value.code == "CHANGE_LATE"
            return
        target.publish(up_to, below)
        had = up_to, below
    assert target.history == history_of(target.held(*had))


def test_a_change_below_the_horizon_stops_the_table() -> None:
    """G-05: there the log may lack what would tell a repetition from a late change, even where nothing is late."""
    early, late = (Change((0, n, 1, 1), "I", str(n), (("id", str(n)), ("v", "10"))) for n in (5, 3))
    target = HistoryTarget(Story([[(early,)], [(early,), (late,)]], [1, 2], {}))
    target.publish(1, (0, 6))
    target.horizon = TableHorizon(0, f"{4:020X}")
    with pytest.raises(PlanStop, match="LATE_BELOW_HORIZON"):
        target.publish(2, (0, 6))


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_row_that_is_set_and_removed_at_one_place_is_a_conflict(cut: int) -> None:
    """G-02: neither order of the two would be the source's."""
    row = (("id", "1"), ("v", "10"))
    both = [Change((0, 1, 1, 1), "I", "1", row), Change((0, 1, 1, 0), "D", "1", None, row)]
    target = HistoryTarget(Story([[(change,) for change in part] for part in (both[:cut], both[cut:])], [1, 2], {}))
    with pytest.raises(PlanStop, match="IDENTITY_CONFLICT"):
        target.publish(2, EVERYTHING)


def test_a_key_change_is_a_delete_and_an_upsert_side_by_side() -> None:
    """I14, F-55, F-56: in this order, whatever else the transaction wrote; swapped keys leave both rows (G-03)."""

    def moved(minor: int, one: str, other: str, value: str) -> tuple[Change, Change]:
        left = Change((0, 6, minor, 0), "K", one, None, (("id", one), ("v", value)))
        return left, Change((0, 6, minor, 1), "U", other, (("id", other), ("v", value)))

    first = [(Change((0, 5, n, 1), "I", str(n), (("id", str(n)), ("v", str(10 * n)))),) for n in (1, 2, 3)]
    second = [moved(1, "3", "4", "30"), moved(2, "1", "2", "10"), moved(3, "2", "1", "20")]
    target = HistoryTarget(Story([first, second], [1, 2], {}))
    target.publish(1, (0, 6))
    target.publish(2, EVERYTHING)
    assert target.history[3:] == [
        ("3", None, 2), ("4", "30", 4),
        ("1", None, 2), ("2", "10", 4),
        ("1", "20", 4),
    ]  # fmt: skip
    assert target.rows == {"4": "30", "2": "10", "1": "20"}
