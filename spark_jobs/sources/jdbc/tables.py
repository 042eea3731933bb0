"""Describes and reads a table of a database: its columns, its chunks, and its rows as Arrow columns.

PostgreSQL is read by its own client; any other database is read as exact strings by Spark's JDBC reader. The password
is passed to the driver as a property, so it is in no plan, log or error.
"""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pyarrow as pa

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.config.connections import resolve
from open_mirroring.config.names import SourceName
from open_mirroring.config.row_filter import Condition
from open_mirroring.errors import MirroringError, TerminalError, TransientError
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.runtime.tasks import THREADS, needs_spark, run_job
from spark_jobs.sources.contract.source import Announced, AnnouncedColumn
from spark_jobs.sources.exports.columns import land_rows
from spark_jobs.sources.exports.files import refused
from spark_jobs.sources.jdbc.dialects import (
    BoundKind,
    Dialect,
    Keys,
    Range,
    condition,
    condition_of_keys,
    database_error,
    dialect_of,
    ranges,
    spelled_for,
)
from spark_jobs.sources.jdbc.postgres_client import ask, rows_of
from spark_jobs.sources.sql_server.chosen_types import chosen_digits, landed_as
from spark_jobs.sources.sql_server.type_text import INTEGERS, MONEY, read_type
from spark_jobs.sources.sql_server.types import converter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

Answer = TypeVar("Answer")
_FETCH_ROWS = "10000"
_QUICKER = 8
"""Reading a table's byte is this many times faster than a message's, because its values are typed already."""
_ANSWER = pa.schema([pa.field("part", pa.int32()), pa.field("answer", pa.binary())])


class Pace(NamedTuple):
    """Limits for reading one table, so that the database stays usable for others; None means no limit."""

    connections: int | None = None
    rows_per_second: int | None = None

    def share(self, readers: int) -> float | None:
        """The rows per second that each of *readers* readers may read, if all of them read at the same time."""
        return None if self.rows_per_second is None else self.rows_per_second / readers


def paced(
    batches: Iterable[pa.RecordBatch],
    rows_per_second: float | None,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[pa.RecordBatch]:
    """Passes batches on, and pauses so that the average stays at or below *rows_per_second*."""
    begun, rows = clock(), 0
    for batch in batches:
        yield batch
        rows += batch.num_rows
        if rows_per_second is not None and (ahead := rows / rows_per_second - (clock() - begun)) > 0:
            sleep(ahead)


class SplitColumn(NamedTuple):
    """The column by whose values a table is split into chunks."""

    name: str
    kind: BoundKind


class KeyColumns(NamedTuple):
    """The key columns of a table, if the rows to read are selected by their keys."""

    names: Sequence[str]


Cut = SplitColumn | KeyColumns | None
"""How what is read of a table is divided."""


class JdbcTable:
    """One table of the database of an Airflow connection.

    Only rows that may fulfil the condition *where* are read, as far as the database can check the condition (G-193).

    Raises:
        TerminalError: ``CONNECTION_INVALID`` when the object is created; ``SERVICE_REFUSED`` by every method, when the
            database refuses a query.
        TransientError: ``UNREACHABLE`` by every method, when the database does not answer or ended the connection.
    """

    def __init__(self, spark: SparkSession, connection: str, name: SourceName, where: Condition | None = None) -> None:
        self._spark, self._name, self._where = spark, name, where
        self._connection = resolve(connection)
        self._dialect = dialect_of(self._connection)
        self.keys_at_once = self._dialect.keys_at_once

    def columns(self, chosen: ColumnChoice, gone: Collection[str] = ()) -> tuple[LoadColumn, ...]:
        """The mirrored columns, with types, in the table's order; columns in *gone* were dropped and may be missing."""
        lines = self._query("reading its columns", self._dialect.columns_query(*self._name))
        found = sorted(lines, key=lambda line: line["place"])
        if not found:
            raise TerminalError(
                "PLACE_MISSING",
                f"the login sees no table {self._name.table!r} in the schema {self._name.schema!r}",
                where=f"connection {self._connection.name}",
                next_step="correct `table`, or grant the login SELECT on it",
            )
        missing = sorted(chosen.absent([*(column["name"] for column in found), *gone]))
        if missing:
            raise TerminalError(
                "LOAD_INVALID", f"the table has no columns {missing}", next_step="spell the columns as the table does"
            )
        names = chosen.of(column["name"] for column in found)
        columns = []
        for column in found:
            if (name := column["name"]) in names:
                sql_type = self.sql_type(column, chosen.type_of(name))
                try:
                    columns.append(LoadColumn(name, landed_as(sql_type, chosen.type_of(name)), sql_type))
                except TerminalError as error:
                    what = f"column {name!r}: {error.what}"
                    raise TerminalError(error.code, what, next_step=error.next_step) from error
        return tuple(columns)

    def sql_type(self, column: Mapping[str, Any], chosen: str | None) -> str:
        """The SQL Server type of *column*, a row of the database's catalog.

        *chosen* is the column's landing type under `types` of the table in the mirror file.
        """
        try:
            return self._dialect.sql_type(column)
        except TerminalError:
            # A NUMERIC without precision has the digits that the mirror file gives (G-110).
            chosen_type = chosen_digits(str(column["data_type"]), chosen)
            if chosen_type is None and chosen == "string" and column["data_type"] != "numeric":
                return "nvarchar(max)"
            if chosen_type is None:
                raise
            return chosen_type

    def size(self) -> int:
        """Estimates the work of reading the table, as the number of bytes of messages that would take as long.

        The result is ``sys.maxsize`` if the table's size is unknown.
        """
        query = self._dialect.size_query(*self._name)
        found = None if query is None else ask(self._connection, query)
        return sys.maxsize if not found or found[0]["bytes"] is None else int(found[0]["bytes"]) // _QUICKER

    def split(
        self, column: str, sql_type: str, chunks: int, borders: Sequence[str] | None = None
    ) -> tuple[SplitColumn, list[Range]] | None:
        """Splits the table into about *chunks* ranges of a column, or into the ranges between *borders*.

        None if *sql_type*, the column's type, has no ranges.
        """
        kind = _bound_kind(sql_type)
        if kind is None:
            return None
        if borders is not None:
            return SplitColumn(column, kind), ranges(borders)
        text = self._dialect.as_text
        name = self._dialect.quote(column)
        query = f"SELECT {text(f'min({name})', sql_type)} AS low, {text(f'max({name})', sql_type)} AS high FROM "
        line = self._query(f"reading the bounds of {column!r}", query + self._table())[0]
        try:
            found = _borders(sql_type, line["low"], line["high"], chunks) if line["low"] is not None else []
        except ValueError as error:
            raise TerminalError(
                "CONFIG_INVALID",
                f"the column {column!r} cannot be cut into ranges: {error}",
                where=f"table {self._table()}",
                next_step="name another column as `split_column`, or leave `chunks` out",
            ) from error
        return SplitColumn(column, kind), ranges(found)

    def read(
        self,
        columns: Sequence[LoadColumn],
        split: Cut,
        parts: Sequence[Range | Keys],
        work: Callable[[int, Iterable[pa.RecordBatch]], Answer],
        pace: Pace,
    ) -> list[Answer]:
        """Runs *work* over the rows of each part, one task for each part. Returns the results in the order of *parts*.

        *parts* are ranges or keys of *split*. *work* gets the index of a part and the part's batches, from which it
        makes :class:`JdbcRows`. *pace* limits how many parts are read at the same time, and how fast.
        """
        size = self.size()
        at_once, each = self._at_once(len(parts), pace, size)
        # No more tasks than connections are allowed: how many cores there are is the cluster's affair.
        step = len(parts) if pace.connections is None else at_once
        found: list[Answer] = []
        connection, name = self._connection, self._name

        def read_part(task: tuple[int, str]) -> Answer:
            part, query = task
            return work(part, paced(rows_of(connection, query, name), each))

        def read_texts(first: int, part: int, batches: Iterable[pa.RecordBatch]) -> Answer:
            return work(first + part, paced(batches, each))

        for first in range(0, len(parts), step):
            group = range(first, min(first + step, len(parts)))
            if self._dialect.copies:
                tasks = list(zip(group, self._queries(columns, split, parts[group.start : group.stop]), strict=True))
                found += run_job(self._spark, "read a table", read_part, tasks, size, min(at_once, THREADS))
            else:
                rows = partial(self._texts, columns, split, parts[group.start : group.stop])
                found += self.answers(rows, partial(read_texts, group.start), len(group))
        return found

    def _at_once(self, parts: int, pace: Pace, size: int) -> tuple[int, float | None]:
        cores = THREADS
        if needs_spark(self._spark, size):
            from spark_jobs.runtime.worker_tasks import parallelism

            cores = parallelism(self._spark)
        at_once = min(parts, cores if pace.connections is None else pace.connections)
        return at_once, pace.share(min(at_once, cores))

    def answers(
        self, rows: Callable[[], DataFrame], work: Callable[[int, Iterable[pa.RecordBatch]], Answer], partitions: int
    ) -> list[Answer]:
        """Runs *work* over each partition of a DataFrame in Spark's workers. Returns the results in order.

        *rows* creates the DataFrame. Raises the error of a partition unchanged.
        """
        from spark_jobs.runtime.worker_tasks import sealed

        own = sealed(self._spark, work)

        def answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pyspark import TaskContext

            context = TaskContext.get()
            part = context.partitionId() if context else 0
            try:
                found: Answer | MirroringError = own(part, batches)
            except MirroringError as error:
                found = error
            yield pa.RecordBatch.from_pylist([{"part": part, "answer": pickle.dumps(found)}], _ANSWER)

        def run() -> list[Row]:
            return rows().mapInArrow(answer, "part int, answer binary").collect()

        answers = {line["part"]: pickle.loads(line["answer"]) for line in self.asked("reading its rows", run)}
        if sorted(answers) != list(range(partitions)):
            what = f"{len(answers)} of {partitions} partitions answered"
            raise TransientError("UNREACHABLE", what, next_step="run again")
        for answer in answers.values():
            if isinstance(answer, MirroringError):
                raise answer
        return [answers[part] for part in range(partitions)]

    def frame(
        self,
        columns: Sequence[LoadColumn],
        split: Cut,
        parts: Sequence[Range | Keys],
        work: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        schema: str,
        pace: Pace,
    ) -> DataFrame:
        """A lazy DataFrame of what *work* returns for the rows of all parts; execute it within :meth:`asked`.

        Each call gives a DataFrame that Spark's cache does not know, so the source is read again at each call.
        """
        from spark_jobs.runtime.worker_tasks import sealed, sealed_frame

        at_once, each = self._at_once(len(parts), pace, sys.maxsize)
        # Several parts one behind the other in one task: no more connections than are allowed.
        tasks = len(parts) if pace.connections is None else at_once
        if self._dialect.copies:
            connection, name, queries = self._connection, self._name, self._queries(columns, split, parts)

            def read_parts(queries: Sequence[str]) -> Iterator[pa.RecordBatch]:
                return work(paced(chain.from_iterable(rows_of(connection, query, name) for query in queries), each))

            return sealed_frame(self._spark, read_parts, [queries[at::tasks] for at in range(tasks)], schema)
        # Making the frame asks the database what it has, in a session with a context of its own.
        rows = self.asked("reading its rows", lambda: self._texts(columns, split, parts))
        own = sealed(self._spark, work)
        return rows.coalesce(tasks).mapInArrow(lambda batches: own(paced(batches, each)), schema)

    def _texts(self, columns: Sequence[LoadColumn], split: Cut, parts: Sequence[Range | Keys]) -> DataFrame:
        table, where = self._queried(columns, split, parts)
        url, properties = self._login()
        names = [f"c{at}" for at in range(len(columns))]
        return self._spark.read.jdbc(url, table, predicates=where, properties=properties).select(*names)

    def _queries(self, columns: Sequence[LoadColumn], split: Cut, parts: Sequence[Range | Keys]) -> list[str]:
        table, where = self._queried(columns, split, parts)
        names = ", ".join(f"c{at}" for at in range(len(columns)))
        return [f"SELECT {names} FROM {table} WHERE {condition}" for condition in where]

    def _queried(
        self, columns: Sequence[LoadColumn], split: Cut, parts: Sequence[Range | Keys]
    ) -> tuple[str, list[str]]:
        quote = self._dialect.quote
        values = [f"{self._value(column)} AS c{at}" for at, column in enumerate(columns)]
        asked = [split.name] if isinstance(split, SplitColumn) else split.names if split else []
        named = [f"split_{at}" for at in range(len(asked))]
        values += [f"{quote(name)} AS {alias}" for name, alias in zip(asked, named, strict=True)]
        chosen = None if self._where is None else spelled_for(self._where, columns, self._dialect)
        table = f"(SELECT {', '.join(values)} FROM {self._table()}{f' WHERE {chosen}' if chosen else ''}) chunk"

        def where(part: Range | Keys) -> str:
            if not isinstance(part, Range):
                return condition_of_keys(self._dialect, named, part)
            return condition(self._dialect, named[0], split.kind, part) if isinstance(split, SplitColumn) else "1 = 1"

        return table, [where(part) for part in parts]

    def _value(self, column: LoadColumn) -> str:
        """Spell a column in its own type where the client returns every value exactly, else as its exact text.

        The client makes a text of a decimal anyway, and PostgreSQL does so in a tenth of the time.
        """
        name, sql_type = self._dialect.quote(column.name), column.sql_type or ""
        is_text = column.type == "string" or read_type(sql_type).name == "decimal"
        return name if self._dialect.copies and not is_text else self._dialect.as_text(name, sql_type)

    def _table(self) -> str:
        return f"{self._dialect.quote(self._name.schema)}.{self._dialect.quote(self._name.table)}"

    def _login(self) -> tuple[str, dict[str, str]]:
        url, properties = self._dialect.address(self._connection)
        properties |= {"driver": self._dialect.driver, "fetchsize": _FETCH_ROWS}
        login = {"user": self._connection.login, "password": self._connection.password}
        return url, properties | {name: value for name, value in login.items() if value is not None}

    def _query(self, doing: str, query: str) -> Sequence[Mapping[str, Any]]:
        url, properties = self._login()
        if self._dialect.copies:
            # A Spark job costs a tenth of a second; but only its driver gives the SQLSTATE of a login that is refused.
            answer = ask(self._connection, query)
            if answer is not None:
                return answer
        lines = self.asked(
            doing, lambda: self._spark.read.jdbc(url, f"({query}) answer", properties=properties).collect()
        )
        return [line.asDict() for line in lines]

    def asked(self, doing: str, ask: Callable[[], Answer]) -> Answer:
        """Runs *ask*, and converts errors of Spark and the JDBC driver to the product's errors, without the login.

        *doing* describes in the error what was done.
        """
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            return ask()
        except (PySparkException, Py4JError) as error:
            failure = self._failure(doing, error)
        # Raised out here, so that the original, which may hold values and addresses, is not chained to it.
        raise failure

    def _failure(self, doing: str, error: Exception) -> MirroringError:
        from spark_jobs.runtime.worker_tasks import is_classic, workers_error

        state, what = _origin_of(self._spark, error)
        # An SQLSTATE comes from the database, even if its text resembles a worker's error.
        if not state and (unfit := workers_error(error)) is not None:
            return unfit
        if "ClassNotFoundException" in what and self._dialect.driver in what:
            return TerminalError(
                "INSTALLATION_INCOMPLETE",
                f"Spark has no {self._dialect.driver}, the database's driver",
                where=f"connection {self._connection.name}",
                next_step="fetch it: open-mirroring jars; a cluster or a server of Spark Connect has to have it, too",
            )
        if state is None:
            if self._connection.password:
                what = what.replace(self._connection.password, "***")
            what = f"{doing}, Spark failed: {what}"
            where = f"connection {self._connection.name}, table {self._name.schema}.{self._name.table}"
            if is_classic(self._spark):
                next_step = "this is no answer of the database: report it"
                return TerminalError("SERVICE_REFUSED", what, where=where, next_step=next_step)
            # Spark Connect returns no SQLSTATE, so another attempt may succeed.
            next_step = "run again; if it stays, fix what the text names"
            return TransientError("SERVICE_REFUSED", what, where=where, next_step=next_step)
        return database_error(doing, state, what, self._connection, self._name)


def catalog(connection: str, spark: Callable[[], Any]) -> Iterator[Announced]:
    """Every table that the login of a connection may see; PostgreSQL is read without Spark.

    Raises:
        TerminalError: ``CONNECTION_INVALID`` if the connection is wrong; ``SERVICE_REFUSED`` if the database refuses
            the query.
        TransientError: ``UNREACHABLE`` if the database does not answer.
    """
    resolved = resolve(connection)
    dialect = dialect_of(resolved)
    lines: Any = ask(resolved, dialect.catalog_query()) if dialect.copies else None
    if lines is None:
        table = JdbcTable(spark(), connection, SourceName("", ""))
        lines = table._query("reading its catalog", dialect.catalog_query())
    lines = sorted(lines, key=lambda line: (line["schema"], line["table"], line["place"]))
    for (schema, table), group in groupby(lines, key=lambda line: (line["schema"], line["table"])):
        columns = list(group)
        in_key = sorted((one for one in columns if one["key_place"] is not None), key=lambda one: one["key_place"])
        announced = tuple(AnnouncedColumn(one["name"], _catalog_type(dialect, one)) for one in columns)
        yield Announced(schema, table, announced, tuple(one["name"] for one in in_key))


def _catalog_type(dialect: Dialect, column: Mapping[str, Any]) -> str:
    try:
        return dialect.sql_type(column)
    except TerminalError:
        return str(column["data_type"])


class JdbcRows:
    """Converts the batches of one chunk to typed Arrow tables; can be iterated once."""

    def __init__(self, batches: Iterable[pa.RecordBatch], columns: Sequence[LoadColumn], schema: pa.Schema, where: str):
        self._batches, self._columns, self._schema, self._where = batches, columns, schema, where
        self._read = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for batch in self._batches:
            table, first = land_rows(batch, self._columns, self._schema)
            if first is not None:
                raise refused(first, self.place(self._read + first.index))
            yield table
            self._read += batch.num_rows

    def place(self, row: int) -> str:
        """The chunk and the number of a row, for messages; rows are counted from 1 in the order of reading."""
        return f"{self._where}, row {row + 1} as read"


def _bound_kind(sql_type: str) -> BoundKind | None:
    name = read_type(sql_type).name
    if name in INTEGERS or name in MONEY or name == "decimal":
        return "integer"
    kinds: dict[str, BoundKind] = dict.fromkeys(("datetime", "smalldatetime", "datetime2"), "timestamp")
    return {**kinds, "date": "date", "datetimeoffset": "instant"}.get(name)


def _borders(sql_type: str, low: str, high: str, chunks: int) -> list[str]:
    """Return up to ``chunks - 1`` different values between the bounds, in order."""
    first, last = map(converter(sql_type), (low, high))
    if isinstance(first, datetime):
        second = [first + (last - first) * at // chunks for at in range(1, chunks)]
        texts = [value.replace(tzinfo=None).isoformat(" ", "seconds") for value in second]
    elif isinstance(first, int | Decimal):
        whole, span = int(first), int(last) - int(first)
        texts = [str(whole + span * at // chunks) for at in range(1, chunks)]
    else:
        texts = [(first + timedelta(days=(last - first).days * at // chunks)).isoformat() for at in range(1, chunks)]
    return list(dict.fromkeys(texts))


def _origin_of(spark: SparkSession, error: Exception) -> tuple[str | None, str]:
    """Return SQLSTATE and first line of the driver's own error; None and the innermost error of any other."""
    from py4j.java_gateway import is_instance_of

    origin: Any = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    what = str(error).partition("\n")[0]
    while origin is not None:
        what = f"{origin.getClass().getName()}: {origin.getMessage()}".splitlines()[0]
        for kind in ("java.sql.SQLException", "java.io.IOException"):
            if is_instance_of(spark.sparkContext._gateway, origin, kind):
                return (str(origin.getSQLState() or "") if kind == "java.sql.SQLException" else ""), what
        origin = origin.getCause()
    return None, what
