"""A source that sends only the columns that changed: refused without a word in the mirror file, completed with it."""

from __future__ import annotations

from pathlib import Path

from tests.ces_messages import event
from tests.pipeline import Pipeline, in_order

ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
NAME, PRICE = (("id", "int"), ("name", "nvarchar(50)")), (("id", "int"), ("price", "decimal(8,2)"))


def bare(*events: bytes) -> bytes:
    return b"".join(body + b"\n" for body in events)


def partly(commit: int, key: str, columns: tuple[tuple[str, str], ...], **told: str) -> bytes:
    return event("UPD", {"id": key, **told}, {"id": key}, cols=columns, commit=commit)


def test_partial_rows_stop_their_table_with_the_setting_to_change(tmp_path: Path, spark) -> None:
    """C-44, C-70, G-04: NULL for a column that was not told would be a silent loss."""
    pipeline = Pipeline(tmp_path, spark, [ORDERS], source={"layout": "bare"})
    row = {"id": "1", "name": "Ada", "price": "1.00"}
    pipeline.deliver("a.jsonl", bare(event("INS", row, commit=1), partly(2, "1", NAME, name="Eve")))
    _, published = pipeline.tick()
    assert "PARTIAL_ROWS" in str(dict(published.stopped))
    (state,) = pipeline.reader.tables().values()
    assert "@include_all_columns = 1" in (state.stop_what or "")


def test_partial_rows_are_completed_across_ticks_also_when_they_come_late(tmp_path: Path, spark) -> None:
    """C-44, C-70, G-04, G-09: the row is what its changes tell, oldest first, whenever they arrive."""
    pipeline = Pipeline(tmp_path, spark, [{**ORDERS, "complete_rows": True}], source={"layout": "bare"})
    first = [event("INS", {"id": key, "name": "Ada", "price": "1.00"}, commit=1, sequence=int(key)) for key in "123"]
    pipeline.deliver("a.jsonl", bare(*first))
    pipeline.tick()
    # Newer than the one that comes in the next file.
    pipeline.deliver("b.jsonl", bare(partly(5, "1", PRICE, price="5.00"), partly(6, "2", NAME, name="Eve")))
    pipeline.tick()
    pipeline.deliver("c.jsonl", bare(partly(4, "1", NAME, name="Late")))
    pipeline.tick()
    rows = [("1", "Late", "5.00"), ("2", "Eve", "1.00"), ("3", "Ada", "1.00")]
    found = [(str(r["id"]), r["name"], str(r["price"])) for r in in_order(pipeline.mirrored("dbo", "orders"), ["id"])]
    assert found == rows
