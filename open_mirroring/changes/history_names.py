"""Names of history tables: the ledger has them next to the tables whose logged changes they publish (G-194)."""

from __future__ import annotations

from collections.abc import Collection

_HISTORY = " (history)"

LOGGED_GENERATION = 1
"""The generation of a table whose loaded rows its history has: those of a reload are no changes."""


def history_of(source: str) -> str:
    """The name under which the ledger has the history of a source table."""
    return source + _HISTORY


def logged_as(source: str) -> str:
    """The name under which the log has the changes that a table of the ledger publishes."""
    return source.removesuffix(_HISTORY)


def is_history(source: str) -> bool:
    """Whether a table of the ledger is the history of another one."""
    return source.endswith(_HISTORY)


def is_chosen(source: str, only: Collection[str] | None) -> bool:
    """Whether a table is one of *only*: a history is meant by its own name, and by that of its table. None: all are."""
    return only is None or source in only or logged_as(source) in only
