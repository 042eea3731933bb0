"""Insert-or-update in the dialects a ledger speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def upsert(
    db: Connection, table: Table, rows: Sequence[dict[str, Any]], *, keys: Sequence[str], update: Sequence[str]
) -> None:
    """Insert rows; where *keys* are taken, overwrite the columns *update* (none: leave the row as it is)."""
    if not rows:
        return
    dialect = postgresql if db.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    if update:
        statement = statement.on_conflict_do_update(
            index_elements=list(keys), set_={column: statement.excluded[column] for column in update}
        )
    else:
        statement = statement.on_conflict_do_nothing(index_elements=list(keys))
    db.execute(statement, list(rows))
