"""What is published over a table that is read from a database, and when that may be too little."""

from __future__ import annotations

from typing import Any

import pytest

from open_mirroring.changes.log_position import BEGINS_EMPTY
from open_mirroring.config import Table
from open_mirroring.config.tables import JdbcLoad
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.load_ledger import HandOver
from spark_jobs.load.planning import published_over

HIGHEST = "0009:01:1"


def over(*, is_kept: bool = True, gone: str | None = None, generation: int = 1, **settings: Any) -> tuple[Any, ...]:
    """Batch, position and doubt of a load, up to batch 9 of which 3 do not count where changes are *gone*."""
    load: dict[str, Any] = {"format": "jdbc", "connection": "db", **settings}
    table = Table(source="dbo.orders", target="dbo/orders", key=["id"], initial_load=load)  # type: ignore[arg-type]
    assert isinstance(table.initial_load, JdbcLoad)
    hand_over = HandOver(generation, 9, 3 if gone else 0, HIGHEST, gone, own_before=gone)
    return published_over(table, table.initial_load, hand_over, is_kept=is_kept)


def test_all_that_is_logged_comes_over_a_table_that_its_task_keeps_t30() -> None:
    assert over() == over(stream_from="beginning") == (0, None, "")
    assert over(generation=2, stream_from="beginning") == (0, BEGINS_EMPTY, "")
    assert over(is_kept=False) == (9, None, "")
    assert over(is_kept=False, generation=2) == (9, "0009~", "")


def test_a_table_that_stays_as_it_was_loaded_needs_the_complete_log_t30() -> None:
    """It ended without what retention had dropped, or a reset left out, and each run said PASS."""
    for generation in (1, 2):
        with pytest.raises(TerminalError, match=r"STREAM_FROM_INVALID.*up to 0001:01:1.*reload the table"):
            over(gone="0001:01:1", generation=generation, stream_from="beginning")


def test_a_table_that_may_stay_as_it_was_loaded_is_doubtful_where_not_all_comes_over_it_t30() -> None:
    """Only a task that applies its changes is sound then, and may not be stopped."""
    assert over(gone="0001:01:1", is_kept=False, generation=2)[2] == ""
    again, lacking, both = over(generation=2), over(gone="0001:01:1"), over(gone="0001:01:1", generation=2)
    for *_, doubt in (again, lacking, both):
        assert doubt.endswith("if it applies them, a proof shows it") and len(doubt) < 298, "the ledger keeps it whole"
    assert "reset the table again" in again[2], "the log still has what the table may lack"
    assert "reload the table" in lacking[2] and "reload the table" in both[2]
