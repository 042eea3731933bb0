"""Which tables a run looks at for a reset that the mirror file asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from spark_jobs.reload_table import follow
from tests.hand_made_mirror import HandMadeMirror


def test_tables_that_nothing_stops_cost_no_query_of_their_own(tmp_path: Path) -> None:
    """A run without changes grows with what is stopped or in a reset, not with the tables."""
    made, asked = HandMadeMirror(tmp_path), list[str]()
    spark: Any = None
    sa.event.listen(made.ledger, "before_cursor_execute", lambda *call: asked.append(call[2]))
    assert follow(made.mirror, made.ledger, spark) == {}
    assert sum(statement.startswith("SELECT") for statement in asked) == 1
