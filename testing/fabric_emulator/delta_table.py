"""The Delta table of a table folder, the only record of which files were applied.

Each data file is one Delta commit. The commit contains the file's number (as an application transaction) and the
incarnation of its folder (as the application's id). So a crash applies nothing twice, and a table of an earlier folder
of the same name is recognized.

The module also defines which changes of a table's columns are allowed from file to file (F-83 to F-90). Sources:
Microsoft Learn (landing zone format and best practices) for added columns, missing nullable and NOT NULL columns and
changed types; field for a widened integer and an added NOT NULL column.

The rows of a file are applied in sequence, by the marker table of the documentation (Microsoft Learn: landing zone
format). F-51: 0 inserts and never looks for the key. F-52, F-54: 1 and 4 update every row of the key, or insert if
there is none. F-53: 2 deletes every row of the key, or nothing. F-34: rows take effect in their order. It is assumed
that an update changes *all* rows of a duplicate key.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Collection, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from fabric_emulator.change_file import INSERT, ChangeFile
from fabric_emulator.failures import TableFailure, needs_rebuild
from fabric_emulator.settings import Settings

# Why this needs no loop over rows: for each key, only the part after its last delete in the file counts. A row of the
# table and a row created in that part survive, with the values of the last update or upsert after their creation.
# Created are all inserts of that part, and its first row if that is an update or upsert that finds no row of the key.
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
    """Indexes of rows (int64 arrays) after a file.

    *unchanged* and *replaced* are indexes in the table, *replacement* (as long as *replaced*) and *born* in the file.
    Other rows of the table are deleted.
    """

    unchanged: pa.Array
    replaced: pa.Array
    replacement: pa.Array
    born: pa.Array


def row_effects(table_keys: pa.Table, file_keys: pa.Table, markers: pa.Array) -> RowEffects:
    """Apply the rows of a file to the rows of a table by their keys.

    Args:
        table_keys: the key columns of the table's rows, in any order; keys may be duplicate.
        file_keys: the key columns of the file's rows in order, of the same types.
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
    # One per process: opening one costs more than most files need.
    return duckdb.connect(config={"threads": 2})


def _placed(keys: pa.Table, columns: Sequence[str], place: str) -> pa.Table:
    # Our own names, because a key column may have any name.
    renamed = keys.rename_columns(list(columns))
    return renamed.append_column(place, pa.array(range(keys.num_rows), pa.int64()))


def _ask(connection: duckdb.DuckDBPyConnection, query: str, columns: Sequence[str]) -> pa.Table:
    same_key = " AND ".join(f"present.{column} = rest.{column}" for column in columns)
    return connection.sql(query.format(keys=", ".join(columns), same_key=same_key)).to_arrow_table()


def _places(table: pa.Table, column: str) -> pa.Array:
    return table.column(column).cast(pa.int64()).combine_chunks()


def union(
    table: pa.Schema | None, file: pa.Schema, keys: Collection[str], name: str, *, evolves: bool = True
) -> pa.Schema:
    """The table's schema after a file: all columns it ever had, in order of appearance.

    Key columns of a new table are NOT NULL, and so are the columns that its first file declares NOT NULL. Unless it
    *evolves*, a table keeps the columns of its first file.
    """
    if table is None:
        return pa.schema([pa.field(f.name, f.type, f.nullable and f.name not in keys) for f in file])
    if not evolves and _declared(table, keys) != _declared(file, keys):
        raise _merge_failure(f"{name}: SchemaDefinition is not what the table was created with (F-90).")
    in_file = {field.name: field for field in file}
    for known in table:
        field = in_file.get(known.name)
        if field is None and not known.nullable:
            raise _merge_failure(f"{name} lacks the NOT NULL column {known.name!r} (F-86).")
        if field is not None and field.type != known.type:
            raise _merge_failure(f"{name}: column {known.name!r} is {field.type}, the table has {known.type} (F-87).")
    by_fold = {known.name.casefold(): known.name for known in table}
    added = [field for field in file if field.name not in table.names]
    for field in added:
        twin = by_fold.get(field.name.casefold())
        if twin is not None:
            raise _merge_failure(f"{name}: columns {field.name!r} and {twin!r} differ in case only.")
        if not field.nullable:
            raise _merge_failure(f"{name} brings the NOT NULL column {field.name!r}; only nullable ones can be added.")
    return pa.schema([*table, *added])


def fitted(rows: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """Adds columns that *rows* lack, with NULL, so that they have exactly the columns of *schema* (F-84).

    Raises:
        TableFailure: ``SchemaMergeFailure`` when a NOT NULL column would be NULL.
    """
    columns = []
    for field in schema:
        if field.name in rows.column_names:
            column = rows.column(field.name)
        else:
            column = pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
        if column.null_count and not field.nullable:
            raise _merge_failure(f"{name}: the NOT NULL column {field.name!r} is null in some row.")
        columns.append(column)
    return pa.table(columns, schema=schema)


def _declared(schema: pa.Schema, keys: Collection[str]) -> list[tuple[str, pa.DataType, bool]]:
    # A key column is always NOT NULL, unless keys were added to an existing table (F-13).
    return [(field.name, field.type, field.nullable or field.name in keys) for field in schema]


def _merge_failure(what: str) -> TableFailure:
    return needs_rebuild("SchemaMergeFailure", what)


_DROPPED = "_dropped-"
_ROWS, _BYTES, _TIME, _MARKED = "processedRows", "processedBytes", "lastSync", "incremental"


class Progress(NamedTuple):
    """The progress of a table.

    Last applied number (0: none), rows and bytes of all files ever applied, time of the last one in seconds since 1970,
    and whether any of them had a marker (F-58).
    """

    number: int = 0
    rows: int = 0
    bytes: int = 0
    synced: float = 0.0
    incremental: bool = False


class MirroredDeltaTable:
    """The Delta table at *path* as the mirror of one incarnation of a table folder.

    Opening only reads the table. A table of another incarnation counts as none, and the first file drops it.
    """

    def __init__(self, path: Path, life: str) -> None:
        self._path = path
        self._life = f"fabric-emulator/{life}"
        self._table: DeltaTable | None = None
        self._rows: pa.Table | None = None
        if DeltaTable.is_deltatable(str(path)):
            found = DeltaTable(path)
            if found.transaction_version(self._life) is not None:
                self._table = found

    @property
    def progress(self) -> Progress:
        """The progress in the newest commit; zero when there is no table of this incarnation yet.

        Raises:
            TableFailure: ``MirroredTableLost`` when another process has written to the table.
        """
        if self._table is None:
            return Progress()
        newest = self._table.history(1)[0]
        number = self._table.transaction_version(self._life)
        if number is None or _ROWS not in newest:
            raise needs_rebuild("MirroredTableLost", f"version {newest['version']} was not written by the emulator.")
        return Progress(
            number, int(newest[_ROWS]), int(newest[_BYTES]), float(newest[_TIME]), newest[_MARKED] == "true"
        )

    def apply(self, change: ChangeFile, keys: tuple[str, ...], after: Progress, name: str, settings: Settings) -> int:
        """Apply the rows of one file in one commit and return its version.

        Raises:
            TableFailure: ``SchemaMergeFailure`` (F-86, F-87, F-90); the table is unchanged.
        """
        known = None if self._table is None else self._schema(self._table)
        schema = union(known, change.rows.schema, keys, name, evolves=change.evolves)
        appended, rows = self._effect(change, keys, schema, name, settings)
        if self._table is None:
            drop(self._path)
        write_deltalake(
            self._path,
            rows,
            mode="error" if self._table is None else "append" if appended else "overwrite",
            schema_mode=None if known is None or schema == known else "merge" if appended else "overwrite",
            commit_properties=CommitProperties(
                custom_metadata={
                    _ROWS: str(after.rows),
                    _BYTES: str(after.bytes),
                    _TIME: repr(after.synced),
                    _MARKED: "true" if after.incremental else "false",
                },
                app_transactions=[Transaction(self._life, after.number)],
            ),
        )
        self._table = DeltaTable(self._path)
        if not appended:
            self._rows = rows
        elif self._rows is not None:
            self._rows = pa.concat_tables([fitted(self._rows, schema, name), rows])
        return self._table.version()

    def _effect(
        self, change: ChangeFile, keys: tuple[str, ...], schema: pa.Schema, name: str, settings: Settings
    ) -> tuple[bool, pa.Table]:
        """(True, rows to append) or (False, all rows of the table)."""
        markers = change.markers
        if markers is None or not keys or all(value == INSERT for value in markers.unique().to_pylist()):
            return True, fitted(change.rows, schema, name)
        present = fitted(self._all_rows(schema), schema, name)
        effects = row_effects(present.select(keys), change.rows.select(keys), markers)
        born = fitted(change.rows.take(effects.born), schema, name)
        if len(effects.unchanged) == present.num_rows:
            return True, born
        replacement = change.rows.take(effects.replacement)
        if settings.column_left_out_of_update == "keep":
            before = present.take(effects.replaced)
            for field in schema:
                if field.name not in replacement.column_names:
                    replacement = replacement.append_column(field, before.column(field.name))
        kept = present.take(effects.unchanged)
        return False, pa.concat_tables([kept, fitted(replacement, schema, name), born])

    def _all_rows(self, schema: pa.Schema) -> pa.Table:
        if self._table is None:
            return schema.empty_table()
        if self._rows is None:
            # scan() and not to_pyarrow_table(): the latter reads through Python objects in Arrow's own threads, which
            # sometimes abort the process when the interpreter ends.
            self._rows = pa.table(self._table.scan()).cast(self._schema(self._table))
        return self._rows

    @staticmethod
    def _schema(table: DeltaTable) -> pa.Schema:
        return pa.schema(table.schema().to_arrow())


def drop(path: Path) -> None:
    """Remove a Delta table, if it exists: first a rename in one step, then its files."""
    grave = path.with_name(f"{_DROPPED}{uuid.uuid4().hex}")
    try:
        path.rename(grave)
    except FileNotFoundError:
        return
    shutil.rmtree(grave)


def bury_dropped(tables: Path) -> None:
    """Remove the remains of dropped tables after a crash."""
    for grave in tables.glob(f"*/{_DROPPED}*"):
        shutil.rmtree(grave)
