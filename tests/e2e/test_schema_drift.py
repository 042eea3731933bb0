"""A table whose columns change at the source while it is mirrored (G-07)."""

from __future__ import annotations

from pathlib import Path

from tests.ces_messages import COLS, event
from tests.pipeline import Pipeline, in_order

ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
FIRST = {"id": "1", "name": "Ada", "price": "1.00"}


def test_what_comes_before_a_change_of_structure_is_published_in_the_same_run(tmp_path: Path, spark) -> None:
    """G-61: the stop is at the position; late rows and those of another key go with what comes before it."""
    pipeline = Pipeline(tmp_path, spark, [ORDERS], source={"layout": "bare"})
    other = (*COLS[:2], ("price", "nvarchar(18)"))
    told = [event("INS", {**FIRST, "id": str(n)}, commit=n) for n in (1, 2, 9)]
    told += [
        event("INS", {**FIRST, "id": "7"}, cols=other, commit=7),
        event("UPD", {**FIRST, "name": "Eve"}, FIRST, commit=8),
    ]
    told += [event("UPD", {**FIRST, "id": "2", "name": "Bo"}, {**FIRST, "id": "2"}, commit=5)]
    pipeline.deliver("a.jsonl", b"".join(one + b"\n" for one in told))
    _, published = pipeline.tick()
    assert "SCHEMA_CHANGED" in published.stopped["dbo.orders"]
    assert [(row["id"], row["name"]) for row in in_order(pipeline.mirrored("dbo", "orders"), ["id"])] == [
        (1, "Ada"), (2, "Bo")
    ]  # fmt: skip
    assert pipeline.tick()[1].files == {}, "nothing is published twice"
    assert "SCHEMA_CHANGED" in pipeline.publish().stopped["dbo.orders"]


def test_types_that_widen_step_by_step_before_the_first_files_are_cast_g65(tmp_path: Path, spark) -> None:
    pipeline = Pipeline(tmp_path, spark, [ORDERS], source={"layout": "bare"})
    told = [("bit", "1", "bit"), ("int", "20", "bit"), ("decimal(8,2)", "3.50", "decimal(1,0)")]
    lines = [
        event("INS", {"id": str(at), "v": v, "w": "1"}, cols=(COLS[0], ("v", kind), ("w", other)), commit=at)
        for at, (kind, v, other) in enumerate(told, 1)
    ]
    pipeline.deliver("a.jsonl", b"".join(line + b"\n" for line in lines))
    _, published = pipeline.tick()
    assert dict(published.stopped) == {}
    rows = in_order(pipeline.mirrored("dbo", "orders"), ["id"])
    assert [(str(row["v"]), row["w"]) for row in rows] == [("1.00", 1), ("20.00", 1), ("3.50", 1)]
