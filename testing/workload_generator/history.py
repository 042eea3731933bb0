"""Random transactions over a few tables, and the resulting rows.

Everything is a function of its seed. A history has the hard cases of change data: keys that are deleted and reused,
updates of the key itself, keys that are exchanged inside one transaction, transactions over several tables, rows
written several times in one transaction, columns added later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from workload_generator.database import Change, Database
from workload_generator.sql_values import typed
from workload_generator.tables import SHOP_TABLES, ColumnDef, Key, Row, TableDef

__all__ = ["SHOP_TABLES", "Change", "ColumnDef", "History", "Key", "Row", "Rows", "TableDef", "fold", "random_history"]

Rows = dict[str, dict[Key, Row]]
"""Rows of several tables: full table name → key → row."""


def fold(changes: Iterable[Change], initial: Mapping[str, Mapping[Key, Row]] | None = None) -> Rows:
    """The reference interpreter: the rows after applying *changes* to *initial*.

    A change removes the row of its old key only if that row is its before image: when keys are exchanged, another row
    may have moved there already. Tables without key are numbered by row.

    Raises:
        ValueError: when a before image differs from a row that its own transaction did not write.
    """
    state: Rows = {name: {key: dict(row) for key, row in rows.items()} for name, rows in (initial or {}).items()}
    tables: dict[str, TableDef] = {}
    written: set[tuple[int, str, Key]] = set()
    for change in sorted(changes, key=lambda one: (one.txn, one.seq)):
        name, table = change.table.full_name, change.table
        tables[name], rows = table, state.setdefault(name, {})
        if change.before is not None:
            key = table.key_of(change.before)
            # A column added meanwhile is missing in an older row, and NULL in the before image.
            if key in rows and all(rows[key].get(column) == value for column, value in change.before.items()):
                del rows[key]
            elif (change.txn, name, key) not in written:
                raise ValueError(f"{name} {key} in transaction {change.txn}: the before image is not the row")
        if change.after is not None:
            key = table.key_of(change.after) if table.key else (str(len(rows)),)
            rows[key] = dict(change.after)
            written.add((change.txn, name, key))
    for name, table in tables.items():
        for key, row in state[name].items():
            state[name][key] = {column.name: row.get(column.name) for column in table.columns}
    return state


@dataclass(frozen=True, slots=True)
class History:
    """A complete history: tables at the end, rows before it, its changes, rows after it."""

    tables: dict[str, TableDef]
    initial: Rows
    changes: list[Change]
    final: Rows

    def typed_final(self, full_name: str) -> list[dict[str, Any]]:
        """The rows at the end, typed (times cut to microseconds), ordered by the texts of their keys."""
        types = {column.name: column.sql_type for column in self.tables[full_name].columns}
        return [
            {name: typed(types[name], text) for name, text in row.items()}
            for _, row in sorted(self.final[full_name].items())
        ]


def random_history(
    seed: int | str,
    transactions: int,
    *,
    tables: Sequence[TableDef] = SHOP_TABLES,
    rows: int = 0,
    add_column_at: Mapping[int, tuple[str, ColumnDef]] | None = None,
) -> History:
    """A history of this many transactions, the same for the same arguments.

    Args:
        seed: of all random choices.
        transactions: how many; numbered from 1.
        tables: parents before children.
        rows: rows per table before the first transaction, without changes.
        add_column_at: transaction number → (full table name, nullable column) added just before it.
    """
    rng = Random(f"history:{seed}")
    database = Database(tables)
    database.populate(rng, rows)
    initial = {name: {key: row.copy() for key, row in state.rows.items()} for name, state in database.tables.items()}
    changes: list[Change] = []
    for txn in range(1, transactions + 1):
        if add_column_at and txn in add_column_at:
            database.add_column(*add_column_at[txn])
        changes += database.commit(rng)
    return History(
        tables={name: state.table for name, state in database.tables.items()},
        initial=initial,
        changes=changes,
        final={name: state.rows for name, state in database.tables.items()},
    )
