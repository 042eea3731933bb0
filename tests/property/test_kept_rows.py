"""Rows that stay and rows that are chosen: a history ends alike however it is cut, repeated and delayed.

Deleted rows have their last values (G-192), and only rows that match a condition are there (G-193).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa
from hypothesis import given

from open_mirroring.changes.column_choice import DELETED_AT
from open_mirroring.config.row_filter import parse_condition
from open_mirroring.landing_zone.layout import ROW_MARKER
from open_mirroring.landing_zone.schema import extra_columns
from spark_jobs.plan.table_plan import PlanColumns
from tests.property.change_stories import Change, Story, fold, stories
from tests.property.test_plan_rule import COLUMNS, EXPLORING, Target, assert_accounted

KEPT = {True: "gone", False: "there"}


def last_rows(changes: Iterable[Change]) -> dict[str, str]:
    """The last row of each key that ever was, and whether it is there, in the order of the source."""
    rows: dict[str, tuple[str, bool]] = {}
    for change in sorted(set(changes), key=lambda change: change.place):
        if change.after is not None:
            rows[change.key] = dict(change.after)["v"], True
        elif change.key in rows and dict(change.before or ())["v"] == rows[change.key][0]:
            rows[change.key] = rows[change.key][0], False  # else another row took the key in this transaction
    return {key: f"{value} {KEPT[not there]}" for key, (value, there) in rows.items()}


class KeepingTarget(Target):
    """A table in which deleted rows stay, and perhaps only those that match."""

    def __init__(self, story: Story, where: str = "") -> None:
        super().__init__(story)
        (deleted_at,) = extra_columns([(DELETED_AT, "_deleted_at")])
        chosen = parse_condition(where) if where else None
        self.columns = PlanColumns((*COLUMNS, deleted_at), {"id": "int", "v": "int"}, where=chosen)

    def _apply(self, rows: pa.Table) -> None:
        for key, value, deleted_at, marker in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            if marker == 2:
                removed = self.rows.pop(str(key), None)
                assert removed is None or self.columns.where, "a row that is there is never removed"
                continue
            self.rows[str(key)] = f"{value} {KEPT[deleted_at is not None]}"
        assert rows.column_names[-1] == ROW_MARKER


@EXPLORING
@given(story=stories())
def test_any_delivery_ends_in_the_last_row_of_each_key_g192(story: Story) -> None:
    """G-192, G-03, G-05, G-09, I1: rows that move, swap, come back and arrive late."""
    target = KeepingTarget(story)
    for up_to in story.published_after:
        new = target.changes(target.batch, up_to)
        assert_accounted(target.publish(up_to), new)
    assert target.rows == last_rows(target.changes(0, target.batch))
    again = KeepingTarget(story)
    again.publish(len(story.batches))
    assert again.rows == target.rows


@EXPLORING
@given(story=stories())
def test_any_delivery_ends_in_the_rows_that_match_g193(story: Story) -> None:
    """G-193, G-03, G-05, G-09, I1: after each publication, too."""
    target = Target(story)
    target.columns = replace(target.columns, where=parse_condition("v < 108"))
    for up_to in story.published_after:
        new = target.changes(target.batch, up_to)
        assert_accounted(target.publish(up_to), new)
        assert target.rows == {key: v for key, v in fold(target.changes(0, up_to)).items() if int(v) < 108}


@EXPLORING
@given(story=stories())
def test_rows_that_stay_leave_with_the_condition_g192_g193(story: Story) -> None:
    target = KeepingTarget(story, "v < 108")
    for up_to in story.published_after:
        target.publish(up_to)
    rows = last_rows(target.changes(0, target.batch))
    assert target.rows == {key: row for key, row in rows.items() if int(row.split()[0]) < 108}
