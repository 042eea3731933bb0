"""Finds the place in the log from which on every row that still exists has its newest change (G-106)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from open_mirroring.changes.log_position import is_load_epoch, position_order
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import query_files
from spark_jobs.changelog.schema import CHANGE, INSERT, UPDATE

NOWHERE = "~"
"""Above every place."""

_MEMORY = "512MB"
_PLACED = """
SELECT logged.key, streams.prefix || logged.pos AS place, logged.op IN ($insert, $update) AS sets
FROM logged JOIN streams ON streams.epoch = logged.epoch WHERE logged.kind = $change AND logged.tbl = $source
"""
_OLDEST = f"""
SELECT min(newest.place) FROM (
  SELECT max({{'place': place, 'sets': sets}}) AS newest FROM ({_PLACED}) GROUP BY key
) WHERE newest.sets
"""
_LAST_DELETE = f"""
WITH placed AS ({_PLACED})
SELECT max(place) FROM placed
WHERE place < coalesce((SELECT min(place) FROM placed WHERE sets AND place > $behind), '{NOWHERE}')
"""


class LoggedRows:
    """What the change log tells of one table with a key, but for rows that one of our initial loads brought.

    Those never count in a generation after it.

    Args:
        root: the change log.
        files: its files that hold changes of the table.
        source: the table.
        epochs: the ordinal of every stream incarnation.
    """

    def __init__(self, root: Place, files: Sequence[str], source: str, epochs: Mapping[str, int]) -> None:
        self._root, self._files, self._source = root, files, source
        self._streams = {epoch: position_order(at, "") for epoch, at in epochs.items() if not is_load_epoch(epoch)}

    def oldest_living(self) -> str:
        """The lowest place at which the newest change of a key sets its row; NOWHERE, above all, if no row is left."""
        return self._ask(_OLDEST) or NOWHERE

    def last_before_row_behind(self, place: str) -> str:
        """The last change before the first one behind a place that sets a row: all between are deletes."""
        return self._ask(_LAST_DELETE, behind=place) or place

    def _ask(self, query: str, **parameters: str) -> str | None:
        said = {"insert": INSERT, "update": UPDATE, "change": CHANGE, "source": self._source, **parameters}
        with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch, duckdb.connect() as db:
            db.execute(f"SET memory_limit = '{_MEMORY}'")
            db.execute(f"SET temp_directory = '{scratch}'")
            db.register("streams", pa.table({"epoch": [*self._streams], "prefix": [*self._streams.values()]}))
            query_files(db, self._root, self._files)
            (found,) = db.execute(query, said).fetchone() or (None,)
        return None if found is None else str(found)
