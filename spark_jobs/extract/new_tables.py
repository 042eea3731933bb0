"""Finds names, keys and columns of tables whose messages a batch contains for the first time (G-70).

The batch is read a second time for this search, but only if a new table matches a pattern in the mirror file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from open_mirroring.changes.manifest import BoundRange
from spark_jobs.beginning.announcements import AnnouncedTable, together
from spark_jobs.runtime.tasks import run_job
from spark_jobs.sources.contract.decoded import SourceSchema
from spark_jobs.sources.contract.source import Announced, Format, MessageTransport, Transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ALL = 10**9
_RANGES_OF_A_TASK = 8


class NewTablesSeen(Exception):
    """Raised if messages of a batch name tables that may join the mirror; *names* are ``schema.table``."""

    def __init__(self, names: Collection[str], schemas: Sequence[SourceSchema]) -> None:
        super().__init__(sorted(names))
        self.names = frozenset(names)
        self.schemas = tuple(schemas)


def read_announcements(
    source: MessageTransport, form: Format, names: Collection[str], ranges: Sequence[BoundRange]
) -> list[Announced]:
    """What the messages in *ranges* announce about the tables *names*, without repetitions."""
    messages = (message for bound in ranges for message in source.read(bound))
    return sorted(set(_of(names, form.announced(messages))), key=repr)


def announced_tables(
    spark: SparkSession,
    transport: Transport,
    form: Format,
    names: Collection[str],
    ranges: Sequence[BoundRange],
    schemas: Sequence[SourceSchema],
) -> list[AnnouncedTable]:
    """What is known about the tables *names* (``schema.table``), sorted; for an unknown table only its name.

    Keys and columns are taken from the table structures in *schemas*, and from the source: by a query if the source can
    be queried, else from the messages in *ranges*.
    """
    wanted = frozenset(names)
    found = list(_of(wanted, form.described(schemas)))
    if transport.describes_tables:
        found += _of(wanted, transport.announced(form, _ALL, lambda: spark))
    elif isinstance(transport, MessageTransport):
        tasks = [tuple(ranges[at : at + _RANGES_OF_A_TASK]) for at in range(0, len(ranges), _RANGES_OF_A_TASK)]
        look = partial(read_announcements, transport, form, wanted)
        for announced in run_job(spark, "look at new tables", look, tasks, form.work(transport, ranges)):
            found += announced
    tables = together(found)
    for name in sorted(wanted - {one.name for one in tables.values()}):
        schema, _, table = name.rpartition(".")
        tables[schema, table] = AnnouncedTable(schema, table)
    return [one for _, one in sorted(tables.items())]


def _of(names: Collection[str], announced: Any) -> Iterator[Announced]:
    return (one for one in announced if f"{one.schema}.{one.table}" in names)
