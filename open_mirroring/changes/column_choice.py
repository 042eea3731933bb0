"""Decides which source columns of a table are mirrored, and under which names and types (G-12, G-67, G-110, G-120)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

DELETED_AT = "deleted_at"
"""When a row was deleted that stays at the target (G-192)."""

OF_TRANSACTIONS = ("commit_time", "transaction", DELETED_AT, "valid_from", "valid_to")
"""Properties of a change for which the log keeps its commit time and transaction."""


class ColumnChoice(NamedTuple):
    """What a table's entry in the mirror file sets on columns: `columns`, `types`, `rename`, `hash`, `extra_columns`.

    Names are compared without case, because the source may change the case at any time. If a row has two columns whose
    names differ only in case, only the column spelled as in `columns` is read.

    *listed* are the names in `columns`; None means every column that is not excluded. *fitting* are the patterns in
    `columns`. Entries of *fitting*, *excluded* and *hashed* may contain ``*`` for any characters. *types* pairs a
    column with its type at the target, *renamed* a column with its name at the target. *extra* pairs a property of the
    change, such as ``commit_time``, with the target column that gets the property (G-118). *where* is the setting
    `where`, the condition for rows, in normalized spelling (G-193). *dated* is True if the table has a history, which
    needs the commit time and transaction of each change (G-194).
    """

    listed: tuple[str, ...] | None = None
    fitting: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    types: tuple[tuple[str, str], ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()
    hashed: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    where: str = ""
    dated: bool = False

    @property
    def logs_transactions(self) -> bool:
        """Whether a setting needs commit time and transaction of each change in the change log."""
        return self.dated or any(content in OF_TRANSACTIONS for content, _ in self.extra)

    @property
    def is_all(self) -> bool:
        """Whether every column is read, including columns that the source adds later."""
        return self.listed is None and not self.excluded

    def of(self, names: Iterable[str]) -> list[str]:
        """Return those of the given column names that are read, in the given order."""
        names = [*names]
        if self.listed is not None:
            exact = {*self.listed}
            folded = {name.casefold() for name in self.listed} - {name.casefold() for name in names if name in exact}
            names = [n for n in names if n in exact or n.casefold() in folded or _fits(n, self.fitting)]
        return [name for name in names if not _fits(name, self.excluded)]

    def type_of(self, name: str) -> str | None:
        """The target type that the mirror file sets for a column, or None; string for a hashed column."""
        return "string" if self.hashes(name) else _value_for(name, self.types)

    def hashes(self, name: str) -> bool:
        """Whether a hash of the column's value is published instead of the value (G-121)."""
        return bool(self.hashed) and _fits(name, self.hashed)

    def new_name_of(self, name: str) -> str | None:
        """The target name that `rename` in the mirror file gives a column; None if the column keeps its name."""
        said = _value_for(name, self.renamed)
        return None if said == name else said

    def landed_name(self, name: str) -> str:
        """The name of a column at the target."""
        return self.new_name_of(name) or name

    def absent(self, names: Iterable[str]) -> list[str]:
        """The columns listed under `columns` in the mirror file that are missing from *names*."""
        return lacking(self.listed or (), names)

    @property
    def takes(self) -> str:
        """The settings that select columns, as JSON for the ledger: ``[listed, fitting, excluded]``."""
        return json.dumps([self.listed, self.fitting, self.excluded], ensure_ascii=False)

    @property
    def types_text(self) -> str:
        """The settings `types` and `where` as JSON for the ledger."""
        types = dict(self.types)
        return json.dumps([types, self.where] if self.where else types, ensure_ascii=False)

    def gained(self, before: str) -> list[str]:
        """The columns and patterns that are read now, but were not read under the earlier settings *before*.

        *before* is JSON as :attr:`takes` returns it. Rows that were read under the earlier settings lack these columns,
        so the table needs a reset.
        """
        listed, fitting, excluded = json.loads(before)
        former = ColumnChoice(None if listed is None else tuple(listed), tuple(fitting), tuple(excluded))
        found = [name for name in former.excluded if name not in self.excluded]
        if former.listed is not None:
            found += ["*"] if self.listed is None else [*self.listed, *self.fitting]
        known = {*(former.listed or ()), *former.fitting}
        # It is unknown which columns match a pattern; a name is either read or not.
        return [
            name
            for name in dict.fromkeys(found)
            if name not in known and ("*" in name or (self.of([name]) and not former.of([name])))
        ]

    def unread(self, names: Iterable[str], taken: Iterable[str]) -> frozenset[str]:
        """Those of *names* that are not read now, or that match *taken*.

        *taken* are the names and patterns that are read only since the settings changed, as :meth:`gained` returns
        them.
        """
        names = [*names]
        return frozenset(names).difference(ColumnChoice(excluded=tuple(taken)).of(self.of(names)))

    def unmet(self, names: Iterable[str]) -> list[str]:
        """The names and patterns that `columns` includes, excludes or renames, but that match none of *names*."""
        names = [*names]
        patterns = (*self.fitting, *self.excluded, *(name for name, _ in self.renamed))
        return [*dict.fromkeys([*self.absent(names), *fitting_none(patterns, names)])]


ALL_COLUMNS = ColumnChoice()


def where_of(types_text: str) -> str:
    """Extract the condition for rows from JSON that :attr:`ColumnChoice.types_text` wrote."""
    stored = json.loads(types_text)
    return str(stored[1]) if isinstance(stored, list) else ""


def lacking(wanted: Iterable[str], names: Iterable[str]) -> list[str]:
    """The names in *wanted* that *names* does not contain, compared without case."""
    there = {name.casefold() for name in names}
    return [name for name in wanted if name.casefold() not in there]


def plain_names(names: Iterable[str]) -> list[str]:
    """Return the names without ``*``, because only these claim that a column exists; a pattern may match none."""
    return [name for name in names if "*" not in name]


def fitting_none(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Return those of *patterns* (names, or names with ``*``) that match none of *names*."""
    names = [*names]
    return [one for one in patterns if not any(_fits(name, [one]) for name in names)]


def _value_for(name: str, said: tuple[tuple[str, str], ...]) -> str | None:
    if not said:
        return None
    folded = name.casefold()
    return next((one for column, one in said if column.casefold() == folded), None)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.casefold(), _escaped(pattern.casefold())) for pattern in patterns)


def _escaped(pattern: str) -> str:
    """Escape everything but ``*``: column names may contain brackets and question marks."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
