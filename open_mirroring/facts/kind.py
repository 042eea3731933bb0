"""Defines facts: small values that tasks observe about a table, or about the mirror, each of a kind and under a name.

A task returns facts together with the files that it wrote. The driver merges the facts of all tasks, the manifest (the
list of what a batch wrote) keeps them, and the ledger adds them to its state. Driver, manifest and ledger need not know
the kinds, so a new observation is one new module of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import msgspec

from open_mirroring.changes.manifest import Facts

V = TypeVar("V")
NewFacts = dict[str, dict[str, dict[str, Any]]]
"""Facts to which more are added: values by kind, table and name."""
NO_FACTS: Facts = MappingProxyType({})
_KINDS: dict[str, Kind[Any]] = {}


class Kind(Generic[V]):
    """A kind of fact: its name in manifests, the type of its values, and how two values are merged, in any order."""

    def __init__(self, name: str, value: Any, merge: Callable[[V, V], V]) -> None:
        self.name, self.merge = name, merge
        self._value = value
        _KINDS[name] = self

    def add(self, facts: NewFacts, found: V, *, table: str = "", name: str = "") -> None:
        """Add a value to *facts*.

        A value that *facts* already has for this table and name is merged with the new one.
        """
        of_table = facts.setdefault(self.name, {}).setdefault(table, {})
        of_table[name] = self.merge(of_table[name], found) if name in of_table else found

    def of(self, facts: Facts) -> dict[str, dict[str, V]]:
        """The values of this kind in *facts*, by table and name."""
        return {table: self.of_table(facts, table) for table in facts.get(self.name, ())}

    def of_table(self, facts: Facts, table: str) -> dict[str, V]:
        """The values of this kind about one table, by name."""
        found = facts.get(self.name, {}).get(table, {})
        return {name: msgspec.convert(value, self._value) for name, value in found.items()}

    def of_mirror(self, facts: Facts) -> dict[str, V]:
        """The values of this kind about the mirror, by name."""
        return self.of_table(facts, "")


def merged(all_facts: Iterable[Facts]) -> NewFacts:
    """Merge the facts of several tasks."""
    together: NewFacts = {}
    for facts in all_facts:
        add_all(together, facts)
    return together


def add_all(facts: NewFacts, more: Facts) -> None:
    """Merge all facts of *more* into *facts*."""
    for kind, tables in more.items():
        for table, values in tables.items():
            for name, found in values.items():
                _KINDS[kind].add(facts, found, table=table, name=name)


def tables_in(facts: Facts) -> set[str]:
    """The tables about which *facts* has a fact."""
    return {table for tables in facts.values() for table in tables if table}
