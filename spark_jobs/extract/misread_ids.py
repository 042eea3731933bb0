"""Finds structure ids that were decoded for one table before their topic announced them for another table.

A structure id is valid only in the topic that announces it, and another topic may use the same id for another table
(K-06). So the ledger keeps which ids a topic used before the topic announced them (K-85).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from open_mirroring.facts.unreadable import Stop
from spark_jobs.sources.contract.decoded import MirroredTable, SourceSchema, is_described

Misread = tuple[SourceSchema, str]
"""The record that a topic used an id of a table, and the table for which the topic announced that id."""


def misread(used: Iterable[SourceSchema], announced: Collection[SourceSchema]) -> set[Misread]:
    """The records in *used* whose topic announces their id for another table, each with the announced table."""
    tables: dict[tuple[str, str], set[str]] = {}
    for schema in filter(is_described, announced):
        tables.setdefault((schema.topic, schema.schema_id), set()).add(schema.table)
    return {
        (note, table)
        for note in used
        if not is_described(note)
        for table in tables.get((note.topic, note.schema_id), set()) - {note.table}
    }


def stops_of_shared(found: Iterable[Misread], tables: Mapping[str, MirroredTable]) -> dict[str, Stop]:
    """The stops for both tables that share a structure id, because each may have rows of the other."""
    stops: dict[str, Stop] = {}
    for note, table in sorted(found):
        what = f"topic {note.topic!r} announces the id {note.schema_id!r} for {table}; its messages before that were"
        what += f" read as changes of {note.table}, for which another topic had announced it"
        stops |= {tables[name].source: ("SCHEMA_SHARED", what) for name in (note.table, table) if name in tables}
    return stops
