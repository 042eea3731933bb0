"""Warns before a mirror exceeds a limit of Fabric, above which tables are left out or slowed down (F-91).

Public sources: Microsoft Learn, *Troubleshoot Fabric mirrored databases* (tables, bytes a day) and *Tables in Fabric
data warehousing* (columns, of warehouses and SQL analytics endpoints).
"""

from __future__ import annotations

from open_mirroring.config import Mirror
from open_mirroring.config.problems import Problem
from open_mirroring.config.tables import ColumnSelection, Table

MOST_TABLES = 1_000
"""The number of tables that one mirrored database can have."""
MOST_BYTES_A_DAY = 1_000_000_000_000
"""The bytes of changes that a mirrored database accepts in one day before it slows down."""
_MANY_TABLES = 900
_MOST_COLUMNS = 1_024


def limit_warnings(mirror: Mirror) -> list[Problem]:
    """Return warnings (``TARGET_LIMIT``) about too many tables, and about tables with too many columns.

    The number of tables gives a warning above 90 percent of its limit. Warnings stop nothing.
    """
    found = []
    if len(mirror.targets) > _MANY_TABLES:
        what = f"a mirrored database takes {MOST_TABLES:,} tables, this mirror has {len(mirror.targets):,}"
        next_step = "divide the tables between mirrors, each with its database"
        found.append(mirror.problem(("tables",), "TARGET_LIMIT", what, next_step))
    for place, table in mirror.placed_tables:
        named = _named_columns(table)
        if named > _MOST_COLUMNS:
            what = f"the target's SQL endpoint takes {_MOST_COLUMNS:,} columns of a table, this one names {named:,}"
            next_step = "leave some out with `columns`, or read the table with Spark"
            found.append(mirror.problem(place, "TARGET_LIMIT", what, next_step))
    return found


def is_near_daily_bytes(published: int) -> bool:
    """Whether the bytes published on one day are at least 90 percent of Fabric's daily limit."""
    return published >= MOST_BYTES_A_DAY // 10 * 9


def _named_columns(table: Table) -> int:
    if table.delimited_text is not None:
        return len(table.delimited_text.columns)
    chosen = table.columns
    if isinstance(chosen, ColumnSelection):
        return sum("*" not in name for name in chosen.include or ())
    return len(chosen or ())
