"""A table whose columns change at the source while it is mirrored (G-07)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ces_messages import COLS, event
from tests.pipeline import Pipeline, in_order

ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
FIRST = {"id": "1", "name": "Ada", "price": "1.00"}


@pytest.fixture
def pipeline(tmp_path: Path, spark) -> Pipeline:
    """A mirror that has one row."""
    made = Pipeline(tmp_path, spark, [ORDERS], source={"layout": "bare"})
    made.deliver("a.jsonl", event("INS", FIRST, commit=10) + b"\n")
    made.tick()
    return made


def test_a_new_nullable_column_goes_on_and_late_rows_of_the_old_list_too(pipeline: Pipeline) -> None:
    """G-07, C-75, F-83, F-84: an older list is no drop, whenever it comes."""
    added = event(
        "INS",
        {"id": "2", "name": "Eve", "price": "2.00", "note": "x"},
        cols=(*COLS, ("note", "nvarchar(9)")),
        commit=12,
    )
    pipeline.deliver("b.jsonl", added + b"\n")
    pipeline.tick()
    pipeline.deliver("c.jsonl", event("INS", {**FIRST, "id": "3"}, commit=11) + b"\n")
    _, published = pipeline.tick()
    assert dict(published.stopped) == {}
    notes = [row["note"] for row in in_order(pipeline.mirrored("dbo", "orders"), ["id"])]
    assert notes == [None, "x", None]


@pytest.mark.parametrize(
    ("cols", "what"),
    [
        ((*COLS[:2], ("price", "decimal(18,2)")), "'price'"),
        ((*COLS[:2], ("price", "decimal(6,2)")), "'price'"),
    ],
    ids=["widen", "narrow"],
)
def test_what_the_target_cannot_follow_stops_the_table_before_it(
    pipeline: Pipeline, cols: tuple[tuple[str, str], ...], what: str
) -> None:
    """G-07, F-87, T-44: nothing of the new form is published, and the way out is a load."""
    row = {name: {"id": "2", "name": "Eve"}.get(name, "2.00") for name, _ in cols}
    pipeline.deliver("b.jsonl", event("INS", row, cols=cols, commit=12) + b"\n")
    _, published = pipeline.tick()
    (stop,) = dict(published.stopped).values()
    assert "SCHEMA_CHANGED" in str(stop) and what in str(stop)
    assert [row["id"] for row in pipeline.mirrored("dbo", "orders")] == [1]
