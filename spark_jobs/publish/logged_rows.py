"""Finds where the newest full load of a table begins in the change log, if a Qlik task reloaded the table (G-125).

DuckDB reads the files of the change log, without a JVM; :func:`~open_mirroring.changes.source_reloads.divide` decides
where the full load begins.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.changes.source_reloads import CameAgain, ReloadedRows, Run, divide, unclear_change
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.origins import PARTITION
from spark_jobs.changelog.reading import logged
from spark_jobs.changelog.schema import CHANGE, INSERT, LOAD_MAJOR, UPDATE

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_MEMORY = "512MB"

_ROWS = f"""
CREATE TEMP TABLE sent AS
WITH logged_rows AS (
  SELECT {PARTITION} AS part, place, min(batch) AS batch, pos, any_value(key) AS key, any_value(cols) AS cols,
         any_value(whole) AS whole, any_value(op) AS op, hash(any_value(row), any_value(cols)) AS content,
         starts_with(pos, $load) AS is_load, contains(pos, '~') AS is_correction
  FROM logged WHERE kind = $change AND tbl = $source AND epoch = $epoch GROUP BY part, place, pos
)
SELECT *, CASE WHEN is_load
  THEN key IS NULL OR row_number() OVER (PARTITION BY is_load, key, content ORDER BY batch, place, part) = 1
  ELSE row_number() OVER (PARTITION BY is_load, pos, key ORDER BY batch, place, part) = 1 END AS is_new
FROM logged_rows
"""
_RUNS = """
WITH placed AS (
  SELECT part, place, is_load, is_new, pos, key FROM sent WHERE (is_load OR is_new) AND NOT is_correction
  UNION ALL SELECT part, place, false, false, NULL, NULL FROM starts
), bordered AS (
  SELECT *, row_number() OVER (PARTITION BY part ORDER BY place, NOT is_load)
          - row_number() OVER (PARTITION BY part, is_load ORDER BY place) AS run FROM placed
)
SELECT part, is_load, min(place), max(place), count(DISTINCT key) FILTER (is_load),
       count(*) FILTER (is_load AND is_new), min(pos) FILTER (NOT is_load), max(pos) FILTER (NOT is_load)
FROM bordered GROUP BY part, is_load, run ORDER BY part, min(place), NOT is_load
"""
_AGAIN = """
WITH loaded AS (
  SELECT key, place, content, count(*) OVER (PARTITION BY key) AS times, max(place) OVER (PARTITION BY key) AS newest
  FROM sent WHERE is_load AND key IS NOT NULL AND part = $part AND place BETWEEN $first AND $last
)
SELECT max(place) FILTER (times > 1 AND place < newest), min(place) FILTER (times > 1 AND place = newest),
       min(place) FILTER (times = most AND place = newest), any_value(most),
       count(DISTINCT key) FILTER (times > 1), coalesce(list(place ORDER BY place) FILTER (times = 1), []),
       (SELECT count(*) > 0 FROM (SELECT 1 FROM loaded GROUP BY key HAVING count(DISTINCT content) > 1))
FROM (SELECT *, max(times) OVER () AS most FROM loaded) HAVING any_value(most) > 1
"""
_MOVED = """
SELECT coalesce(max(times), 0) FROM (
  SELECT count(*) AS times FROM sent WHERE is_load AND key IS NOT NULL GROUP BY key HAVING count(DISTINCT part) > 1)
"""
_UNCLEAR = """
SELECT pos, part FROM sent WHERE NOT is_load AND NOT is_correction
  AND pos >= $stream_from AND pos < coalesce($new_from, '~') AND part NOT IN (SELECT part FROM begins)
  ORDER BY pos LIMIT 1
"""
_CORRECTED = """
SELECT max(pos) FROM sent WHERE is_correction AND batch < (
  SELECT min(batch) FROM sent JOIN begins ON begins.part = sent.part WHERE is_load AND sent.place >= begins.place)
"""
_LIVING = """
CREATE TEMP VIEW living AS SELECT sent.* FROM sent LEFT JOIN begins ON begins.part = sent.part
WHERE CASE WHEN is_load THEN sent.place >= begins.place ELSE pos >= (SELECT text FROM border) END
"""
_LISTS = """
SELECT cols, min(pos), max(pos), coalesce(min(pos) FILTER (whole), ''), coalesce(max(pos) FILTER (whole), '')
FROM living WHERE op IN ($insert, $update) GROUP BY cols ORDER BY cols
"""


def reloaded_rows(
    root: Place, files: Sequence[str], source: str, epoch: str, starts: Mapping[str, int]
) -> ReloadedRows:
    """Find where the newest full load of a table begins, in *files* of the change log and the newest *epoch*.

    *starts* has, by partition, a message number after which no row of an earlier full load can be (K-67). Raises
    ``RELOAD_UNCLEAR`` if it is not certain where the full load begins.
    """
    with _logged(root, files) as db:
        db.execute(_ROWS, {"load": f"{LOAD_MAJOR}:", "change": CHANGE, "source": source, "epoch": epoch})
        db.register("starts", _places(starts))
        partitions: dict[str, list[Run]] = {}
        for at, *run in db.execute(_RUNS).fetchall():
            partitions.setdefault(at, []).append(Run(*run))

        def look_again(at: str, first: int, last: int) -> CameAgain | None:
            found = db.execute(_AGAIN, {"part": at, "first": first, "last": last}).fetchall()
            return CameAgain(*found[0]) if found else None

        [(moved,)] = db.execute(_MOVED).fetchall()
        load = divide(epoch, partitions, look_again, moved)
        db.register("begins", _places(load.begins))
        [(corrected,)] = db.execute(_CORRECTED).fetchall()
        load = load.behind(corrected)  # what was read from the source before the load is older than that
        bounds = {"stream_from": load.stream_from, "new_from": load.new_from}
        for unclear in db.execute(_UNCLEAR, bounds).fetchall():
            raise unclear_change(*unclear)
        db.register("border", pa.table({"text": [load.stream_from]}))
        db.execute(_LIVING)
        [(first, last)] = db.execute("SELECT min(batch), max(batch) FILTER (is_load) FROM living").fetchall()
        begun = db.execute("SELECT part, min(place) FROM living WHERE NOT is_load GROUP BY part").fetchall()
        # A row that leaves may lack what was not sent of it (K-22): it is no proof of columns.
        listed = db.execute(_LISTS, {"insert": INSERT, "update": UPDATE}).fetchall()
        lists = {cols: {epoch: PlacesSeen(*places)} for cols, *places in listed}
    return ReloadedRows(replace(load, first_batch=first, last_batch=last), dict(begun), lists)


@contextmanager
def _logged(root: Place, files: Sequence[str]) -> Iterator[DuckDBPyConnection]:
    """A DuckDB database with the rows of log files; what does not fit into memory is spilled to disk."""
    with tempfile.TemporaryDirectory(prefix="open_mirroring-") as scratch, logged(root, files) as db:
        db.execute(f"SET memory_limit = '{_MEMORY}'")
        db.execute(f"SET temp_directory = '{scratch}'")
        yield db


def _places(places: Mapping[str, int]) -> pa.Table:
    names, at = pa.array([*places], pa.string()), pa.array([*places.values()], pa.int64())
    return pa.table({"part": names, "place": at})
