"""Builds SQL for tables of PostgreSQL and SQL Server, and maps database errors to error codes.

Columns are read as strings that keep every digit, and are then typed like the values of changes. Only PostgreSQL's own
client returns most values in their own types. Public source: Microsoft Learn, *CAST and CONVERT (Transact-SQL)*.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal
from typing import Any, Literal, NamedTuple, Protocol
from urllib.parse import quote

from open_mirroring.config.connections import Connection, invalid
from open_mirroring.config.names import SourceName
from open_mirroring.config.row_filter import Condition
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.sources.sql_server.type_text import INTEGERS, MONEY, landing_type, read_type

BoundKind = Literal["integer", "date", "timestamp", "instant"]
"""The kind of a split's bounds: whole numbers, days, wall clocks or instants in UTC, the latter two in seconds."""
_PERMANENT = ("22", "23", "28", "3D", "3F", "42", "S0001", "S0002")
"""Prefixes of SQLSTATEs that a retry cannot fix: data, login, catalog, syntax and permission."""

_FILTERED_TEXTS = ("char", "varchar", "nchar", "nvarchar")


class Dialect(Protocol):
    """Builds the SQL of one kind of database. Types of columns are always given as SQL Server types."""

    driver: str
    copies: bool = False
    """Whether rows are read by binary COPY with the database's own client, instead of by JDBC as text."""
    keys_at_once: int = 1_000
    """So many keys a query may name: SQL Server needs seconds to plan one with many more, or refuses it."""
    text_prefix: str = ""
    """The prefix of a text literal that keeps all characters."""
    of_column: str = (
        "c.COLUMN_NAME AS name, c.DATA_TYPE AS data_type, c.CHARACTER_MAXIMUM_LENGTH AS length, "
        "c.NUMERIC_PRECISION AS digits, c.NUMERIC_SCALE AS scale, c.DATETIME_PRECISION AS second_digits, "
        "c.ORDINAL_POSITION AS place"
    )
    """SELECT list that describes a column; ``information_schema`` shows domains and aliases by their base type."""
    of_keys: str
    """A join, with the alias ``k``, that adds each column's place in the primary key as ``key_place``."""

    def address(self, connection: Connection) -> tuple[str, dict[str, str]]:
        """The JDBC URL and the JDBC properties of a connection, without its login."""
        ...

    def quote(self, name: str) -> str:
        """Quotes *name* as an SQL identifier, whatever characters it has."""
        return '"' + name.replace('"', '""') + '"'

    def text(self, value: str) -> str:
        return self.text_prefix + literal(value)

    def columns_query(self, schema: str, table: str) -> str:
        """A query of the columns of a table; its result has the columns of :attr:`of_column`."""
        where = f"c.TABLE_SCHEMA = {self.text(schema)} AND c.TABLE_NAME = {self.text(table)}"
        return f"SELECT {self.of_column} FROM INFORMATION_SCHEMA.COLUMNS c WHERE {where}"

    def size_query(self, schema: str, table: str) -> str | None:
        """A query of a table's size in bytes, NULL if unknown; None if the database has no such query."""
        return None

    def alike_query(self, schema: str, *tables: str) -> str:
        """A query of the tables and views that have one of the names *tables* in *schema*, in any case.

        Its columns are ``schema`` and ``name``.
        """
        names = ", ".join(f"LOWER({self.text(table)})" for table in tables)
        return (
            f"SELECT TABLE_SCHEMA AS {self.quote('schema')}, TABLE_NAME AS {self.quote('name')} "
            f"FROM INFORMATION_SCHEMA.TABLES WHERE LOWER(TABLE_SCHEMA) = LOWER({self.text(schema)}) "
            f"AND LOWER(TABLE_NAME) IN ({names})"
        )

    def catalog_query(self) -> str:
        """A query of the columns of all tables, with schema, table and the column's place in the primary key."""
        schema, table = self.quote("schema"), self.quote("table")
        return (
            f"SELECT c.TABLE_SCHEMA AS {schema}, c.TABLE_NAME AS {table}, {self.of_column}, k.key_place "
            "FROM INFORMATION_SCHEMA.COLUMNS c JOIN INFORMATION_SCHEMA.TABLES t "
            "ON t.TABLE_SCHEMA = c.TABLE_SCHEMA AND t.TABLE_NAME = c.TABLE_NAME AND t.TABLE_TYPE = 'BASE TABLE' "
            f"{self.of_keys}"
        )

    def sql_type(self, column: Mapping[str, Any]) -> str:
        """The SQL Server type of a column, which is a row of :meth:`columns_query`.

        Raises ``TYPE_UNSUPPORTED`` if no SQL Server type holds the column's values.
        """
        ...

    def as_text(self, name: str, sql_type: str) -> str: ...

    def bound(self, kind: BoundKind, text: str) -> str:
        """An SQL literal for *text*, a bound of a chunk, to compare the split column with."""
        ...


class Range(NamedTuple):
    """The rows of one chunk: ``low <= column < high``; None means no bound. If *nulls*, also the rows with NULL."""

    low: str | None
    high: str | None
    nulls: bool


Keys = Sequence[Sequence[str]]
"""Some keys: the texts of their values, by column."""


def dialect_of(connection: Connection) -> Dialect:
    """The dialect for the connection type ``postgres`` or ``mssql``; ``CONNECTION_INVALID`` for any other type."""
    dialects: dict[str, Dialect] = {"postgres": PostgreSql(), "mssql": SqlServer()}
    if connection.conn_type not in dialects:
        raise invalid(connection.name, "its conn_type is neither postgres nor mssql")
    return dialects[connection.conn_type]


def condition(dialect: Dialect, column: str, kind: BoundKind, part: Range) -> str:
    """The SQL condition of the chunk *part* on the quoted *column*; each row of the table is in exactly one chunk."""
    limits = []
    if part.low is not None:
        limits.append(f"{column} >= {dialect.bound(kind, part.low)}")
    if part.high is not None:
        limits.append(f"{column} < {dialect.bound(kind, part.high)}")
    text = " AND ".join(limits) or "1 = 1"
    return f"({text}) OR {column} IS NULL" if part.nulls and limits else text


def condition_of_keys(dialect: Dialect, columns: Sequence[str], keys: Keys) -> str:
    """The SQL condition that the quoted *columns* have the values of one of the *keys*.

    The condition is written so that the database uses an index on the columns.
    """
    if len(columns) == 1:
        return f"{columns[0]} IN ({', '.join(map(dialect.text, keys[0]))})"
    each = (zip(columns, key, strict=True) for key in zip(*keys, strict=True))
    return " OR ".join(f"({' AND '.join(f'{name} = {dialect.text(text)}' for name, text in one)})" for one in each)


def ranges(borders: Sequence[str]) -> list[Range]:
    """The ranges between *borders*: one more than there are borders.

    The first range has no lower bound and also contains NULL; the last range has no upper bound.
    """
    ends: list[str | None] = [None, *borders, None]
    return [Range(ends[at], ends[at + 1], at == 0) for at in range(len(ends) - 1)]


class PostgreSql(Dialect):
    """The dialect of PostgreSQL 12 or newer."""

    driver = "org.postgresql.Driver"
    copies = True
    keys_at_once = 10_000
    # From `pg_index`: `information_schema` shows the key to owners only.
    of_keys = (
        "LEFT JOIN (SELECT n.nspname, r.relname, a.attname, u.place AS key_place FROM pg_index i "
        "JOIN pg_class r ON r.oid = i.indrelid JOIN pg_namespace n ON n.oid = r.relnamespace "
        "CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS u(number, place) "
        "JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum = u.number WHERE i.indisprimary) k "
        "ON k.nspname = c.table_schema AND k.relname = c.table_name AND k.attname = c.column_name "
        "WHERE c.table_schema NOT IN ('pg_catalog', 'information_schema')"
    )

    def address(self, connection: Connection) -> tuple[str, dict[str, str]]:
        """The JDBC URL and properties.

        The parts of the URL are percent-encoded, because PostgreSQL's driver decodes them.
        """
        port = connection.port or 5432
        database = quote(connection.schema or "", safe="")
        return f"jdbc:postgresql://{_host(connection)}:{port}/{database}", {"tcpKeepAlive": "true"}

    def sql_type(self, column: Mapping[str, Any]) -> str:
        """The SQL Server type that holds the values of a column, except infinity, NaN and years beyond 9999.

        Rows with such values are refused when they are read.
        """
        kind, digits, scale = column["data_type"], column["digits"], column["scale"]
        if kind == "numeric":
            if digits is None or not 0 <= (scale or 0) <= digits <= 38:
                what = (
                    "has no precision, or more than 38 digits: `types: {column: decimal(38,10)}` of the table gives it"
                )
                raise _unsupported(column, what)
            return f"decimal({digits},{scale or 0})"
        found = _POSTGRESQL_TYPES.get(kind)
        if found is None:
            raise _unsupported(column, "cannot be mirrored")
        return found

    def size_query(self, schema: str, table: str) -> str:
        """A query of a table's bytes on disk, with its partitions; NULL for a view or a foreign table."""
        found = f"to_regclass({self.text(f'{self.quote(schema)}.{self.quote(table)}')})"
        is_known = "c.relkind = 'p' OR c.relkind = 'r' AND NOT c.relhassubclass"
        return (
            f"SELECT CASE WHEN bool_and({is_known}) THEN sum(pg_table_size(c.oid)) END AS bytes FROM pg_class c "
            f"WHERE c.oid = {found} OR c.oid IN (SELECT relid FROM pg_partition_tree({found}))"
        )

    def as_text(self, name: str, sql_type: str) -> str:
        """An SQL expression for the exact text of a column, in the format that changes of the column have.

        A float becomes the shortest text that reads back as the same value.
        """
        kind = read_type(sql_type).name
        if kind == "bit":
            return f"CAST(CAST({name} AS integer) AS text)"
        if kind == "varbinary":
            return f"'0x' || encode({name}, 'hex')"
        if kind == "datetimeoffset":
            return f"CAST({name} AT TIME ZONE 'UTC' AS text) || 'Z'"
        return f"CAST({name} AS text)"

    def bound(self, kind: BoundKind, text: str) -> str:
        types = {"date": "DATE", "timestamp": "TIMESTAMP", "instant": "TIMESTAMP WITH TIME ZONE"}
        return text if kind == "integer" else f"{types[kind]} {literal(text + '+00' * (kind == 'instant'))}"


class SqlServer(Dialect):
    """The dialect of SQL Server 2016 or newer and Azure SQL. The server's certificate is always checked."""

    driver = "com.microsoft.sqlserver.jdbc.SQLServerDriver"
    text_prefix = "N"
    of_keys = (
        "LEFT JOIN (SELECT u.TABLE_SCHEMA, u.TABLE_NAME, u.COLUMN_NAME, u.ORDINAL_POSITION AS key_place "
        "FROM INFORMATION_SCHEMA.KEY_COLUMN_USAGE u JOIN INFORMATION_SCHEMA.TABLE_CONSTRAINTS p "
        "ON p.CONSTRAINT_SCHEMA = u.CONSTRAINT_SCHEMA AND p.CONSTRAINT_NAME = u.CONSTRAINT_NAME "
        "AND p.CONSTRAINT_TYPE = 'PRIMARY KEY') k ON k.TABLE_SCHEMA = c.TABLE_SCHEMA "
        "AND k.TABLE_NAME = c.TABLE_NAME AND k.COLUMN_NAME = c.COLUMN_NAME"
    )

    def address(self, connection: Connection) -> tuple[str, dict[str, str]]:
        """The JDBC URL and properties; all names are in the properties, so that no name can end a part of the URL."""
        properties = {
            "serverName": _host(connection),
            "portNumber": str(connection.port or 1433),
            "encrypt": "true",
            "trustServerCertificate": "false",
        }
        if connection.schema:
            properties["databaseName"] = connection.schema
        return "jdbc:sqlserver://", properties

    def quote(self, name: str) -> str:
        return "[" + name.replace("]", "]]") + "]"

    def sql_type(self, column: Mapping[str, Any]) -> str:
        text = kind = str(column["data_type"])
        if kind in ("decimal", "numeric"):
            text = f"{kind}({column['digits']},{column['scale']})"
        elif kind in ("datetime2", "datetimeoffset", "time"):
            text = f"{kind}({column['second_digits']})"
        elif kind in ("char", "varchar", "nchar", "nvarchar", "binary", "varbinary"):
            text = f"{kind}({'max' if column['length'] == -1 else column['length']})"
        try:
            read_type(text)
        except TerminalError:
            raise _unsupported(column, "cannot be mirrored") from None
        return text

    def as_text(self, name: str, sql_type: str) -> str:
        """An SQL conversion to text that keeps all digits; SQL Server's default styles round floats and money."""
        kind = read_type(sql_type).name
        if kind in ("binary", "varbinary", "image"):
            return f"CONVERT(varchar(max), CAST({name} AS varbinary(max)), 1)"
        if kind in ("char", "varchar", "nchar", "nvarchar", "text", "ntext", "xml", "sysname"):
            return f"CAST({name} AS nvarchar(max))"
        styles = {"float": 3, "real": 3, "money": 2, "smallmoney": 2, "date": 23}
        styles |= dict.fromkeys(("datetime", "smalldatetime", "datetime2", "datetimeoffset"), 121)
        return f"CONVERT(varchar(64), {name}, {styles[kind]})" if kind in styles else f"CONVERT(varchar(64), {name})"

    def bound(self, kind: BoundKind, text: str) -> str:
        """An SQL literal for a bound of a chunk, which does not depend on the session's language."""
        if kind == "integer":
            return text
        if kind == "date":
            return f"CONVERT(date, {literal(text)}, 23)"
        iso = text.replace(" ", "T")
        if kind == "instant":
            return f"CONVERT(datetimeoffset, {literal(iso + 'Z')}, 127)"
        return f"CONVERT(datetime2, {literal(iso)}, 126)"


_POSTGRESQL_TYPES = {
    "smallint": "smallint",
    "integer": "int",
    "bigint": "bigint",
    "boolean": "bit",
    "real": "real",
    "double precision": "float",
    "date": "date",
    "timestamp without time zone": "datetime2(6)",
    "timestamp with time zone": "datetimeoffset(6)",
    "time without time zone": "time(6)",
    "uuid": "uniqueidentifier",
    "bytea": "varbinary(max)",
    **dict.fromkeys(("character varying", "character", "text", "json", "jsonb", "xml"), "nvarchar(max)"),
}


def _host(connection: Connection) -> str:
    host = connection.host or ""
    if not re.fullmatch(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]", host):
        raise invalid(connection.name, "its host is not a name or address of a machine")
    return host


def literal(text: str) -> str:
    """Quotes a string as an SQL literal, whatever characters it has."""
    return "'" + text.replace("'", "''") + "'"


def _unsupported(column: Mapping[str, Any], reason: str) -> TerminalError:
    return TerminalError(
        "TYPE_UNSUPPORTED",
        f"column {column['name']!r} of type {column['data_type']} {reason}",
        next_step="read a view that casts it, or land it as text where the database can cast it "
        "(`types: {column: string}`); a column that is not a key can also be left out with `columns`",
    )


def database_error(doing: str, state: str, what: str, connection: Connection, table: SourceName) -> MirroringError:
    """The error for a failed query.

    It is ``SERVICE_REFUSED`` if the SQLSTATE *state* shows that the database would refuse the same query again, else
    ``UNREACHABLE``.
    """
    if connection.password:
        what = what.replace(connection.password, "***")
    where = f"connection {connection.name}, table {table.schema}.{table.table}"
    if state.startswith(_PERMANENT):
        return TerminalError(
            "SERVICE_REFUSED",
            f"{doing}, the database refused (SQLSTATE {state}): {what}",
            where=where,
            next_step="fix the connection, the rights of its login, or the table's settings",
        )
    return TransientError(
        "UNREACHABLE",
        f"{doing}, the database did not answer to the end (SQLSTATE {state or 'unknown'}): {what}",
        where=where,
        next_step="the next run goes on where this one stopped; if the error stays, check the database and the network",
    )


def spelled_for(where: Condition, columns: Iterable[LoadColumn], database: Dialect) -> str | None:
    """The part of the condition *where* that the database can check, as SQL; None if there is no such part.

    The SQL may find rows that do not fulfil *where*; they are removed later. But the SQL must never leave out a row
    that fulfils *where*, so a comparison that could do this is not part of the SQL. For example, a database compares
    texts by a collation, under which more texts are equal, and times with more digits than the landing zone keeps.
    """
    found = _spelled(where, {column.name.casefold(): column for column in columns}, database)
    return None if found is None else found[0]


def _spelled(where: Condition, columns: Mapping[str, LoadColumn], database: Dialect) -> tuple[str, bool] | None:
    """The SQL, and whether it is exact; if not, the database may find more rows by it, never fewer."""
    if where.parts:
        known = [part for one in where.parts if (part := _spelled(one, columns, database)) is not None]
        is_whole = len(known) == len(where.parts)
        is_exact = is_whole and all(exact for _, exact in known)
        if where.operator == "NOT":
            return (f"NOT ({known[0][0]})", True) if is_exact else None
        if not known or (where.operator == "OR" and not is_whole):
            return None
        return f" {where.operator} ".join(f"({sql})" for sql, _ in known), is_exact
    column = columns.get(where.column.casefold())
    if column is None or column.sql_type is None:
        return None
    name = database.quote(column.name)
    if where.operator == "NULL":
        return f"{name} IS NULL", True
    literals, kind = _literals(where, column, database), read_type(column.sql_type).name
    if literals is None:
        return None
    name = database.as_text(name, column.sql_type) if kind in _FILTERED_TEXTS and database.copies else name
    right = f"({', '.join(literals)})" if where.operator == "IN" else literals[0]
    return f"{name} {where.operator} {right}", kind not in _FILTERED_TEXTS


def _literals(where: Condition, column: LoadColumn, database: Dialect) -> Sequence[str] | None:
    """The literals as a database reads them; None where it may compare them otherwise than we do."""
    sql_type = column.sql_type or ""
    kind, values = read_type(sql_type).name, where.values
    if kind in INTEGERS or kind in MONEY or kind == "decimal":
        is_number = all(isinstance(one, int | Decimal) and not isinstance(one, bool) for one in values)
        is_same = column.type.startswith(("int", "decimal"))
        return [format(Decimal(one), "f") for one in values] if is_number and is_same else None
    if landing_type(sql_type) != column.type or not all(isinstance(one, str) for one in values):
        return None
    texts = [str(one) for one in values]
    if kind == "date":
        with suppress(ValueError):
            return [database.bound("date", date.fromisoformat(one).isoformat()) for one in texts]
    return [database.text(one) for one in texts] if kind in _FILTERED_TEXTS and where.operator in ("=", "IN") else None
