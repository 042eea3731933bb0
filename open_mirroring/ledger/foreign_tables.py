"""Counts, by name, the messages of source tables that are not mirrored, so that nothing is ignored unseen."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.tables import upsert

NAMES_KEPT = 1_000
"""Of so many tables of a mirror the names are kept; the others are counted together, under the empty name."""
_NAME = 300


class ForeignTable(NamedTuple):
    """A table that is not mirrored, or all those beyond :data:`NAMES_KEPT` (*name* is empty).

    *highest* is the highest position among its messages; empty where their format does not tell it.
    """

    name: str
    messages: int
    first_batch: int
    first_seen: datetime
    last_batch: int
    last_seen: datetime
    highest: str = ""


def foreign_tables(ledger: Engine, mirror: str) -> list[ForeignTable]:
    """The tables that messages were read of and that are not mirrored, in the order of their names."""
    c = t.foreign_table.c
    query = sa.select(*(c[name] for name in ForeignTable._fields)).where(c.mirror == mirror).order_by(c.name)
    found = (ForeignTable(*row) for row in t.rows(ledger, query))
    return [one._replace(highest=one.highest or "") for one in found]


def record_foreign(
    db: Connection,
    mirror: str,
    batch: int,
    seen_at: datetime,
    messages: Mapping[str, int],
    up_to: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Count the ignored messages of batch *batch*, inside the transaction that completes it.

    *up_to* is the highest position among those of a table, where it is told.
    """
    if not messages:
        return
    c = t.foreign_table.c
    known = {row.name: row for row in db.execute(sa.select(t.foreign_table).where(c.mirror == mirror))}
    counted, highest = dict[str, int](), dict[str, str]()
    room = NAMES_KEPT - len(known.keys() - {""})
    for full, count in sorted(messages.items()):
        name = full[:_NAME]
        if name and name not in known and name not in counted:
            name = name if room > 0 else ""
            room -= bool(name)
        counted[name] = counted.get(name, 0) + count
        highest[name] = max(highest.get(name, ""), up_to.get(full, ""))
    rows = [
        {
            "mirror": mirror,
            "name": name,
            "messages": count + (known[name].messages if name in known else 0),
            "first_batch": known[name].first_batch if name in known else batch,
            "first_seen": known[name].first_seen if name in known else seen_at,
            "last_batch": batch,
            "last_seen": seen_at,
            "highest": max(highest[name], (known[name].highest or "") if name in known else ""),
        }
        for name, count in counted.items()
    ]
    update = ["messages", "last_batch", "last_seen", "highest"]
    upsert(db, t.foreign_table, rows, keys=["mirror", "name"], update=update)
