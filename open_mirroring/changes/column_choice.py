"""Chooses which columns of its source a table mirrors, and as which types (G-12, G-67, G-110).

The settings `columns` and `types` say it.
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple


class ColumnChoice(NamedTuple):
    """The columns that are read; all others do not leave the decoder.

    A name means its column in any case, for the source may change the case at any time. Where a row has two such names,
    only the one that is spelled as listed is meant.

    Attributes:
        listed: names in full; None if every column is read that is not excluded.
        fitting: with *listed*, patterns of more names, in which ``*`` stands for any characters.
        excluded: names and patterns of those that are not read.
        types: columns that land as another type than their source's, each with its landing type.
    """

    listed: tuple[str, ...] | None = None
    fitting: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    types: tuple[tuple[str, str], ...] = ()

    @property
    def is_all(self) -> bool:
        """Whether nothing is left out, whatever the source adds."""
        return self.listed is None and not self.excluded

    def of(self, names: Iterable[str]) -> list[str]:
        """Those of a row's columns that are read, in their order."""
        names = [*names]
        if self.listed is not None:
            exact = {*self.listed}
            folded = {name.casefold() for name in self.listed} - {name.casefold() for name in names if name in exact}
            names = [n for n in names if n in exact or n.casefold() in folded or _fits(n, self.fitting)]
        return [name for name in names if not _fits(name, self.excluded)]

    def type_of(self, name: str) -> str | None:
        """The landing type that the mirror file gives a column; None where it leaves that to the source's type."""
        if not self.types:
            return None
        folded = name.casefold()
        return next((landing for column, landing in self.types if column.casefold() == folded), None)

    def absent(self, names: Iterable[str]) -> list[str]:
        """The listed names that none of these is."""
        there = {name.casefold() for name in names}
        return [name for name in self.listed or () if name.casefold() not in there]

    def unmet(self, names: Iterable[str]) -> list[str]:
        """The names and patterns, of those that are excluded too, that stand for none of these."""
        names = [*names]
        patterns = (*self.fitting, *self.excluded)
        return [*self.absent(names), *(one for one in patterns if not any(_fits(name, [one]) for name in names))]


ALL_COLUMNS = ColumnChoice()


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name.casefold(), _escaped(pattern.casefold())) for pattern in patterns)


def _escaped(pattern: str) -> str:
    """A pattern in which only ``*`` has a meaning: a column may have brackets and question marks in its name."""
    return pattern.replace("[", "[[]").replace("?", "[?]")
