"""Backfills of any interval, in any order, between the ticks of the schedule: nothing published changes (I25)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from open_mirroring.changes.horizon import MirrorHorizon
from open_mirroring.changes.manifest import Scope
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.horizon import move_horizon
from open_mirroring.operate.viewing import view_mirror
from open_mirroring.protocols.backfilling import Backfill, Interval
from tests.e2e.test_histories import FOLDERS, TABLES, assert_mirrored, history, slices
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery, Message
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import change_files
from workload_generator.transports import capture_files
from workload_generator.transports import json_lines as lines_of

DAY = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = [Interval(DAY + timedelta(hours=hour), DAY + timedelta(hours=hour + 1)) for hour in range(24)]


def json_lines(messages: Sequence[Message]) -> bytes:
    return lines_of(messages, layout="wrapped")


def deliver(pipeline: Pipeline, name: str, content: bytes, hour: int) -> None:
    """A file that came in the middle of an hour of that day."""
    pipeline.deliver(name, content)
    at = (HOURS[hour].start + timedelta(minutes=30)).timestamp()
    os.utime(pipeline.source / name, (at, at))


def names_of(pipeline: Pipeline, batch: int) -> set[str]:
    from open_mirroring.ledger import tables as t

    with pipeline.ledger.connect() as db:
        text = db.scalar(
            t.log_batch.select().with_only_columns(t.log_batch.c.ranges).where(t.log_batch.c.number == batch)
        )
    return {bound.name for bound in Scope.from_json(text).ranges}


def files_of_zone(pipeline: Pipeline) -> dict[str, list[int]]:
    return {folder: pipeline.numbers(folder) for folder in FOLDERS.values()}


def test_backfills_between_ticks_change_nothing_that_was_published(tmp_path: Path, spark) -> None:
    """I25, I16, I17: any interval, again and again, newest first, with `reread` and without; what was missed is in."""
    made = history(seed=12)
    delivery = Delivery(partitions=3, disorder=40, duplicates=0.05, seed=12)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700), delivery)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    parts = list(slices(messages, 6))
    for hour in (0, 1, 3):
        deliver(pipeline, f"{hour}.jsonl", json_lines(parts[hour]), hour)
        pipeline.tick()
    # Two files of past hours that no run has seen: the backfill of one hour binds its own first, in a batch of its own.
    for hour in (2, 4):
        deliver(pipeline, f"{hour}.jsonl", json_lines(parts[hour]), hour)
    extracted, _ = pipeline.tick(Backfill(HOURS[2]))
    assert [names_of(pipeline, batch) for batch in extracted.batches] == [{"2.jsonl"}, {"4.jsonl"}]
    before = files_of_zone(pipeline)
    for hour in (4, 3, 2, 1, 0):
        assert pipeline.tick(Backfill(HOURS[hour]))[0].batches == ()
        again = pipeline.tick(Backfill(HOURS[hour], reread=True))[0]
        assert [names_of(pipeline, batch) for batch in again.batches] == [{f"{hour}.jsonl"}]
    assert files_of_zone(pipeline) == before, "what was read again was published already"
    deliver(pipeline, "5.jsonl", json_lines(parts[5]), 5)
    extracted, _ = pipeline.tick(Backfill(Interval(HOURS[0].start, HOURS[6].start), reread=True))
    assert [len(names_of(pipeline, batch)) for batch in extracted.batches] == [1, 6]
    assert_mirrored(pipeline, made)


def test_capture_files_belong_to_the_window_in_their_name(tmp_path: Path, spark) -> None:
    """C-93, I25: whenever they were copied; pieces of split events that are read again are joined only once (I15)."""
    made = history(seed=13, transactions=40)
    messages = render(made.changes, CesOptions(max_data_bytes=1_500), Delivery(partitions=2, disorder=20, seed=13))
    pipeline = Pipeline(tmp_path, spark, TABLES, source={"transport": "capture", "layout": None})
    files = dict(capture_files(messages))
    for name, content in files.items():
        pipeline.deliver(name, content)
    pipeline.tick()
    windows = {name: datetime(*map(int, name[:-5].split("/")[-6:]), tzinfo=UTC) for name in files}
    whole = Interval(min(windows.values()), max(windows.values()) + timedelta(seconds=1))
    half = Interval(whole.start, whole.start + (whole.end - whole.start) / 2)
    extracted, published = pipeline.tick(Backfill(half, reread=True))
    assert names_of(pipeline, extracted.batches[-1]) == {name for name, at in windows.items() if at in half}
    assert published.files == {}
    pipeline.tick(Backfill(whole, reread=True))
    assert_mirrored(pipeline, made)


def test_change_files_of_a_file_target_are_read_again(tmp_path: Path, spark) -> None:
    """T-40, I25: pairs of before and after images that are read again are the same changes."""
    made = history(seed=14, transactions=30)
    files = [
        *change_files(stored_changes(made.changes, ChangeTableOptions()), ChangeTableOptions(), "csv", rows_per_file=17)
    ]
    pipeline = Pipeline(
        tmp_path, spark, TABLES, source={"format": "qlik-change-table", "transport": "files", "layout": None}
    )
    for name, content in files:
        deliver(pipeline, name, content, 3)
    pipeline.tick()
    extracted, published = pipeline.tick(Backfill(HOURS[3], reread=True))
    assert (len(extracted.batches), published.files) == (1, {})
    assert_mirrored(pipeline, made)


def test_what_the_source_no_longer_has_is_named_and_the_rest_is_read_again(tmp_path: Path, spark) -> None:
    made = history(seed=15, transactions=20)
    messages = render(made.changes, CesOptions(), Delivery(partitions=1, seed=15))
    pipeline = Pipeline(tmp_path, spark, TABLES)
    for hour, part in enumerate(slices(messages, 3)):
        deliver(pipeline, f"{hour}.jsonl", json_lines(part), hour)
    pipeline.tick()
    (pipeline.source / "1.jsonl").unlink()
    extracted, _ = pipeline.tick(Backfill(Interval(HOURS[0].start, HOURS[3].start), reread=True))
    assert extracted.gone == ["1.jsonl"]
    assert names_of(pipeline, extracted.batches[-1]) == {"0.jsonl", "2.jsonl"}
    assert_mirrored(pipeline, made)


def test_an_interval_that_reaches_below_the_horizon_is_refused_before_anything_is_bound(tmp_path: Path, spark) -> None:
    """I25, G-05."""
    pipeline = Pipeline(tmp_path, spark, TABLES)
    made = history(seed=16, transactions=10)
    deliver(pipeline, "0.jsonl", json_lines(render(made.changes, CesOptions(), Delivery(partitions=1, seed=16))), 0)
    pipeline.tick()
    deliver(pipeline, "late.jsonl", b"", 2)
    assert move_horizon(pipeline.ledger, pipeline.name, 1, MirrorHorizon(1, HOURS[2].start, 0), [])
    for reread in (False, True):
        with pytest.raises(TerminalError, match="ARGUMENT_INVALID"):
            pipeline.extract(Backfill(Interval(HOURS[1].start, HOURS[3].end), reread))
    assert pipeline.reader.mirror().committed == 1
    assert pipeline.extract(Backfill(HOURS[2], reread=True)).batches == ()


def test_a_run_adopts_what_a_killed_backfill_left(tmp_path: Path, spark) -> None:
    """I19, I29: a batch that is read again is bound like any other, and finished by whoever comes next."""
    made = history(seed=17, transactions=20)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    deliver(pipeline, "0.jsonl", json_lines(render(made.changes, CesOptions(), Delivery(partitions=2, seed=17))), 0)
    pipeline.tick()
    interval = ("--from", HOURS[0].start.isoformat(), "--to", HOURS[0].end.isoformat(), "--reread")
    pipeline.killed("extract_changes", "extract.written", *interval)
    assert pipeline.reader.mirror().open_batch == 2
    extracted, published = pipeline.tick()
    assert (extracted.batches, published.files) == ((2,), {})
    assert_mirrored(pipeline, made)


def test_intervals_of_a_topic_are_reported_by_the_brokers_timestamps(tmp_path: Path, spark, kafka, monkeypatch) -> None:
    """I25, I28: all of the interval is bound whatever one run may take, and what is retained is read again."""
    made = history(seed=18, transactions=30)
    messages = render(made.changes, CesOptions(), Delivery(partitions=2, seed=18))
    monkeypatch.setenv("AIRFLOW_CONN_BROKER", kafka.connection())
    kafka.create_topic("backfilled", 2)
    source = {"transport": "kafka", "connection": "broker", "topics": ["backfilled"], "path": "", "layout": None}
    pipeline = Pipeline(tmp_path, spark, TABLES, source={**source, "max_messages_per_run": 10})
    begin = datetime.now(UTC)
    lines = [{**json.loads(line), "topic": "backfilled"} for line in json_lines(messages).splitlines()]
    kafka.publish_lines(json.dumps(line).encode() for line in lines)
    pipeline.tick()
    counts = [counts["messages"] for _, counts, _ in pipeline.reader.batches()]
    assert sum(counts) < len(lines)
    now = Interval(begin - timedelta(minutes=1), datetime.now(UTC) + timedelta(minutes=1))
    pipeline.tick(Backfill(now))
    assert sum(counts["messages"] for _, counts, _ in pipeline.reader.batches()) == len(lines)
    before = Interval(begin - timedelta(days=1), begin - timedelta(hours=1))
    assert pipeline.tick(Backfill(before, reread=True))[0].batches == ()
    extracted, published = pipeline.tick(Backfill(now, reread=True))
    assert (extracted.counts["messages"], published.files) == (len(lines), {})
    measured = view_mirror(pipeline.mirror, pipeline.ledger, datetime.now(UTC)).partitions
    assert sum(lag.until_loss for lag in measured.values()) == len(lines), "retention has taken nothing yet"
    assert_mirrored(pipeline, made)


def test_random_backfills_beside_ticks(tmp_path: Path, spark) -> None:
    """I25: whatever is asked for between which ticks, the last state is the source's and numbers are unbroken."""
    made = history(seed=19)
    messages = render(made.changes, CesOptions(), Delivery(partitions=3, disorder=30, duplicates=0.05, seed=19))
    pipeline = Pipeline(tmp_path, spark, TABLES)
    dice = Random(19)
    for hour, part in enumerate(slices(messages, 4)):
        deliver(pipeline, f"{hour}.jsonl", json_lines(part), hour)
        first = dice.randrange(0, hour + 1)
        interval = Interval(HOURS[first].start, HOURS[dice.randrange(first, hour + 1)].end)
        pipeline.tick(Backfill(interval, reread=dice.random() < 0.6) if dice.random() < 0.8 else None)
    assert_mirrored(pipeline, made)
