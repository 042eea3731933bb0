"""Ticks by the command line, in process, on a generated history: what they do, say and exit with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.pipeline import ROOT, Pipeline
from workload_generator.ces import CesOptions, encode
from workload_generator.delivery import Delivery, deliver
from workload_generator.history import History, random_history
from workload_generator.transports import json_lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, CUSTOMERS = "dbo.orders", "dbo.customers"


def delivered(history: History, *, options: CesOptions, offset: int = 0) -> bytes:
    """The history's messages as one file of wrapped lines, in order."""
    pieces = [piece for change in history.changes for piece in encode(change, options)]
    return json_lines(deliver(pieces, Delivery(partitions=1), first_offsets=[offset]), layout="wrapped")


def tables_of(history: History) -> list[dict[str, Any]]:
    return [
        {"source": name, "target": name.replace(".", "/"), "key": list(history.tables[name].key)}
        for name in (ORDERS, CUSTOMERS)
    ]


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> tuple[int, str, str]:
    capsys.readouterr()
    code = main([str(argument) for argument in argv])
    return code, *capsys.readouterr()


def test_a_tick_publishes_and_a_second_one_has_nothing_to_do_and_says_so(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """A tick without new input: no new number, no new version of the log, no staged object."""
    history = random_history(5, 15)
    pipeline = Pipeline(tmp_path / "shop", spark, tables_of(history))
    pipeline.deliver("a.jsonl", delivered(history, options=CesOptions()))
    code, out, err = run(capsys, "tick", pipeline.file)
    assert code == Exit.DONE
    assert "Read: batch 1" in out and "Published: 2 files of 2 tables" in out
    assert "Traceback" not in err and "reading the source" in err and "staging 2 tables" in err

    before = sorted(path for path in (tmp_path / "shop").rglob("*") if "ledger.db" not in path.name)
    code, out, err = run(capsys, "tick", pipeline.file)
    assert (code, out.splitlines()[0]) == (Exit.DONE, "Nothing to do: the target has all that the source has shown.")
    assert sorted(path for path in (tmp_path / "shop").rglob("*") if "ledger.db" not in path.name) == before

    code, out, _ = run(capsys, "status", pipeline.file, "--json")
    assert code == Exit.DONE
    for table in json.loads(out)["tables"]:
        assert (table["verdict"], table["confirmed"], table["waiting"]["batches"]) == ("PASS", 1, 0)
        assert table["marks"]["published_batch"] == 1
        assert table["marks"]["highest_position"].startswith("0:")


def test_a_tick_that_finds_nothing_new_needs_no_java(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most ticks find nothing new, and a JVM takes longer to start than all that they do."""
    history = random_history(5, 15)
    pipeline = Pipeline(tmp_path / "shop", spark, tables_of(history))
    pipeline.deliver("a.jsonl", delivered(history, options=CesOptions()))
    assert run(capsys, "tick", pipeline.file)[0] == Exit.DONE
    # A folder without a program `java` in it, for a process that has no JVM yet.
    nowhere = {**os.environ, "JAVA_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "spark_jobs.cli.command_line", "tick", pipeline.file]
    idle = subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=300)
    assert idle.returncode == Exit.DONE, idle.stderr
    assert "Nothing to do" in idle.stdout and "starting Spark" not in idle.stderr
    pipeline.deliver("b.jsonl", delivered(random_history(6, 5), options=CesOptions(), offset=10_000))
    busy = subprocess.run(command, env=nowhere, capture_output=True, text=True, timeout=300)
    assert "starting Spark" in busy.stderr and "INSTALLATION_INCOMPLETE" in busy.stderr


def test_a_tick_names_what_is_stopped_and_held_and_the_operator_lets_it_go_on(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-01: a stream that began anew stops its tables until somebody accepts it; a load not done holds its table."""
    history = random_history(6, 12)
    tables = tables_of(history)
    load = {"format": "parquet", "path": "export", "stream_from": "beginning"}
    pipeline = Pipeline(tmp_path / "shop", spark, [tables[0], {**tables[1], "initial_load": load}])
    pipeline.deliver("a.jsonl", delivered(history, options=CesOptions(seed="one")))
    assert run(capsys, "tick", pipeline.file, "--tables", CUSTOMERS)[0] == Exit.ON_HOLD
    code, out, _ = run(capsys, "tick", pipeline.file, "--json")
    ticked = json.loads(out)
    assert (code, list(ticked["files"]), ticked["waiting"]) == (Exit.ON_HOLD, [ORDERS], [CUSTOMERS])
    assert ticked["held"][CUSTOMERS].startswith("LOAD_PENDING")

    anew = CesOptions(seed="two")
    pipeline.deliver("b.jsonl", delivered(history, options=anew))
    code, out, err = run(capsys, "tick", pipeline.file)
    assert code == Exit.TABLES_STOPPED
    assert "STOPPED: " in out and f"{ORDERS}: EPOCH_UNKNOWN" in out and "Traceback" not in err
    numbers = pipeline.numbers("dbo.schema/orders")
    again = ["--table", ORDERS, "--why", "nothing changed at the source in between"]
    assert run(capsys, "resume", pipeline.file, *again)[0] == Exit.TERMINAL
    assert run(capsys, "accept-epoch", pipeline.file, *again, "--epoch", anew.guid)[0] == Exit.DONE
    code, out, _ = run(capsys, "tick", pipeline.file, "--tables", ORDERS)
    assert code == Exit.DONE
    assert pipeline.numbers("dbo.schema/orders") == [*numbers, len(numbers) + 1]
