"""Asks the source about tables that a batch contains for the first time: names, keys and columns (G-70).

The batch is read a second time for this, but only if a new table matches a pattern of the mirror.
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
    """Raised by an attempt whose messages name tables that may join; *names* are ``schema.table``."""

    def __init__(self, names: Collection[str], schemas: Sequence[SourceSchema]) -> None:
        super().__init__(sorted(names))
        self.names = frozenset(names)
        self.schemas = tuple(schemas)


def read_announcements(
    source: MessageTransport, form: Format, names: Collection[str], ranges: Sequence[BoundRange]
) -> list[Announced]:
    """What messages of the ranges announce about these tables, without repetitions."""
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
    """What is known about these tables (``schema.table``), sorted by name; unknown ones have just their name.

    It is taken from the structures in *schemas*, and from the source: by a query if it can be asked, else from the
    messages in *ranges*.
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
