"""Which columns of a row the mirror file's `columns` stands for (G-12, G-67)."""

from __future__ import annotations

from collections.abc import Collection, Iterable


def listed_columns(names: Iterable[str], columns: Collection[str] | None) -> list[str]:
    """The *names* that *columns* lists, in their order; all of them where it is None.

    A name that is listed in another case is meant as well, for the source may change the case at any time. Where a row
    has two such names, only the one that is spelled as listed is.
    """
    names = [*names]
    if columns is None:
        return names
    exact = {*columns}
    folded = {column.casefold() for column in columns} - {name.casefold() for name in names if name in exact}
    return [name for name in names if name in exact or name.casefold() in folded]
