"""Keeps the known table structures, and finds the structure of a data message (K-05, K-06, K-10, K-11).

Ids of structures are unique per topic only (K-10). If a JSON message has no id, its structure is the newest one with
the same columns.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from spark_jobs.sources.contract.decoded import BY_HAND, Refusal, SourceSchema, is_described, shown
from spark_jobs.sources.qlik.masks import MaskOrder, readings, width
from spark_jobs.sources.qlik.message.structures import Structure, Unfit, known_structure


class Structures:
    """The known table structures: those from the ledger and those that messages of this run announced."""

    def __init__(self, schemas: Iterable[SourceSchema] = ()) -> None:
        self._by_id: dict[str, list[Structure]] = defaultdict(list)
        self._by_table: dict[str, list[Structure]] = defaultdict(list)
        self.unfit: dict[str, Unfit] = {}
        """Schemas of a registry that are none of change messages, by id (K-62)."""
        for schema in filter(is_described, schemas):
            known = known_structure(schema)
            if isinstance(known, Unfit):
                self.unfit[schema.schema_id] = known
            else:
                self.add(known)

    def copy(self) -> Structures:
        """A copy; structures that are added to the copy are not added to the original."""
        other = Structures()
        for mine, theirs in (self._by_id, other._by_id), (self._by_table, other._by_table):
            theirs.update({name: [*found] for name, found in mine.items()})
        other.unfit.update(self.unfit)
        return other

    def add(self, structure: Structure) -> bool:
        """Adds a structure; returns False if it is known already."""
        if any(known.announced == structure.announced for known in self._by_id.get(structure.schema_id, ())):
            return False
        for index, name in (self._by_id, structure.schema_id), (self._by_table, structure.table):
            index[name].append(structure)
            index[name].sort(key=lambda known: known.age, reverse=True)
        return True

    def of_id(self, topic: str, schema_id: str, table: str | None, mirrored: Container[str]) -> Structure | None:
        """The newest structure with the id *schema_id* in *topic*; if *topic* has none, in any topic.

        If several tables have the id and one of them is mirrored, *table* selects the structure. Raises a Refusal if
        none of these tables is *table*, or if the id belongs to a schema that is unfit for change messages (K-62).
        """
        if schema_id in self.unfit:
            raise Refusal(self.unfit[schema_id].code, self.unfit[schema_id].reason)
        every = self._by_id.get(schema_id, ())
        if len(every) == 1:
            return every[0]
        found = [known for known in every if known.topic == topic] or every
        if len({known.table for known in found}) > 1 and any(known.table in mirrored for known in found):
            found = [known for known in found if known.table == table]
            if not found:
                raise Refusal("TABLE_UNNAMED", f"several tables use the schema id {shown(schema_id)}")
        return found[0] if found else None

    def of_table(self, table: str) -> Sequence[Structure]:
        """The structures of a table, newest first."""
        return self._by_table.get(table, ())

    def key_of(self, structure: Structure) -> frozenset[str]:
        """The key columns of a structure; if it has no key, those of its table's newest structure with a key."""
        if structure.key_names:
            return structure.key_names
        return next((known.key_names for known in self.of_table(structure.table) if known.key_names), frozenset())

    def by_hand(self, table: str | None) -> Sequence[Structure]:
        """The structures without id that the mirror file gives for *table* (K-61)."""
        known = self.of_table(table) if table else ()
        return [one for one in known if one.topic == BY_HAND and not one.schema_id]


def fitting(known: Sequence[Structure], record: Mapping[str, Any], order: MaskOrder) -> Structure | None:
    """The first structure of *known*, newest first, that has exactly the columns of the JSON message *record*.

    If there is none, a structure with more columns fits if the message's column mask leaves out exactly the missing
    columns. The mask must have the width of the structure. A message without a row gets the first structure.
    """
    names = _names(record)
    if not names:
        return known[0] if known else None
    for structure in known:
        if structure.by_name.keys() == names:
            return structure
    mask = _column_mask(record)
    for structure in known if mask else ():
        if structure.by_name.keys() > names and len(mask) == 2 * width(structure.bits):
            named = sum(structure.by_name[name].bit for name in names)
            try:
                if named in readings(mask, order):
                    return structure
            except ValueError:
                return structure  # the reader of the message reports its mask
    return None


def shape(record: Mapping[str, Any]) -> str:
    """A short name for the properties of a message that :func:`fitting` uses.

    Messages with the same name have the same structure.
    """
    parts = [*sorted(_names(record)), "", str(len(_column_mask(record)))]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _names(record: Mapping[str, Any]) -> set[str]:
    for part in ("data", "beforeData"):
        values = record.get(part)
        if isinstance(values, Mapping) and values:
            return set(values)
    return set()


def _column_mask(record: Mapping[str, Any]) -> str:
    headers = record.get("headers")
    mask = headers.get("columnMask") if isinstance(headers, Mapping) else None
    return mask if isinstance(mask, str) else ""
