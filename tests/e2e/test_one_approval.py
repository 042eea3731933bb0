"""One approval has one effect, however often, by whom and at which step it is repeated (G-30).

The faults are raised here, not killed by, so that every step is tried in one process; tests of each protocol kill.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from open_mirroring.ledger import tables as t
from open_mirroring.operate.exit_codes import Exit
from spark_jobs import reload_table as job
from spark_jobs.cli.command_line import main as command_line
from tests.ces_messages import event
from tests.e2e.test_reload_table import ORDERS, OTHER, deliver, mirror_of, orders, redeclare, row, state
from tests.pipeline import Pipeline


class Killed(BaseException):
    """What nobody catches."""


@contextmanager
def dying_at(fault: str) -> Iterator[None]:
    """The first time that this point is reached is the last thing that the process does."""
    armed = [fault]

    def reach(name: str) -> None:
        if name in armed:
            armed.clear()
            raise Killed(name)

    with pytest.MonkeyPatch.context() as patched:
        for module in ("spark_jobs.reload_table", "open_mirroring.operate.reset_driver", "spark_jobs.cli.deciding"):
            patched.setattr(f"{module}.reach", reach)
        yield


def events(pipeline: Pipeline, source: str = "dbo.orders") -> list[str]:
    with pipeline.ledger.connect() as db:
        return list(db.scalars(sa.select(t.audit.c.event).where(t.audit.c.source == source).order_by(t.audit.c.id)))


def task(pipeline: Pipeline, request: str, spark: Any) -> Any:
    """One attempt of Airflow's task, as its job does it."""
    reason = job.Reason("Ada", "x")
    job.request_reload(pipeline.mirror, pipeline.ledger, "dbo.orders", reason, request=request)
    return job.reload_table(pipeline.mirror, pipeline.ledger, spark, "dbo.orders", wait=timedelta(0), request=request)


def operator(pipeline: Pipeline, *more: str) -> int:
    asked = ["--table", "dbo.orders", "--reason", "go on", "--approved-by", "Eve", "--wait", "0"]
    return command_line(["reload-table", str(pipeline.file), *asked, *more])


def begun(folder: Path, spark: Any) -> Pipeline:
    pipeline = mirror_of(folder, spark, ORDERS)
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    pipeline.tick()
    return pipeline


def test_a_task_that_waited_while_an_operator_finished_its_reset_begins_no_second_one(tmp_path: Path, spark) -> None:
    """G-30: approved once in Airflow, carried on by hand, tried again by Airflow: the table is dropped once."""
    pipeline = begun(tmp_path, spark)
    assert task(pipeline, "test__reload_table/run 1/approve", spark).waits_for
    for _ in range(5):
        pipeline.service.poll()
        if operator(pipeline) == Exit.DONE:
            break
    whole = events(pipeline)
    assert whole[-1] == "TABLE_BACK" and state(pipeline).row.generation == 2
    done = task(pipeline, "test__reload_table/run 1/approve", spark)
    assert (done.waits_for, done.stopped, done.generation) == ("", {}, 2)
    pipeline.tick()
    assert events(pipeline) == whole, "nothing was asked for, and nothing deleted, a second time"
    assert [found["name"] for found in orders(pipeline)] == ["Ada"]
    # Another approval is another effect; and the first one still answers with its own.
    assert task(pipeline, "test__reload_table/run 2/approve", spark).waits_for
    assert events(pipeline).count("RESET_REQUESTED") == 2
    assert task(pipeline, "test__reload_table/run 1/approve", spark).generation == 2
    assert events(pipeline).count("RESET_REQUESTED") == 2


def test_a_rebuilding_that_stopped_begins_again_only_for_another_request(tmp_path: Path, spark) -> None:
    """G-30: one approval deletes once, also when what it built was stopped."""
    pipeline = begun(tmp_path, spark)
    for _ in range(2):
        task(pipeline, "run 1", spark)
        pipeline.service.poll()
    with dying_at("reset.rebuilding"), pytest.raises(Killed):
        task(pipeline, "run 1", spark)
    with pipeline.ledger.begin() as db:
        db.execute(t.mirrored_table.update().values(stop_code="VALUE_INVALID", stop_what="x"))
    assert task(pipeline, "run 1", spark).stopped
    assert events(pipeline).count("RESET_REQUESTED") == 1
    assert operator(pipeline) == Exit.ON_HOLD
    assert events(pipeline).count("RESET_REQUESTED") == 2


def test_a_drop_belongs_to_its_request_also_when_the_table_came_back(tmp_path: Path, spark, capsys: Any) -> None:
    """G-30: the table that is named again is not dropped by the old approval."""
    pipeline = mirror_of(tmp_path, spark, ORDERS, OTHER)
    deliver(pipeline, "a.jsonl", event("INS", row(1, "Ada"), commit=10))
    pipeline.tick()
    redeclare(pipeline, OTHER)
    asked = ["--table", "dbo.orders", "--reason", "x", "--approved-by", "Ada", "--wait", "0", "--request", "drop 1"]
    drop = ["drop-table", str(pipeline.file), *asked]
    for _ in range(4):
        if command_line(drop) == Exit.DONE:
            break
        pipeline.service.poll()
    redeclare(pipeline, ORDERS, OTHER)
    pipeline.tick()
    before = events(pipeline)
    assert command_line(drop) == Exit.DONE
    redeclare(pipeline, OTHER)
    assert command_line(drop) == Exit.DONE
    assert "dbo.orders" in pipeline.reader.tables() and events(pipeline) == before
    assert command_line([*drop[:-2], "--request", "drop 2"]) == Exit.ON_HOLD
    assert command_line([*drop[:-3], "1", "--request", "drop 1", "--table", "dbo.notes"]) == Exit.TERMINAL
    assert "ARGUMENT_INVALID" in capsys.readouterr().err
