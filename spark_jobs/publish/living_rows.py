"""Finds where the rows that live in a table begin, of all that the change log tells of it (G-106)."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from open_mirroring.changes.log_position import is_load_epoch, position_order
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.reading import query_files
from spark_jobs.changelog.schema import CHANGE, INSERT, UPDATE

_MEMORY = "512MB"
_OLDEST = """
SELECT min(newest.place) FROM (
  SELECT max({'place': streams.prefix || logged.pos, 'sets': logged.op IN ($insert, $update)}) AS newest
  FROM logged JOIN streams ON streams.epoch = logged.epoch
  WHERE logged.kind = $change AND logged.tbl = $source
  GROUP BY logged.key
) WHERE newest.sets
"""


def oldest_living(root: Place, files: Sequence[str], source: str, epochs: Mapping[str, int]) -> str:
    """The lowest place at which the newest change of a key sets its row; "~", above all, where no row is left.

    Rows that one of our initial loads brought are not counted: they never count in a generation after it.

    Args:
        root: the change log.
        files: its files that hold changes of the table.
        source: the table; one with a key.
        epochs: the ordinal of every stream incarnation.
    """
    streams = {epoch: position_order(at, "") for epoch, at in epochs.items() if not is_load_epoch(epoch)}
    said = {"insert": INSERT, "update": UPDATE, "change": CHANGE, "source": source}
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch, duckdb.connect() as db:
        db.execute(f"SET memory_limit = '{_MEMORY}'")
        db.execute(f"SET temp_directory = '{scratch}'")
        db.register("streams", pa.table({"epoch": [*streams], "prefix": [*streams.values()]}))
        query_files(db, root, files)
        (oldest,) = db.execute(_OLDEST, said).fetchone() or (None,)
    return oldest or "~"
