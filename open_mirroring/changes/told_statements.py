"""What statements that a source tells of its tables say became of a column: dropped, or renamed, and to what (T-84).

No change says whether a column that is gone was dropped or renamed (G-60); a source that keeps a history of its DDL
does. Its word counts only where it leaves no doubt; otherwise a person is asked, as without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

ALTER, DROP, ADD = "ALTER", "DROP", "ADD"
"""What a statement does to a column; ``ALTER`` renames it, too."""
_LEAVE_COLUMNS = ("ALTER_TABLE", "TRUNCATE_TABLE")


class ColumnStep(NamedTuple):
    """What a statement did to a column: the action as the source calls it, and the new name of one that was renamed."""

    action: str
    renamed_to: str | None = None


class Statement(NamedTuple):
    """A statement on one table.

    Attributes:
        place: its place among the changes of the load under way, above those before it.
        kind: ``ALTER_TABLE``, ``DROP_TABLE``, … as the source calls it.
        columns: what it did to columns, by the names that they had before it, in lower case; None: it is not known.
        renamed_to: the table's new name, if it was renamed.
        at: when, as the source says it, for people.
    """

    place: str
    kind: str
    columns: Mapping[str, ColumnStep] | None
    renamed_to: str | None = None
    at: str = ""


class Told(NamedTuple):
    """What a source reports in addition to its changes.

    Attributes:
        signals: how tables fare, by table and code.
        statements: what was done to them, by table; None where nothing reports it.
        by: what reports the statements.
    """

    signals: Mapping[tuple[str, str], str] = MappingProxyType({})
    statements: Mapping[str, Sequence[Statement]] | None = None
    by: str = ""


class ToldColumn(NamedTuple):
    """What became of a column: its name now, or None for one that was dropped; *by* says which statement came first."""

    renamed_to: str | None
    by: str


def what_became_of(column: str, after: str, statements: Sequence[Statement]) -> ToldColumn | None:
    """What statements say became of a column that some row still had; None where they do not say it beyond doubt.

    They are followed from rename to rename. One that adds a column, or gives another one this name, while the column
    has it contradicts that it is there: then a statement before was not told, and nothing is believed. Nor is it where
    the table was made anew.

    Args:
        column: its name.
        after: the place of the last row that has it; what was said up to there speaks of an earlier column.
        statements: all that are told of the table, in any order.
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
            return ToldColumn(None, first or one.place)
        if step.action != ALTER or (moved_in and step.renamed_to is None):
            return None
        if step.renamed_to is not None and step.renamed_to.casefold() != name.casefold():
            name, first = step.renamed_to, first or one.place
    return None if name.casefold() == column.casefold() else ToldColumn(name, first)


def given_again(column: str, first: str, last: str, statements: Sequence[Statement]) -> dict[str, ToldColumn]:
    """What became of columns whose name was given to another one, by the places where they lost it (T-88).

    Rows before and behind such a place have the name, so that they show no gap.

    Args:
        column: the name.
        first: the place of the first row that has it.
        last: the place of the last one.
        statements: all that are told of the table, in any order.
    """
    found: dict[str, ToldColumn] = {}
    for one in statements:
        step = (one.columns or {}).get(column.casefold())
        if step is None or not first < one.place < last:
            continue
        later = [other for other in statements if other.place >= one.place]
        told = what_became_of(column, "", later)
        if told is not None and told.by == one.place and any(_gives(column, other) for other in later):
            found[one.place] = told
    return found


def _gives(column: str, one: Statement) -> bool:
    """Whether a statement gives a column this name: one that is added, or renamed."""
    steps = one.columns or {}
    added = steps.get(column.casefold())
    return (added is not None and added.action == ADD) or any(
        (step.renamed_to or "").casefold() == column.casefold() for step in steps.values()
    )
