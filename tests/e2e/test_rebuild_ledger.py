"""A ledger that is lost at any moment is made again from landing zone and change log, and the mirror goes on."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from tests.ces_messages import event
from tests.e2e.test_crashes import EXTRACT, PUBLISH
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.e2e.test_lost_ledger import forget, published, said, set_to
from tests.e2e.test_reload_table import ORDERS, deliver, mirror_of, orders, reload, row
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

APPLY = ("--apply", "--approved-by", "Ada", "--reason", "the disk of the ledger broke")


def objects(pipeline: Pipeline) -> dict[tuple[str, str], int]:
    """The very objects under the tables' numbers, wherever the service has moved them."""
    numbered = [path for path in pipeline.zone.rglob("*.parquet") if path.stem.isdigit()]
    return {(path.relative_to(pipeline.zone).parts[1], path.name): path.stat().st_ino for path in numbered}


def marks(pipeline: Pipeline) -> Mapping[str, Any]:
    """What has to be the same as in the ledger that was lost."""
    reader = pipeline.reader
    return {
        "mirror": reader.mirror(),
        "bound": reader.bound(),
        "waiting": pipeline.open_fragments,
        "tables": {
            source: (state.id, state.row.generation, state.row.confirmed, state.row.published_batch, state.columns)
            for source, state in reader.tables().items()
        },
        "lists": {
            state.id: [(one.cols, one.whole, one.seen) for one in reader.column_lists([state.id]).get(state.id, [])]
            for state in reader.tables().values()
        },
        "epochs": reader.epochs(state.id for state in reader.tables().values()),
        "batches": [(number, counts) for number, counts, _ in reader.batches()],
    }


OFTEN = ["extract.bound", "extract.committed", "publish.staged", "publish.renamed:3", "publish.confirmed"]
"""The moments that each run of the suite tries; the others take their turn with the long tests."""
SELDOM = [pytest.param(fault, marks=pytest.mark.long) for fault in [*EXTRACT, *PUBLISH] if fault not in OFTEN]


@pytest.mark.parametrize("fault", [*OFTEN, *SELDOM])
def test_a_ledger_lost_at_any_moment_is_made_again_g_80(fault: str, tmp_path: Path, spark: Any, capsys: Any) -> None:
    """G-80: no number is used twice or left out, nothing is published twice, and the tables end equal."""
    made = history(seed=3, transactions=24)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700), Delivery(disorder=20, duplicates=0.05, seed=3))
    pipeline = Pipeline(tmp_path, spark, TABLES, publish={"max_rows_per_file": 3})
    half = len(messages) // 2
    pipeline.deliver("1.jsonl", json_lines(messages[:half], layout="wrapped"))
    pipeline.tick()
    pipeline.deliver("2.jsonl", json_lines(messages[half:], layout="wrapped"))
    if fault.startswith("publish"):
        pipeline.extract()
    pipeline.killed("extract_changes" if fault in EXTRACT else "publish_changes", fault)
    before = objects(pipeline)
    forget(pipeline)
    pipeline.service.poll()

    code, text = said(capsys, pipeline, "rebuild-ledger")
    assert code == Exit.DONE and "nothing was changed" in text, text
    assert not list(pipeline.folder.glob("ledger.db*")), "a plan creates nothing"
    code, text = said(capsys, pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    code, text = said(capsys, pipeline, "tick")
    assert code == Exit.DONE, text
    pipeline.service.poll()
    pipeline.tick()
    assert_mirrored(pipeline, made)
    for state in pipeline.reader.tables().values():
        assert pipeline.numbers(state.folder) == list(range(1, state.row.confirmed + 1))
    code, text = said(capsys, pipeline, "reconcile")
    assert code == Exit.DONE, text
    after = objects(pipeline)
    assert {name: after[name] for name in before} == before, "what was published stays the object that it was"


def test_what_is_made_again_is_what_was_lost_g_80(tmp_path: Path, spark: Any, capsys: Any) -> None:
    """G-80: identities, marks, ranges of the source, column lists, streams and batches are those of the lost ledger."""
    pipeline = published(tmp_path, spark)
    before = marks(pipeline)
    code, text = said(capsys, pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.TERMINAL and "COMMAND_REFUSED" in text, "a ledger that is there is never replaced"
    forget(pipeline)
    assert said(capsys, pipeline, "rebuild-ledger", "--apply")[0] == Exit.USAGE, "without a name and a reason"
    code, text = said(capsys, pipeline, "rebuild-ledger", *APPLY, "--json")
    assert code == Exit.DONE and '"applied": true' in text, text
    assert marks(pipeline) == before
    deliver(pipeline, "3.jsonl", event("UPD", row(1, "Ida"), row(1, "Ada"), commit=20))
    pipeline.tick()
    assert [one["name"] for one in orders(pipeline)] == ["Ida", "Eve"]
    assert said(capsys, pipeline, "reconcile")[0] == Exit.DONE


def test_a_table_that_cannot_be_known_stops_and_is_built_again_g_80(tmp_path: Path, spark: Any, capsys: Any) -> None:
    """G-80: a file of other rows than the log gives, and a log without records: told, never guessed."""
    pipeline = mirror_of(tmp_path, spark, ORDERS)
    deliver(pipeline, "1.jsonl", *(event("INS", row(n, "Ada"), commit=10 + n) for n in range(1, 5)))
    pipeline.tick()
    forget(pipeline)
    # Cut otherwise, the publication would have other files.
    set_to(pipeline, publish={"max_rows_per_file": 2})
    code, text = said(capsys, pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.TABLES_STOPPED and "LEDGER_UNKNOWN" in text and "now gives other rows" in text, text
    code, text = said(capsys, pipeline, "resume", "--table", "dbo.orders", "--why", "in a hurry")
    assert code == Exit.TERMINAL and "COMMAND_REFUSED" in text
    reload(pipeline)
    deliver(pipeline, "2.jsonl", event("UPD", row(1, "Ida"), row(1, "Ada"), commit=20))
    pipeline.tick()
    assert [one["name"] for one in orders(pipeline)] == ["Ida", "Ada", "Ada", "Ada"]
    forget(pipeline)
    shutil.rmtree(pipeline.log / "_batches")
    code, text = said(capsys, pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.TERMINAL and "COMMAND_REFUSED" in text


def test_a_file_that_is_gone_too_early_is_missed_by_the_ledger_made_again_too_g_80(
    tmp_path: Path, spark: Any, capsys: Any
) -> None:
    """G-80, F-36: the service keeps for days what it applied; a file that left sooner was taken by somebody."""
    pipeline = published(tmp_path, spark)
    for file in pipeline.zone.rglob(f"{1:020d}.parquet"):
        file.unlink()
    code, text = said(capsys, pipeline, "reconcile")
    assert code == Exit.TABLES_STOPPED and "FILE_MISSING" in text, text
    forget(pipeline)
    code, text = said(capsys, pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    code, text = said(capsys, pipeline, "reconcile")
    assert code == Exit.TABLES_STOPPED and "FILE_MISSING" in text, text
