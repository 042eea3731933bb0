"""Reads the control tables of a Qlik task: the state of its tables, and their DDL (T-81, T-84, T-85, T-87).

The changes themselves do not show this state: a suspended table sends no changes, and would look idle. A control table
that cannot be read stops no table. Public source: Qlik help, *Suspended tables*, *Apply exceptions*, *DDL history*.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from open_mirroring.changes.ddl_statements import ColumnStep, SourceReport, Statement
from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError
from open_mirroring.protocols.table_losses import (
    ANY_TABLE,
    CONTROL_TABLE_UNREAD,
    TABLE_SUSPENDED,
    TASK_ERRORS,
    TASK_UNKNOWN,
)
from spark_jobs.sources.contract.decoded import shown
from spark_jobs.sources.jdbc.tables import JdbcTable
from spark_jobs.sources.qlik.change_table.jdbc_table import is_of_task
from spark_jobs.sources.qlik.positions import is_sequence, qlik_position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONTRADICTED = ColumnStep("")


def statements_of(rows: Iterable[tuple[str, Any, Any, Any, Any]]) -> dict[str, list[Statement]]:
    """The DDL statements on each table, in order; *rows* have table, ``change_seq``, time, type and details.

    A Qlik task may record a statement twice; if the two records contradict each other about a column, both are ignored
    for this column. If a statement has no valid ``change_seq``, all statements on its table are ignored.
    """
    found: dict[str, dict[str, Statement]] = {}
    unplaced: set[str] = set()
    for table, sequence, at, kind, details in rows:
        text = str(sequence or "").strip()
        if not is_sequence(text):
            unplaced.add(table)
            continue
        place = qlik_position(text, 0)
        columns, renamed_to = _details(details)
        one = Statement(place, str(kind or "").strip().upper(), columns, renamed_to, str(at or ""))
        known = found.setdefault(table, {})
        known[place] = _as_one(known[place], one) if place in known else one
    return {
        table: [described[at] for at in sorted(described)]
        for table, described in found.items()
        if table not in unplaced
    }


def _as_one(first: Statement, second: Statement) -> Statement:
    if first.columns is None or second.columns is None or first.kind != second.kind:
        return first._replace(columns=None)
    both = {
        name: step if first.columns.get(name, step) == second.columns.get(name, step) else _CONTRADICTED
        for name, step in {**first.columns, **second.columns}.items()
    }
    return first._replace(columns=both, renamed_to=first.renamed_to or second.renamed_to)


def _details(text: Any) -> tuple[Mapping[str, ColumnStep] | None, str | None]:
    try:
        described = json.loads(str(text or "{}"), object_pairs_hook=_unique)
        columns = {
            name.casefold(): ColumnStep(str(one.get("action") or "").upper(), _name(one.get("columnNewName")))
            for name, one in (described.get("columns") or {}).items()
        }
        renamed_to = _name(described.get("tableNewName"))
        is_other = renamed_to is not None and renamed_to != described.get("table")
        return columns, renamed_to if is_other else None
    except (ValueError, AttributeError, RecursionError):
        return None, None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len({name.casefold() for name in found}) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def _name(value: Any) -> str | None:
    return str(value) if value else None


_SUSPENDED, _EXCEPTIONS = "attrep_suspended_tables", "attrep_apply_exceptions"
DDL_HISTORY = "attrep_ddl_history"
CONTROL_TABLES = (_SUSPENDED, _EXCEPTIONS, DDL_HISTORY)
"""The control tables that are read. A task may leave out all but the exceptions."""
_TASK, _OWNER, _NAME = "task_name", "table_owner", "table_name"


class SignalTable(JdbcTable):
    """A Qlik control table, whose columns are found by their names in any case."""

    def lines(self, columns: Sequence[str], newest: str | None = None) -> list[Sequence[Any]] | None:
        """The rows of the control table, each as the strings of *columns*.

        With *newest*, rows with equal *columns* become one line, followed by their number and the highest value of the
        column *newest*. Returns None if the login does not see the control table or one of the columns, or may not
        read them.
        """
        try:
            described = self._query("reading its columns", self._dialect.columns_query(*self._name))
            lines = {str(line["name"]).lower(): line for line in described}
            if not lines.keys() >= {*columns, *([newest] if newest else [])}:
                return None
            named = [self._text(lines[name]) for name in columns]
            last = f"max({self._dialect.quote(str(lines[newest]['name']))})" if newest else ""
            asked = [*named, *(["count(*)", self._text(lines[newest], last)] if newest else [])]
            query = f"SELECT {', '.join(f'{one} AS c{at}' for at, one in enumerate(asked))} FROM {self._table()}"
            found = self._query("reading it", f"{query} GROUP BY {', '.join(named)}" if newest else query)
        except TerminalError as error:
            if error.code not in ("SERVICE_REFUSED", "TYPE_UNSUPPORTED"):
                raise
            return None
        return [[line[f"c{at}"] for at in range(len(asked))] for line in found]

    def _text(self, column: Mapping[str, Any], expression: str = "") -> str:
        # As text, so that no driver converts times to the local time zone.
        return self._dialect.as_text(
            expression or self._dialect.quote(str(column["name"])), self.sql_type(column, None)
        )

    def spelled(self, names: Collection[str]) -> dict[str, SourceName]:
        """For each of *names* that the login sees: schema and name of the control table as the database spells them."""
        found: dict[str, SourceName] = {}
        alike = self._query("looking for control tables", self._dialect.alike_query(self._name.schema, *names))
        lines = [SourceName(str(line["schema"]), str(line["name"])) for line in alike]
        for one in sorted(lines, key=lambda one: one.schema == self._name.schema):
            found[one.table.lower()] = one
        return found


class _Reading:
    def __init__(
        self, spark: SparkSession, connection: str, schema: str, tables: Mapping[tuple[str, str], str], task: str | None
    ) -> None:
        self._spark, self._connection = spark, connection
        self._tables, self._task = tables, task
        self.spelled = SignalTable(spark, connection, SourceName(schema, _EXCEPTIONS)).spelled(CONTROL_TABLES)
        self.unread: list[str] = []
        self.tasks: dict[str, set[str]] = {}

    def rows(self, name: str, columns: Sequence[str], newest: str | None = None) -> list[tuple[str, list[Any]]] | None:
        spelled = self.spelled.get(name)
        asked = (_TASK, _OWNER, _NAME, *columns)
        lines = None
        if spelled is not None:
            lines = SignalTable(self._spark, self._connection, spelled).lines(asked, newest)
        if lines is None:
            self.unread.append(name)
            return None
        found = []
        for task, owner, name, *rest in lines:
            table = self._tables.get((str(owner or "").casefold(), str(name or "").casefold()))
            if table is None:
                continue
            self.tasks.setdefault(table, set()).add(str(task or ""))
            if is_of_task(str(task or ""), self._task):
                found.append((table, rest))
        return found

    def tasks_of(self, table: str) -> set[str]:
        own = {task.casefold() for task in self.tasks.get(table, ())}
        return own if self._task is None else own & {self._task.casefold()}


def read_control_tables(
    spark: SparkSession,
    connection: str,
    schema: str,
    tables: Mapping[tuple[str, str], str],
    task: str | None = None,
) -> SourceReport:
    """What the control tables of a Qlik task report about mirrored tables.

    *schema* is the schema of the control tables. *tables* maps owner and name of a table in the control tables, both in
    lower case, to the mirrored table. *task* is the Qlik task whose rows count; None: the rows of all tasks count.
    """
    reading = _Reading(spark, connection, schema, tables, task)
    found: dict[tuple[str, str], str] = {}
    for table, (reason, since) in reading.rows(_SUSPENDED, ("suspend_reason", "suspend_timestamp")) or ():
        why = f": {shown(str(reason))}" if reason else ""
        what = f"the task suspended the table at {since}{why}: its changes are not sent"
        found[table, TABLE_SUSPENDED] = what
    errors: dict[str, tuple[int, str]] = {}
    for table, (number, at) in reading.rows(_EXCEPTIONS, (), "error_time") or ():
        before, last = errors.get(table, (0, ""))
        errors[table] = before + int(number), max(last, str(at or ""))
    for table, (count, newest) in errors.items():
        found[table, TASK_ERRORS] = (
            f"the task recorded {count} errors of it, the newest at {newest} UTC, in {_EXCEPTIONS}: changes of the "
            "table in its database may have failed"
        )
    unread = [*reading.unread]
    statements = reading.rows(DDL_HISTORY, ("change_seq", "timestamp", "ddl_type", "details"))
    # A task writes it only if configured to, and not to every database.
    unread += [DDL_HISTORY] if DDL_HISTORY in reading.unread and DDL_HISTORY in reading.spelled else []
    if unread:
        what = f"the login sees no {' and no '.join(unread)} in the schema {shown(schema)}, or may not read it"
        found[ANY_TABLE, CONTROL_TABLE_UNREAD] = f"{what}: what they report about the task's tables is unknown"
    found |= {(ANY_TABLE, code): what for code, what in _task_signals(reading, task)}
    described = None
    if statements is not None:
        described = statements_of((table, *rest) for table, rest in statements if len(reading.tasks_of(table)) == 1)
    return SourceReport(found, described)


def _task_signals(reading: _Reading, task: str | None) -> Iterable[tuple[str, str]]:
    named = {one for tasks in reading.tasks.values() for one in tasks}
    if task is not None:
        if named and task.casefold() not in {one.casefold() for one in named}:
            yield TASK_UNKNOWN, f"no row of the control tables is of the task {shown(task)}; there are {_listed(named)}"
        return
    mixed = sorted(table for table in reading.tasks if len(reading.tasks_of(table)) > 1)
    if mixed:
        tasks = {one for table in mixed for one in reading.tasks[table]}
        yield (
            TASK_UNKNOWN,
            (
                f"the control tables name {_listed(mixed)} for the tasks {_listed(tasks)}: what is reported of one "
                "may be the other's, and no statement on these tables is believed; set `task` under `source`"
            ),
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(shown(name) for name in sorted(names)[:5])
