"""A source that sends only the columns that changed: refused without a word in the mirror file, completed with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.ces_messages import event
from tests.pipeline import Pipeline, in_order

ORDERS = {"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}
NAME, PRICE = (("id", "int"), ("name", "nvarchar(50)")), (("id", "int"), ("price", "decimal(8,2)"))


def bare(*events: bytes) -> bytes:
    return b"".join(body + b"\n" for body in events)


def partly(commit: int, key: str, columns: tuple[tuple[str, str], ...], **story: str) -> bytes:
    return event("UPD", {"id": key, **story}, {"id": key}, cols=columns, commit=commit)


def test_partial_rows_stop_their_table_with_the_setting_to_change(tmp_path: Path, spark) -> None:
    """C-44, C-70, G-04: NULL for a column that was not told would be a silent loss."""
    pipeline = Pipeline(tmp_path, spark, [ORDERS], source={"layout": "bare"})
    row = {"id": "1", "name": "Ada", "price": "1.00"}
    pipeline.deliver("a.jsonl", bare(event("INS", row, commit=1), partly(2, "1", NAME, name="Eve")))
    _, published = pipeline.tick()
    assert "PARTIAL_ROWS" in str(dict(published.stopped))
    (state,) = pipeline.reader.tables().values()
    assert "@include_all_columns = 1" in (state.stop_what or "")


def test_a_row_whose_insert_comes_late_is_published_by_the_run_that_reads_it(tmp_path: Path, spark) -> None:
    """G-04, G-107, C-87: that run looks at all that has come since, not only at what it had when it stopped."""
    pipeline = Pipeline(tmp_path, spark, [{**ORDERS, "complete_rows": True}], source={"layout": "bare"})
    other = event("INS", {"id": "2", "name": "Eve", "price": "2.00"}, commit=2)
    pipeline.deliver("a.jsonl", bare(other, partly(5, "1", PRICE, price="5.00")))
    _, published = pipeline.tick()
    assert "ROW_INCOMPLETE" in str(dict(published.stopped))
    pipeline.deliver("b.jsonl", bare(partly(6, "2", NAME, name="Eve")))
    _, published = pipeline.tick()
    assert "ROW_INCOMPLETE" in str(dict(published.stopped)), "what it lacks did not come"
    pipeline.deliver("c.jsonl", bare(event("INS", {"id": "1", "name": "Ada", "price": "1.00"}, commit=1)))
    _, published = pipeline.tick()
    assert dict(published.stopped) == {}
    rows = in_order(pipeline.mirrored("dbo", "orders"), ["id"])
    assert [(r["name"], str(r["price"])) for r in rows] == [("Ada", "5.00"), ("Eve", "2.00")]


TYPES = {"id": "int", "name": "nvarchar(50)", "price": "decimal(8,2)", "at": "datetime2(3)", "raw": "varbinary(8)"}
EXPORT = {"format": "csv", "path": "export.csv", "stream_from": "0000002C:00000004:0001", "types": TYPES}


def loaded(folder: Path, spark, *lines: str, **settings: str) -> Pipeline:
    (folder / "export.csv").write_text("\n".join([",".join(TYPES), *lines]) + "\n", encoding="utf-8")
    table = {**ORDERS, "complete_rows": True, "initial_load": {**EXPORT, **settings}}
    return Pipeline(folder, spark, [table], source={"layout": "bare"})


def load(pipeline: Pipeline):
    from spark_jobs.initial_load import load as run

    return run(pipeline.mirror, pipeline.ledger, pipeline._spark)


def shown(pipeline: Pipeline) -> list[tuple[str, ...]]:
    rows = in_order(pipeline.mirrored("dbo", "orders"), ["id"])
    return [tuple(str(row[name]) for name in TYPES) for row in rows]


AT = (("id", "int"), ("at", "datetime2(3)"))
LINES = ("1,Ada,1.00,2026-01-05 08:00:00.125,0x0A0B", "2,Eve,2.00,,", "3,Kim,3.00,2026-01-06 00:00:00,0x")


def test_partial_updates_of_loaded_rows_are_completed_from_the_load(tmp_path: Path, spark) -> None:
    """G-04, G-08, C-70: the loaded rows are in the log, below every change, and are published by the plan like these.

    What the export holds already is dropped; a change logged while the load was under way is published over it.
    """
    pipeline = loaded(tmp_path, spark, *LINES)
    pipeline.deliver("a.jsonl", bare(partly(3, "1", NAME, name="Old"), partly(5, "1", PRICE, price="5.00")))
    pipeline.tick()
    assert not pipeline.numbers("dbo.schema/orders"), "nothing is published before the load"
    assert dict(load(pipeline).rows) == {"dbo.orders": 3}
    pipeline.publish()
    pipeline.service.poll()
    assert shown(pipeline) == [
        ("1", "Ada", "5.00", "2026-01-05 08:00:00.125000", "b'\\n\\x0b'"),
        ("2", "Eve", "2.00", "None", "None"),
        ("3", "Kim", "3.00", "2026-01-06 00:00:00", "b''"),
    ]
    pipeline.deliver("b.jsonl", bare(partly(6, "2", NAME, name="Liz"), event("DEL", None, {"id": "3"}, commit=7)))
    pipeline.tick()
    pipeline.deliver("c.jsonl", bare(partly(4, "1", NAME, name="Late")))
    pipeline.tick()
    assert [row[:3] for row in shown(pipeline)] == [("1", "Late", "5.00"), ("2", "Liz", "2.00")]
    (state,) = pipeline.reader.tables().values()
    assert (state.stop_code, state.start.load_state) == (None, "loaded")
    assert dict(load(pipeline).rows) == {}, "a loaded table is left alone"
    assert reconciled(pipeline) == {"findings": [], "stopped": {}}, "every loaded row is accounted for (I1)"


def test_loaded_rows_that_change_their_keys_take_along_what_they_were(tmp_path: Path, spark) -> None:
    """G-03, G-04, G-08: the log holds the old key's row; a late change of the old key shows at the new one."""
    pipeline = loaded(tmp_path, spark, *LINES)
    load(pipeline)
    moved = event("UPD", {"id": "7", "price": "7.00"}, {"id": "1"}, cols=PRICE, commit=9)
    again = event("UPD", {"id": "8", "name": "Bob"}, {"id": "7"}, cols=NAME, commit=10)
    pipeline.deliver("a.jsonl", bare(moved))
    pipeline.tick()
    pipeline.deliver("b.jsonl", bare(again))
    pipeline.tick()
    assert [row[:3] for row in shown(pipeline)] == [
        ("2", "Eve", "2.00"),
        ("3", "Kim", "3.00"),
        ("8", "Bob", "7.00"),
    ]
    late = event("UPD", {"id": "1", "at": "2026-02-02 00:00:00"}, {"id": "1"}, cols=AT, commit=6)
    pipeline.deliver("c.jsonl", bare(late))
    pipeline.tick()
    assert [row[3] for row in shown(pipeline)][-1] == "2026-02-02 00:00:00"
    assert reconciled(pipeline) == {"findings": [], "stopped": {}}


def reconciled(pipeline: Pipeline):
    from spark_jobs.reconcile_sequence import reconcile_deep

    found = reconcile_deep(pipeline.mirror, pipeline.ledger, pipeline._spark)
    return {"findings": [finding.what for finding in found.findings], "stopped": dict(found.stopped)}


@pytest.mark.parametrize("fault", ["extract.bound", "extract.sealed", "extract.committed"])
def test_a_load_killed_between_its_batches_goes_on(fault: str, tmp_path: Path, spark) -> None:
    """I19, I29: whoever comes next finishes its batch, reading of changes too; no chunk is logged twice or left out."""
    pipeline = loaded(tmp_path, spark, *LINES)
    pipeline.killed("initial_load", fault)
    if fault == "extract.bound":
        pipeline.deliver("a.jsonl", bare(partly(6, "2", NAME, name="Liz")))
        pipeline.extract()
    load(pipeline)
    pipeline.tick()
    assert [row[1] for row in shown(pipeline)] == ["Ada", "Liz" if fault == "extract.bound" else "Eve", "Kim"]
    assert sum(counts.get("loaded", 0) for _, counts, _ in pipeline.reader.batches()) == 3


def test_a_bad_row_of_a_load_stops_its_table_and_not_the_reading(tmp_path: Path, spark) -> None:
    """G-08: the batch is complete without it; mended, the next run reads it again."""
    pipeline = loaded(tmp_path, spark, *LINES, "4,Bad,much,,")
    found = load(pipeline)
    assert "VALUE_INVALID" in found.stopped["dbo.orders"]
    pipeline.deliver("a.jsonl", bare(partly(6, "2", NAME, name="Liz")))
    assert pipeline.extract().counts["changes"] == 1
    assert pipeline.reader.tables()["dbo.orders"].start.load_state == "pending"


def test_an_export_that_is_gone_for_a_while_holds_up_its_load_only(tmp_path: Path, spark) -> None:
    """G-08: what can be put back is waited for; reading of changes and other tables go on."""
    pipeline = loaded(tmp_path, spark, *LINES)
    pipeline.killed("initial_load", "extract.bound")
    (tmp_path / "export.csv").rename(tmp_path / "away.csv")
    pipeline.deliver("a.jsonl", bare(partly(6, "2", NAME, name="Liz")))
    assert pipeline.extract().counts["changes"] == 1, "the load's batch was finished without its rows"
    (tmp_path / "away.csv").rename(tmp_path / "export.csv")
    assert dict(load(pipeline).rows) == {"dbo.orders": 3}
    pipeline.tick()
    assert [row[1] for row in shown(pipeline)] == ["Ada", "Liz", "Kim"]
