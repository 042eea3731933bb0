"""What a source's DDL statements did to a column: dropped it, or renamed it, and to what (T-84).

No change shows which (G-60). The history counts only if it is unambiguous; otherwise an operator is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

ALTER, DROP, ADD = "ALTER", "DROP", "ADD"
"""The action of a statement on a column; ``ALTER`` also renames it."""
_LEAVE_COLUMNS = ("ALTER_TABLE", "TRUNCATE_TABLE")


class ColumnStep(NamedTuple):
    """The action of a statement on a column, in the source's word, and the new name if it was renamed."""

    action: str
    renamed_to: str | None = None


class Statement(NamedTuple):
    """A statement on one table; *place* is its position among the changes of the current load.

    *columns* are its actions by former names in lower case, None if unknown; *renamed_to* is the table's new name.
    """

    place: str
    kind: str
    columns: Mapping[str, ColumnStep] | None
    renamed_to: str | None = None
    at: str = ""


class Told(NamedTuple):
    """What a source reports in addition to its changes: signals by table and code, DDL statements by table."""

    signals: Mapping[tuple[str, str], str] = MappingProxyType({})
    statements: Mapping[str, Sequence[Statement]] | None = None


ToldColumn = tuple[str | None, str]
"""The fate of a column: its current name, or None if it was dropped; and the first statement involved."""


def what_became_of(column: str, after: str, statements: Sequence[Statement]) -> ToldColumn | None:
    """What statements did to a column that rows up to *after* had; None if they leave a doubt.

    Renames are followed. A statement that gives the name away while this column has it is a contradiction.
    """
    name, first = column, ""
    for one in sorted((one for one in statements if one.place > after), key=lambda one: one.place):
        if one.kind not in _LEAVE_COLUMNS or one.columns is None:
            return None
        step = one.columns.get(name.casefold())
        moved_in = [
            other
            for other, taken in one.columns.items()
            if other != name.casefold() and (taken.renamed_to or "").casefold() == name.casefold()
        ]
        if step is None:
            if moved_in:
                return None
            continue
        if step.action == DROP and step.renamed_to is None:
            return None, first or one.place
        if step.action != ALTER or (moved_in and step.renamed_to is None):
            return None
        if step.renamed_to is not None and step.renamed_to.casefold() != name.casefold():
            name, first = step.renamed_to, first or one.place
    return None if name.casefold() == column.casefold() else (name, first)


def given_again(column: str, first: str, last: str, statements: Sequence[Statement]) -> dict[str, ToldColumn]:
    """What happened to columns whose name was given to another one, by the positions where they lost it (T-88)."""
    found: dict[str, ToldColumn] = {}
    for one in statements:
        step = (one.columns or {}).get(column.casefold())
        if step is None or not first < one.place < last:
            continue
        later = [other for other in statements if other.place >= one.place]
        told = what_became_of(column, "", later)
        if told is not None and told[1] == one.place and any(_gives_name(column, other) for other in later):
            found[one.place] = told
    return found


def _gives_name(column: str, one: Statement) -> bool:
    steps = one.columns or {}
    added = steps.get(column.casefold())
    return (added is not None and added.action == ADD) or any(
        (step.renamed_to or "").casefold() == column.casefold() for step in steps.values()
    )
