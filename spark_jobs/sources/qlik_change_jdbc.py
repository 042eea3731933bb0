"""Change tables in a database: which ranges are there, and their rows as exact texts in Spark's workers.

With Change Data Partitioning a range is one closed partition; a row of ``attrep_cdc_partitions`` says that it is closed
(T-34). Without, a range is an interval of ``change_seq``: it begins some minutes of ``change_seq`` time before the end
of the last one, as a lower sequence may be committed after a higher one was read (T-18).

Public source: Qlik help, *Change Data Partitioning*, *Control tables*, *Change tables*.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from pyspark.sql import SparkSession

from open_mirroring.config.names import SourceName
from open_mirroring.errors import TerminalError
from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.sources.qlik_change_jdbc_table import ChangeTable, ControlTable, Slice, sequence_text

_OF_ONE_TABLE = ("SEQUENCE_INVALID", "HEADER_MISSING", "TYPE_UNSUPPORTED")


class NamedChangeTable(NamedTuple):
    """Where a source table's changes are, and the columns that may be read (None: all)."""

    schema: str
    table: str
    columns: tuple[str, ...] | None = None


class ChangeTablePlace(NamedTuple):
    """A source of change tables in a database.

    Args:
        connection: name of the connection.
        tables: source table, as the decoder knows it, to its change table.
        suffix: what the names of change tables end with (T-01).
        prefix: what the names of header columns begin with (T-02).
        control: schema and table of ``attrep_cdc_partitions`` where Change Data Partitioning is on, else None.
        overlap_minutes: how far intervals of ``change_seq`` reach back (T-18).
        recheck_partitions: how many of the newest closed partitions of a table are looked at again, for rows that
            arrived after closing; None: all of them.
    """

    connection: str
    tables: Mapping[str, NamedChangeTable]
    suffix: str = "__ct"
    prefix: str = "header__"
    control: SourceName | None = None
    overlap_minutes: int = 10
    recheck_partitions: int | None = None

    def change_table(self, source: str) -> SourceName:
        """Schema and name of the change table of a source table."""
        named = self.tables[source]
        return SourceName(named.schema, named.table)

    def open(self, spark: SparkSession, source: str) -> ChangeTable:
        """The change table of a source table, its columns read."""
        name, columns = self.change_table(source), self.tables[source].columns
        return ChangeTable(spark, self.connection, name, source, self.prefix, columns)


class Found(NamedTuple):
    """What a look at the source brought.

    Args:
        ranges: ranges that were never bound before.
        waiting: change tables that are not there yet.
        refused: source tables of which nothing can be read as they are, each with the reason; nothing of them is lost.
    """

    ranges: list[BoundRange]
    waiting: list[str]
    refused: dict[str, TerminalError]


def find_ranges(spark: SparkSession, place: ChangeTablePlace, bound: Mapping[str, int]) -> Found:
    """Everything in the change tables beyond what is bound.

    A partition is ``<schema>.<table>__ct/<partition>`` from 0 to its number of rows plus 1; should one have more rows
    than were bound, as some came after it was closed, it is bound again as a whole, and the plan drops what it holds
    twice. Rows without a partition, from before partitioning, are one without a name. An interval is
    ``<schema>.<table>__ct`` from a ``change_seq`` to one beyond the highest, both as whole numbers.

    A table is refused with ``SEQUENCE_INVALID`` when its highest ``change_seq`` has not 35 digits, ``HEADER_MISSING``,
    or ``TYPE_UNSUPPORTED``; the others go on.

    Raises:
        TerminalError: ``TABLE_NOT_FOUND`` for the control table, ``CONNECTION_MISSING``, ``CONNECTION_INVALID``,
            ``SOURCE_REFUSED``.
        TransientError: ``SOURCE_UNREACHABLE``.
    """
    found = Found([], [], {})
    closed = None if place.control is None else _closed_partitions(spark, place, place.control)
    for source in place.tables:
        table = place.open(spark, source)
        if not table.exists:
            found.waiting.append(table.name)
            continue
        try:
            table.structure()
            if closed is None:
                ranges = _new_interval(table, bound.get(table.name), place.overlap_minutes)
            else:
                ranges = _new_partitions(table, closed.get(source, []), bound, place.recheck_partitions)
        except TerminalError as error:
            if error.code not in _OF_ONE_TABLE:
                raise
            found.refused[source] = error
        else:
            found.ranges.extend(ranges)
    return found


def slice_of(place: ChangeTablePlace, bound: BoundRange) -> Slice:
    """What a bound range means.

    Raises:
        TerminalError: ``RANGE_UNKNOWN`` when no mirrored table has this range.
    """
    for source in place.tables:
        name = ".".join(place.change_table(source))
        if bound.name == name:
            return Slice(source, name, None, sequence_text(bound.start), sequence_text(bound.end))
        if place.control is not None and bound.name.startswith(f"{name}/"):
            return Slice(source, bound.name, bound.name[len(name) + 1 :], "", "")
    raise TerminalError(
        "RANGE_UNKNOWN",
        f"the bound range {bound.name!r} belongs to no mirrored table",
        way_out="put the table back into the mirror file until its batch is committed, then take it out",
    )


def overlapping_start(end: int, minutes: int) -> int:
    """Where an interval begins that reaches *minutes* of ``change_seq`` time behind the last *end* (T-18)."""
    text = sequence_text(end)
    try:
        moment = datetime.strptime(text[:14], "%Y%m%d%H%M%S") - timedelta(minutes=minutes)
    except (ValueError, OverflowError):
        # The time part is no time: the order holds all the same, but nothing tells how far back is far enough.
        return 0
    return min(end, int(f"{moment:%Y%m%d%H%M%S}{text[14:16]}".rjust(16, "0") + "0" * 19))


def _new_interval(table: ChangeTable, end: int | None, minutes: int) -> list[BoundRange]:
    highest = table.highest_sequence()
    if highest is None or (end is not None and highest < end):
        return []
    return [BoundRange(table.name, 0 if end is None else overlapping_start(end, minutes), highest + 1)]


def _new_partitions(
    table: ChangeTable, closed: Sequence[str], bound: Mapping[str, int], recheck: int | None
) -> list[BoundRange]:
    names = {name: f"{table.name}/{name}" for name in ("", *sorted(closed))}
    known = [name for name in names if names[name] in bound]
    again = known if recheck is None else known[-recheck:] if recheck else []
    wanted = sorted({*names} - {*known} | {"", *again})
    rows = table.rows_of_partitions(None if recheck is None else wanted)
    found = []
    for name in wanted:
        # A partition without rows is bound too; only the one without a name need not exist.
        end = rows.get(name, 0) + 1 if name or name in rows else 0
        if end > bound.get(names[name], 0):
            found.append(BoundRange(names[name], 0, end))
    return found


def _closed_partitions(spark: SparkSession, place: ChangeTablePlace, control: SourceName) -> dict[str, list[str]]:
    """The closed partitions of each source table; the control table may name it with the suffix or without."""
    table = ControlTable(spark, place.connection, control)
    by_name: dict[tuple[str, str], str] = {}
    for source, named in place.tables.items():
        by_name[named.schema, named.table] = source
        by_name[named.schema, named.table.removesuffix(place.suffix)] = source
    closed: dict[str, list[str]] = {}
    for owner, name, partition in table.partitions():
        source = by_name.get((owner, name), "")
        if source:
            closed.setdefault(source, []).append(partition)
    return {source: sorted(set(partitions)) for source, partitions in closed.items()}
