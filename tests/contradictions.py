"""What the deep check says of rows of the log that a test has (G-190)."""

from __future__ import annotations

from collections.abc import Iterable

from spark_jobs.changelog.schema import CHANGE, KEY_LEFT, LogRow
from spark_jobs.reconcile.before_images import Change, contradictions


def found_in(rows: Iterable[LogRow], *, begins: bool) -> list[tuple[Change, str]]:
    """The changes of any table that contradict those before them; *begins*: every row was inserted by one of them."""
    logged = [row for row in rows if row.kind == CHANGE and row.key is not None]
    found: list[tuple[Change, str]] = []
    for table in {row.tbl for row in logged}:
        mine = [row for row in logged if row.tbl == table]
        changes = [
            Change(**{"batch": 1, **{n: getattr(row, n) for n in Change._fields if n != "batch"}}) for row in mine
        ]
        moved = {(row.epoch or "", row.pos or "") for row in mine if row.op == KEY_LEFT}
        ordered = sorted(changes, key=lambda one: (one.epoch, one.key, one.pos))
        found += contradictions(ordered, moved, begins=begins)
    return found
