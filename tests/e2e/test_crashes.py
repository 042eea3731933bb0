"""Killed after any durable step, a run leaves nothing that the next one does not finish (I19, D2 to D11)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from spark_jobs.extract_changes import main as extract_changes
from tests.e2e.test_histories import TABLES, assert_mirrored, history
from tests.pipeline import Pipeline
from workload_generator.ces import CesOptions, render
from workload_generator.delivery import Delivery
from workload_generator.transports import json_lines

EXTRACT = ["extract.bound", "extract.written", "extract.sealed", "extract.committed"]
PUBLISH = ["publish.intended", "publish.staged", "publish.sealed", "publish.renamed:3", "publish.all_renamed"]


# Where a job is killed does not depend on who computes, but for what its tasks had written: the rest takes minutes.
IN_SPARK = [
    pytest.param(fault, "Spark", marks=() if fault in ("extract.written", "publish.staged") else pytest.mark.long)
    for fault in (*EXTRACT, *PUBLISH)
]


@pytest.mark.parametrize(
    ("fault", "executor"),
    [*((fault, "own process") for fault in (*EXTRACT, *PUBLISH)), *IN_SPARK],
    indirect=["executor"],
)
def test_the_next_tick_finishes(fault: str, tmp_path: Path, executor) -> None:
    made = history(seed=3, transactions=24)
    messages = render(made.changes, CesOptions(max_data_bytes=1_700), Delivery(disorder=20, duplicates=0.05, seed=3))
    # Few rows a file, so that one publication has several numbers to be killed between.
    pipeline = Pipeline(tmp_path, executor, TABLES, publish={"max_rows_per_file": 3})
    half = len(messages) // 2
    pipeline.deliver("1.jsonl", json_lines(messages[:half], layout="wrapped"))
    pipeline.tick()
    pipeline.deliver("2.jsonl", json_lines(messages[half:], layout="wrapped"))
    if fault in PUBLISH:
        pipeline.extract()
    pipeline.killed("extract_changes" if fault in EXTRACT else "publish_changes", fault)
    pipeline.service.poll()
    pipeline.tick()
    assert_mirrored(pipeline, made)
    assert [batch for batch, _, _ in pipeline.reader.batches()] == [1, 2]
    staged = [path.name for path in pipeline.zone.rglob("_stage-*/*")]
    assert staged == [], "objects of confirmed numbers are swept"


@pytest.mark.parametrize("fault", ["extract.committed", "publish.intended", "publish.sealed", "publish.all_renamed"])
def test_a_program_that_reads_and_publishes_is_finished_by_the_next_one(fault: str, tmp_path: Path, spark) -> None:
    """Little work is published by the program that read it; killed there, it leaves what two programs leave."""
    made = history(seed=5, transactions=12)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    pipeline.deliver("1.jsonl", json_lines(render(made.changes, CesOptions(), Delivery(seed=5)), layout="wrapped"))
    pipeline.killed("extract_changes", fault, "--publish")
    report = tmp_path / "report.json"
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("OPEN_MIRRORING_RESULT", str(report))
        assert extract_changes([str(pipeline.file), "--publish"]) == Exit.DONE
    published = json.loads(report.read_text())["report"]["published"]
    assert (published["job"], published["held"], published["stopped"]) == ("publish_changes", {}, {})
    pipeline.service.poll()
    assert_mirrored(pipeline, made)
    assert [batch for batch, _, _ in pipeline.reader.batches()] == [1]


@pytest.mark.parametrize("task", ["extract.batch_writing.read", "publish.changes.stage"])
def test_a_task_without_memory_is_reported_and_the_next_tick_goes_on(
    task: str, tmp_path: Path, spark, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S-25: in one line with a code, as any other failure; what the run had done is not done again."""
    made = history(seed=4, transactions=12)
    pipeline = Pipeline(tmp_path, spark, TABLES)
    pipeline.deliver("1.jsonl", json_lines(render(made.changes, CesOptions(), Delivery(seed=4)), layout="wrapped"))

    def starved(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(f"spark_jobs.{task}", starved)
        assert main(["tick", str(pipeline.file)]) == Exit.TRANSIENT
    story = capsys.readouterr().err
    assert "MEMORY_FULL: the process ran out of memory" in story and "Traceback" not in story
    assert main(["tick", str(pipeline.file)]) == Exit.DONE
    pipeline.service.poll()
    assert_mirrored(pipeline, made)
    assert [batch for batch, _, _ in pipeline.reader.batches()] == [1]
