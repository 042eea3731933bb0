"""Finds updates of rows that the log does not have: no insert brought them, so changes are missing (G-190).

Only a complete view of the log can show it: a publication does not read what came before, and a change may still
arrive late.
"""

from __future__ import annotations

import tempfile
from typing import NamedTuple

from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import logged
from spark_jobs.changelog.schema import CHANGE, DELETE, KEY_LEFT, LOAD_MAJOR, UPDATE

_MEMORY = "512MB"
# The second half of a key change brings its key; the first half, at the same place with a 0 at its end, leaves another.
# A correction, whose position has a ~, comes from no source.
_UPDATES = f"""
WITH sent AS (
  SELECT epoch, key, pos, min(batch) AS batch, any_value(op) AS op, min_by(origin, place) AS origin, min(place) AS place
  FROM logged WHERE kind = '{CHANGE}' AND tbl = $source AND key IS NOT NULL
    AND NOT starts_with(pos, '{LOAD_MAJOR}:') AND NOT contains(pos, '~')
  GROUP BY epoch, key, pos
), in_order AS (
  SELECT *, lag(op) OVER (PARTITION BY epoch, key ORDER BY pos) AS last_op FROM sent
), moved AS (
  SELECT epoch, left(pos, -1) || '1' AS pos FROM sent WHERE op = '{KEY_LEFT}'
)
SELECT count(*), min_by(origin || ':' || place, (batch, pos)) FROM in_order ANTI JOIN moved USING (epoch, pos)
WHERE batch > $behind AND op = '{UPDATE}' AND (last_op IN ('{DELETE}', '{KEY_LEFT}') OR (last_op IS NULL AND $complete))
"""


class InsertsTask(NamedTuple):
    """A table whose updates are looked for in its log.

    Args:
        root: the change log.
        files: those with changes of the table.
        source: its name.
        behind: only updates of later batches are judged.
        complete: whether the log begins with the first row of the table.
    """

    root: Place
    files: tuple[str, ...]
    source: str
    behind: int
    complete: bool


class Missing(NamedTuple):
    """How many updates have no row, and where the first one was read."""

    updates: int
    first: str


def missing_inserts(task: InsertsTask) -> Missing | None:
    """The updates of a table without a row; None where all have one."""
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch, logged(task.root, task.files) as db:
        db.execute(f"SET memory_limit = '{_MEMORY}'")
        db.execute(f"SET temp_directory = '{scratch}'")
        given = {"source": task.source, "behind": task.behind, "complete": task.complete}
        count, first = db.execute(_UPDATES, given).fetchone() or (0, "")
    return Missing(count, first) if count else None


def is_loaded(position: str) -> bool:
    """Whether a row at a position is one of a full load that its source sent with the changes."""
    return position.startswith(f"{LOAD_MAJOR}:")
