"""Asks the catalog of a database about its tables: columns, types, primary keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

from open_mirroring.config.connections import resolve
from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError
from spark_jobs.sources.contract.announced import Announced, AnnouncedColumn
from spark_jobs.sources.jdbc.dialects import Dialect, dialect_of
from spark_jobs.sources.jdbc.postgres_client import ask
from spark_jobs.sources.jdbc.tables import JdbcTable


def catalog(connection: str, spark: Callable[[], Any]) -> Iterator[Announced]:
    """Every table that the login of a connection sees; PostgreSQL is asked without Spark.

    Raises:
        TerminalError: ``CONNECTION_INVALID``, ``SERVICE_REFUSED``.
        TransientError: ``UNREACHABLE``.
    """
    resolved = resolve(connection)
    dialect = dialect_of(resolved)
    lines: Any = ask(resolved, dialect.catalog_query()) if dialect.copies else None
    if lines is None:
        lines = _Catalog(spark(), connection, SourceName("", "")).lines()
    lines = sorted(lines, key=lambda line: (line["schema"], line["table"], line["place"]))
    for (schema, table), group in groupby(lines, key=lambda line: (line["schema"], line["table"])):
        columns = list(group)
        in_key = sorted((one for one in columns if one["key_place"] is not None), key=lambda one: one["key_place"])
        told = tuple(AnnouncedColumn(one["name"], _type(dialect, one)) for one in columns)
        yield Announced(schema, table, told, tuple(one["name"] for one in in_key))


class _Catalog(JdbcTable):
    def lines(self) -> Any:
        return self._query("reading its catalog", self._dialect.catalog_query())


def _type(dialect: Dialect, column: Mapping[str, Any]) -> str:
    try:
        return dialect.sql_type(column)
    except TerminalError:
        return str(column["data_type"])
