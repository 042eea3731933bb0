"""Which changes of a table's columns from file to file are allowed (F-83 to F-90).

Sources: Microsoft Learn (landing zone format and best practices) for added columns, missing nullable and NOT NULL
columns and changed types; field for a widened integer and an added NOT NULL column.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow as pa

from fabric_emulator.failures import TableFailure, needs_rebuild


def union(
    table: pa.Schema | None, file: pa.Schema, keys: Collection[str], name: str, *, evolves: bool = True
) -> pa.Schema:
    """The table's schema after a file: all columns it ever had, in the order in which they appeared.

    Key columns of a new table are NOT NULL, and so are the columns that its first file declares NOT NULL. Unless it
    *evolves*, a table has the columns of its first file for ever.
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
    """*rows* with exactly the columns of *schema*: what is missing is NULL (F-84).

    Raises:
        TableFailure: ``SchemaMergeFailure`` when a NOT NULL column would hold NULL.
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
    # A key column is NOT NULL whatever is declared, unless keys were added to a living table (F-13).
    return [(field.name, field.type, field.nullable or field.name in keys) for field in schema]


def _merge_failure(what: str) -> TableFailure:
    return needs_rebuild("SchemaMergeFailure", what)
