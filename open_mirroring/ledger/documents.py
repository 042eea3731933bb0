"""Stores small values of a mirror or a table as JSON documents, each with an owner, a kind and a name."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection

from open_mirroring.changes.manifest import AnnouncedSchema, OpenFragment
from open_mirroring.facts.column_lists import ColumnList
from open_mirroring.facts.foreign_tables import ForeignTable
from open_mirroring.facts.read_places import Run
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.verdicts import Verdict

V = TypeVar("V")
_AT_ONCE = 200
"""So many owners or names are asked for by one query: databases bound the parameters of one."""


class Documents(Generic[V]):
    """Access to all documents of one kind, whose values have one Python type."""

    def __init__(self, kind: str, value: Any) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(value).decode

    def of(self, db: Connection, owner: str, names: Collection[str] | None = None) -> dict[str, V]:
        """The documents of an owner by name, sorted; only those with these *names*, if given.

        The owner is a mirror, by its name, or a table, by its id.
        """
        c = t.document.c
        query = sa.select(c.name, c.value).where(c.owner == owner, c.kind == self._kind).order_by(c.name)
        parts = [query] if names is None else [query.where(c.name.in_(some)) for some in _parts(names)]
        return {name: self._decode(value) for part in parts for name, value in db.execute(part).tuples()}

    def one(self, db: Connection, owner: str, name: str = "") -> V | None:
        """One document of an owner; None if there is none."""
        return self.of(db, owner, [name]).get(name)

    def of_each(self, db: Connection, owners: Iterable[str]) -> dict[str, dict[str, V]]:
        """The documents of several owners, by owner and name; owners without documents are left out."""
        c = t.document.c
        query = sa.select(c.owner, c.name, c.value).where(c.kind == self._kind).order_by(c.owner, c.name)
        found: dict[str, dict[str, V]] = {}
        for some in _parts(owners):
            for owner, name, value in db.execute(query.where(c.owner.in_(some))).tuples():
                found.setdefault(owner, {})[name] = self._decode(value)
        return found

    def put(self, db: Connection, owner: str, values: Mapping[str, V]) -> None:
        """Write documents of an owner; documents with other names are kept."""
        self.put_each(db, {owner: values})

    def put_each(self, db: Connection, values: Mapping[str, Mapping[str, V]]) -> None:
        """Write documents of several owners in one statement; documents with other names are kept."""
        at = [(owner, name, value) for owner, named in values.items() for name, value in named.items()]
        rows = [{"owner": owner, "kind": self._kind, "name": name, "value": _encoded(one)} for owner, name, one in at]
        upsert(db, t.document, rows, keys=["owner", "kind", "name"], update=["value"])

    def swap(self, db: Connection, owner: str, name: str, old: V, new: V) -> bool:
        """Replace a document if its value is still *old*. Returns False, and changes nothing, if the value differs."""
        c = t.document.c
        same = (c.owner == owner) & (c.kind == self._kind) & (c.name == name) & (c.value == _encoded(old))
        return db.execute(t.document.update().where(same).values(value=_encoded(new))).rowcount == 1

    def replace(self, db: Connection, owner: str, values: Mapping[str, V]) -> None:
        """Replace all documents of an owner by *values*."""
        self.drop(db, owner)
        self.put(db, owner, values)

    def drop(self, db: Connection, owner: str, names: Collection[str] | None = None) -> None:
        """Delete all documents of an owner, or only the documents with these *names*."""
        c = t.document.c
        gone = t.document.delete().where(c.owner == owner, c.kind == self._kind)
        for part in [gone] if names is None else [gone.where(c.name.in_(some)) for some in _parts(names)]:
            db.execute(part)


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _parts(values: Iterable[str]) -> Iterable[list[str]]:
    asked = sorted(set(values))
    return (asked[at : at + _AT_ONCE] for at in range(0, len(asked), _AT_ONCE))


class Structure(NamedTuple):
    """A table structure that the source announced, and the batch that contains the announcement."""

    schema: AnnouncedSchema
    batch: int


class Offsets(NamedTuple):
    """What a broker had of a partition at the time *seen_at*.

    *first* is the first offset not deleted, *end* the offset after the newest message.
    """

    first: int
    end: int
    seen_at: datetime


class KeptVerdict(NamedTuple):
    """The last verdict on a table, with its evidence and the highest file number published until then."""

    verdict: Verdict
    code: str
    what: str
    evidence: dict[str, Any]
    confirmed: int
    recorded_at: datetime


class ZoneToken(NamedTuple):
    """The name and ETag of a landing zone's fencing token as this ledger left it; empty if unknown.

    *next* is the name that a claim in progress gives it; empty if none is in progress.
    """

    name: str = ""
    etag: str = ""
    next: str = ""


# What completed batches leave, folded from their facts.
FOREIGN_TABLES = Documents[ForeignTable]("foreign", ForeignTable)
"""Of a mirror: ignored messages of tables that are not mirrored, by the table's name at the source."""
PLACES = Documents[list[Run]]("places", list[Run])
"""Of a mirror: the offsets that were read (G-113), by partition."""
STRUCTURES = Documents[Structure]("structure", Structure)
"""Of a mirror: announced structures of tables (K-10), by digest."""
FRAGMENTS = Documents[OpenFragment]("fragment", OpenFragment)
"""Of a mirror: messages that wait for others, such as pieces of a split message, by identity."""
COLUMN_LISTS = Documents[ColumnList]("columns", ColumnList)
"""Of a table: the column lists of its rows, by digest (G-60)."""
EPOCHS = Documents[int]("epoch", int)
"""Of a table: the place of each stream in the order of its streams (0 is the first), by the stream's name (G-01)."""
STARTS = Documents[int]("start", int)
"""Of a table: where its changes begin, by partition. Rows of a full load after that are a reload (K-18)."""

OFFSETS = Documents[Offsets]("offsets", Offsets)
"""Of a mirror: what the broker has, by partition. It shows the backlog, and whether unread messages were deleted."""
VERDICTS = Documents[KeptVerdict]("verdict", KeptVerdict)
"""Of a table: its last verdict, as one document with an empty name."""
ZONE_TOKENS = Documents[ZoneToken]("zone_token", ZoneToken)
"""Of a mirror: the fencing token of its landing zone, as one document with an empty name."""
