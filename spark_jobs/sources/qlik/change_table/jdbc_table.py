"""Queries one change table of a database: its columns, row counts, and rows as exact strings.

Public source: Qlik help, *Change tables*, *Change Data Partitioning*, *Control tables*.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError
from spark_jobs.sources.jdbc.dialects import Dialect, literal
from spark_jobs.sources.jdbc.tables import JdbcTable
from spark_jobs.sources.qlik.change_table.rows import (
    MASK,
    OPERATION,
    PARTITION,
    SEQUENCE,
    ChangeColumn,
    Structure,
    header_name,
    header_places,
)
from spark_jobs.sources.qlik.positions import SEQUENCE_DIGITS, is_sequence
from spark_jobs.sources.sql_server.type_text import BINARY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Slice(NamedTuple):
    """The rows of a change table that one range identifies: a partition, or ``low <= change_seq < high``."""

    source: str
    origin: str
    partition: str | None
    low: str
    high: str


class RowsSeen(NamedTuple):
    """Two row counts of a change table: *below* the ``change_seq`` *low*, and *above*, at or after it.

    Rows without a ``change_seq`` count in *above*.
    """

    low: str
    below: int
    above: int


class PartitionRows(NamedTuple):
    """How many rows a partition of a change table has, and its lowest and highest ``change_seq``."""

    number: int
    lowest: str
    highest: str


class ChangeTable(JdbcTable):
    """The change table of the source table *source*; only the columns *chosen* may be read."""

    def __init__(
        self,
        spark: SparkSession,
        connection: str,
        name: SourceName,
        source: str,
        prefix: str,
        chosen: ColumnChoice,
    ) -> None:
        super().__init__(spark, connection, name)
        self.source = source
        self.name = ".".join(name)
        self._prefix = prefix
        lines = self._query("reading its columns", self._dialect.columns_query(*self._name))
        self._columns = sorted(lines, key=lambda line: line["place"])
        self._chosen = chosen
        self._mirrored = {*chosen.of(line["name"] for line in lines)}

    @property
    def exists(self) -> bool:
        """Whether the login sees the change table; Qlik may create it as late as with the first change."""
        return bool(self._columns)

    def in_another_case(self) -> str | None:
        """A table whose name differs from this change table's name in case only (T-62); None if there is none."""
        lines = self._query("looking for its name", self._dialect.alike_query(*self._name))
        names = (f"{line['schema']}.{line['name']}" for line in lines)
        return next((name for name in names if name != self.name), None)

    def structure(self) -> Structure:
        """The change table's current columns. A column that was added later is NULL in older rows."""
        columns = tuple(ChangeColumn(column["name"], self._type(column)) for column in self._columns)
        mask = (self._prefix + MASK).lower()
        is_binary = any(c.name.lower() == mask and c.type.startswith(tuple(BINARY)) for c in columns)
        return Structure(self.source, columns, is_binary)

    def _type(self, column: Mapping[str, Any]) -> str:
        """The column's type; empty for one that has none and is not mirrored: it has its place, but is not read."""
        try:
            return self.sql_type(column, self._chosen.type_of(column["name"]))
        except TerminalError:
            if header_name(str(column["name"]), self._prefix) is not None or column["name"] not in self._mirrored:
                return ""
            raise

    def look(self, low: str) -> tuple[int | None, RowsSeen]:
        """The highest ``change_seq``, None if no row has one; and the row counts below *low* and from *low* on."""
        sequence = self._header(SEQUENCE)
        one = "CAST(1 AS decimal(19, 0))"  # every database knows it, and adds up as many as there are
        below = f"sum(CASE WHEN {sequence} < {literal(low)} THEN {one} ELSE 0 END)"
        numbers = f"sum({one}) AS number, {below} AS below"
        query = f"SELECT max({sequence}) AS highest, {numbers} FROM {self._table()}"
        line = self._query("reading its highest change_seq", query)[0]
        number, lower, text = int(line["number"] or 0), int(line["below"] or 0), line["highest"]
        if text is None:
            return None, RowsSeen(low, lower, number - lower)
        text = text.strip()
        if not is_sequence(text):
            raise TerminalError(
                "HEADER_INVALID",
                f"the highest change_seq {text[:80]!r} is not {SEQUENCE_DIGITS} digits",
                where=f"table {self.name}",
                next_step="only the task may write into the change table; remove the foreign row",
            )
        return int(text), RowsSeen(low, lower, number - lower)

    def rows_of_partitions(self) -> dict[str, PartitionRows]:
        """Row count, lowest and highest ``change_seq`` by partition; "" is for rows without partition."""
        name, sequence = self._header(PARTITION), self._header(SEQUENCE)
        counts = f"{name} AS name, count(*) AS number, min({sequence}) AS lowest, max({sequence}) AS highest"
        query = f"SELECT {counts} FROM {self._table()} GROUP BY {name}"
        found: dict[str, PartitionRows] = {}
        for line in self._query("counting the rows of its partitions", query):
            rows = PartitionRows(int(line["number"]), line["lowest"] or "", line["highest"] or "")
            other = found.setdefault(_partition_name(line["name"]), rows)
            if other is not rows:  # without a name is NULL and an empty one
                both = min(other.lowest, rows.lowest), max(other.highest, rows.highest)
                found[_partition_name(line["name"])] = PartitionRows(other.number + rows.number, *both)
        return found

    def slice_query(self, structure: Structure, one: Slice) -> str:
        """A SELECT of the rows of a slice as exact strings, in the order of ``change_seq``, for a database with COPY.

        A before image comes before its UPDATE; rows are sorted by bytes, whatever the collation of the database is.
        """
        names = [f"c{at}" for at in range(len(structure.columns))]
        headers = header_places(structure, self._prefix)
        order = ", ".join(f'c{headers[name]} COLLATE "C" NULLS FIRST' for name in (SEQUENCE, OPERATION))
        rows = f"{self._changes(structure, [one])} WHERE {range_condition(one)}"
        return f"SELECT {', '.join(names)} FROM {rows} ORDER BY {order}"

    def read_slices(
        self, structure: Structure, slices: Sequence[Slice], work: Callable[[int, Iterable[pa.RecordBatch]], Any]
    ) -> list[Any]:
        """Runs *work* over the exact strings of each slice, in one Spark task each. Returns results in order."""
        table = self._changes(structure, slices)
        where = [range_condition(one) for one in slices]
        names = [f"c{at}" for at in range(len(structure.columns))]
        url, properties = self._login()

        def rows() -> DataFrame:
            read = self._spark.read.jdbc(url, table, predicates=where, properties=properties)
            return read.sortWithinPartitions("seq", "oper").select(*names)

        return self.answers(rows, work, len(slices))

    def _changes(self, structure: Structure, slices: Sequence[Slice]) -> str:
        special = {"seq": self._header(SEQUENCE), "oper": self._header(OPERATION)}
        if any(one.partition is not None for one in slices):
            special["part"] = self._header(PARTITION)
        return changes_query(self._dialect, self._table(), structure, special)

    def _header(self, name: str) -> str:
        wanted = (self._prefix + name).lower()
        for column in self._columns:
            if column["name"].lower() == wanted:
                return self._dialect.quote(column["name"])
        raise TerminalError(
            "HEADER_INVALID",
            f"the change table has no column {self._prefix + name!r}",
            where=f"table {self.name}",
            next_step="select the header column in the task's Store Changes settings, or fix the prefix",
        )


class ControlTable(JdbcTable):
    """Qlik's control table ``attrep_cdc_partitions``, which has a row for each closed partition (T-34)."""

    def partitions(self, task: str | None = None) -> list[tuple[str, str, str]]:
        """Owner, table and partition of every closed partition.

        *task* is the name, in any case, of the Qlik task whose rows count; None: the rows of all tasks count.
        """
        lines = self._query("reading its columns", self._dialect.columns_query(*self._name))
        spelled = {str(line["name"]).lower(): str(line["name"]) for line in lines}
        wanted = ("table_owner", "table_name", PARTITION, *(["task_name"] if task is not None else []))
        if not spelled.keys() >= {*wanted}:
            raise TerminalError(
                "PLACE_MISSING",
                f"the login sees no table {self._name.table!r} with the columns {', '.join(wanted)}",
                where=f"connection {self._connection.name}, schema {self._name.schema!r}",
                next_step="switch Change Data Partitioning and its control table on, or fix the setting",
            )
        columns = ", ".join(f"{self._dialect.quote(spelled[name])} AS c{at}" for at, name in enumerate(wanted))
        found = self._query("reading the closed partitions", f"SELECT {columns} FROM {self._table()}")
        own = [line for line in found if line["c2"] and (task is None or is_of_task(line["c3"], task))]
        return [(line["c0"] or "", line["c1"] or "", _partition_name(line["c2"])) for line in own]


def _partition_name(name: object) -> str:
    """A partition's name as both tables have it, whichever of them fills it up with blanks."""
    return str(name or "").rstrip(" ")


def is_of_task(named: object, task: str | None) -> bool:
    """Whether a row of a control table belongs to the Qlik task *task*, a name in any case (T-87).

    *named* is the task's name in the row. True for every row if *task* is None.
    """
    return task is None or str(named or "").casefold() == task.casefold()


def sequence_text(number: int) -> str:
    """A ``change_seq`` as a string, padded with zeros."""
    return f"{number:0{SEQUENCE_DIGITS}d}"


def changes_query(dialect: Dialect, table: str, structure: Structure, special: Mapping[str, str]) -> str:
    """A change table as an SQL subquery, whose columns are exact strings with the names ``c0``, ``c1`` and so on.

    *special* maps aliases to columns of the change table that are added without conversion.
    """
    texts = [
        f"{dialect.as_text(dialect.quote(c.name), c.type) if c.type else 'CAST(NULL AS char(1))'} AS c{at}"
        for at, c in enumerate(structure.columns)
    ]
    named = [f"{column} AS {alias}" for alias, column in special.items()]
    return f"(SELECT {', '.join([*texts, *named])} FROM {table}) changes"


def range_condition(one: Slice) -> str:
    """The SQL condition for the rows of a slice, on the columns ``seq`` and ``part`` of :func:`changes_query`."""
    if one.partition is not None:
        return f"part = {literal(one.partition)}" if one.partition else "part IS NULL OR part = ''"
    # A row without sequence, or with an empty one, lies in no interval; it must become a dead letter all the same.
    return f"(seq >= {literal(one.low)} AND seq < {literal(one.high)}) OR seq IS NULL OR seq < '0'"
