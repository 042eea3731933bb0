"""Stops that extraction or planning sets on a table.

Such a stop concerns one table. Its changes are still read and logged, and the other tables continue.
:mod:`open_mirroring.codes` says what each code means.
"""

from __future__ import annotations

from collections.abc import Sequence

LOAD_NEEDED = "LOAD_NEEDED"
KEY_UNKNOWN, KEY_CORRECTED = "KEY_UNKNOWN", "KEY_CORRECTED"
NEW_TABLE = "NEW_TABLE"  # G-71
LEDGER_UNKNOWN = "LEDGER_UNKNOWN"
RELOAD_SEEN = "RELOAD_SEEN"  # K-18
LOAD_REPEATED = "LOAD_REPEATED"  # G-85
LOAD_UNREAD = "LOAD_UNREAD"
PARTIAL_ROWS, ROW_INCOMPLETE = "PARTIAL_ROWS", "ROW_INCOMPLETE"  # C-44
COLUMN_NOT_STREAMED = "COLUMN_NOT_STREAMED"  # C-77
SWAP_POSSIBLE = "SWAP_POSSIBLE"  # G-115
HASH_UNMATCHED = "HASH_UNMATCHED"
FILTER_UNDECIDED = "FILTER_UNDECIDED"  # G-193


def unhashed_text(columns: Sequence[str], among: str = "the table") -> str:
    """The text of a stop: `hash` lists *columns* that no table of *among* has, so real ones may be unhashed."""
    why = f"no column of {among} is called so: one that is spelled otherwise lands in clear"
    return f"`hash` names {', '.join(map(repr, columns[:5]))}, and {why}"
