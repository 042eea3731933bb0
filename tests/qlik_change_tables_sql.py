"""Change tables in PostgreSQL, and control tables beside them, as SQL statements.

Public source: Qlik help, *Change tables*, *Change Data Partitioning*, *Control tables*.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from workload_generator.qlik_change_tables import ChangeTableOptions, StoredChange, columns_of, values_of
from workload_generator.sql_values import parse_type
from workload_generator.tables import ColumnDef, TableDef

_POSTGRESQL_TYPES = {
    **{"tinyint": "smallint", "smallint": "smallint", "int": "integer", "bigint": "bigint", "real": "real"},
    **{"float": "double precision", "bit": "boolean", "date": "date", "time": "time(6)", "binary": "bytea"},
    **{"datetime": "timestamp(3)", "datetime2": "timestamp(6)", "smalldatetime": "timestamp(0)", "varbinary": "bytea"},
}
_CONTROL = (
    "server_name text, task_name text, partition_name text, partition_start_time timestamp, "
    "partition_end_time timestamp, table_owner text, table_name text"
)
_SIGNALS = {
    "attrep_suspended_tables": "server_name text, task_name text, table_owner text, table_name text, "
    "suspend_reason text, suspend_timestamp timestamp",
    "attrep_apply_exceptions": '"TASK_NAME" text, "TABLE_OWNER" text, "TABLE_NAME" text, "ERROR_TIME" timestamp, '
    '"STATEMENT" text, "ERROR" text',
    "attrep_ddl_history": "server_name text, task_name text, table_owner text, table_name text, change_seq text, "
    "timestamp timestamp, table_version int, ddl_type text, details text",
}
_DECIMALS = ("decimal", "numeric", "money", "smallmoney")


def postgresql_statements(
    tables: Iterable[TableDef],
    changes: Iterable[StoredChange],
    options: ChangeTableOptions,
    *,
    control: str = "control",
    closed: bool = True,
) -> Iterator[str]:
    """SQL that makes change tables and fills them; columns come by ``ALTER TABLE`` when changes have them.

    Args:
        tables: the tables as they are at the beginning.
        changes: what is stored.
        options: as the changes were made with.
        control: schema of ``attrep_cdc_partitions``, which is made with Change Data Partitioning only.
        closed: whether the last partition of each table is closed, as all others are once a later one begins.
    """
    control_table = f'{_quoted(control)}."attrep_cdc_partitions"'
    if options.partition_minutes:
        yield f"CREATE SCHEMA IF NOT EXISTS {_quoted(control)}"
        yield f"CREATE TABLE IF NOT EXISTS {control_table} ({_CONTROL})"
    known: dict[str, TableDef] = {}
    opened: dict[str, str] = {}
    for table in tables:
        known[table.full_name] = table
        columns = ", ".join(f"{_quoted(c.name)} {_postgresql_type(c)}" for c in columns_of(table, options))
        yield f"CREATE SCHEMA IF NOT EXISTS {_quoted(table.schema)}"
        yield f"CREATE TABLE {_stored_in(table, options)} ({columns})"
    for change in changes:
        table = change.table
        for column in table.columns[len(known[table.full_name].columns) :]:
            added = f"{_quoted(column.name)} {_postgresql_type(column)}"
            yield f"ALTER TABLE {_stored_in(table, options)} ADD COLUMN {added}"
        known[table.full_name] = table
        partition = change.header.get("partition_name")
        if partition is not None:
            before = opened.setdefault(table.full_name, partition)
            if before != partition:
                yield f"INSERT INTO {control_table} VALUES ({_closing(table, before, options)})"
                opened[table.full_name] = partition
        values = values_of(change, options)
        names = ", ".join(_quoted(column.name) for column in columns_of(table, options))
        literals = ", ".join(_literal(c, values[c.name]) for c in columns_of(table, options))
        yield f"INSERT INTO {_stored_in(table, options)} ({names}) VALUES ({literals})"
    for full_name, partition in opened.items() if closed else ():
        yield f"INSERT INTO {control_table} VALUES ({_closing(known[full_name], partition, options)})"


def control_table_statements(control: str = "control") -> Iterator[str]:
    """SQL that makes the control tables in which a task tells how its tables fare, empty."""
    yield f"CREATE SCHEMA IF NOT EXISTS {_quoted(control)}"
    for name, columns in _SIGNALS.items():
        yield f"CREATE TABLE {_quoted(control)}.{_quoted(name)} ({columns})"


def suspended(table: TableDef, reason: str, since: datetime, control: str = "control") -> str:
    """SQL by which a task suspends a table."""
    texts = _texts("server", "task", table.schema, table.name, reason, str(since))
    return f'INSERT INTO {_quoted(control)}."attrep_suspended_tables" VALUES ({texts})'


def apply_exception(table: TableDef, error: str, at: datetime, control: str = "control") -> str:
    """SQL by which a task records an error of a table."""
    texts = _texts("task", table.schema, table.name, str(at), "INSERT", error)
    return f'INSERT INTO {_quoted(control)}."attrep_apply_exceptions" VALUES ({texts})'


def ddl(
    table: TableDef,
    sequence: str,
    kind: str = "ALTER_TABLE",
    *,
    at: datetime,
    columns: Mapping[str, tuple[str, str | None]] | None = None,
    new_name: str | None = None,
    task: str = "task",
    control: str = "control",
) -> str:
    """SQL by which a task records a statement on a table; *columns* by name: what it does, and the new name."""
    story = {name: {"columnNewName": to, "action": action} for name, (action, to) in (columns or {}).items()}
    details = {"owner": table.schema, "table": table.name, "tableNewName": new_name, "version": 2, "columns": story}
    texts = _texts("server", task, table.schema, table.name, sequence, str(at), "2", kind, json.dumps(details))
    return f'INSERT INTO {_quoted(control)}."attrep_ddl_history" VALUES ({texts})'


def _texts(*texts: str) -> str:
    return ", ".join("'" + text.replace("'", "''") + "'" for text in texts)


def _closing(table: TableDef, partition: str, options: ChangeTableOptions) -> str:
    start, end = (datetime.strptime(text, "%Y%m%dT%H%M%S") for text in partition.split("_"))
    return _texts("server", "task", partition, str(start), str(end), table.schema, table.name + options.suffix)


def _postgresql_type(column: ColumnDef) -> str:
    kind = parse_type(column.sql_type)
    return f"numeric({kind.size},{kind.scale})" if kind.base in _DECIMALS else _POSTGRESQL_TYPES.get(kind.base, "text")


def _literal(column: ColumnDef, text: str | None) -> str:
    if text is None:
        return "NULL"
    kind = parse_type(column.sql_type).base
    if kind in ("binary", "varbinary"):
        return f"'\\x{text[2:]}'::bytea"
    if kind in ("datetime2", "time"):
        text = text[: text.find(".") + 7] if "." in text else text
    return "'" + text.replace("'", "''") + "'"


def _stored_in(table: TableDef, options: ChangeTableOptions) -> str:
    return f"{_quoted(table.schema)}.{_quoted(table.name + options.suffix)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
