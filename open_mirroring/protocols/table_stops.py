"""Stops that extraction or planning sets on a table.

Such a stop concerns one table. Its changes are still read and logged, and the other tables go on.
"""

from __future__ import annotations

from collections.abc import Sequence

LOAD_NEEDED = "LOAD_NEEDED"
"""The log does not hold every change of the table: only a load tells its rows."""

KEY_UNKNOWN, KEY_MENDED = "KEY_UNKNOWN", "KEY_MENDED"
"""A key cannot be read; the mirror file names another one since, and what was rejected is read again by it."""
NEW_TABLE = "NEW_TABLE"
"""The table joined by a pattern that asks, and nobody has accepted it yet (G-71)."""
LEDGER_UNKNOWN = "LEDGER_UNKNOWN"
"""The ledger was lost and made again, and what it knew of the table could not be found out."""

RELOAD_SEEN = "RELOAD_SEEN"
"""Rows of a full load came behind changes of their table: the source was loaded again (K-18)."""

LOAD_REPEATED = "LOAD_REPEATED"
"""A full load came a second time, and rows of the first have not come again (G-85)."""

LOAD_UNREAD = "LOAD_UNREAD"
"""A full load lies beside the changes, and the table names no initial load."""

PARTIAL_ROWS, ROW_INCOMPLETE = "PARTIAL_ROWS", "ROW_INCOMPLETE"
"""Updates may carry only what changed: no row proved their columns to be all (C-44); no change tells all of a row."""

SWAP_POSSIBLE = "SWAP_POSSIBLE"
"""A row left a key that another row had just taken, and nothing tells which of two rows it was (G-115)."""

HASH_UNMATCHED = "HASH_UNMATCHED"
"""A column that is to be hashed is none of the table's, or of no table: one that is meant would land in clear."""


def unhashed_text(columns: Sequence[str], among: str = "the table") -> str:
    """What is wrong where `hash` names *columns*, and none of *among*, one table or any, is called so."""
    why = f"no column of {among} is called so: one that is spelled otherwise lands in clear"
    return f"`hash` names {', '.join(map(repr, columns[:5]))}, and {why}"
