"""The PostgreSQL client library, wrapped: answers to small questions, and bulk rows as texts in columns.

COPY sends rows while the server makes them, and none is kept here but those of one block. As CSV it tells NULL from an
empty text: only the latter has quotes. Public source: PostgreSQL documentation, *COPY*, "CSV Format".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import psycopg2
import pyarrow as pa
import pyarrow.csv as csv

from open_mirroring.config.connections import Connection
from open_mirroring.config.names import SourceName
from open_mirroring.errors import MirroringError
from spark_jobs.sources.jdbc.dialects import database_error

BLOCK_BYTES = 4 * 2**20
"""Small enough for memory that was used before: a fresh page costs more than decoding what is on it."""

_ROWS_AT_ONCE = 2_000

_SETTINGS = "SET LOCAL datestyle TO 'ISO'; SET LOCAL extra_float_digits TO 1"
"""How values are spelled must not depend on the settings of a server, database or login."""


def copy_out(
    connection: Connection, query: str, columns: int, take: Callable[[pa.RecordBatch], None], table: SourceName
) -> None:
    """Give the rows of a query to *take*, in the query's order and in blocks of about :data:`BLOCK_BYTES`.

    Args:
        connection: the database.
        query: a SELECT of texts; two at least, as the line of a single NULL would be an empty one.
        columns: how many.
        take: gets batches of columns ``c0``, ``c1``, … of type string; what it raises passes through.
        table: what is read, for errors.

    Raises:
        TerminalError: ``SERVICE_REFUSED`` when the database says no.
        TransientError: ``UNREACHABLE`` when it does not answer to the end.
    """
    failure = None
    try:
        with closing(_connect(connection)) as link, link.cursor() as cursor:
            blocks = _Blocks(columns, take)
            cursor.copy_expert(f"COPY ({query}) TO STDOUT (FORMAT csv)", blocks)
            blocks.end()
    except psycopg2.Error as error:
        failure = _said(error, connection, table)
    if failure is not None:
        # Raised out here, so that the original, which may hold values and addresses, is not chained to it.
        raise failure


def text_batches(connection: Connection, query: str, columns: int, table: SourceName) -> Iterator[pa.RecordBatch]:
    """The rows of a query as they are asked for, in batches of some thousand; the arguments are those of copy_out.

    Raises:
        TerminalError: ``SERVICE_REFUSED``.
        TransientError: ``UNREACHABLE``.
    """
    schema = pa.schema([pa.field(f"c{at}", pa.string()) for at in range(columns)])
    failure = None
    try:
        with closing(_connect(connection)) as link, link.cursor("rows") as cursor:
            cursor.execute(query)
            while rows := cursor.fetchmany(_ROWS_AT_ONCE):
                arrays = [pa.array(texts, pa.string()) for texts in zip(*rows, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
    except psycopg2.Error as error:
        failure = _said(error, connection, table)
    if failure is not None:
        raise failure


def ask(connection: Connection, query: str) -> list[dict[str, Any]] | None:
    """The lines of a small answer, by column name; None where there was none.

    The library tells no SQLSTATE of a refused login, so whoever gets None asks in another way, to hear why.
    """
    with suppress(psycopg2.Error), closing(_connect(connection)) as link, link.cursor() as cursor:
        cursor.execute(query)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, line, strict=True)) for line in cursor.fetchall()]
    return None


def _said(error: psycopg2.Error, connection: Connection, table: SourceName) -> MirroringError:
    what = f"{type(error).__name__}: {error}".splitlines()[0]
    return database_error("reading its rows", error.pgcode or "", what, connection, table)


def _connect(connection: Connection) -> Any:
    """A session that only reads."""
    link = psycopg2.connect(
        host=(connection.host or "").strip("[]"),
        port=connection.port or 5432,
        user=connection.login,
        password=connection.password,
        dbname=connection.schema,
        client_encoding="UTF8",
        application_name="open_mirroring",
    )
    link.set_session(readonly=True)
    with link.cursor() as cursor:
        cursor.execute(_SETTINGS)
    return link


class _Blocks:
    """The file that COPY writes into: each call brings one whole row."""

    def __init__(self, columns: int, take: Callable[[pa.RecordBatch], None]) -> None:
        self._take = take
        names = [f"c{at}" for at in range(columns)]
        self._names = names
        self._parse = csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)
        self._convert = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        self._rows: list[bytes] = []
        self._held = 0

    def write(self, row: bytes) -> None:
        self._rows.append(row)
        self._held += len(row)
        if self._held >= BLOCK_BYTES:
            self.end()

    def end(self) -> None:
        """Hand on what is held."""
        if not self._rows:
            return
        content, self._rows, self._held = b"".join(self._rows), [], 0
        read = csv.ReadOptions(use_threads=False, column_names=self._names, block_size=len(content) + 1)
        table = csv.read_csv(pa.BufferReader(content), read, self._parse, self._convert)
        for batch in table.combine_chunks().to_batches():
            self._take(batch)
