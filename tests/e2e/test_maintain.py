"""Maintenance beside a mirror that goes on: what is below the horizon may go, and nobody misses it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from open_mirroring.changes.manifest import Manifest
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.dead_letters import accept_letters
from open_mirroring.ledger.decisions import resume_table
from open_mirroring.protocols.backfilling import Backfill, Interval
from spark_jobs.changelog.change_log import ChangeLog
from spark_jobs.dead_letters.open_letters import read_open_letters
from spark_jobs.maintain import maintain
from spark_jobs.reconcile_sequence import reconcile_deep
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

LONG_AGO = datetime.now(UTC) - timedelta(days=90)


def grow_old(pipeline: Pipeline, up_to: int) -> None:
    """Batches up to *up_to* were committed long ago; empty ones fill the numbers up to it."""
    empty = {"mirror": pipeline.name, "ranges": "[]", "manifest": '{"files": [], "counts": {}}'}
    c, m = t.log_batch.c, t.mirror.c
    with pipeline.ledger.begin() as db:
        committed = db.scalar(t.mirror.select().with_only_columns(m.committed).where(m.name == pipeline.name))
        times = {"bound_at": LONG_AGO, "committed_at": LONG_AGO}
        for number in range(committed + 1, up_to + 1):
            db.execute(t.log_batch.insert().values(number=number, **empty, **times))
        db.execute(t.log_batch.update().where(c.number <= up_to).values(**times))
        db.execute(t.mirror.update().values(committed=max(committed, up_to)))
    # As if the log had the batches in between: it never ends before what the ledger committed (G-31).
    log = ChangeLog(pipeline.log, pipeline.name)
    nothing = json.dumps({"files": [], "counts": {}})
    if log.open(up_to, Manifest.from_json(nothing), nothing).manifest is None:
        log.commit(up_to, Manifest.from_json(nothing))


def files_of_log(pipeline: Pipeline) -> set[str]:
    return {Path(uri).name for uri in DeltaTable(str(pipeline.log)).file_uris()}


def lines(messages: Any) -> bytes:
    return json_lines(messages, layout="wrapped")


def in_source_order(seed: int) -> tuple[Any, list[Any]]:
    """A history and its messages in three parts, no transaction in two of them."""
    made = history(seed=seed, transactions=40)
    messages = []
    for first, last in ((0, 13), (14, 27), (28, 10_000)):
        changes = [change for change in made.changes if first <= change.txn - made.changes[0].txn <= last]
        messages.append(render(changes, CesOptions(), Delivery(partitions=1, seed=seed)))
    return made, messages


def test_a_block_below_the_horizon_goes_and_everything_goes_on(tmp_path: Path, spark) -> None:
    """G-05, I1, I16, I17, I22: the log forgets it, the deep check expects it, and what is newer is decided as ever."""
    made, parts = in_source_order(61)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    pipeline.deliver("0.jsonl", lines(parts[0]))
    pipeline.tick()
    first = files_of_log(pipeline)
    grow_old(pipeline, 99)
    pipeline.deliver("1.jsonl", lines(parts[1]))
    pipeline.tick()
    grow_old(pipeline, 100)
    kept = files_of_log(pipeline) - first
    dead = pipeline.log / "batch_block=1" / "000000000100-dead-00000.parquet"
    dead.write_bytes(b"of a dead attempt")
    done = maintain(pipeline.mirror, pipeline.ledger)
    assert (done.dropped_batch, done.horizon_batch, done.horizon, done.held_by) == (99, 100, LONG_AGO, [])
    assert set(done.moved) == {source for source, state in pipeline.reader.tables().items() if state.row.confirmed}
    assert files_of_log(pipeline) == kept
    assert {path.name for path in (pipeline.log / "batch_block=0").iterdir()} == first, "whoever reads them may go on"
    assert dead.exists(), "an attempt as young as this may still be at work"
    assert DeltaTable(str(pipeline.log)).transaction_version("open_mirroring/test") == 100

    again = maintain(pipeline.mirror, pipeline.ledger)
    assert (again.moved, again.dropped_batch, files_of_log(pipeline)) == ({}, 99, kept)
    assert reconcile_deep(pipeline.mirror, pipeline.ledger, spark).findings == []
    pipeline.deliver("2.jsonl", lines(parts[2]))
    pipeline.tick()
    pipeline.tick(Backfill(Interval(datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC)), reread=True))
    assert_mirrored(pipeline, made)


def test_a_change_that_arrives_below_the_horizon_stops_its_table_alone(tmp_path: Path, spark) -> None:
    """G-05, I17: the log can no longer tell whether it is the newest of its key."""
    _, parts = in_source_order(62)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    late = next(m for m in parts[0] if b"orders" in lines([m]))
    pipeline.deliver("0.jsonl", lines(parts[0]))
    pipeline.tick()
    grow_old(pipeline, 1)
    maintain(pipeline.mirror, pipeline.ledger)
    pipeline.deliver("late.jsonl", lines([late]))
    pipeline.tick()
    stops = {source: state.stop_code for source, state in pipeline.reader.tables().items() if state.stop_code}
    assert set(stops.values()) == {"LATE_BELOW_HORIZON"} and len(stops) == 1
    with pytest.raises(TerminalError, match="COMMAND_REFUSED"):
        resume_table(pipeline.ledger, pipeline.name, next(iter(stops)), Reason("ann", "it cannot be"))


def test_open_letters_and_what_is_not_published_hold_the_horizon(tmp_path: Path, spark) -> None:
    """G-06, I1: until somebody accepts what is lost."""
    _, parts = in_source_order(63)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    pipeline.deliver("0.jsonl", lines(parts[0]))
    pipeline.extract()
    grow_old(pipeline, 1)
    assert maintain(pipeline.mirror, pipeline.ledger).moved == {}, "nothing is published yet"
    pipeline.deliver("1.jsonl", b'{"topic": "t", "partition": 0, "offset": 9, "value": "{broken"}\n')
    pipeline.tick()
    pipeline.deliver("2.jsonl", lines(parts[1]))
    pipeline.tick()
    grow_old(pipeline, 3)
    held = maintain(pipeline.mirror, pipeline.ledger)
    assert (held.horizon_batch, len(held.held_by)) == (1, 1)
    (letter,) = read_open_letters(pipeline.mirror, pipeline.ledger)
    accept_letters(pipeline.ledger, pipeline.name, {letter.at: letter.rows}, Reason("ann", "a test message"))
    assert maintain(pipeline.mirror, pipeline.ledger).horizon_batch == 3


def test_nothing_is_swept_while_a_batch_is_under_way(tmp_path: Path, spark) -> None:
    """I29: its files are sealed, and no part of the log yet, however old they are."""
    import os

    made, parts = in_source_order(64)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    pipeline.deliver("0.jsonl", lines([m for part in parts for m in part]))
    pipeline.killed("extract_changes", "extract.sealed")
    for path in pipeline.log.rglob("*.parquet"):
        os.utime(path, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
    assert maintain(pipeline.mirror, pipeline.ledger).vacuumed == 0
    pipeline.tick()
    dead = pipeline.log / "batch_block=0" / "000000000001-dead-00000.parquet"
    dead.write_bytes(b"of a dead attempt")
    os.utime(dead, (LONG_AGO.timestamp(), LONG_AGO.timestamp()))
    assert maintain(pipeline.mirror, pipeline.ledger).vacuumed == 1
    assert not dead.exists()
    assert_mirrored(pipeline, made)
