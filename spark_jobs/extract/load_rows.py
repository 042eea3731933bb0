"""Decides whether rows of a Qlik full load that arrive again are repeated messages or a second full load.

A row that equals a logged row is a repetition. A row that differs from the logged full-load row of its key shows that
the Qlik task reloaded the table. If a complete full load seems to repeat, the rows of the first full load that did not
come again are counted: the source may have deleted them (G-85). DuckDB queries the change log's files in place (K-18,
K-67).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.origins import PARTITION
from spark_jobs.changelog.reading import query_files
from spark_jobs.changelog.schema import CHANGE, LOAD_MAJOR

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_ROWS = f"""SELECT * FROM (
             SELECT {PARTITION} AS origin, place, key, row, cols FROM {{files}}
             WHERE kind = $kind AND tbl = $table AND starts_with(pos, $major)
           ) {{newest}}"""
_OF_NEWEST = "WHERE place >= coalesce((SELECT begin FROM begins WHERE begins.part = origin), 0)"


def judge_loads(
    root: Place, table: str, fresh: Sequence[str], earlier: Sequence[str], newest: NewestLoad | None = None
) -> tuple[Mapping[str, int], int, str | None]:
    """Compare the full-load rows of a batch with the full-load rows of earlier batches.

    A row without a key is never a repetition. Returns three values: by partition the last place (message number) of a
    row that is no repetition; the number of repetitions; and the coordinates of a row that differs from an earlier
    full-load row of its key, or None.
    """
    shared = {"kind": CHANGE, "table": table, "major": f"{LOAD_MAJOR}:"}
    with _opened(root, fresh, earlier, newest) as (db, of_newest):
        db.execute(f"CREATE TEMP TABLE fresh AS {_ROWS.format(files='fresh_files', newest=of_newest)}", shared)
        rows = _ROWS.format(files="earlier_files", newest=of_newest)
        db.execute(f"CREATE TEMP TABLE known AS SELECT * FROM ({rows}) WHERE key IN (SELECT key FROM fresh)", shared)
        db.execute(
            """CREATE TEMP TABLE judged AS SELECT f.*,
                 f.key IS NOT NULL AND (
                   row_number() OVER (PARTITION BY f.origin, f.key, f.row, f.cols ORDER BY f.place) > 1
                   OR EXISTS (SELECT 1 FROM known k WHERE k.key = f.key AND k.row = f.row AND k.cols = f.cols)
                 ) AS repeats,
                 EXISTS (SELECT 1 FROM known k WHERE k.key = f.key) AS is_known
               FROM fresh f"""
        )
        last = db.execute("SELECT origin, max(place) FROM judged WHERE NOT repeats GROUP BY origin").fetchall()
        (repeated,) = db.execute("SELECT count(*) FROM judged WHERE repeats").fetchone() or (0,)
        other = db.execute(
            "SELECT origin, place FROM judged WHERE NOT repeats AND is_known ORDER BY origin, place LIMIT 1"
        ).fetchone()
    return dict(last), repeated, None if other is None else f"{other[0]}:{other[1]}"


_LOADED = f"""SELECT * FROM (
               SELECT DISTINCT {PARTITION} AS origin, place, key, row, cols, {{is_fresh}} AS is_fresh FROM {{files}}
               WHERE kind = $kind AND tbl = $table AND starts_with(pos, $major) AND key IS NOT NULL
             ) {{newest}}"""


@contextmanager
def _opened(
    root: Place, fresh: Sequence[str], earlier: Sequence[str], newest: NewestLoad | None
) -> Iterator[tuple[DuckDBPyConnection, str]]:
    """A DuckDB database with the views *fresh_files* and *earlier_files*, and the condition for rows that count.

    *fresh* are the batch's files with rows of a table, *earlier* are files of earlier batches that may have rows of its
    full load. Rows of full loads before *newest*, with which the table begins, do not count (G-125).
    """
    import duckdb

    with duckdb.connect() as db:
        query_files(db, root, fresh, "fresh_files")
        if earlier:
            query_files(db, root, earlier, "earlier_files")
        else:
            db.execute("CREATE TEMP VIEW earlier_files AS SELECT * FROM fresh_files WHERE false")
        if newest is not None:
            places = {"part": [*newest.begins], "begin": [*newest.begins.values()]}
            db.register("begins", pa.table(places, schema=pa.schema([("part", pa.string()), ("begin", pa.int64())])))
        yield db, "" if newest is None else _OF_NEWEST


def repeated_load(
    root: Place, table: str, fresh: Sequence[str], earlier: Sequence[str], newest: NewestLoad | None = None
) -> str | None:
    """Find out whether a full load came a second time, and describe the rows that did not come again.

    The result is empty if all rows came again. The result is None if no row came again in this batch, or only single
    messages, which may be repeated at any time. The rows count as a second full load if a row differs from an earlier
    row of its key in the same partition, or if at least half of all keys came again.
    """
    shared = {"kind": CHANGE, "table": table, "major": f"{LOAD_MAJOR}:"}
    with _opened(root, fresh, earlier, newest) as (db, of_newest):
        rows_of = _LOADED.format(files="fresh_files", is_fresh="true", newest=of_newest)
        db.execute(f"CREATE TEMP TABLE fresh AS {rows_of}", shared)
        before = _LOADED.format(files="earlier_files", is_fresh="false", newest=of_newest)
        rows, known = f"SELECT * FROM fresh UNION ALL {before}", "SELECT key, origin, place"
        known = f"{known} FROM fresh UNION {known} FROM ({before}) WHERE key IN (SELECT key FROM fresh)"
        again = f"SELECT 1 FROM ({known}) GROUP BY key HAVING count(DISTINCT (origin, place)) > 1 LIMIT 1"
        if db.execute(again, shared).fetchone() is None:
            return None
        db.execute(
            f"""CREATE TEMP TABLE counted AS SELECT *,
                  row_number() OVER (PARTITION BY key ORDER BY is_fresh, place, origin) AS nth,
                  count(*) OVER (PARTITION BY key) AS times
                FROM (SELECT origin, place, key, row, cols, bool_and(is_fresh) AS is_fresh
                      FROM ({rows}) GROUP BY ALL)""",
            shared,
        )
        repeated, single, differing = db.execute(
            """SELECT count(DISTINCT key) FILTER (times > 1), count(*) FILTER (times = 1), count(*) FILTER (rows > 1)
               FROM (SELECT origin, key, any_value(times) AS times, count(DISTINCT (row, cols)) AS rows
                     FROM counted GROUP BY origin, key)"""
        ).fetchone() or (0, 0, 0)
        if not differing and repeated < single:
            return None
        begun = "SELECT origin, min(place) AS place FROM counted WHERE nth > 1 GROUP BY origin"
        lacking, key, at = db.execute(
            f"""SELECT count(*), min(key), arg_min(c.origin || ':' || c.place, key) FROM counted c
                LEFT JOIN ({begun}) b USING (origin) WHERE times = 1 AND (b.place IS NULL OR c.place < b.place)"""
        ).fetchone() or (0, "", "")
    if not lacking:
        return ""
    said = f"{repeated} rows of a full load came again, and {lacking} of the earlier ones have not"
    return f"{said}, such as {key} at {at}"
