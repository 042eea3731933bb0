"""Columns that tell of the change which made a row (G-118): changes, drift and lost ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.e2e.test_dropped_columns_formats import (
    FIRST,
    FULL,
    SHORT,
    CesAvroLines,
    CesLines,
    Change,
    ChangeTableFiles,
    Debezium,
    QlikAvroMessages,
    QlikMessages,
    Source,
)
from tests.e2e.test_first_day import declare, declare_mirror
from tests.e2e.test_hashed_columns import hashed, salted
from tests.e2e.test_lost_ledger import forget, said
from tests.e2e.test_rebuild_ledger import APPLY

NAMES = {
    "commit_time": "_committed",
    "log_position": "_position",
    "operation": "_operation",
    "transaction": "_transaction",
    "source_table": "_table",
}
MOMENT = "2026-08-07 16:30:10.123000"
OTHERS = [CesAvroLines, Debezium, ChangeTableFiles, QlikMessages, QlikAvroMessages]
TOLD = {CesLines: (MOMENT, "0000002C0000000B0001"), CesAvroLines: (MOMENT, "0000002C0000000B0001")}
TOLD |= {Debezium: (None, "0000002c:0000000b:0001"), ChangeTableFiles: (None, None)}
TOLD |= {QlikMessages: (MOMENT, "ABCD"), QlikAvroMessages: (None, None)}


def found(story: Source, *more: str) -> list[tuple[str | None, ...]]:
    names = ("id", "who", *NAMES.values(), *more)
    return [tuple(row.get(name) for name in names) for row in story.rows]


@pytest.mark.parametrize("kind", [CesLines, *(pytest.param(other, marks=pytest.mark.long) for other in OTHERS)])
def test_rows_show_of_the_change_that_made_them_g118(
    kind: type[Source],
    tmp_path: Path,
    spark: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: Any,
) -> None:
    """G-118, G-110, G-120, G-121, G-80: beside other names, types and hashes, over a lost ledger and a reset."""
    salted(monkeypatch)
    chosen = {"columns": {"rename": {"name": "who", "city": "name"}}, "hash": ["pri*"], "types": {"city": "string"}}
    story = kind(tmp_path, spark, extra_columns=NAMES, **chosen)
    declare_mirror(
        story, hash={"salt": "shop_salt"}, landing_zone={"store": "local", "path": "zone", "tables": "tables"}
    )
    assert story.tick(*FIRST) == Exit.DONE, capsys.readouterr().out
    assert story.tick(Change("UPD", 2, 11, FULL, "Eve")) == Exit.DONE
    (one, two, three), (moment, transaction) = found(story), TOLD[kind]
    place = one[3]
    assert place is not None and three[3] is not None and two[3] is not None
    assert place.startswith("000000:") and place < three[3] < two[3]
    assert (one[4], *two[4:]) == ("insert", "update", transaction, story.source)
    assert two[2] is None if moment is None else str(two[2]).startswith(moment)
    before = story.rows

    forget(story.pipeline)
    code, text = said(capsys, story.pipeline, "rebuild-ledger", *APPLY)
    assert code == Exit.DONE, text
    assert story.tick(Change("INS", 4, 20, SHORT), Change("UPD", 1, 21, SHORT, "Kim")) == Exit.DONE
    assert story.rows[1:3] == before[1:], "rows that did not change tell what they told"
    assert found(story)[0][4] == "update" and found(story)[3][4] == "insert"
    assert main(["reconcile", str(story.pipeline.file)]) == Exit.DONE, capsys.readouterr().out

    declare(story, extra_columns={"operation": "_operation"})
    story.tick(Change("UPD", 3, 30, SHORT, "Zoe"))
    assert "`extra_columns` leaves out the commit_time, which is published as '_committed'" in caplog.text
    for _ in range(4):
        story.tick()
    assert story.tick() == Exit.DONE, capsys.readouterr().out
    price = hashed("1.50")
    rows = [(row["who"], row["name"], row["price"], row["_operation"], "_table" in row) for row in story.rows]
    assert rows == [
        ("Kim", "Linz", None, "update", False), ("Eve", "Linz", price, "update", False),
        ("Zoe", "Linz", None, "update", False), ("Ada", "Linz", None, "insert", False)
    ]  # fmt: skip


def test_extra_columns_that_come_later_are_null_in_old_rows_g118(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str], caplog: Any
) -> None:
    """G-118, F-83, F-84: told by the run; a column of the source with such a name stops the table."""
    story = CesLines(tmp_path, spark)
    assert story.tick(*FIRST) == Exit.DONE
    declare(story, extra_columns={"commit_time": "_at", "operation": "cost"})
    assert story.tick(Change("UPD", 2, 11, FULL, "Eve")) == Exit.DONE, capsys.readouterr().out
    assert [(row["_at"] and row["_at"][:19], row["cost"]) for row in story.rows] == [
        (None, None), ("2026-08-07 16:30:10", "update"), (None, None)
    ]  # fmt: skip
    assert "['_at', 'cost'] of `extra_columns` are NULL in rows that were published before, until" in caplog.text
    assert story.tick(Change("INS", 4, 20, ("id", "name", "city", "cost"))) == Exit.TABLES_STOPPED
    assert story.stop == "COLUMN_NAME_INVALID"
    main(["status", str(story.pipeline.file)])
    assert "of `extra_columns` would both land as 'cost'" in capsys.readouterr().out
