"""A column that is dropped at the source: what proves it, what has to be asked, and what only a load tells (G-60).

The drop itself, in every format, is in test_dropped_columns_formats. Rows written since have NULL in the column, rows
that did not change since keep what they had (F-84).
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.operate.exit_codes import Exit
from spark_jobs.cli.command_line import main
from tests.ces_messages import event, lsn
from tests.e2e.test_dropped_columns_formats import FIRST, FULL, RENAMED, SHORT, SQL, CesLines, Change, expected
from tests.e2e.test_first_day import declare, declare_mirror
from tests.e2e.test_reload_table import exported

FEW = ("id", "name")
"""An update that changed all that it carries but the key may be a part of its row."""


def typed(key: int, price: str | None = "1.50", **more: Any) -> dict[str, Any]:
    return {"id": key, "name": "Ada", "city": "Linz", "price": price and Decimal(price), **more}


def reload(story: CesLines, rows: Sequence[dict[str, Any]], commit: int) -> None:
    """Drop the table at the target, and load it from an export that holds everything below a commit."""
    declare(story, initial_load=exported(story.pipeline.folder / "export", rows, lsn(commit)))
    declare_mirror(story, landing_zone={"store": "local", "path": "zone", "tables": "tables"})
    reset = ["reload-table", str(story.pipeline.file), "--table", "dbo.orders", "--reason", "x", "--approved-by", "Ada"]
    for _ in range(6):
        code = main([*reset, "--wait", "0", "--request", "a"])
        story.pipeline.service.poll()
    assert code == Exit.DONE


def test_an_insert_that_comes_late_proves_that_a_column_was_dropped_g107(tmp_path: Path, spark: Any) -> None:
    """It lies in another partition and comes a batch later; until then the update may be a part of its row."""
    story = CesLines(tmp_path, spark)
    assert story.tick(*FIRST[:2]) == Exit.DONE
    assert story.tick(Change("UPD", 1, 30, FEW, "Eve")) == Exit.TABLES_STOPPED
    assert story.stop == "PARTIAL_ROWS"
    assert story.tick(FIRST[2]) == Exit.TABLES_STOPPED, "it proves nothing of the shorter list"
    assert story.tick(Change("INS", 4, 20, FEW)) == Exit.DONE
    gone = {"city": None, "price": None}
    one, two, three, four = expected((1, "Eve", None), (2, "Ada", "1.50"), (3, "Ada", "1.50"), (4, "Ada", None))
    assert story.rows == [one | gone, two, three, four | gone]


def test_a_column_that_comes_back_stops_its_table_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that did not change since have values of the column that was dropped."""
    story = CesLines(tmp_path, spark)
    story.tick(FIRST[0])
    assert story.tick(Change("INS", 2, 20, SHORT)) == Exit.DONE
    assert story.tick(Change("INS", 3, 30, FULL)) == Exit.TABLES_STOPPED
    assert story.stop == "SCHEMA_CHANGED"
    assert main(["resume", str(story.pipeline.file), "--table", story.source, "--why", "x"]) == Exit.TERMINAL
    assert "COMMAND_REFUSED" in capsys.readouterr().err
    reload(story, [typed(1, None), typed(2, None), typed(3)], 31)
    assert story.tick(Change("INS", 4, 40, FULL), FIRST[0]) == Exit.DONE
    rows = expected((1, "Ada", None), (2, "Ada", None), (3, "Ada", "1.50"), (4, "Ada", "1.50"))
    assert story.rows == rows, "what the load holds is asked for no more"


def test_an_update_that_may_be_a_part_of_its_row_proves_nothing_c44_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The operator's word does, and so does a later row."""
    story = CesLines(tmp_path, spark)
    story.tick(*FIRST[:2])
    assert story.tick(Change("UPD", 1, 20, FEW, "Eve")) == Exit.TABLES_STOPPED
    assert story.stop == "PARTIAL_ROWS"
    for name in ("nothing", "name"):
        assert story.decide("--dropped", name) == Exit.TERMINAL
        assert "ARGUMENT_INVALID" in capsys.readouterr().err
    assert story.decide("--dropped", "city", "price") == Exit.DONE
    assert story.tick() == Exit.DONE
    one, two = expected((1, "Eve", None), (2, "Ada", "1.50"))
    assert story.rows == [one | {"city": None}, two]


@pytest.mark.parametrize("late", [False, True])
def test_rows_are_completed_but_for_the_column_that_is_gone_g04_g60(tmp_path: Path, spark: Any, late: bool) -> None:
    """A row logged before the drop has the column, and an update that tells only what changed leaves it as it was."""
    story = CesLines(tmp_path, spark, complete_rows=True)
    story.tick(*FIRST[:2])
    changed, dropped = Change("UPD", 1, 12, FEW, "Eve"), Change("INS", 3, 20, SHORT)
    for one in (dropped, changed) if late else (changed, dropped):
        assert story.tick(one) == Exit.DONE
    # Nothing that was logged tells more of row 9 than what it carries: all columns that there are.
    assert story.tick(Change("UPD", 9, 21, SHORT, "Eve")) == Exit.DONE
    assert story.rows == expected((1, "Eve", "1.50"), (2, "Ada", "1.50"), (3, "Ada", None), (9, "Eve", None))


def test_a_row_before_the_drop_still_has_to_be_complete_g04_g60(tmp_path: Path, spark: Any) -> None:
    story = CesLines(tmp_path, spark, complete_rows=True)
    story.tick(FIRST[0], Change("INS", 2, 30, FULL))
    story.tick(Change("INS", 3, 40, SHORT))
    assert story.tick(Change("UPD", 9, 20, FEW, "Eve")) == Exit.TABLES_STOPPED
    assert story.stop == "ROW_INCOMPLETE"


def test_a_renamed_column_waits_for_a_load_g60(tmp_path: Path, spark: Any) -> None:
    """The way out of COLUMN_RENAMED; the stream began anew, so that change events may have been renamed, too (C-74)."""
    anew = "11111111-2222-3333-4444-555555555555"
    story = CesLines(tmp_path, spark)
    story.tick(*FIRST[:2])
    named = {"logicalid": f"{anew}:0000002C000000050001:00000000000000000001"}
    cols = [(name, SQL[name]) for name in RENAMED]
    renamed = event("INS", Change("INS", 3, 5, RENAMED).row(), cols=cols, commit=5, replaced=named)
    story.pipeline.deliver("anew.jsonl", renamed + b"\n")
    assert story.tick() == Exit.TABLES_STOPPED
    assert story.stop == "EPOCH_UNKNOWN"
    accept = ["accept-epoch", str(story.pipeline.file), "--table", story.source, "--epoch", anew, "--why", "looked"]
    assert main(accept) == Exit.DONE
    assert story.tick() == Exit.TABLES_STOPPED
    assert story.stop == "RENAME_POSSIBLE"
    assert story.decide("--renamed", "price=cost") == Exit.TABLES_STOPPED
    rows = [{"id": at, "name": "Ada", "city": "Linz", "cost": Decimal("1.50")} for at in (1, 2, 3)]
    reload(story, rows, 6)
    assert story.rows == [{name: str(value) for name, value in row.items()} for row in rows]
    assert story.tick() == Exit.DONE


def test_a_loaded_column_is_dropped_unless_its_type_may_not_be_streamed_c77_g60(
    tmp_path: Path, spark: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """C-77: a text without its SQL type may be one that events leave out; a number is not."""
    story = CesLines(tmp_path, spark)
    story.tick(Change("INS", 9, 5, FULL))
    reload(story, [typed(1, doc="d"), typed(2, doc="d")], 10)
    assert story.tick(Change("INS", 3, 20, SHORT)) == Exit.TABLES_STOPPED
    assert story.stop == "COLUMN_NOT_STREAMED"
    assert "contains 'doc', but changes do not" in capsys.readouterr().out
    assert story.decide("--dropped", "doc") == Exit.DONE
    assert story.tick() == Exit.DONE
    assert story.rows == [
        *expected((1, "Ada", "1.50"), (2, "Ada", "1.50"), doc="d"), *expected((3, "Ada", None), doc=None)
    ]  # fmt: skip
    assert sorted(story.gone) == ["doc", "price"]
