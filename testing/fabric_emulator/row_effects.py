"""Applies the rows of a file to a table, one after the other, by the marker table of the documentation.

F-51: 0 inserts and never looks for the key. F-52, F-54: 1 and 4 update every row of the key, or insert when there is
none. F-53: 2 deletes every row of the key, or nothing. F-34: rows take effect in the order in which they stand.
(Microsoft Learn: landing zone format.) That an update reaches *all* rows of a key that is there twice is assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import duckdb
import pyarrow as pa

# Why this needs no loop over rows. Of a key, only what follows its last delete in the file counts. A row of the
# table, and a row born in that rest, live on; the last update or upsert after their birth is what they hold. Born
# are all inserts of the rest, and its first row if that is an update or upsert which finds no row of the key.
_STEPS = """
WITH step AS MATERIALIZED (
    SELECT *,
        max(position) FILTER (marker = 2) OVER of_key AS last_delete,
        max(position) FILTER (marker IN (1, 4)) OVER of_key AS last_write
    FROM file WINDOW of_key AS (PARTITION BY {keys})
)
"""
_SURVIVORS = (
    _STEPS
    + """
, fate AS (SELECT {keys}, any_value(last_delete) AS last_delete, any_value(last_write) AS last_write
           FROM step GROUP BY {keys})
SELECT place, last_write AS source
FROM present LEFT JOIN fate USING ({keys})
WHERE last_delete IS NULL
ORDER BY place
"""
)
_BORN = (
    _STEPS
    + """
, rest AS (
    SELECT *, row_number() OVER (PARTITION BY {keys} ORDER BY position) AS turn
    FROM step WHERE position > coalesce(last_delete, -1)
)
SELECT greatest(position, coalesce(last_write, -1)) AS source
FROM rest
WHERE marker = 0
   OR (turn = 1 AND (last_delete IS NOT NULL OR NOT EXISTS (SELECT 1 FROM present WHERE {same_key})))
ORDER BY position
"""
)


class RowEffects(NamedTuple):
    """Places of rows (int64 arrays) after a file.

    *unchanged* and *replaced* are places in the table, *replacement* (as long as *replaced*) and *born* in the file.
    Rows of the table that are named nowhere are deleted.
    """

    unchanged: pa.Array
    replaced: pa.Array
    replacement: pa.Array
    born: pa.Array


def row_effects(table_keys: pa.Table, file_keys: pa.Table, markers: pa.Array) -> RowEffects:
    """Apply the rows of a file to the rows of a table by their keys.

    Args:
        table_keys: the key columns of the table's rows; no order is expected, keys may be there more than once.
        file_keys: the key columns of the file's rows in their order, of the same types.
        markers: the marker of each row of the file.
    """
    columns = [f"k{index}" for index in range(file_keys.num_columns)]
    present = _placed(table_keys, columns, "place")
    file = _placed(file_keys, columns, "position").append_column("marker", markers)
    with _engine().cursor() as connection:
        connection.register("present", present)
        connection.register("file", file)
        survivors = _ask(connection, _SURVIVORS, columns)
        born = _ask(connection, _BORN, columns)
    replaced = survivors.filter(survivors["source"].is_valid())
    unchanged = survivors.filter(survivors["source"].is_null())
    return RowEffects(
        _places(unchanged, "place"), _places(replaced, "place"), _places(replaced, "source"), _places(born, "source")
    )


@cache
def _engine() -> duckdb.DuckDBPyConnection:
    # One for the process: opening one costs more than most files take.
    return duckdb.connect(config={"threads": 2})


def _placed(keys: pa.Table, columns: Sequence[str], place: str) -> pa.Table:
    # Names of ours, because a key column may be named like anything.
    renamed = keys.rename_columns(list(columns))
    return renamed.append_column(place, pa.array(range(keys.num_rows), pa.int64()))


def _ask(connection: duckdb.DuckDBPyConnection, query: str, columns: Sequence[str]) -> pa.Table:
    same_key = " AND ".join(f"present.{column} = rest.{column}" for column in columns)
    return connection.sql(query.format(keys=", ".join(columns), same_key=same_key)).to_arrow_table()


def _places(table: pa.Table, column: str) -> pa.Array:
    return table.column(column).cast(pa.int64()).combine_chunks()
