"""The way out of each stop that extraction or planning sets on a table, by its code.

Such a stop concerns one table. Its changes are still read and logged, and the other tables go on.
"""

from __future__ import annotations

from collections.abc import Sequence

RESET = "reset the table (`open-mirroring reload-table`)"
"""Drop the table at the target and build it anew, by a load or from the log."""
FROM_LOG = ", which builds it from the log where that tells every row, and says so where a new `initial_load` is needed"
DROP = "drop it at the target (`open-mirroring drop-table`)"

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

WAYS_OUT = {
    NEW_TABLE: "accept it (`open-mirroring accept-table`): its changes are logged from the first one on; or name it "
    f"under `exclude` of its pattern, and {DROP}",
    "SCHEMA_CHANGED": f"the target cannot change a column's type in place: {RESET}{FROM_LOG}; if an export "
    "without `types` brought the column, name its SQL type under `types` of the load first",
    "COLUMN_NOT_STREAMED": "if they were dropped at the source, run `open-mirroring accept-schema --dropped COLUMN…`; "
    f"if the source does not send them, exclude them in the mirror file (`columns: {{exclude: […]}}`), and {RESET}",
    "RENAME_POSSIBLE": "look at the source: if a column was dropped, run `open-mirroring accept-schema --dropped "
    "COLUMN…`, and the table goes on; if it was renamed, `--renamed OLD=NEW`, and the table is built from scratch; "
    "`on_possible_rename: dropped` answers for all; where `columns` does not list the new name, list it instead, and "
    f"{RESET} with a new initial load",
    "COLUMN_RENAMED": f"{RESET}{FROM_LOG}; either brings the values under the new name",
    "COLUMN_BACK": f"{RESET}{FROM_LOG}; either leaves out the values of the column that was dropped",
    "COLUMN_ADDED": "nothing tells whether the column came with a default, which the rows have that did not change: "
    f"{RESET} with a new initial load; or, if it came without one, say `require_reload_on_add: false` and lift the "
    "stop",
    "COLUMN_RESERVED": "the target reserves this column name, or cannot hold it: leave it out in the "
    "mirror file (`columns: {exclude: […]}`) and lift the stop, or rename it at the source",
    "COLUMN_CASE": "the target compares column names without case: list `columns` with one of the two in the mirror "
    "file and lift the stop, or rename one at the source",
    "COLUMN_COLLISION": "give one of the two another name by `rename`, or leave it out (`columns: {exclude: […]}`), in "
    "the mirror file, and lift the stop",
    "SALT_CHANGED": "put the salt's connection back as it was, and lift the stop; if it shall have the new one, "
    f"{RESET}: all hashes are made anew",
    HASH_UNMATCHED: "spell the column under `hash` as the source does; if it is still to come, write a pattern, as in "
    "`email*`, or leave it out; where the table stopped, lift the stop then",
    "TYPE_UNKNOWN": "land the column as text (`types: {column: string}` in the mirror file) and lift the stop; a "
    "column that is no key can also be left out (`columns: {exclude: […]}`)",
    "TYPE_UNSUPPORTED": "correct `types` in the mirror file (docs/types.md shows what fits) and lift the stop; string "
    "always fits, and a column that is no key can also be left out (`columns: {exclude: […]}`)",
    "KEY_MISSING": f"correct `key` in the mirror file: names and spelling as at the source; then {RESET}",
    KEY_UNKNOWN: "compare `key` in the mirror file with the primary key at the source, and mend it: while no change is "
    "logged by the old one, the next run reads again by the new one what was rejected; where a newer version of this "
    f"product reads the dead letter, replay it; else {RESET} with a load: a change of an unknown row is missing",
    KEY_MENDED: "run again: what was rejected is read again by the key of now",
    "CHANGES_MISSING": "deliver what the message names again, sound and under a new name; once that is read, lift the "
    "stop: what was read already is dropped",
    "CHANGES_RECOVERED": "lift the stop: what a dead letter hid was replayed or read again, and takes its place in the "
    "order",
    PARTIAL_ROWS: "set @include_all_columns = 1 for the table at the source and reset it; or, if its updates "
    "carry whole rows, say `full_rows: true`, or, if the log holds its rows from their insert or load on, "
    "`complete_rows: true` in the mirror file, and lift the stop",
    ROW_INCOMPLETE: "the batch that brings the missing changes lifts the stop by itself; if they never come, set "
    f"@include_all_columns = 1 for the table at the source, and {RESET}",
    SWAP_POSSIBLE: "touch at the source the row of that key (an update that sets a column to itself), or, if there is "
    "none, insert one and delete it: the batch that brings it lifts the stop by itself; or "
    f"{RESET} with an `initial_load` made after that transaction",
    "TABLE_CASE": "spell `source` or `change_table` in the mirror file as the source does, and lift the stop",
    "SUFFIX_DIFFERS": "set `table_suffix` to what the folders of the task's change tables end with, and lift the stop",
    LOAD_UNREAD: "give the table an `initial_load` with the format qlik-full-load and the folder of that load, and "
    f"{RESET}; or, if its rows do not matter, move its files out of the source's folder and lift the stop",
    "HEADER_MISSING": "select change_seq and change_oper in the task's Store Changes settings, or mend "
    "`header_prefix`; then lift the stop",
    "SEQUENCE_INVALID": "see that only the task writes into the change table, remove the foreign row, then lift the "
    "stop",
    "CHANGES_WENT_BACK": "see whether the change table was made anew or restored: changes may be lost, and new ones "
    f"count from a lower place; give `load` a new name in the mirror file, and {RESET}",
    "IDENTITY_CONFLICT": "see that the source path holds the events of one stream group of one database only; which of "
    f"the two values is true cannot be decided from the events: {RESET}",
    "SENDER_OTHER": "of two databases name the one to mirror as `source.database`, of two tasks take the topic of one "
    f"out, and {RESET} with a load; or, if it is the same source under a new name and nothing was missed, lift the "
    "stop",
    "SCHEMA_SHARED": f"{RESET}, and the other table that is named, each with a load made after this stop; name the "
    "`topic` of each table, or have the task name schema and table in its headers, so that ids decide nothing",
    "EPOCH_UNKNOWN": f"{RESET} with a load made after the new stream began; or, if nothing changed at the source in "
    "between, accept the stream: `open-mirroring accept-epoch`; if a Qlik task has written its full load anew beside "
    "the change tables, say that it counts: `open-mirroring accept-reload`; if the table was dropped and made again, "
    "empty, before it, say that with the reset (`--made-anew`)",
    "HANDOVER_INVALID": "the load may hold changes of the stream: load an export with `handover: exact`, and the first "
    f"commit that is not in it as `stream_from`; then {RESET}",
    "KEY_DUPLICATE": f"name the whole primary key as `key`, or mend the export, and {RESET}",
    "KEY_NULL": f"name the primary key as `key`, or mend the export, and {RESET}",
    "VALUE_AMBIGUOUS": f"name the column's SQL type under `types` of the initial load, and {RESET}",
    "KEY_AMBIGUOUS": f"name the column's SQL type under `types` of the initial load, and {RESET}",
    "VALUE_INVALID": f"correct the value in the export, or the column's type under `types`, and {RESET}",
    "LOAD_UNFILLED": "have the export write char(n), nchar(n) and binary(n) with their full length, without TRIM, "
    f"or load over JDBC; then {RESET}",
    "EXPORT_INVALID": f"deliver a complete export with a `stream_from` of its own, and {RESET}",
    "LATE_BELOW_HORIZON": "find out why the source sent it so late, and raise `maintenance.keep_days` if that may "
    f"happen again; whether it is still the newest of its key is not known: {RESET}",
    RELOAD_SEEN: "when that load has ended at the source, say that it counts (`open-mirroring accept-reload`): the "
    "next run builds the table anew from it and the changes behind it; where the log does not tell where it begins, "
    f"{RESET} with an `initial_load` made after it",
    LOAD_REPEATED: "wait until the second load has come to its end: the stop is lifted once every row came again; if "
    "some never do, the source may have them no more: say that the second load counts (`open-mirroring "
    f"accept-reload`), or {RESET} with an `initial_load` made after that load ended; if nothing was loaded again, and "
    "messages were only delivered twice, lift the stop",
    LOAD_NEEDED: f"give the table an `initial_load` in the mirror file, then {RESET}",
    LEDGER_UNKNOWN: f"{RESET}; the other tables go on",
    "KEYLESS_CHANGE": f"without key a table takes inserts only: give it a `key`, and {RESET}",
}
"""What to do, by code; what was found stands beside the code."""

NEEDS_RESET = {
    "SCHEMA_CHANGED": "published files hold the column in its old type, and a type cannot change in place",
    "COLUMN_NOT_STREAMED": "published rows hold the column as it was loaded, and no change tells what became of it",
    "COLUMN_RENAMED": "the values of rows that did not change since the rename stand under the old name",
    "COLUMN_BACK": "published rows hold values of the column that was dropped",
    "IDENTITY_CONFLICT": "which of the two values is true cannot be decided from the events",
    "SCHEMA_SHARED": "rows of one table were published as rows of another one",
    "KEY_UNKNOWN": "a change of an unknown row is missing, and nothing looks at it again",
    "LATE_BELOW_HORIZON": "the log no longer holds what the late change has to be compared with",
    RELOAD_SEEN: "keys that the new load lacks would stay, and its rows lie below every change of the old one",
    "KEYLESS_CHANGE": "which row the change meant is not known",
    "CONFLICT": "the service may have applied what somebody else wrote under our number",
    LEDGER_UNKNOWN: "what of it was published is not known",
    LOAD_NEEDED: "changes of the time in which the table was not mirrored were not read",
    "AMBIGUOUS": "whether the number was applied is not known, and publishing it again could apply it twice",
}
"""Stops that no clearing mends, and why: the table has to be reset. All others are checked again by the next run."""


def unhashed_text(columns: Sequence[str], among: str = "the table") -> str:
    """What is wrong where `hash` names *columns*, and none of *among*, one table or any, is called so."""
    why = f"no column of {among} is called so: one that is spelled otherwise lands in clear"
    return f"`hash` names {', '.join(map(repr, columns[:5]))}, and {why}"
