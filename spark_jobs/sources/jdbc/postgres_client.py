"""Reads PostgreSQL with ADBC, which returns rows as typed Arrow columns by binary ``COPY``.

Rows are streamed, so only one block of them is in memory. Public sources: PostgreSQL
documentation, *COPY*, "Binary Format"; Apache Arrow ADBC, *PostgreSQL Driver*.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from typing import Any

import pyarrow as pa

from open_mirroring.config.connections import Connection
from open_mirroring.config.names import SourceName
from open_mirroring.errors import MirroringError
from open_mirroring.without_pandas import without_pandas
from spark_jobs.sources.contract.message_blocks import BLOCK_BYTES
from spark_jobs.sources.jdbc.dialects import database_error

_SETTINGS = (
    "SELECT set_config('transaction_read_only', 'on', true), set_config('datestyle', 'ISO', true), "
    "set_config('extra_float_digits', '1', true)"
)
"""How values are spelled as text must not depend on the settings of a server, database or login."""


def rows_of(connection: Connection, query: str, table: SourceName) -> Iterator[pa.RecordBatch]:
    """Reads the rows of the SELECT *query*, in the query's order and in batches of about :data:`BLOCK_BYTES`.

    Infinite dates and timestamps arrive as values outside the years 1 to 9999. A ``numeric`` arrives as text, which is
    slow.
    """
    with without_pandas():
        from adbc_driver_manager import AdbcConnection, Error
        from adbc_driver_manager.dbapi import Connection as Link
        from adbc_driver_postgresql import StatementOptions

    failure = None
    try:
        shared = _database(_address(connection))
        link = Link(shared.clone(), AdbcConnection(shared._db))
        with closing(link), closing(link.cursor()) as cursor:
            cursor.execute(_SETTINGS)
            cursor.adbc_statement.set_options(**{StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BLOCK_BYTES)})
            cursor.execute(query)
            # The reader of `fetch_record_batch` raises errors without SQLSTATE.
            assert cursor._results is not None
            yield from cursor._results.reader
    except Error as error:
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        failure = database_error("reading its rows", error.sqlstate or "", what, connection, table)
    if failure is not None:
        # Raised out here, so that the original, which may hold values and addresses, is not chained to it.
        raise failure


def ask(connection: Connection, query: str) -> list[dict[str, Any]] | None:
    """Runs a small query, and returns its rows by column name; None on any error, which is not reported."""
    with suppress(MirroringError):
        return [line for batch in rows_of(connection, query, SourceName("", "")) for line in batch.to_pylist()]
    return None


@cache
def _database(address: str) -> Any:
    """The database, its types read, for all connections of this process: to read them takes ten times a connection."""
    from adbc_driver_manager.dbapi import _SharedDatabase
    from adbc_driver_postgresql import connect

    return _SharedDatabase(connect(address))


def _address(connection: Connection) -> str:
    given = {
        "host": (connection.host or "").strip("[]"),
        "port": connection.port or 5432,
        "user": connection.login,
        "password": connection.password,
        "dbname": connection.schema,
        "client_encoding": "UTF8",
        "application_name": "open_mirroring",
    }
    quoted = {name: str(value).replace("\\", "\\\\").replace("'", "\\'") for name, value in given.items() if value}
    return " ".join(f"{name}='{value}'" for name, value in quoted.items())
