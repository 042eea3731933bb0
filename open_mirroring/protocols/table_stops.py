"""Stops that reading or planning sets on a table.

Such a stop concerns one table. The changes of a stopped table are still read and logged, and the other tables continue
to be published. :mod:`open_mirroring.codes` explains each code.
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
    """Format the text of a stop: the setting `hash` lists *columns* that no table has.

    A column whose name is misspelled in `hash` would be published without hashing. *among* is the phrase for the tables
    that were searched.
    """
    why = f"no column of {among} has this name: a column that is spelled differently would be published unhashed"
    return f"`hash` names {', '.join(map(repr, columns[:5]))}, and {why}"
