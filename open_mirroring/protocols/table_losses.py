"""The losses that a mirrored table may have while it goes on, and the way out of each.

A loss stops nothing. But its code is in every report and changes the exit code, so that no run with a loss looks
complete.
"""

from __future__ import annotations

from typing import NamedTuple

from open_mirroring.protocols import table_stops

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

TABLE_TRUNCATED, TABLE_DROPPED = "TABLE_TRUNCATED", "TABLE_DROPPED"
"""The source told that all rows of the table are gone, and sends no change of them."""

NEVER_SEEN, QUIET_SINCE = "NEVER_SEEN", "QUIET_SINCE"
COLUMN_NEVER_SEEN, BEGUN_LATE, KEY_CHANGES_UNTOLD = "COLUMN_NEVER_SEEN", "BEGUN_LATE", "KEY_CHANGES_UNTOLD"
"""Notes: nothing was ever read of the table; nothing since others came up that are not mirrored; no row has a column
that is listed; its stream was not read from its first message, and nothing else brought its first rows; its updates do
not tell the key that their row had before."""

APPLY_EXCEPTIONS, CONTROL_TABLE_UNREAD = "APPLY_EXCEPTIONS", "CONTROL_TABLE_UNREAD"
TASKS_MIXED, TASK_UNKNOWN = "TASKS_MIXED", "TASK_UNKNOWN"
"""Notes: the task at the source recorded errors of the table; a control table of it is absent or may not be read;
control tables name a table for two tasks; they do not name the mirror file's task."""

WAYS_OUT = {
    DEAD_LETTERS_OPEN: "look at `open-mirroring dead-letters`: it says what to do about each; what nobody can mend is "
    "settled by `open-mirroring accept-dead-letters`, or tolerated by `dead_letters` in the mirror file",
    DEAD_LETTERS_HOMELESS: "look at `open-mirroring dead-letters --raw` for whose they are; replay them once the cause "
    "is mended, or settle what concerns no mirrored table by `open-mirroring accept-dead-letters`",
    DEAD_LETTERS_UNCOUNTED: "run `open-mirroring tick`, or `open-mirroring status`: both count them",
    TABLE_RENAMED: "find out whether it was renamed at the source: if so, name the new one in the mirror file, with an "
    "initial load, and drop this one (`open-mirroring drop-table`); else list the other one under `ignore`",
    OFFSETS_MISSING: "deliver the lines with these offsets, in any file; if they are lost, `open-mirroring prove` "
    "tells the rows that differ, and `open-mirroring accept-dead-letters --code OFFSETS_MISSING` settles the gaps; "
    "where the lines are only some of the messages, say `offset_gaps: expected` under `source`",
    table_stops.HASH_UNMATCHED: table_stops.WAYS_OUT[table_stops.HASH_UNMATCHED],
    FILE_UNKNOWN: "repair the links, and rename or move folders and files, or move what is none of the source's out of "
    "its folder; the next run looks again",
    TABLE_SUSPENDED: "mend what the task names as the reason, and have it go on with the table or reload it; after a "
    "reload, or where changes were lost, reset the table with an initial load (`open-mirroring reload-table`)",
    LOAD_NOT_MADE: "reset the table, which then begins with that load (`open-mirroring reload-table`); or take "
    "`initial_load` out of the mirror file, if the table began empty",
    TABLE_TRUNCATED: "reset the table with an initial load made afterwards (`open-mirroring reload-table`): it takes "
    "the rows away that went without a change each",
    TABLE_DROPPED: "drop it at the target as well (`open-mirroring drop-table`); if the source has made it again under "
    "its name, reset it with an initial load made afterwards (`open-mirroring reload-table`)",
    CHANGES_IGNORED: "reset the table with an initial load (`open-mirroring reload-table`); if those changes were read "
    "again since, or do not matter, list the table under `ignore`",
}
"""What to do, by code."""


class Loss(NamedTuple):
    """What a table lacks, or may."""

    code: str
    what: str

    def __str__(self) -> str:
        return f"{self.code}: {self.what}"
