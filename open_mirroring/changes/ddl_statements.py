"""Infers from a source's DDL statements whether a column was dropped or renamed (T-84).

Changes do not show the difference (G-60). Statements count only if they are unambiguous; otherwise an operator is
asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

ALTER, DROP, ADD = "ALTER", "DROP", "ADD"
"""Actions of a statement on a column; ``ALTER`` includes a rename."""
_LEAVE_COLUMNS = ("ALTER_TABLE", "TRUNCATE_TABLE")


class ColumnStep(NamedTuple):
    """What one statement does to a column: the action, and the new name if it is a rename."""

    action: str
    renamed_to: str | None = None


class Statement(NamedTuple):
    """A DDL statement on one table; *place* is its position among the changes of the table's current Qlik load.

    *columns* are its actions by lower-case former name; None if unknown. *renamed_to* is the table's new name.
    """

    place: str
    kind: str
    columns: Mapping[str, ColumnStep] | None
    renamed_to: str | None = None
    at: str = ""


class SourceReport(NamedTuple):
    """What a source reports in addition to changes: signals by table and code, and DDL statements by table.

    *statements* None: the source reports none.
    """

    signals: Mapping[tuple[str, str], str] = MappingProxyType({})
    statements: Mapping[str, Sequence[Statement]] | None = None


ColumnFate = tuple[str | None, str]
"""What became of a column: its present name, or None if it was dropped; and the position of the first statement
involved."""


def what_became_of(column: str, after: str, statements: Sequence[Statement]) -> ColumnFate | None:
    """What DDL statements after the position *after* did to a column; None if that is nothing, or unclear.

    Several renames are followed. It is unclear if another column gets the name while this one still has it.
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


def given_again(column: str, first: str, last: str, statements: Sequence[Statement]) -> dict[str, ColumnFate]:
    """The fates of columns that lost this name before another column got it, by the position of the loss (T-88).

    Only losses between the positions *first* and *last* count.
    """
    found: dict[str, ColumnFate] = {}
    for one in statements:
        step = (one.columns or {}).get(column.casefold())
        if step is None or not first < one.place < last:
            continue
        later = [other for other in statements if other.place >= one.place]
        fate = what_became_of(column, "", later)
        if fate is not None and fate[1] == one.place and any(_gives_name(column, other) for other in later):
            found[one.place] = fate
    return found


def _gives_name(column: str, one: Statement) -> bool:
    steps = one.columns or {}
    added = steps.get(column.casefold())
    return (added is not None and added.action == ADD) or any(
        (step.renamed_to or "").casefold() == column.casefold() for step in steps.values()
    )
