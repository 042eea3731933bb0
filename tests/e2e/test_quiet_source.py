"""What a source leaves behind when it falls silent, and files of it that nothing reads: told, never passed over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from spark_jobs.dead_letters.listing import dead_letters
from tests.ces_messages import event, split
from tests.pipeline import Pipeline

TABLES = [{"source": "dbo.orders", "target": "dbo/orders", "key": ["id"]}]
BARE = {"layout": "bare"}


def lines(*bodies: bytes) -> bytes:
    return b"".join(body + b"\n" for body in bodies)


def codes(pipeline: Pipeline) -> list[str]:
    return [letter.code for letter in dead_letters(pipeline.log, pipeline.reader, 100).letters]


def test_pieces_are_given_up_in_time_although_nothing_comes_any_more_c56(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-56: no other message has to arrive for a piece that waits in vain to become a dead letter."""
    pipeline = Pipeline(tmp_path, spark, TABLES, source=BARE)
    pipeline.deliver("a.jsonl", lines(event("INS", commit=1), split(event("INS", commit=2), [40])[0]))
    pipeline.tick()
    assert main(["tick", str(pipeline.file)]) == Exit.ON_HOLD
    assert "Awaited: 1 message waits for other pieces" in capsys.readouterr().out
    assert (len(pipeline.reader.batches(above=0)), codes(pipeline)) == (1, []), "it waits"
    pipeline.make_overdue()
    extracted, _ = pipeline.tick()
    assert (extracted.batch, dict(extracted.counts), codes(pipeline)) == (2, {"expired": 1}, ["FRAGMENTS_INCOMPLETE"])
    assert main(["tick", str(pipeline.file)]) == Exit.DONE_WITH_LOSSES
    assert (len(pipeline.reader.batches(above=0)), codes(pipeline)) == (2, ["FRAGMENTS_INCOMPLETE"]), "once"
