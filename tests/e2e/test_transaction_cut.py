"""Transactions held back until they are whole: what the target shows is the source at a commit, never between two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tests.e2e.test_histories import FOLDERS, TABLES, assert_mirrored, history, slices
from tests.pipeline import Pipeline, in_order
from workload_generator.ces import CesOptions, commit_lsn, render
from workload_generator.delivery import Delivery
from workload_generator.history import SHOP_TABLES, Change, History, fold
from workload_generator.transports import capture_files, json_lines

PARTITIONED = {"partition_key_scheme": "column", "partition_count": 3}
DELIVERY = Delivery(partitions=3, scheme="key", disorder=60, duplicates=0.05, seed=11)


def complete_below(pipeline: Pipeline) -> str:
    """The complete position, the same for every table, as text of a commit."""
    reader = pipeline.reader
    complete = reader.completeness(reader.mirror().committed)
    assert complete is not None
    return next(iter(complete.below.values()), "")


def complete_transactions(pipeline: Pipeline, made: History) -> list[Change]:
    """The changes of a history below the complete position."""
    below = complete_below(pipeline)
    return [one for one in made.changes if commit_lsn(one.txn).replace(":", "") < below]


def whole_at_each_tick(pipeline: Pipeline, made: History) -> Iterator[History]:
    """Deliver a history in four ticks; after each the part of it that is complete."""
    for at, part in enumerate(slices(render(made.changes, CesOptions(seed=9), DELIVERY), 4)):
        pipeline.deliver(f"{at}.jsonl", json_lines(part, layout="wrapped"))
        pipeline.tick()
        yield replace(made, changes=complete_transactions(pipeline, made))


def assert_shows_whole_transactions(pipeline: Pipeline, made: History) -> int:
    return assert_shows(pipeline, made, complete_transactions(pipeline, made))


def assert_shows(pipeline: Pipeline, made: History, whole: list[Change]) -> int:
    """Every table is the fold of the transactions below the complete position; returns how many changes these are."""
    then = History(made.tables, made.initial, whole, fold(whole, made.initial))
    for table in SHOP_TABLES:
        shown = pipeline.mirrored("shop", table.name) if pipeline.numbers(FOLDERS[table.full_name]) else []
        expected = in_order(then.typed_final(table.full_name), list(table.key)) if complete_below(pipeline) else []
        # A column that a later transaction added is there already, empty, once the log knows it.
        names = expected[0].keys() if expected else set()
        rows = [{name: row[name] for name in row if name in names} for row in shown]
        assert in_order(rows, list(table.key)) == expected, table.full_name
    return len(whole)


def set_consistency(pipeline: Pipeline, value: str) -> None:
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    pipeline.file.write_text(yaml.safe_dump({**document, "consistency": value}), encoding="utf-8")


@pytest.mark.parametrize("transport", ["files", "capture"])
def test_the_target_shows_the_source_at_a_commit(transport: str, tmp_path: Path, spark) -> None:
    """I4, I5, C-34, C-88: partitions overtake each other, messages are cut and sent again, ticks fall anywhere.

    The last transactions wait, for nothing later was seen; a mirror that stops waiting publishes them.
    """
    made = history(seed=91, transactions=80)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700, seed=9), DELIVERY)
    source = {**PARTITIONED, "transport": transport, "layout": "wrapped" if transport == "files" else None}
    pipeline = Pipeline(tmp_path, spark, TABLES, source=source, consistency="transaction")
    if transport == "files":
        deliveries = [
            [(f"{n}.jsonl", json_lines(part, layout="wrapped"))] for n, part in enumerate(slices(messages, 4))
        ]
    else:
        files = list(capture_files(messages))
        deliveries = [files[len(files) * n // 4 : len(files) * (n + 1) // 4] for n in range(4)]
    seen = []
    for delivery in deliveries:
        for name, content in delivery:
            pipeline.deliver(name, content)
        pipeline.tick()
        seen.append(assert_shows_whole_transactions(pipeline, made))
    assert seen == sorted(seen) and 0 < seen[-1] < len(made.changes)
    waiting = sum(state.waiting_rows for state in pipeline.reader.tables().values())
    assert waiting > 0
    assert dict(pipeline.publish().files) == {}, "nothing is published without something new that is whole"
    set_consistency(pipeline, "key")
    pipeline.publish()
    pipeline.service.poll()
    assert_mirrored(pipeline, made)
    assert {state.waiting_rows for state in pipeline.reader.tables().values()} == {0}


def test_a_mirror_that_begins_to_hold_back_waits_until_transactions_catch_up(tmp_path: Path, spark) -> None:
    """C-88, I19: the set that the target has never shrinks; a killed run is finished as its intent bound it."""
    made = history(seed=92)
    messages = render(made.changes, CesOptions(seed=9), DELIVERY)
    pipeline = Pipeline(tmp_path, spark, TABLES, source=PARTITIONED, consistency="key")
    parts = list(slices(messages, 3))
    pipeline.deliver("0.jsonl", json_lines(parts[0], layout="wrapped"))
    pipeline.tick()
    set_consistency(pipeline, "transaction")
    pipeline.deliver("1.jsonl", json_lines(parts[1], layout="wrapped"))
    pipeline.extract()
    pipeline.killed("publish_changes", "publish.intended")
    bound = {s: t.row.intent.work for s, t in pipeline.reader.tables().items() if t.row.intent}
    assert bound and all(work.position_from and work.position_to for work in bound.values())
    pipeline.deliver("2.jsonl", json_lines(parts[2], layout="wrapped"))
    pipeline.tick()
    assert_shows_whole_transactions(pipeline, made)
    set_consistency(pipeline, "key")
    pipeline.publish()
    pipeline.service.poll()
    assert_mirrored(pipeline, made)


def test_more_partitions_than_the_mirror_file_knows_stop_reading(tmp_path: Path, spark) -> None:
    """C-88: nothing is called complete that an unknown partition had no say in; told right, reading goes on."""
    made = history(seed=93, transactions=20)
    messages = render(made.changes, CesOptions(seed=9), DELIVERY)
    source = {**PARTITIONED, "partition_count": 2}
    pipeline = Pipeline(tmp_path, spark, TABLES, source=source, consistency="transaction")
    pipeline.deliver("0.jsonl", json_lines(messages, layout="wrapped"))
    with pytest.raises(Exception, match="TRANSACTION_UNBOUNDED"):
        pipeline.extract()
    document = yaml.safe_load(pipeline.file.read_text(encoding="utf-8"))
    document["source"]["partition_count"] = 3
    pipeline.file.write_text(yaml.safe_dump(document), encoding="utf-8")
    pipeline.tick()
    assert assert_shows_whole_transactions(pipeline, made) > 0
