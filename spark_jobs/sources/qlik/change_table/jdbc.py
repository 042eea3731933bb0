"""Finds what is new in change tables of a database, and reads it as exact strings in Spark's workers.

A range is one closed partition (T-34), or an interval of ``change_seq``. An interval overlaps the previous interval by
some minutes, because a lower ``change_seq`` may be committed later (T-18). Public source: Qlik help, *Change Data
Partitioning*, *Control tables*.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pyarrow as pa

from open_mirroring.changes.column_choice import ALL_COLUMNS, ColumnChoice
from open_mirroring.changes.ddl_statements import SourceReport
from open_mirroring.changes.manifest import BoundRange, FileVersion
from open_mirroring.config import Mirror, Table
from open_mirroring.config.connections import Connection, resolve
from open_mirroring.config.names import SourceName, split_source_name
from open_mirroring.config.source import HEADER_PREFIX, OVERLAP_MINUTES, TABLE_SUFFIX, ChangeTablesInDatabase
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.protocols.backfilling import Interval
from spark_jobs.changelog.schema import ROW_BYTES
from spark_jobs.runtime.tasks import THREADS, run_job
from spark_jobs.sources.contract.source import (
    Announced,
    BlockLog,
    Chosen,
    Format,
    Found,
    QueriedTransport,
    Seen,
    Survey,
    longest,
)
from spark_jobs.sources.jdbc.dialects import dialect_of
from spark_jobs.sources.jdbc.postgres_client import ask, rows_of
from spark_jobs.sources.jdbc.tables import catalog
from spark_jobs.sources.qlik.change_table.blocks import cut_blocks
from spark_jobs.sources.qlik.change_table.control_tables import CONTROL_TABLES, read_control_tables
from spark_jobs.sources.qlik.change_table.jdbc_table import (
    ChangeTable,
    ControlTable,
    PartitionRows,
    RowsSeen,
    Slice,
    is_of_task,
    sequence_text,
)
from spark_jobs.sources.qlik.change_table.rows import (
    MASK,
    OPERATION,
    SEQUENCE,
    ChangeColumn,
    ChangeRow,
    Structure,
    header_name,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PARTITION = re.compile(r"(\d{8}T\d{6})_(\d{8}T\d{6})")
_OF_ONE_TABLE = ("HEADER_INVALID", "TYPE_UNSUPPORTED", "TABLE_NAME_DIFFERS", "CHANGES_WENT_BACK")


class NamedChangeTable(NamedTuple):
    """The schema and name of a source table's change table, and the columns that may be read from it."""

    schema: str
    table: str
    columns: ColumnChoice = ALL_COLUMNS


@dataclass(frozen=True)
class ChangeTables(QueriedTransport):
    """Lists and reads the change tables in a database.

    Args:
        connection: name of the Airflow connection to the database.
        tables: maps each source table (``schema.table``) to its change table.
        suffix: the suffix of change tables' names (T-01).
        prefix: the prefix of header columns' names (T-02).
        control: schema and table of Qlik's control table ``attrep_cdc_partitions`` if Change Data Partitioning is on,
            else None.
        overlap_minutes: how far an interval of ``change_seq`` reaches back into the previous one (T-18).
        control_schema: schema of the control tables that report suspended tables and errors (T-81); None: these are
            not read.
        task: the Qlik task whose rows in control tables count; None: the rows of all tasks count (T-87).
    """

    describes_tables: ClassVar[bool] = True
    reads_named_tables: ClassVar[bool] = True
    lists_of_reading: ClassVar[bool] = True
    connection: str
    tables: Mapping[str, NamedChangeTable]
    suffix: str = TABLE_SUFFIX
    prefix: str = HEADER_PREFIX
    control: SourceName | None = None
    overlap_minutes: int = OVERLAP_MINUTES
    control_schema: str | None = None
    task: str | None = None

    def change_table(self, source: str) -> SourceName:
        """Schema and name of the change table of the source table *source*."""
        named = self.tables[source]
        return SourceName(named.schema, named.table)

    def open(self, spark: SparkSession, source: str) -> ChangeTable:
        name, columns = self.change_table(source), self.tables[source].columns
        return ChangeTable(spark, self.connection, name, source, self.prefix, columns)

    def read(self, spark: Any, ranges: Sequence[BoundRange], log: Callable[[int], BlockLog], job: str) -> list[Any]:
        """Reads each range in a Spark task of its own.

        PostgreSQL is read in one Spark job, any other database in one Spark job for each table.
        """
        connection, by_table = resolve(self.connection), dict[str, list[tuple[Slice, int]]]()
        for at, bound in enumerate(ranges):
            one = self.slice_of(bound)
            by_table.setdefault(one.source, []).append((one, at))
        copies: list[tuple[SliceTask, str, SourceName]] = []
        parts: list[Any] = []
        size = 0
        for source, slices in by_table.items():
            table = self.open(spark, source)
            structure = table.structure()
            tasks = [SliceTask(one.origin, at, structure, self.prefix, log) for one, at in slices]
            if dialect_of(connection).copies:
                queries = [table.slice_query(structure, one) for one, _ in slices]
                copies += [(task, query, self.change_table(source)) for task, query in zip(tasks, queries, strict=True)]
                is_counted = all(one.partition is not None for one, _ in slices)
                rows = sum(ranges[at].end for _, at in slices) * ROW_BYTES if is_counted else sys.maxsize
                size += min(table.size(), rows)
            else:
                parts += table.read_slices(structure, [one for one, _ in slices], _work(tasks))
        # The connection may hold secrets, so it is part of the function: Spark briefly stores tasks in a file.
        return parts + run_job(spark, job, partial(_copy, connection), copies, size, THREADS)

    def slice_of(self, bound: BoundRange) -> Slice:
        """The rows of a change table that *bound*, a range of a batch, identifies.

        Raises ``TABLE_REDECLARED`` if the range belongs to a table that the mirror file no longer names.
        """
        for source in self.tables:
            name = ".".join(self.change_table(source))
            if bound.name == name:
                return Slice(source, name, None, sequence_text(bound.start), sequence_text(bound.end))
            if self.control is not None and bound.name.startswith(f"{name}/"):
                return Slice(source, bound.name, bound.name[len(name) + 1 :], "", "")
        raise TerminalError(
            "TABLE_REDECLARED",
            f"the bound range {bound.name!r} belongs to no mirrored table",
            next_step="put the table back into the mirror file until its batch is committed, then take it out",
        )

    def closed_partitions(self, listed: Iterable[tuple[str, str, str]]) -> dict[str, list[str]]:
        """The closed partitions of each source table.

        *listed* are rows of the control table: owner, table (with or without the suffix) and partition. A name in
        another case is the same table (T-62), because a task closes the partitions of all its tables together.
        """
        names = self._names_of_tables()
        closed: dict[str, set[str]] = {}
        for owner, name, partition in listed:
            source = names.get((owner, name)) or names.get((owner.casefold(), name.casefold()))
            if source is not None:
                closed.setdefault(source, set()).add(partition)
        return {source: sorted(partitions) for source, partitions in closed.items()}

    def _names_of_tables(self) -> dict[tuple[str, str], str]:
        """The source tables by the schemas and names that a control table may give them, as written and without case.

        If the names of two tables differ in case only, each is found as it is written.
        """
        found: dict[tuple[str, str], str] = {}
        for source, named in self.tables.items():
            for name in (named.table, named.table.removesuffix(self.suffix)):
                found[named.schema, name] = source
        for source, named in self.tables.items():
            schema, _, table = source.partition(".")
            names = (named.schema, named.table), (named.schema, named.table.removesuffix(self.suffix)), (schema, table)
            for owner, name in names:
                found.setdefault((owner.casefold(), name.casefold()), source)
        return found

    @classmethod
    def of(cls, mirror: Mirror, source: ChangeTablesInDatabase) -> ChangeTables:
        return cls(
            source.connection,
            {".".join(table.source_name): _named(table, source.table_suffix) for table in mirror.tables},
            source.table_suffix,
            source.header_prefix,
            None if source.partitions is None else split_source_name(source.partitions),
            source.overlap_minutes,
            source.control_tables_in,
            source.task,
        )

    def find(self, spark: Any, bound: Mapping[str, int], seen: Seen | None = None) -> Found:
        """Lists what is unread in the change tables.

        With partitions, a range is ``<schema>.<table>__ct/<partition>``, from 0 to the partition's number of rows plus
        1. A partition is read again if its rows differ from those *seen* by the last run; rows that are read twice do
        no harm. A partition that has ended, but is not listed as closed, is overdue. Without partitions, a range is
        ``<schema>.<table>__ct`` from a ``change_seq`` to one above the highest ``change_seq``; it begins lower if rows
        with a lower ``change_seq`` were added. If one table cannot be read, only this table is refused.
        """
        known = None if seen is None else seen(bound)
        found, refused, versions = Found([], []), dict[str, TerminalError](), dict[str, FileVersion]()
        overdue: list[str] = []
        closed: dict[str, list[str]] = {}
        if self.control is not None:
            listed = ControlTable(spark, self.connection, self.control).partitions(self.task)
            closed = self.closed_partitions(listed)
        begun = max(
            (match[1] for names in closed.values() for match in map(_PARTITION.fullmatch, names) if match), default=""
        )
        for source in self.tables:
            table = self.open(spark, source)
            try:
                if not table.exists:
                    _refuse_another_case(table.name, table.in_another_case())
                    found.waiting.append(table.name)
                    continue
                table.structure()
                if self.control is None:
                    counted = None if known is None else known.get(table.name)
                    ranges, rows = _new_interval(table, bound.get(table.name), self.overlap_minutes, counted)
                    if rows is not None:
                        versions[table.name] = rows
                else:
                    rows_of = table.rows_of_partitions()
                    ranges, others = _new_partitions(table.name, rows_of, closed.get(source, []), bound, known or {})
                    versions |= others
                    unlisted = rows_of.keys() - {"", *closed.get(source, ())}
                    names = {name: f"{table.name}/{name}" for name in unlisted if _has_ended(name, begun)}
                    overdue += sorted(name for name in names.values() if name not in bound)
            except TerminalError as error:
                if error.code not in _OF_ONE_TABLE:
                    raise
                refused[source] = error
            else:
                found.ranges.extend(ranges)
        waiting, seen_now = [*found.waiting, *overdue], {} if known is None else versions
        return found._replace(waiting=waiting, refused=refused, versions=seen_now, overdue=tuple(overdue))

    def report(self, spark: Any) -> SourceReport:
        if self.control_schema is None:
            return SourceReport()
        return read_control_tables(spark, self.connection, self.control_schema, self._names_of_tables(), self.task)

    def ends(self, spark: Any, bound: Mapping[str, int]) -> dict[str, int]:
        """The current end of each name that has unread data, and of every partition, closed or open."""
        found = self.find(spark, bound)
        if found.refused:
            what = f"change tables cannot be read: {sorted(found.refused)}"
            raise TransientError("PROOF_FAILED", what, next_step="`status` says why; then prove again")
        ends = {one.name: one.end for one in found.ranges}
        for source in self.tables if self.control is not None else ():
            table = self.open(spark, source)
            if table.exists:
                partitions = table.rows_of_partitions()
                ends |= {f"{table.name}/{name}": rows.number + 1 for name, rows in partitions.items()}
        return ends

    def within(self, ranges: Iterable[BoundRange], interval: Interval) -> list[BoundRange]:
        """Selects no range of the interval: change tables are always read up to the newest row."""
        return []

    def bound_before(self, ranges: Iterable[BoundRange], interval: Interval) -> Chosen:
        full = [bound for bound in ranges if bound.end > bound.start]
        if self.control is not None:
            return Chosen(longest(b for b in full if _overlaps(b.name.rpartition("/")[2], interval)), [])
        low, high = (int(f"{moment:%Y%m%d%H%M%S}" + "0" * 21) for moment in interval)
        clipped = (BoundRange(b.name, max(b.start, low), min(b.end, high)) for b in full)
        return Chosen(longest(bound for bound in clipped if bound.start < bound.end), [])

    def reread_from(self, source: str, bound: Mapping[str, int]) -> str | None:
        """The ``change_seq`` at which the next interval begins: some minutes before the end of the last one (T-18)."""
        if self.control is not None or source not in self.tables:
            return None  # a table that is being dropped is not read any more
        end = bound.get(".".join(self.change_table(source)))
        return None if end is None else sequence_text(overlapping_start(end, self.overlap_minutes))

    def announced(self, form: Format, most: int, spark: Callable[[], Any]) -> Iterator[Announced]:
        tables = {(one.schema, one.table): one for one in catalog(self.connection, spark)}
        named = {self.change_table(source): source.partition(".") for source in self.tables}
        for (schema, name), one in tables.items():
            source = name[: -len(self.suffix)] if name.lower().endswith(self.suffix.lower()) else ""
            if SourceName(schema, name) in named:
                schema, _, source = named[SourceName(schema, name)]
            headers = {header_name(column.name, self.prefix) for column in one.columns}
            if not source or not {SEQUENCE, OPERATION} <= headers:
                continue
            structure = Structure(f"{schema}.{source}", tuple(ChangeColumn(*column) for column in one.columns))
            loaded = tables.get((one.schema, source)) or tables.get((schema, source))
            load = (("format", "jdbc"), ("connection", self.connection)) if loaded is not None else ()
            for each in form.announced([ChangeRow(name, 0, structure, ())]):
                # A period in the schema or the table: the change table's own name distinguishes both.
                each = each._replace(schema=schema, table=source)
                yield each._replace(key=loaded.key or None if loaded is not None else None, load=load)

    def survey(self) -> Survey:
        connection = resolve(self.connection)
        dialect = dialect_of(connection)
        if not dialect.copies:
            return Survey()
        columns: dict[tuple[str, str], list[str]] = {}
        for name in map(self.change_table, self.tables):
            lines = ask(connection, dialect.columns_query(*name))
            if lines is None:
                return Survey()
            if lines:
                columns[name] = [str(line["name"]) for line in lines]
        closed = None
        if self.control is not None:
            table = f"{dialect.quote(self.control.schema)}.{dialect.quote(self.control.table)}"
            asked = "table_owner AS owner, table_name AS name" + (", task_name AS task" if self.task else "")
            lines = ask(connection, f"SELECT DISTINCT {asked} FROM {table}")
            own = [one for one in lines or () if is_of_task(one.get("task"), self.task)]
            listed = None if lines is None else [(str(one["owner"]), str(one["name"]), "") for one in own]
            closed = None if listed is None else self.closed_partitions(listed)
        found = self.surveyed(columns, closed)
        is_named = self.control is None or self.control_schema != self.control.schema
        if self.control_schema is not None and is_named:
            seen = ask(connection, dialect.alike_query(self.control_schema, *CONTROL_TABLES))
            if seen is not None and not seen:
                what = f"the login sees no control table of a task in the schema {self.control_schema!r}"
                found = found._replace(settings={"control_schema": what})
        return found

    def surveyed(self, columns: Mapping[tuple[str, str], Collection[str]], closed: Collection[str] | None) -> Survey:
        """What is missing at the source for the mirrored tables.

        *columns* are the columns of each change table. *closed* are the source tables with a closed partition; None if
        Change Data Partitioning is off.
        """
        unseen, without_mask = {}, []
        mask = (self.prefix + MASK).lower()
        for source, name in ((source, self.change_table(source)) for source in self.tables):
            if name not in columns:
                unseen[source] = f"the login sees no change table {name.table!r} in the schema {name.schema!r}"
                continue
            if closed is not None and source not in closed:
                unseen[source] = f"the control table lists no closed partition of {'.'.join(name)!r}"
            if mask not in {column.lower() for column in columns[name]}:
                without_mask.append(source)
        return Survey(unseen, without_mask)


@dataclass(frozen=True)
class SliceTask:
    """The work of one Spark task: reads and decodes one range of one change table."""

    origin: str
    at: int
    structure: Structure
    prefix: str
    log: Callable[[int], BlockLog]

    def take(self, batches: Iterable[pa.RecordBatch]) -> Any:
        """Decodes batches and writes their rows to the change log. Returns the result of :meth:`BlockLog.finish`."""
        decoding = self.log(self.at)
        add = cut_blocks(self.origin, self.structure, self.prefix, decoding.take_block)
        for batch in batches:
            add(batch)
        add(None)
        return decoding.finish()


def _copy(connection: Connection, task: tuple[SliceTask, str, SourceName]) -> Any:
    one, query, name = task
    return one.take(rows_of(connection, query, name))


def _work(tasks: Sequence[SliceTask]) -> Callable[[int, Iterable[pa.RecordBatch]], Any]:
    def work(part: int, batches: Iterable[pa.RecordBatch]) -> Any:
        texts = (batch.cast(pa.schema([(name, pa.string()) for name in batch.schema.names])) for batch in batches)
        return tasks[part].take(texts)

    return work


def overlapping_start(end: int, minutes: int) -> int:
    """The ``change_seq`` that is *minutes* before *end*; its first digits are a time (T-18)."""
    text = sequence_text(end)
    try:
        moment = datetime.strptime(text[:14], "%Y%m%d%H%M%S") - timedelta(minutes=minutes)
    except (ValueError, OverflowError):
        # The time part is no time: the order holds all the same, but how far back is far enough is unknown.
        return 0
    return min(end, int(f"{moment:%Y%m%d%H%M%S}{text[14:16]}".rjust(16, "0") + "0" * 19))


def _new_interval(
    table: ChangeTable, end: int | None, minutes: int, seen: FileVersion | None
) -> tuple[list[BoundRange], FileVersion | None]:
    before = rows_seen(seen)
    low = before.low if before is not None else sequence_text(0 if end is None else overlapping_start(end, minutes))
    highest, rows = table.look(low)
    if highest is None:
        # Without any sequence there is no interval that a row could lie in; one that comes later is one more.
        return [], None if end is None else _remembered(rows, seen)
    if end is not None and highest + 1 < end:
        raise TerminalError(
            "CHANGES_WENT_BACK",
            f"the highest change_seq is {sequence_text(highest)}, and {sequence_text(end - 1)} was read",
            where=f"table {table.name}",
            next_step="see whether the change table was re-created or restored; then give `load` of `source` a new "
            "name and reset the table",
        )
    start = late_start(before, rows)
    if highest + 1 == end:
        if start is None:
            return [], _remembered(rows, seen)
        return [BoundRange(table.name, start, end)], _remembered(rows, seen)
    if end is not None:
        overlapping = overlapping_start(end, minutes)
        start = overlapping if start is None else min(start, overlapping)
    _, ahead = table.look(sequence_text(overlapping_start(highest + 1, minutes)))
    return [BoundRange(table.name, start or 0, highest + 1)], _remembered(ahead, seen)


def late_start(before: RowsSeen | None, now: RowsSeen) -> int | None:
    """The ``change_seq`` from which to read again, as row counts show; None if nothing has to be read again.

    If rows were added even before the overlap, the result is 0: the complete table is read again. Fewer rows before the
    overlap only mean that the Qlik task's retention removed rows. Any other change of the counts lets the overlap be
    read again.
    """
    if before is None:
        return None
    if now.below > before.below:
        return 0
    return int(before.low) if now.above != before.above else None


def rows_seen(seen: FileVersion | None) -> RowsSeen | None:
    """The row counts of a change table that the ledger keeps from the last run; None if it keeps none."""
    if seen is None:
        return None
    below, _, above = seen.version.partition(":")
    return RowsSeen(seen.digest, int(below), int(above))


def _remembered(rows: RowsSeen, seen: FileVersion | None) -> FileVersion | None:
    found = FileVersion(f"{rows.below}:{rows.above}", rows.low)
    return None if found == seen else found


def _has_ended(partition: str, begun: str) -> bool:
    """Whether a partition ended before another one began, by their names: it is closed then, listed or not."""
    match = _PARTITION.fullmatch(partition)
    return match is not None and match[2] <= begun


def _new_partitions(
    table: str,
    rows: Mapping[str, PartitionRows],
    closed: Sequence[str],
    bound: Mapping[str, int],
    seen: Mapping[str, FileVersion],
) -> tuple[list[BoundRange], dict[str, FileVersion]]:
    found, versions = list[BoundRange](), dict[str, FileVersion]()
    for partition in ("", *sorted(closed)):
        # A partition without rows is bound too; only the one without a name need not exist.
        if not partition and partition not in rows:
            continue
        name, now = f"{table}/{partition}", rows.get(partition, PartitionRows(0, "", ""))
        version, known = FileVersion(f"{now.number}:{now.highest}", now.lowest), seen.get(name)
        if now.number + 1 > bound.get(name, 0):
            found.append(BoundRange(name, 0, now.number + 1))
        elif now.number and known is not None and known != version:
            # As many came as are gone, or fewer (T-82).
            found.append(BoundRange(name, 0, bound[name]))
        if version != known:
            versions[name] = version
    return found, versions


def _refuse_another_case(name: str, other: str | None) -> None:
    if other is not None:
        raise TerminalError(
            "TABLE_NAME_DIFFERS",
            f"the database has the table {other!r}, which differs from {name!r} in case only",
            where=f"table {name}",
            next_step="spell `source` or `change_table` in the mirror file as the database does",
        )


def _overlaps(partition: str, interval: Interval) -> bool:
    match = _PARTITION.fullmatch(partition)
    if match is None:
        return True
    start, end = (datetime.strptime(text, "%Y%m%dT%H%M%S").replace(tzinfo=UTC) for text in match.groups())
    return start < interval.end and interval.start < end


def _named(table: Table, suffix: str) -> NamedChangeTable:
    schema, name = table.source_name if table.change_table is None else split_source_name(table.change_table)
    return NamedChangeTable(schema, name + suffix if table.change_table is None else name, table.chosen)
