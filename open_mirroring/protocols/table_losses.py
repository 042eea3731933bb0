"""The losses that a mirrored table may have while it goes on.

A loss stops nothing. But its code is in every report and changes the exit code, so that no run with a loss looks
complete.
"""

from __future__ import annotations

from typing import NamedTuple

ANY_TABLE = "(any table)"
"""Stands among tables for what concerns all of them."""

DEAD_LETTERS_OPEN = "DEAD_LETTERS_OPEN"
"""Changes of the table could not be read or typed, more than are tolerated: rows of it are as they were before."""

DEAD_LETTERS_HOMELESS = "DEAD_LETTERS_HOMELESS"
"""Messages whose table is unknown: any table may lack a change."""

DEAD_LETTERS_UNCOUNTED = "DEAD_LETTERS_UNCOUNTED"
"""The dead letters of the log have to be counted again: the ledger does not know which are still open."""

TABLE_RENAMED = "TABLE_RENAMED"
"""Nothing comes of the table any more, while changes come of one with a similar name that is not mirrored."""

CHANGES_IGNORED = "CHANGES_IGNORED"
"""Changes of the table were read and ignored before the mirror file named it."""

OFFSETS_MISSING = "OFFSETS_MISSING"
"""Messages between two that were read have not come: any table may lack a change."""

FILE_UNKNOWN = "FILE_UNKNOWN"
"""The source's folder contains links, pipes or hidden folders that are not read: any table may lack a change."""

TABLE_SUSPENDED = "TABLE_SUSPENDED"
"""The task at the source has suspended the table: no change of it comes, though there may be some."""

LOAD_NOT_MADE = "LOAD_NOT_MADE"
"""The mirror file names an initial load of the table, which began without one: its first rows may be missing."""

TABLE_EMPTIED = "TABLE_EMPTIED"
"""The source told that all rows of the table are gone, and sends no change of them."""

NOT_SEEN, BEGUN_LATE, SETUP_INCOMPLETE = "NOT_SEEN", "BEGUN_LATE", "SETUP_INCOMPLETE"
"""Notes: nothing was ever read of the table or of a column that is listed, or nothing since others came up that are not
mirrored; its stream was not read from its first message, and nothing else brought its first rows; its updates do not
tell the key that their row had before."""

CONTROL_TABLE_UNREAD, TASK_ERRORS, TASK_UNKNOWN = "CONTROL_TABLE_UNREAD", "TASK_ERRORS", "TASK_UNKNOWN"
"""Notes: a control table of the task at the source is absent or may not be read; the task recorded errors of the table;
control tables name a table for two tasks, or not the mirror file's task."""


class Loss(NamedTuple):
    """What a table lacks, or may."""

    code: str
    what: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}"
