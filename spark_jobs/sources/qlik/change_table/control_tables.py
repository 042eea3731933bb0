"""Control tables of a task in which it tells how its tables fare (T-81): suspended ones, and ones with errors.

A suspended table sends no changes, and would look like a quiet one. What cannot be read is told, and stops nothing: a
task writes the tables that it was told to.

Public source: Qlik help, *Suspended Tables*, *Apply exceptions*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError
from open_mirroring.protocols.table_losses import (
    ANY_TABLE,
    APPLY_EXCEPTIONS,
    CONTROL_TABLE_UNREAD,
    TABLE_SUSPENDED,
)
from spark_jobs.sources.contract.decoded import shown
from spark_jobs.sources.jdbc.tables import JdbcTable

_SUSPENDED, _EXCEPTIONS = "attrep_suspended_tables", "attrep_apply_exceptions"
_OWNER, _NAME = "table_owner", "table_name"


class _SignalTable(JdbcTable):
    """A control table, read by the names of its columns in any case."""

    def lines(self, columns: Sequence[str], newest: str | None = None) -> list[Sequence[Any]] | None:
        """Its rows as values of *columns*; with *newest* their number and newest of that column for each of these.

        None where the login sees no such table, or not these columns, or may not read it.
        """
        try:
            told = self._query("reading its columns", self._dialect.columns_query(*self._name))
            spelled = {str(line["name"]).lower(): self._dialect.quote(str(line["name"])) for line in told}
            if not spelled.keys() >= {*columns, *([newest] if newest else [])}:
                return None
            named = [spelled[name] for name in columns]
            asked = [*named, *(["count(*)", f"max({spelled[newest]})"] if newest else [])]
            query = f"SELECT {', '.join(f'{one} AS c{at}' for at, one in enumerate(asked))} FROM {self._table()}"
            lines = self._query("reading it", f"{query} GROUP BY {', '.join(named)}" if newest else query)
        except TerminalError as error:
            if error.code != "SOURCE_REFUSED":
                raise
            return None
        return [[line[f"c{at}"] for at in range(len(asked))] for line in lines]


def read_signals(
    spark: SparkSession, connection: str, schema: str, tables: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str], str]:
    """What control tables tell of tables, by table and code.

    Args:
        spark: the session.
        connection: name of the connection.
        schema: where the control tables are.
        tables: the tables by owner and name as control tables give them, without case.

    Raises:
        TransientError: ``SOURCE_UNREACHABLE``.
    """
    suspended = _SignalTable(spark, connection, SourceName(schema, _SUSPENDED)).lines(
        (_OWNER, _NAME, "suspend_reason", "suspend_timestamp")
    )
    errors = _SignalTable(spark, connection, SourceName(schema, _EXCEPTIONS)).lines((_OWNER, _NAME), "error_time")
    found: dict[tuple[str, str], str] = {}

    def table_of(owner: Any, name: Any) -> str | None:
        return tables.get((str(owner or "").casefold(), str(name or "").casefold()))

    for owner, name, reason, since in suspended or ():
        if (table := table_of(owner, name)) is not None:
            why = f": {shown(str(reason))}" if reason else ""
            what = f"the task suspended it at {since}{why}; no change of it comes, though there may be some"
            found[table, TABLE_SUSPENDED] = what
    for owner, name, count, newest in errors or ():
        if (table := table_of(owner, name)) is not None:
            found[table, APPLY_EXCEPTIONS] = (
                f"the task recorded {count} errors of it, the newest at {newest} UTC, in {_EXCEPTIONS}: changes of the "
                "table in its database may have failed"
            )
    unread = [name for name, lines in ((_SUSPENDED, suspended), (_EXCEPTIONS, errors)) if lines is None]
    if unread:
        what = f"the login sees no {' and no '.join(unread)} in the schema {shown(schema)}, or may not read it"
        found[ANY_TABLE, CONTROL_TABLE_UNREAD] = f"{what}: suspended tables or errors of the task are not told"
    return found
