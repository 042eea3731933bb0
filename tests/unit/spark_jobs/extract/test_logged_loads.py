"""Chunks of loads that go through the change log, by their names and by what the ledger says of their table (G-08)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from open_mirroring.changes.log_position import LOAD_ORDINAL, load_epoch, position_order
from open_mirroring.changes.manifest import BoundRange, LoadChunk, Manifest
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.config import load_mirror
from open_mirroring.facts.column_lists import COLUMN_LISTS
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.batch_contents import record_contents
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.reading import LOADED, next_changes
from spark_jobs.extract.logged_loads import BASE_POSITION, chunks_to_log, log_loads
from spark_jobs.extract.part import Part
from tests.hand_made_mirror import GUID, HandMadeMirror
from tests.noted_facts import facts_about

ORDERS = "dbo.orders"
PLAN = LoadPlan("as it was", (LoadColumn("order_id", "INT32"),), ([], [], []))


@pytest.fixture
def made(tmp_path: Path) -> HandMadeMirror:
    made = HandMadeMirror(tmp_path)
    document = yaml.safe_load(made.file.read_text(encoding="utf-8"))
    load = {"format": "csv", "path": "export.csv", "stream_from": "beginning", "types": {"order_id": "int"}}
    document["tables"][0] |= {"complete_rows": True, "initial_load": load}
    made.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    made.mirror = load_mirror(made.file)
    made.set_table(ORDERS, load_state="pending", load_plan=PLAN.to_json())
    return made


def read(made: HandMadeMirror, *names: str) -> list[Part]:
    # Nothing of what is asked for here reaches a worker.
    ranges = [BoundRange(name, 0, 1) for name in names]
    return log_loads(made.mirror, made.ledger, None, 1, "attempt", ranges)  # type: ignore[arg-type]


def test_a_chunk_is_known_by_its_name() -> None:
    chunk = LoadChunk("dbo.a/b", 3, 12)
    assert LoadChunk.of(chunk.name) == chunk
    assert LoadChunk.of("dbo/a.jsonl") is None


def test_the_chunks_of_a_new_generation_are_not_bound_by_those_of_the_old_one(made: HandMadeMirror) -> None:
    """G-08, I12: else the new load would count as read, and be published without a row."""
    bound = {bound.name: 1 for bound in chunks_to_log([made.table(ORDERS)], {}, 9)}
    assert len(bound) == 3 and chunks_to_log([made.table(ORDERS)], bound, 9) == []
    made.set_table(ORDERS, generation=2)
    assert len(chunks_to_log([made.table(ORDERS)], bound, 9)) == 3


def test_a_bound_chunk_of_a_table_that_was_reset_or_dropped_is_passed_over(made: HandMadeMirror) -> None:
    """I12, D13: a batch that was bound before holds up nobody, and brings no row of the old life."""
    made.set_table(ORDERS, generation=2)
    stale = [LoadChunk(ORDERS, 1, 0).name, LoadChunk("dbo.dropped", 1, 0).name]
    assert [(part.written.files, part.given_back) for part in read(made, *stale)] == [((), {})] * 2
    made.set_table(ORDERS, load_plan=None)
    assert [part.written.files for part in read(made, LoadChunk(ORDERS, 2, 0).name)] == [()]


def test_a_bound_chunk_is_given_back_while_the_mirror_file_says_something_else(made: HandMadeMirror) -> None:
    """G-08: bound and never read, its rows would be lost without a word."""
    name = LoadChunk(ORDERS, 1, 0).name
    (part,) = read(made, name)
    assert list(part.given_back) == [name] and not part.written.files and not part.facts


def test_chunks_of_loads_stay_out_of_what_is_read_again(made: HandMadeMirror) -> None:
    """I25: a repetition is of source ranges; the ledger names chunks beside them."""
    ledger = ExtractLedger(made.ledger, "shop")
    chunk = LoadChunk(ORDERS, 1, 0).name
    made.commit(1, {})
    with made.ledger.begin() as db:
        db.execute(t.log_batch.update().values(ranges=json.dumps([["a.jsonl", 0, 5], [chunk, 0, 1]])))
    bound = ledger.bound_above(0)
    assert [one.name for one in bound if LoadChunk.of(one.name) is None] == ["a.jsonl"]
    assert {one.name for one in bound} == {"a.jsonl", chunk}


def test_what_an_old_load_brings_late_changes_no_columns(made: HandMadeMirror) -> None:
    """I13: its column list would stop the new generation, whose load may have other columns."""
    made.set_table(ORDERS, generation=2)
    for batch, generation in ((1, 1), (2, 2)):
        file = {"path": f"{batch}", "rows": 1, "size": 1, "tables": {ORDERS: {load_epoch(generation): [1, "-", "-"]}}}
        cols = json.dumps([[f"of {generation}", "int", 0]])
        with made.ledger.begin() as db:
            seen = {load_epoch(generation): PlacesSeen(*"----")}
            manifest = Manifest([file], {}, facts_about(COLUMN_LISTS, {ORDERS: {cols: seen}}))
            record_contents(db, "shop", batch, datetime(2026, 1, 5, tzinfo=UTC), manifest)
    table = made.ids[ORDERS]
    assert [json.loads(found.cols)[0][0] for found in made.reader.column_lists([table])[table]] == ["of 2"]
    assert made.reader.epochs([table])[table] == {load_epoch(1): LOAD_ORDINAL, load_epoch(2): LOAD_ORDINAL}


def test_loaded_rows_do_not_wait_for_the_partitions_to_show_a_commit(made: HandMadeMirror) -> None:
    """C-88, G-08: they lie below every change, so nothing older can come; changes do wait."""
    made.set_table(ORDERS, load_state="loaded")
    made.accept(ORDERS, load_epoch(1), LOAD_ORDINAL)
    made.accept(ORDERS, GUID, 0)
    made.commit(1, {ORDERS: (1, "0001:01:1")})
    states = {ORDERS: made.table(ORDERS)}
    assert next_changes(made.reader, states, 1, complete_transactions=True) == {}
    made.commit(2, {ORDERS: (3, BASE_POSITION)}, epoch=load_epoch(1))
    (work,) = next_changes(made.reader, states, 2, complete_transactions=True).values()
    assert (work.batch_to, work.position_from, work.position_to) == (2, "", LOADED)
    assert position_order(LOAD_ORDINAL, BASE_POSITION) < LOADED < position_order(0, "0")
