"""Infers from a source's DDL statements whether a missing column was dropped or renamed (T-84).

The changes themselves do not show the difference between a drop and a rename (G-60). If the DDL statements are
ambiguous, they are ignored and an operator is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

ALTER, DROP, ADD = "ALTER", "DROP", "ADD"
"""Actions of a statement on a column; ``ALTER`` includes a rename."""
_LEAVE_COLUMNS = ("ALTER_TABLE", "TRUNCATE_TABLE")


class ColumnStep(NamedTuple):
    """What one DDL statement does to a column: the action, and the new name if the action is a rename."""

    action: str
    renamed_to: str | None = None


class Statement(NamedTuple):
    """A DDL statement on one table.

    *place* is the statement's position among the changes since the table's newest full load by a Qlik task. *columns*
    has the action on each column by the column's former name in lower case; None if the actions are unknown.
    *renamed_to* is the new name of the table, if the statement renames it.
    """

    place: str
    kind: str
    columns: Mapping[str, ColumnStep] | None
    renamed_to: str | None = None
    at: str = ""


class SourceReport(NamedTuple):
    """What a source reports in addition to changes: signals by table and code, and DDL statements by table.

    *statements* is None if the source reports no DDL statements.
    """

    signals: Mapping[tuple[str, str], str] = MappingProxyType({})
    statements: Mapping[str, Sequence[Statement]] | None = None


ColumnFate = tuple[str | None, str]
"""What became of a column: its present name, or None if it was dropped; and the position of the first statement
involved."""


def what_became_of(column: str, after: str, statements: Sequence[Statement]) -> ColumnFate | None:
    """What the DDL statements after position *after* did to a column; None if they did nothing, or it is unclear.

    Several renames in a row are followed. The result is unclear, for example, if another column gets a name that this
    column still has.
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
    """Find the columns that had the name *column* and lost it before another column got this name (T-88).

    Returns what became of each such column, by the position at which it lost the name. Only positions between *first*
    and *last* count.
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
