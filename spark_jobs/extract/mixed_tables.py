"""Finds tables that may have rows of other tables: changes of two senders, or a structure id that two tables share.

The changes of a table have to come from one sender: one database, or one Qlik task. The ledger keeps the first sender
of each table together with the announced table structures (C-12, K-71).

A structure id is valid only in the topic that announces it, and another topic may use the same id for another table
(K-06). So the ledger keeps which ids a topic used before the topic announced them (K-85).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping

from open_mirroring.changes.manifest import SENT_BY
from open_mirroring.facts.senders import Sender
from open_mirroring.facts.unreadable import Stop
from spark_jobs.sources.contract.decoded import SERVER_UNKNOWN, MirroredTable, SourceSchema, is_described

_MOST_SENDERS = 3
"""At most so many senders of a table are kept: they prove the problem, and bad input must not fill the ledger."""


def new_senders(kept: Iterable[SourceSchema], seen: Iterable[Sender]) -> tuple[list[SourceSchema], Mapping[str, Stop]]:
    """The senders to add to the ledger, and the stops of tables whose sender differs from the kept sender.

    Names of senders are compared without case. Two names are compared only if both contain the server, or neither does.
    """
    known: dict[str, list[str]] = {}
    for schema in kept:
        if schema.topic == SENT_BY:
            known.setdefault(schema.table, []).append(schema.schema_id)
    added: list[SourceSchema] = []
    stops: dict[str, Stop] = {}
    for table, name in sorted({(table, json.dumps(name.casefold())[1:-1][:200]) for table, name in seen}):
        senders = known.setdefault(table, [])
        if name in senders or len(senders) >= _MOST_SENDERS:
            continue
        before = next((one for one in senders if _are_comparable(one, name)), None)
        senders.append(name)
        added.append(SourceSchema(SENT_BY, name, table, 0, ""))
        if before is not None:
            stops[table] = "SENDER_OTHER", f"its changes come from {before!r} and from {name!r}"
    return added, stops


def _are_comparable(one: str, other: str) -> bool:
    return one.startswith(SERVER_UNKNOWN) == other.startswith(SERVER_UNKNOWN)


def unrelated_senders(kept: Iterable[SourceSchema]) -> list[str]:
    """One sender of each group of senders that have no table in common, sorted.

    Senders of one table are in one group: the later sender replaced the earlier sender. Names with a server and names
    without a server cannot be compared, so only one of the two kinds is returned.
    """
    groups: list[set[str]] = []
    by_table: dict[str, set[str]] = {}
    for schema in kept:
        if schema.topic == SENT_BY:
            by_table.setdefault(schema.table, set()).add(schema.schema_id)
    for senders in by_table.values():
        joined = senders.union(*(group for group in groups if group & senders))
        groups = [*(group for group in groups if not group & senders), joined]
    first = sorted(min(group) for group in groups)
    return [one for one in first if _are_comparable(one, first[-1])]


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
