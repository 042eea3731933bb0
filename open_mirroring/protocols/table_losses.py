"""The losses with which a mirrored table continues.

A loss does not stop the table. But its code is in every report and changes the exit code, so that no run with a loss
looks complete.
"""

from __future__ import annotations

from typing import NamedTuple

ANY_TABLE = "(any table)"
"""Replaces the table's name for losses that concern all tables."""

DEAD_LETTERS_OPEN = "DEAD_LETTERS_OPEN"
"""More changes of the table than tolerated could not be decoded: some of its rows are outdated."""

DEAD_LETTERS_HOMELESS = "DEAD_LETTERS_HOMELESS"
"""Dead letters whose table is unknown: any table may lack a change."""

DEAD_LETTERS_UNCOUNTED = "DEAD_LETTERS_UNCOUNTED"
"""The dead letters of the log have to be counted again: the ledger does not know which are still open."""

TABLE_RENAMED = "TABLE_RENAMED"
"""No more changes of the table arrive, but changes of an unmirrored table with a similar name do."""

CHANGES_IGNORED = "CHANGES_IGNORED"
"""Changes of the table were read and ignored before the mirror file contained it."""

OFFSETS_MISSING = "OFFSETS_MISSING"
"""Messages are missing between two that were read: any table may lack a change."""

FILE_UNKNOWN = "FILE_UNKNOWN"
"""The source's folder contains links, pipes or hidden folders that are not read: any table may lack a change."""

TABLE_SUSPENDED = "TABLE_SUSPENDED"
"""The task at the source has suspended the table and sends no changes of it."""

LOAD_NOT_MADE = "LOAD_NOT_MADE"
"""The mirror file configures an initial load, but the table began without it: its first rows may be missing."""

TABLE_EMPTIED = "TABLE_EMPTIED"
"""The source reported that all rows of the table were removed, without a change for each."""

NOT_SEEN, BEGUN_LATE, SETUP_INCOMPLETE = "NOT_SEEN", "BEGUN_LATE", "SETUP_INCOMPLETE"
"""Notes. NOT_SEEN: no message of the table or of a listed column was ever read, or none since messages of unmirrored
tables appeared. BEGUN_LATE: the stream was not read from its first message, and no load contains the first rows.
SETUP_INCOMPLETE: updates do not contain the row's previous key."""

CONTROL_TABLE_UNREAD, TASK_ERRORS, TASK_UNKNOWN = "CONTROL_TABLE_UNREAD", "TASK_ERRORS", "TASK_UNKNOWN"
"""Notes. CONTROL_TABLE_UNREAD: a control table of the task at the source is missing or not readable. TASK_ERRORS: the
task recorded errors of the table. TASK_UNKNOWN: control tables show two tasks for a table, or not the mirror file's
task."""


class Loss(NamedTuple):
    """What a table lacks or may lack."""

    code: str
    what: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}"
