"""Losses: rows or changes that a mirrored table lacks, or may lack, while it continues to be published.

A loss does not stop the table. But the code of the loss is in every report and changes the exit code, so that no run
with a loss looks complete. :mod:`open_mirroring.codes` explains each code.
"""

from __future__ import annotations

from typing import NamedTuple

ANY_TABLE = "(any table)"
"""Replaces the table's name for losses that concern all tables."""

DEAD_LETTERS_OPEN = "DEAD_LETTERS_OPEN"
DEAD_LETTERS_UNNAMED = "DEAD_LETTERS_UNNAMED"
DEAD_LETTERS_UNCOUNTED = "DEAD_LETTERS_UNCOUNTED"
TABLE_RENAMED = "TABLE_RENAMED"
CHANGES_IGNORED = "CHANGES_IGNORED"
OFFSETS_MISSING = "OFFSETS_MISSING"
FILE_UNKNOWN = "FILE_UNKNOWN"
TABLE_SUSPENDED = "TABLE_SUSPENDED"
LOAD_NOT_MADE = "LOAD_NOT_MADE"
TABLE_EMPTIED = "TABLE_EMPTIED"
NOT_SEEN, BEGUN_LATE, SETUP_INCOMPLETE = "NOT_SEEN", "BEGUN_LATE", "SETUP_INCOMPLETE"
CONTROL_TABLE_UNREAD, TASK_ERRORS, TASK_UNKNOWN = "CONTROL_TABLE_UNREAD", "TASK_ERRORS", "TASK_UNKNOWN"


class Loss(NamedTuple):
    """What rows or changes a table lacks, or may lack."""

    code: str
    what: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}"
