"""Stops that extraction or planning sets on a table.

Such a stop concerns one table. Its changes are still read and logged, and the other tables continue.
"""

from __future__ import annotations

from collections.abc import Sequence

LOAD_NEEDED = "LOAD_NEEDED"
"""The log does not contain every change of the table, so it needs a load."""

KEY_UNKNOWN, KEY_MENDED = "KEY_UNKNOWN", "KEY_MENDED"
"""KEY_UNKNOWN: a key cannot be read. KEY_MENDED: the mirror file has another key since, and rejected messages are read
again with it."""
NEW_TABLE = "NEW_TABLE"
"""The table joined by a pattern that requires acceptance, and is not accepted yet (G-71)."""
LEDGER_UNKNOWN = "LEDGER_UNKNOWN"
"""The ledger was rebuilt after a loss, without everything it had stored about the table."""

RELOAD_SEEN = "RELOAD_SEEN"
"""Rows of a full load follow changes of their table: the source was loaded again (K-18)."""

LOAD_REPEATED = "LOAD_REPEATED"
"""A full load was repeated, and some rows of the first one are missing in the second (G-85)."""

LOAD_UNREAD = "LOAD_UNREAD"
"""There is a full load next to the changes, and the table has no initial load configured."""

PARTIAL_ROWS, ROW_INCOMPLETE = "PARTIAL_ROWS", "ROW_INCOMPLETE"
"""PARTIAL_ROWS: updates may contain only the changed columns, and no row proved that they contain all (C-44).
ROW_INCOMPLETE: no change contains the complete row."""

SWAP_POSSIBLE = "SWAP_POSSIBLE"
"""A row left a key that another row had just taken, and it is unclear which of two rows it was (G-115)."""

HASH_UNMATCHED = "HASH_UNMATCHED"
"""A column listed under `hash` matches no column, so the intended one would land as clear text."""


def unhashed_text(columns: Sequence[str], among: str = "the table") -> str:
    """Describe that `hash` lists *columns* which no table of *among* has."""
    why = f"no column of {among} is called so: one that is spelled otherwise lands in clear"
    return f"`hash` names {', '.join(map(repr, columns[:5]))}, and {why}"
