"""Names of history tables, which publish the same logged changes as the table whose history they keep (G-194)."""

from __future__ import annotations

from collections.abc import Collection

_HISTORY = " (history)"

LOGGED_GENERATION = 1
"""The generation of a table whose loaded rows its history has: those of a reload are no changes."""


def history_of(source: str) -> str:
    """The name of a source table's history in the ledger."""
    return source + _HISTORY


def logged_as(source: str) -> str:
    """The name under which the change log has the changes of a table: for a history, the name of its source table."""
    return source.removesuffix(_HISTORY)


def is_history(source: str) -> bool:
    """Whether a table of the ledger is the history of another table."""
    return source.endswith(_HISTORY)


def is_chosen(source: str, only: Collection[str] | None) -> bool:
    """Whether a table is one of the names *only*; None means every table.

    A history table is chosen by its own name, and by the name of its source table.
    """
    return only is None or source in only or logged_as(source) in only
