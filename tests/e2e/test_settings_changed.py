"""A setting that changes between two runs is reported by the next run, although no change of the table comes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event, lsn
from tests.e2e.test_reload_table import ORDERS, OTHER, deliver, exported, mirror_of, orders, redeclare, row
from tests.pipeline import Pipeline, in_order

NAMED = {"source": "dbo.named", "target": "dbo/named", "key": ["id"]}


def insert(number: int, at: int, table: str = "orders") -> bytes:
    return event("INS", row(number, "Ada"), commit=at, tbl=table)


def command(pipeline: Pipeline, *words: str) -> int:
    code = main([words[0], str(pipeline.file), *words[1:]])
    pipeline.service.poll()
    return code


def reset(pipeline: Pipeline, source: str, request: str = "r1") -> int:
    asked = ("--reason", "r", "--approved-by", "Ada", "--wait", "0", "--request", request)
    return command(pipeline, "reload-table", "--table", source, *asked)


def test_a_quiet_table_shows_at_once_what_types_and_columns_say_again_g129_g141(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A text that is none any more; a column and a pattern that are taken from now on, told until a load has them."""
    narrow = [
        {**ORDERS, "types": {"price": "string"}},
        {**OTHER, "columns": ["id", "name"]},
        {**NAMED, "columns": {"exclude": ["pr*"]}},
    ]
    pipeline = mirror_of(tmp_path, spark, *narrow)
    deliver(pipeline, "1.jsonl", *(insert(1, at, name) for at, name in enumerate(("orders", "notes", "named"), 10)))
    assert command(pipeline, "tick") == Exit.DONE
    redeclare(pipeline, ORDERS, {**OTHER, "columns": ["id", "name", "price"]}, NAMED)
    capsys.readouterr()
    assert command(pipeline, "tick") == Exit.ON_HOLD, "the table is not what the mirror file says (G-129)"
    story = capsys.readouterr()
    assert "column 'price' is published as string" in story.err
    assert "dbo.notes: column 'price' unverified since `columns` includes it" in story.out
    assert "dbo.named: columns like 'pr*' unverified since `columns` includes it" in story.out
    for _ in range(4):
        code = command(pipeline, "tick")
    assert code == Exit.DONE and [str(one["price"]) for one in orders(pipeline)] == ["1.00"]
    for _ in range(4):
        code = reset(pipeline, "dbo.notes")
    capsys.readouterr()
    assert code == command(pipeline, "tick") == Exit.DONE
    assert "dbo.notes: column 'price' unverified since `columns` includes it" in capsys.readouterr().out
    # With a load that has the column, nothing is left to tell.
    load = exported(tmp_path / "export", [{"id": 1, "name": "Ada", "price": None}], lsn(12))
    redeclare(pipeline, ORDERS, {**OTHER, "columns": ["id", "name", "price"], "initial_load": load}, NAMED)
    for _ in range(4):
        code = reset(pipeline, "dbo.notes", "r2")
    capsys.readouterr()
    assert code == command(pipeline, "tick") == Exit.DONE
    assert "dbo.notes" not in capsys.readouterr().out


def test_changes_over_a_load_may_lack_what_it_brought_g141(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were read while `columns` left it out; a load that holds them has it."""
    rows = [{"id": number, "name": "Ada", "price": None} for number in (1, 2)]
    old, new = exported(tmp_path / "old", rows[:1], lsn(5)), exported(tmp_path / "new", rows, lsn(12))
    pipeline = mirror_of(tmp_path, spark, {**ORDERS, "columns": ["id", "name"], "initial_load": old})
    deliver(pipeline, "1.jsonl", insert(2, 11))
    assert command(pipeline, "tick") == Exit.ON_HOLD
    redeclare(pipeline, {**ORDERS, "initial_load": old})
    deliver(pipeline, "2.jsonl", insert(3, 12))
    assert command(pipeline, "initial-load") == Exit.DONE
    for request, load, is_told in (("r0", None, True), ("r1", old, True), ("r2", new, False)):
        if load is not None:
            redeclare(pipeline, {**ORDERS, "initial_load": load})
            for _ in range(4):
                code = reset(pipeline, "dbo.orders", request)
            assert code == Exit.DONE
        capsys.readouterr()
        assert command(pipeline, "tick") == Exit.DONE
        assert ("columns like '*' unverified" in capsys.readouterr().out) is is_told, request
    assert [one["id"] for one in orders(pipeline)] == [1, 2, 3]


def test_an_export_that_is_older_than_what_was_ignored_is_refused_g140(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is written into the mirror file after its export was made, and a run came in between."""
    pipeline = mirror_of(tmp_path, spark, OTHER)
    deliver(pipeline, "1.jsonl", insert(1, 10, "notes"), insert(1, 11), insert(2, 12))
    assert command(pipeline, "tick") == Exit.DONE
    first = [{"id": 1, "name": "Ada", "price": None}]
    redeclare(pipeline, OTHER, {**ORDERS, "initial_load": exported(tmp_path / "old", first, lsn(11))})
    assert command(pipeline, "initial-load") == Exit.TABLES_STOPPED
    assert "STREAM_FROM_INVALID" in capsys.readouterr().out
    command(pipeline, "status")
    assert "the initial load is not complete; it was refused" in (story := capsys.readouterr().out)
    assert "STREAM_FROM_INVALID: " in story, "whoever looks later sees what the run said"
    assert command(pipeline, "tick") == Exit.ON_HOLD
    deliver(pipeline, "2.jsonl", insert(2, 13, "notes"))
    assert command(pipeline, "tick") == Exit.ON_HOLD, "others were published, and a load waits for somebody (G-139)"
    both = [*first, {"id": 2, "name": "Ada", "price": None}]
    redeclare(pipeline, OTHER, {**ORDERS, "initial_load": exported(tmp_path / "new", both, lsn(12))})
    assert command(pipeline, "initial-load") == Exit.DONE
    deliver(pipeline, "3.jsonl", insert(3, 14), insert(3, 15, "notes"))
    assert command(pipeline, "tick") == Exit.DONE and [one["id"] for one in orders(pipeline)] == [1, 2, 3]


def test_a_run_beside_a_reset_that_waits_for_somebody_is_on_hold_g139(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is gone from the target, and whoever asked for the reset does not go on with it."""
    pipeline = mirror_of(tmp_path, spark, ORDERS, OTHER)
    deliver(pipeline, "1.jsonl", insert(1, 10), insert(1, 11, "notes"))
    assert command(pipeline, "tick") == Exit.DONE
    assert reset(pipeline, "dbo.orders") == Exit.ON_HOLD
    assert command(pipeline, "tick") == Exit.ON_HOLD
    deliver(pipeline, "2.jsonl", insert(2, 12, "notes"))
    assert command(pipeline, "tick") == Exit.ON_HOLD, "the others go on"
    assert [one["id"] for one in in_order(pipeline.mirrored("dbo", "notes"), ["id"])] == [1, 2]
    capsys.readouterr()
    command(pipeline, "status")
    assert "1 of 2 tables mirrored; last logged" in capsys.readouterr().out
    for _ in range(3):
        code = reset(pipeline, "dbo.orders")
    assert code == command(pipeline, "tick") == Exit.DONE and len(orders(pipeline)) == 1
    # A table that is dropped for good is missed by nobody.
    document = yaml.safe_load(pipeline.file.read_text())
    redeclare(pipeline, *document["tables"][1:])
    asked = ("--reason", "r", "--approved-by", "Ada", "--wait", "0", "--request", "r3")
    assert command(pipeline, "drop-table", "--table", "dbo.orders", *asked) == Exit.ON_HOLD
    assert command(pipeline, "tick") == Exit.DONE


def test_another_database_stops_the_table_and_what_was_ignored_meanwhile_is_a_loss_g142(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """G-142, C-12, G-24: `database` is changed, and put back; two tables of one name are never one without a word."""
    pipeline = mirror_of(tmp_path, spark, ORDERS)

    def read(database: str) -> None:
        document = yaml.safe_load(pipeline.file.read_text())
        document["source"]["database"] = database
        # Each time spelled otherwise: it is one place.
        document["source"]["path"] += "/."
        pipeline.file.write_text(yaml.safe_dump(document))

    read("shop")
    deliver(pipeline, "1.jsonl", insert(1, 10))
    assert command(pipeline, "tick") == Exit.DONE
    read("other")
    deliver(pipeline, "2.jsonl", insert(2, 11), event("INS", row(9, "Bo"), commit=12, db="other"))
    capsys.readouterr()
    assert command(pipeline, "tick") == Exit.TABLES_STOPPED
    story = capsys.readouterr().out
    assert "SENDER_OTHER" in story and "`source` no longer names database 'shop'. What" in story
    assert [one["id"] for one in orders(pipeline)] == [1]
    read("shop")
    assert command(pipeline, "tick") == Exit.TABLES_STOPPED
    story = capsys.readouterr().out
    assert "CHANGES_IGNORED: 1 message of it, in batches 2 to 2" in story
    assert "dbo.orders: rows unverified up to batch 2: `source` no longer names database 'other'. What" in story
