"""The table of all codes of errors, stops, holds, losses, dead letters and notes, with their meaning and next step.

A code names one cause and one next step; the message that is shown with the code has the details. If the product acts
on a code, the code has a *trait* for this action. docs/runbook.md is generated from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from functools import cache
from typing import NamedTuple

RESET = "reset the table (`open-mirroring reload-table`)"
"""Drop the table at the target and build it from scratch, by a load or from the log."""
FROM_LOG = ", from the change log if that contains every row, and if not with a new `initial_load`"
DROP = "drop it at the target (`open-mirroring drop-table`)"
_LIFT = "lift the stop (`open-mirroring resume`)"


class Kind(StrEnum):
    """The kinds of reports in which codes appear (stop, hold, loss …), the most serious kind first."""

    STOP = "stop"
    """A table is not published until the stop is lifted. Its changes are logged."""
    HOLD = "hold"
    """A table is not published until the cause is gone. Its changes are logged."""
    LOSS = "loss"
    """The table goes on, but lacks something. The exit code shows it."""
    LETTER = "dead letter"
    """A message or row is set aside. Nothing waits for it."""
    ERROR = "error"
    """A command, a job or a mirror file is refused, or a job ends early. Nothing is committed partially."""
    NOTE = "note"
    """Something is worth a look. It has no effect."""


class Lift(StrEnum):
    """What ends the condition that a code reports: it ends by itself, by a run, or by an operator's decision."""

    ITSELF = "by itself, once the cause is gone"
    NEXT_RUN = "with the next run"
    RESUME = "by `open-mirroring resume`, once the cause is gone"
    DECISION = "by your decision"
    RESET = "only by a reset of the table (`open-mirroring reload-table`)"
    LETTER = "by a later change of the same row, or when you replay or accept the dead letter"
    CALL = "when you have fixed the cause and run again"


class Trait(Enum):
    """A property of a code on which the product acts."""

    HEALED_BY_COPY = "the dead letter hides complete changes, and a sound copy or a decoder that knows more heals it"
    OF_A_FILE = "the dead letter is of a file, not of a message: only reading the file again makes anything of it"
    HIDES_CHANGES = "a dead letter causes the stop: it hides which rows were meant"
    BEFORE_A_LOAD = "the cause of the stop may lie before the newest full load: what is behind it is judged again"
    FOLLOWED = "a change of structure that a run may follow by building the table from scratch"
    EXPLAINED = "the stop may be over once it is known what became of a column"
    REPAIRED = "publishing a lost file again fixes it, or the stop does not forbid that"
    REPAIRABLE = "a file that is lost can be published again"
    RESET_HELPS = "a reset of the table ends the loss"
    RUN_HELPS = "a run ends it"
    ASKS_OPERATOR = "a hold whose cause only an operator can remove"
    WAITED_FOR = "a load waits until its cause is put back as it was; any other error of a row ends the load"
    PASSES = "the deep check reports it and stops nothing"


class Code(NamedTuple):
    """One code of a message.

    Attributes:
        name: the code itself, such as ``LOG_DAMAGED``.
        kinds: as what the code is reported, the most serious kind first.
        lift: what ends the reported condition.
        means: what is wrong, and what that means for the data.
        next_step: what to do, as a part of a sentence.
        why_reset: why only a reset of the table ends the stop; empty for other codes.
        why_load: why the change log does not contain every change of the table after this stop; empty for other codes.
        traits: what the product does when the code is reported.
        never: what the operator must not do, as a part of a sentence; empty if no harmful action is likely.
    """

    name: str
    kinds: tuple[Kind, ...]
    lift: Lift
    means: str
    next_step: str
    why_reset: str = ""
    why_load: str = ""
    traits: frozenset[Trait] = frozenset()
    never: str = ""


def _code(
    name: str, kinds: tuple[Kind, ...], lift: Lift, means: str, fix: str, *traits: Trait, never: str = ""
) -> Code:
    return Code(name, kinds, lift, means, fix, traits=frozenset(traits), never=never)


def _reset(
    name: str, means: str, fix: str, why_reset: str, *traits: Trait, why_load: str = "", never: str = ""
) -> Code:
    return Code(name, (Kind.STOP,), Lift.RESET, means, fix, why_reset, why_load, frozenset(traits), never)


_STOP, _HOLD, _LOSS, _LETTER = (Kind.STOP,), (Kind.HOLD,), (Kind.LOSS,), (Kind.LETTER,)
_ERROR, _NOTE = (Kind.ERROR,), (Kind.NOTE,)

# fmt: off
_TABLE = (
    # The landing zone is not as we left it.
    _code("INCARNATION_CHANGED", _STOP, Lift.RESUME,
        "The table's folder in the landing zone was deleted, copied or re-created. The target table may lack "
        "published rows.",
        f"find out who deleted or replaced the folder. Then {RESET}",
        never="copy the marker file `_incarnation.json` back: a copy is another object, and the stop stays"),
    _code("FOREIGN_WRITER", _STOP, Lift.ITSELF,
        "Another ledger or tool publishes into the table's folder. Two writers would use the same file numbers.",
        "find the other deployment that publishes into this folder. End one of the two deployments, give this one "
        f"its own landing zone or `target`, or let both use one ledger. If the other ledger is lost, {RESET}",
        never="delete the other writer's files before you know whether Fabric has applied them"),
    _code("LEDGER_LOST", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "The landing zone or the change log contains files or batches of this mirror, but the ledger has no record of "
        "them. Nothing is read, published or removed.",
        "restore the newest copy of the ledger, or correct `ledger` in the mirror file. If another deployment of "
        "this mirror publishes into the same landing zone, end one of the two, or let both use one ledger. If no "
        f"copy is left, rebuild the ledger (`open-mirroring rebuild-ledger`), or {RESET}",
        never="start with an empty ledger: the mirror would publish every change a second time"),
    _code("METADATA_CHANGED", _STOP, Lift.RESUME,
        "The table's `_metadata.json` in the landing zone is missing, unreadable, or names other key columns "
        "than the mirror file.",
        f"put back the `_metadata.json` with which the table was created, and {_LIFT}. If Fabric created the target "
        f"table with the other key columns, {RESET} instead",
        never="edit the key columns in `_metadata.json`: updates and deletes would change the wrong rows"),
    _code("FOREIGN_ITEM", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "The table's folder in the landing zone contains a link, a file of another writer, or a file that is back "
        "after Fabric removed it.",
        "find out who put the file there. Move a link, or a file without a number, out of the folder. Compare a "
        "numbered file with the file of this number in Fabric's folder of processed files. If the two are equal, "
        f"Fabric applied the file: {RESET}; if they differ, move the file out of the folder",
        never="delete a numbered file before you have compared it: Fabric keeps the file with the highest number on "
              "purpose"),
    _code("LEDGER_BEHIND", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "The landing zone or the change log contains file or batch numbers that this ledger never assigned, or a copy "
        "of this ledger has published.",
        "if the entire mirror is stopped, decide which of the two ledgers you keep, and end the other deployment. Then "
        "run `open-mirroring resume-extraction` with the ledger that you keep. If only a table is stopped, end the "
        "other deployment that writes to its folder, or restore the newest ledger. If the newest ledger is lost, "
        f"{RESET}",
        never="publish with the older ledger: it would use file numbers twice"),
    _code("CONTENT_CHANGED", _STOP, Lift.RESUME,
        "A published file differs from the file that was written. Fabric may have applied either version.",
        "find out who replaced the file or edited the ledger. If Fabric may have applied other rows than the ledger "
        f"records, {RESET}. If the file that Fabric applied is the right one, {_LIFT}",
        never="overwrite a numbered file: Fabric never reads a processed number again"),
    _code("FILE_MISSING", _STOP, Lift.ITSELF,
        "A published file is missing, and nothing shows that Fabric applied and deleted it. Fabric waits for that "
        "file, or the changes in the file are lost.",
        "find out who removed the file, and move the same file back. If the file is lost and Fabric has not applied "
        f"it, publish it again (`open-mirroring repair`). If Fabric may have applied it, {RESET}",
        Trait.REPAIRED, Trait.REPAIRABLE,
        never="renumber or copy other files to fill the gap"),
    _code("TARGET_FAILED", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "Fabric reports that the table failed, or that mirroring of its database was stopped.",
        f"read Fabric's error for the table and fix its cause, or {RESET}. If mirroring was stopped, find out who "
        "stopped it and why. Never restart mirroring of the database for one table: a restart rebuilds every table",
        Trait.REPAIRED),
    _code("TARGET_RESTARTED", _STOP, Lift.RESUME,
        "Fabric counts fewer processed rows than before: it has started the table from scratch.",
        "find out who stopped and started mirroring, or changed the table in Fabric. If the target has all rows and "
        f"only Fabric's count began again, run `open-mirroring resume`. If rows are missing, {RESET}, and every other "
        "table with this code",
        never="stop and start mirroring again: Fabric would look for files that may have been deleted"),
    _reset("CONFLICT",
        "Another writer put a file of its own under a file number that this mirror was about to publish.",
        f"find out who wrote that file. Fabric may have applied it, so {RESET}",
        "the service may have applied the other writer's file",
        never="overwrite or delete the other writer's file: Fabric may have applied it"),
    _reset("AMBIGUOUS",
        "A file that was ready to be published is missing, and nothing shows whether Fabric applied it.",
        f"find out who removed the file. Publishing it again could apply its changes twice, so {RESET}",
        "whether the file was applied is unknown, and publishing it again could apply it twice",
        never="clean staging folders by hand: this is the usual cause"),
    _code("FILE_UNFIT", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "A data file in the landing zone does not fit its table: its columns, keys or row markers are wrong. If the "
        "file was not published yet, it stays unpublished.",
        "run again. If the error comes back, report a defect, with the version of this product that wrote the file. "
        f"Compare the target with the source (`open-mirroring prove`). If they differ, {RESET}, and if they do not, "
        f"{_LIFT}"),
    _code("COUNTS_DIFFER", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "Messages, changes or published files were counted in two ways, and the counts differ. Changes may be "
        "missing.",
        "find out who edited or restored the ledger. If no one did, report a defect. Compare the target with the "
        f"source (`open-mirroring prove`). If they differ, {RESET}, and if they do not, {_LIFT}"),
    Code("LOG_DAMAGED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The change log was changed by another tool: files or batches are missing, unreadable or different. Or the "
        "ledger has no record of batches that were committed.",
        "look up in the Delta history of the change log who changed it. Restore the earlier version of the change log, "
        f"or a backup of the change log or ledger, and {_LIFT}. If that is not possible, {RESET}",
        why_load="parts of the change log are missing or were changed",
        never="let another tool compact, vacuum or edit the change log"),
    _code("LOG_CONFLICT", (Kind.STOP, Kind.ERROR), Lift.DECISION,
        "The change log contains a batch with other files than the ledger has recorded for it. Nothing is read or "
        "published.",
        "restore copies of the ledger and the change log that were made at the same time. Then run `open-mirroring "
        "resume-extraction`",
        never="edit the ledger by hand until it matches the change log"),
    _reset("LEDGER_UNKNOWN",
        "The ledger was lost and rebuilt. It could not be found out which changes of this table were published.",
        f"{RESET}. The other tables continue",
        "which of its changes were published is unknown"),
    # The changes cannot be published as they are.
    _code("NEW_TABLE", _STOP, Lift.DECISION,
        "The source sends a new table that matches a pattern in the mirror file, and the pattern is set to ask you "
        "first. Nothing of the table is published yet.",
        "accept the table (`open-mirroring accept-table`): all of its changes are already logged. If you do not "
        f"want the table, name it under `exclude` of the pattern, and {DROP}"),
    _reset("SCHEMA_CHANGED",
        "The table's columns, their types, or the choice of its rows (`where`) changed. Fabric cannot apply this "
        "change to the existing table. The source or the mirror file made it, and the target stays as it was before.",
        "if the mirror file was changed by mistake, restore the setting. If a column came from an export without "
        f"`types`, name its SQL type under `types` of `initial_load`. Then {RESET}{FROM_LOG}",
        "published files contain the column in its old type or with old values, and neither can change in place",
        Trait.FOLLOWED,
        never="load before reading has caught up: a change with the old type would stop the table again"),
    _reset("COLUMN_NOT_STREAMED",
        "The initial load contains columns that changes do not contain: changed rows would lose the values of these "
        "columns. Either the columns were dropped at the source, or the source does not send them.",
        "if the columns were dropped at the source, run `open-mirroring accept-schema FILE --table TABLE --dropped "
        "COLUMN --why WHY`. If the source does not send them, exclude the columns in the mirror file (`columns: "
        f"{{exclude: […]}}`), and {RESET}",
        "published rows contain the column as it was loaded, and changes do not contain it", Trait.EXPLAINED),
    _code("RENAME_POSSIBLE", _STOP, Lift.DECISION,
        "A column disappeared: the column was renamed, or one was dropped and one added. If `columns` in the mirror "
        "file leaves out the new name, the message cannot show it.",
        "find out at the source what happened. If the column was dropped, run `open-mirroring accept-schema FILE "
        "--table TABLE --dropped COLUMN --why WHY`: the table continues. If it was renamed, run the command with "
        "`--renamed OLD=NEW` instead: the table is built from scratch. If `columns` leaves out the new name, add it, "
        f"and {RESET} with a new initial load, because its values were not logged",
        Trait.FOLLOWED, Trait.EXPLAINED,
        never="guess: if a renamed column counts as dropped, its values stay under the old name"),
    _reset("COLUMN_RENAMED",
        "A column was renamed at the source, or only the case of its name changed. Rows that have not changed since "
        "then have the values under the old name.",
        f"{RESET}{FROM_LOG}. The reset puts all values under the new name",
        "rows that have not changed since the rename have the values under the old name",
        Trait.FOLLOWED, Trait.EXPLAINED),
    _code("COLUMN_ADDED", _STOP, Lift.RESUME,
        "A column was added at the source. If the column has a default there, rows that have not changed since then "
        "lack the default.",
        f"if the column has a default at the source, {RESET} with a new initial load. If it has none, set "
        f"`require_reload_on_add: false` in the mirror file and {_LIFT}"),
    _code("COLUMN_NAME_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "Fabric does not allow this column name: it is reserved, too long, used twice, or differs from another name "
        "only in case.",
        "in the mirror file, rename the column (`rename`) or leave it out (`columns: {exclude: […]}`), or rename it at "
        f"the source. Then {_LIFT}"),
    _code("HASH_UNMATCHED", (Kind.STOP, Kind.LOSS), Lift.RESUME,
        "`hash` in the mirror file names a column that does not exist. If the name is misspelled, the real column "
        "would be published unhashed.",
        "spell the column under `hash` as the source does. If the column does not exist yet, use a pattern such as "
        f"`email*`, or remove the name. If the table is stopped, then {_LIFT}"),
    _code("FILTER_UNDECIDED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "It is unknown whether the filter `where` selects a row. The row lacks a column that `where` names, or a "
        "literal in `where` does not fit the column's type.",
        "spell the columns of `where` as the source does, and the literals as docs/types.md shows for each type. Then "
        f"{_LIFT}. If older rows lack a column that was added later, {RESET} with an `initial_load` instead"),
    _code("TYPE_UNSUPPORTED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The type of a column is unknown, has no equivalent in the landing zone, or cannot be stored as the type that "
        "`types` names.",
        "publish the column as text (`types: {column: string}` in the mirror file), or choose a type of "
        "docs/types.md that fits. A column that is not in the key can also be left out (`columns: {exclude: "
        f"[…]}}`). Then {_LIFT}"),
    _code("KEY_INVALID", (Kind.STOP, Kind.LETTER, Kind.ERROR), Lift.RESUME,
        "The `key` in the mirror file does not identify rows: a key column is absent, NULL or unreadable, or two "
        "rows have the same key.",
        "compare `key` in the mirror file with the complete primary key at the source, in names and spelling. If `key` "
        f"is wrong, correct it and {RESET}. If the source or the export is wrong, correct that and {_LIFT}. A type "
        "that loses digits in Fabric, such as datetime2(7), cannot be a key"),
    _code("KEY_DIFFERS", (Kind.LETTER, Kind.ERROR, Kind.NOTE), Lift.LETTER,
        "The primary key at the source differs from `key` in the mirror file: two rows could become one.",
        "set `key` in the mirror file to all columns of the source's primary key. If the table began with an "
        f"initial load, {RESET}. If the key in the mirror file is unique anyway, set `key_is_unique: true` instead, "
        f"replay the dead letters and {_LIFT}",
        never="set `key_is_unique` without checking: two rows would become one"),
    Code("KEY_UNKNOWN", _STOP, Lift.RESET,
        "A change could not be assigned to a row. Which row at the target is out of date is unknown.",
        "compare `key` in the mirror file with the primary key at the source, and correct `key` if they differ. If no "
        "change was logged under the wrong key, the next run reads the rejected changes again. If a newer version of "
        f"this product can read the dead letter, replay it. If neither helps, {RESET} with an initial load",
        "a change is missing whose row is unknown, and no run reads it again",
        "a change is missing whose row is unknown", frozenset({Trait.HIDES_CHANGES})),
    Code("KEY_CORRECTED", _STOP, Lift.NEXT_RUN,
        "The table was stopped by a wrong `key`, and the mirror file now names another one. The changes that the "
        "wrong key rejected have not been read again yet.",
        "run again (`open-mirroring tick`): this run reads the rejected changes by the new key",
        why_load="changes that the wrong key rejected have not been read again yet; the next run does that",
        traits=frozenset({Trait.RUN_HELPS})),
    Code("CHANGES_MISSING", _STOP, Lift.RESUME,
        "A file or message of the table could not be read. Its changes are missing at the target.",
        "deliver the file or message that the report names again, intact. A file needs a new name. Once the file or "
        f"message is read, {_LIFT}. Changes that were read before are not applied twice",
        why_load="changes could not be read", traits=frozenset({Trait.HIDES_CHANGES}),
        never="resume without a new delivery: the table would lack those changes for good"),
    _code("CHANGES_RECOVERED", _STOP, Lift.RESUME,
        "Changes that could not be read earlier have now been read. The table is still stopped.",
        f"{_LIFT}: the recovered changes are published in their right order"),
    Code("PARTIAL_ROWS", _STOP, Lift.RESUME,
        "Updates contain only the changed columns, but Fabric needs complete rows.",
        f"for change events, set @include_all_columns = 1 for the table at the source, and {RESET}. If updates do "
        f"contain complete rows, set `full_rows: true` in the mirror file instead, and {_LIFT}. If the change log "
        f"contains each row from its insert or initial load on, set `complete_rows: true` instead, and {_LIFT}",
        why_load="its updates contain only the changed columns",
        traits=frozenset({Trait.BEFORE_A_LOAD, Trait.EXPLAINED}),
        never="set `full_rows: true` unless you know that updates contain complete rows: NULL would replace values"),
    Code("ROW_INCOMPLETE", _STOP, Lift.ITSELF,
        "A row cannot be published completely. Its changes contain only some columns, and the change log does not "
        "contain the others.",
        "wait: when the missing changes are read, the stop ends by itself. If they never come, set "
        f"@include_all_columns = 1 for the table at the source, and {RESET} with an initial load",
        why_load="no change contains the other columns of a row", traits=frozenset({Trait.BEFORE_A_LOAD})),
    _code("SWAP_POSSIBLE", _STOP, Lift.ITSELF,
        "In one transaction a row got a key, and a row gave up the same key. If this was one row, no row has the key "
        "now. Whether it was one row is unknown.",
        "update the row with that key at the source: set a column to itself. If there is no such row, insert one and "
        f"delete it. When that change is read, the stop ends by itself. Or {RESET} with an initial load that was made "
        "after the transaction"),
    _code("TABLE_NAME_DIFFERS", (Kind.STOP, Kind.LETTER, Kind.ERROR), Lift.RESUME,
        "A table, database, folder or topic has another name in the source than in the mirror file, or a message names "
        "two tables. Changes under the other name are not read.",
        "spell `source`, `source.database`, `change_table`, `table_suffix`, `topics` and `topic` in the mirror file as "
        f"the source does. Then replay the dead letters and {_LIFT}. If the two names are two different tables, accept "
        "the dead letters of the table that is not mirrored",
        Trait.HEALED_BY_COPY),
    _code("LOAD_UNREAD", _STOP, Lift.RESUME,
        "The Qlik task wrote a full load next to the changes, but the mirror file names no `initial_load` for the "
        "table. The rows of the full load would be missing.",
        "give the table an `initial_load` in the mirror file, with the format qlik-full-load and the folder of the "
        f"full load. Then {RESET}. If the loaded rows do not matter, move the files of the full load out of the "
        f"source's folder and {_LIFT}"),
    _code("HEADER_INVALID", (Kind.STOP, Kind.LETTER), Lift.RESUME,
        "Header columns of a change table, or headers of a message, are absent, ambiguous or unreadable.",
        "for change tables, select change_seq and change_oper in the Store Changes settings of the Qlik task, and "
        "correct `header_prefix` in the mirror file. If a data column has the name of a header column, leave it out of "
        "`columns`. For messages, correct `sequence_digits`. Let only the Qlik task write to the change table or "
        f"topic; then replay the dead letters and {_LIFT}"),
    _code("CHANGES_WENT_BACK", _STOP, Lift.RESUME,
        "The positions in a change table are lower than before: the change table was re-created or restored. "
        "Changes may be lost.",
        "find out whether the change table was re-created or restored. Give the setting `source.load` a new value "
        f"in the mirror file, and {RESET}. The new value begins a new stream for every table of the mirror: the "
        "other tables stop with `EPOCH_UNKNOWN`"),
    _reset("IDENTITY_CONFLICT",
        "Two changes have the same position and key, but different values. Or a Qlik full load has two different rows "
        "of one key, from two partitions. It is unknown which of the two is right.",
        "for change events, check that the source contains the events of only one stream group of one database. For a "
        f"Qlik full load, set *Message key* in the task's target to the primary key columns. Then {RESET} with an "
        "initial load",
        "the events do not show which of the two values is right", Trait.BEFORE_A_LOAD,
        why_load="it contains two versions of one change",
        never="deliver a corrected copy under the same position"),
    _code("SENDER_OTHER", (Kind.STOP, Kind.NOTE), Lift.RESUME,
        "Two databases or Qlik tasks send changes of one table.",
        "for change events, set `source.database` to the database that is to be mirrored. For Qlik messages, remove "
        f"the topic of one task from the mirror file. Then {RESET} with an initial load. If both names are one source "
        f"under an old and a new name, and no change was missed, {_LIFT} instead",
        never="resume while both senders send: rows of two tables would overwrite each other"),
    _reset("SCHEMA_SHARED",
        "Messages of one Qlik table were read as changes of another table, because both tables use the same schema "
        "id.",
        "give each of the two tables its `topic` in the mirror file, or let the Qlik task put database schema and "
        "table into the headers. Then reset both tables (`open-mirroring reload-table`), each with an initial load "
        "that was made after this stop",
        "rows of one table were published as rows of another one",
        why_load="it contains changes of one table as those of another one"),
    Code("EPOCH_UNKNOWN", _STOP, Lift.DECISION,
        "A new stream of changes began: streaming was set up again at the source, or `source.load` in the mirror file "
        "has a new value. Changes between the old and the new stream may never have been sent.",
        f"{RESET} with an initial load that was made after the new stream began. If nothing changed at the source in "
        "between, accept the new stream by its GUID (`open-mirroring accept-epoch`). If a Qlik task wrote a new full "
        "load next to its change tables, accept this full load (`open-mirroring accept-reload`)",
        why_load="changes between two streams are in neither of them",
        never="accept the stream if the source may have changed in between: those changes would be missing for good"),
    _reset("LATE_BELOW_HORIZON",
        "A change came so late that the change log may no longer contain the changes to compare it with.",
        "find out why the source sent the change so late. If that may happen again, raise `maintenance.keep_days`. It "
        f"is unknown whether a newer change of the same key was already published: {RESET}",
        "the log no longer contains the changes to compare the late one with"),
    _reset("RELOAD_SEEN",
        "The Qlik task has loaded the table again, or it is unknown whether a change is older than the task's newest "
        "full load. Rows that were deleted at the source would stay at the target.",
        "wait until the Qlik task has ended the reload, then accept it (`open-mirroring accept-reload`). The next "
        "run builds the table from the reloaded rows and the changes after them. If the command is refused "
        f"(`RELOAD_UNCLEAR`), {RESET} with an `initial_load` that was made after the reload ended",
        "keys that the new load lacks would stay, and its rows have positions below every earlier change",
        Trait.BEFORE_A_LOAD, why_load="keys that a reload of the source lacks would stay",
        never="accept the reload before the Qlik task has ended it"),
    Code("LOAD_REPEATED", _STOP, Lift.ITSELF,
        "A Qlik task has begun the same full load a second time, and some rows of the first one have not come again.",
        "wait until the second full load has ended: the stop ends by itself once every row has come again. If messages "
        f"were only delivered twice, {_LIFT}. If some rows never come again, accept the second full load "
        f"(`open-mirroring accept-reload`). Or {RESET} with an `initial_load` that was made after it ended",
        why_load="keys that a second load of the source lacks would stay", traits=frozenset({Trait.BEFORE_A_LOAD})),
    _code("RELOAD_UNCLEAR", _ERROR, Lift.DECISION,
        "The change log contains no new full load of the Qlik task, or it does not show which rows belong to the "
        "newest full load. So no full load was accepted.",
        "if the Qlik task has not loaded the table again, there is nothing to accept. If it has, wait until the full "
        "load has ended, and give the table an `initial_load` in the mirror file that was made after that. Then "
        f"{RESET}"),
    Code("LOAD_NEEDED", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The change log does not contain every change of the table: only an initial load can provide its rows.",
        f"give the table an `initial_load` in the mirror file. Then {RESET}",
        "changes from the time in which the table was not mirrored were not read"),
    _reset("KEYLESS_CHANGE",
        "A table without a key received an update or a delete. Which row was meant is unknown.",
        "give the table a `key` in the mirror file, because a table without a key can only receive inserts. Then "
        f"{RESET} with an initial load",
        "which row the change meant is unknown", Trait.BEFORE_A_LOAD,
        why_load="which row a change meant is unknown"),
    # The first rows cannot be loaded.
    _code("VALUE_INVALID", (Kind.STOP, Kind.LETTER, Kind.NOTE), Lift.RESET,
        "A value does not fit the type of its column, or can be read in two ways. The target still shows the "
        "earlier version of the row.",
        "compare the value with the type of its column at the source. For a change, correct the value by an update of "
        "the row at the source. For an export, name the column's SQL type under `types` in the mirror file, or export "
        "all digits, or leave the column out of `columns`. If the table is stopped, or you changed the mirror file or "
        f"the export, then {RESET}"),
    _code("LOAD_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "An initial load or export cannot be read as the mirror file describes it: a file or a column is absent or "
        "unexpected.",
        "correct `columns` or `types` in the mirror file, or deliver a complete export: uncompressed files of one "
        f"format, alone in their folder. If the initial load had begun, {RESET}"),
    _code("STREAM_FROM_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The initial load and the stream do not fit together: changes would be missing, or counted twice.",
        "export again. In the mirror file, set `stream_from` to the first commit that is not in the export; for a "
        "table without a key, also set `handover: exact`. Then run `open-mirroring initial-load`. If the table has "
        f"rows already, {RESET} instead"),
    _code("LOAD_CHANGED", _ERROR, Lift.CALL,
        "Settings or files of an initial load have changed since it began.",
        f"restore the settings and files, and run `open-mirroring initial-load`. Or {RESET} with the new settings and "
        "files",
        Trait.WAITED_FOR),
    # It passes by itself.
    _code("PAUSED", _HOLD, Lift.ITSELF,
        "The Fabric capacity is paused, and so is mirroring of the database. Changes are logged.",
        "resume the Fabric capacity. The next run then publishes what was logged in the meantime",
        never="stop and start mirroring of the database: a start rebuilds all of its tables"),
    _code("TARGET_BUSY", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The mirrored database is still starting, Fabric limits the number of calls, or its capacity has no room for "
        "another Spark job. No change is lost.",
        "wait: the next run continues, and publishes what was logged in the meantime. If waiting does not help, check "
        "the load of the Fabric capacity and who else uses it"),
    _code("STATUS_UNKNOWN", _HOLD, Lift.ITSELF,
        "Fabric's answer about the table's status could not be understood. Changes are logged and not published.",
        "check that Fabric's API answers requests for the mirroring status. The next run asks again"),
    _code("STATUS_REFUSED", _HOLD, Lift.ITSELF,
        "The login may not read the mirroring status in Fabric, so a failed table would go unnoticed. Changes are "
        "logged and not published.",
        "give the connection's identity the role Contributor in the workspace, or read and write permission on the "
        "mirrored database. The tenant must let service principals use Fabric APIs. Try the login with "
        "`open-mirroring check`. To publish without asking for the status, set `gate.status: none` in the mirror "
        "file", Trait.ASKS_OPERATOR,
        never="leave `gate.status: none` set: only the number of waiting files would then show a failed table"),
    _code("BACKLOG", _HOLD, Lift.ITSELF,
        "More files or bytes wait for Fabric than `gate` in the mirror file allows, or they have waited longer than "
        "allowed. Changes are logged.",
        "wait: publishing continues when Fabric has caught up. If Fabric does not catch up, look at the mirroring "
        "status in Fabric",
        never="raise the limits in `gate` unless Fabric keeps up with them"),
    _code("RESET_OPEN", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The table is being reset: its folder is being deleted, Fabric has not dropped the table yet, or it is "
        "being rebuilt.",
        "let `open-mirroring reload-table` (or `drop-table`) finish: a second call continues where the first one "
        "ended. Changes are logged in the meantime",
        never="confirm that a table is gone while it is still there, or delete a folder by hand"),
    _code("LOAD_PENDING", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The table's initial load is not complete. Changes are logged.",
        "run `open-mirroring initial-load` to its end. If it was refused, first fix the reason that the command "
        "printed"),
    _code("LOAD_AHEAD", _HOLD, Lift.ITSELF,
        "The changes that were read have not yet reached `stream_from`, the position at which changes continue the "
        "initial load.",
        "compare `stream_from` in the mirror file with the last commit before the export began. If `stream_from` is "
        f"right, wait until the source commits a later change. If it is too high, correct it and {RESET}"),
    # The table goes on, and lacks something.
    _code("DEAD_LETTERS_OPEN", _LOSS, Lift.LETTER,
        "Changes of the table could not be read. The rows that they changed are out of date at the target.",
        "run `open-mirroring dead-letters`: for each dead letter it shows the cause and what to do. If a dead letter "
        "cannot be fixed, accept the loss (`open-mirroring accept-dead-letters`). Or allow a number of dead letters "
        "with `dead_letters` in the mirror file"),
    _code("DEAD_LETTERS_UNNAMED", _LOSS, Lift.LETTER,
        "Messages that could not be read do not name their table: any table may lack a change.",
        "run `open-mirroring dead-letters FILE --raw NEWFILE` to see the content of the messages. Fix the cause, "
        "then replay them (`open-mirroring replay-dead-letters`). If they belong to no mirrored table, accept them "
        "(`open-mirroring accept-dead-letters`)"),
    _code("DEAD_LETTERS_UNCOUNTED", _LOSS, Lift.NEXT_RUN,
        "It is unknown how many dead letters the change log contains: they have not been counted yet.",
        "run `open-mirroring tick` or `open-mirroring status`: both commands count the dead letters", Trait.RUN_HELPS),
    _code("TABLE_RENAMED", _LOSS, Lift.RESET,
        "The source sends no changes under the table's name. It reports that the table was renamed, or sends a table "
        "with a similar name.",
        "find out whether the table was renamed at the source. If so, add the new name to the mirror file with an "
        "initial load, and drop the table with the old name (`open-mirroring drop-table`). If not, list the similar "
        "table under `ignore` in the mirror file"),
    _code("CHANGES_IGNORED", (Kind.LOSS, Kind.NOTE), Lift.DECISION,
        "Changes of the table were read before the mirror file named it, and were therefore ignored. Their rows are "
        "missing at the target.",
        f"{RESET} with an initial load. If the ignored changes do not matter, or were read again later, add the table "
        "to `ignore` in the mirror file. A table that is also under `tables` stays mirrored, and this report ends",
        Trait.RESET_HELPS),
    _code("OFFSETS_MISSING", _LOSS, Lift.LETTER,
        "Between two messages that were read, other messages are missing: any table may lack a change.",
        "deliver the lines with the missing offsets, in any file. If the messages are lost, find the rows that "
        "differ with `open-mirroring prove`, and close the gap with `open-mirroring accept-dead-letters FILE --code "
        "OFFSETS_MISSING --why WHY`. If the files leave out messages on purpose, set `offset_gaps: expected` under "
        "`source` in the mirror file",
        never="set `offset_gaps: expected` for a topic without compaction or transactions: losses would go "
              "unreported"),
    _code("FILE_UNKNOWN", (Kind.LOSS, Kind.LETTER), Lift.ITSELF,
        "The source's folder contains a file, folder or link whose name or kind is unknown. It is not read, and may "
        "contain changes.",
        "repair broken links, and give files and folders of the source plain names with the right ending. Move "
        "everything else out of the folder. The next run reads the folder again. If `status` still shows a dead letter "
        "of such a file, accept the dead letter (`open-mirroring accept-dead-letters`)",
        Trait.HEALED_BY_COPY,
        Trait.OF_A_FILE),
    _code("TABLE_SUSPENDED", _LOSS, Lift.ITSELF,
        "The Qlik task has suspended the table: its changes are not sent.",
        "fix the reason that the Qlik task names, and let the task continue with the table or reload it. If the task "
        f"reloaded the table, or changes were lost, then also {RESET} with an initial load", Trait.RESET_HELPS),
    _code("TABLE_EMPTIED", (Kind.LOSS, Kind.LETTER), Lift.RESET,
        "The table was truncated or dropped at the source. Its old rows are still at the target.",
        f"{RESET} with an initial load that was made after the table was truncated or created again. If the table no "
        f"longer exists at the source, {DROP}",
        Trait.RESET_HELPS),
    _code("LOAD_NOT_MADE", _LOSS, Lift.DECISION,
        "The mirror file names an `initial_load`, but the table was begun without it. Rows from before the first "
        "change may be missing at the target.",
        f"{RESET}: the table then begins with the initial load. If the table was empty when its changes began, "
        "remove `initial_load` from the mirror file"),
    # A message or row is set aside.
    _code("BODY_MISSING", _LETTER, Lift.LETTER,
        "A message has no content, so it contains no change.",
        "find out who sends messages without content to this stream. Then accept the dead letter (`open-mirroring "
        "accept-dead-letters`)"),
    _code("MESSAGE_INVALID", _LETTER, Lift.LETTER,
        "A message does not have the format of the source: it is incomplete, too large, altered, of a newer format, or "
        "from another sender.",
        "find out what altered the message, or who else writes to the stream. The source has to send its own format as "
        "JSON or Avro. Then deliver an intact copy; changes that were read before are not applied twice. If the format "
        "is newer, update this product and replay the dead letters", Trait.HEALED_BY_COPY),
    _code("METADATA_MISSING", (Kind.LETTER, Kind.ERROR), Lift.LETTER,
        "The columns of a Qlik message are unknown: the metadata message or message schema (Avro) that describes them "
        "was not sent, or cannot be read.",
        "let the Qlik task publish its metadata messages to a topic of this mirror, or describe the table under "
        f"`structures` in the mirror file. Then replay the dead letters; if the table is stopped, {_LIFT}. If "
        "metadata messages only come late, raise `fragment_timeout_hours`", Trait.HEALED_BY_COPY),
    _code("FRAGMENTS_INCOMPLETE", _LETTER, Lift.LETTER,
        "A change was split into several messages or rows, and some of these pieces are missing or contradict each "
        "other.",
        "check whether a partition, file or row is missing at the source. For change events, check that only one "
        "stream group writes to the topic or folder. Deliver all pieces again together. If pieces only come late, "
        "raise `fragment_timeout_hours` in the mirror file",
        Trait.HEALED_BY_COPY),
    _code("TABLE_UNNAMED", _LETTER, Lift.LETTER,
        "It is unknown to which table a Qlik message belongs, or which message schema (Avro) describes it. The message "
        "does not name its table, it fits several schemas or none, or several tables share its schema id.",
        "let each Qlik task publish to its own topics. In the task's target, set *Message key* to *Schema and table "
        "name*, or include database schema and table in the headers. If a topic contains only one table, set `topic` "
        "of that table in the mirror file. Then replay the dead letters"),
    _code("FILE_DAMAGED", _LETTER, Lift.LETTER,
        "A source file cannot be read to its end, or contradicts its metadata file.",
        "check whether the file is complete at the source. Deliver it again under a new name, with its metadata file "
        f"if there is one. A file of Event Hubs Capture keeps its former name. If the table is stopped, then {_LIFT}",
        Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("FILE_INCOMPLETE", _LETTER, Lift.LETTER,
        "A data file or its metadata file is missing or empty. The data file is read once both files are complete.",
        "check whether the Qlik task or the copying of files failed. Copy the missing or empty file to its place. "
        f"If the table is stopped, then {_LIFT}", Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("FORMAT_UNSUPPORTED", _LETTER, Lift.LETTER,
        "A file is not written as the mirror file describes it. Or the file does not show clearly where a field ends, "
        "or which field is NULL.",
        "set `encoding` or `layout` under `source` in the mirror file to those of the file. Or change delimiters, "
        "quotes, NULL or compression in the settings of Qlik's file target, as the message names. Then deliver the "
        "file again under a new name; changes that were read before are not applied twice",
        Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("ROW_INVALID", _LETTER, Lift.LETTER,
        "A row does not fit its table: its columns or its operation are wrong. The target still shows the earlier "
        "version of the row.",
        "find out what wrote the row. A later change of the same key updates the target. To cause one, update the row "
        "at the source: set a column to itself"),
    _code("MASK_INVALID", _LETTER, Lift.LETTER,
        "The mask of a Qlik change, which shows the changed columns, does not fit the row or the table. The target "
        "still shows the earlier version of the row.",
        "set `mask_order` in the mirror file to the byte order of the masks. For change tables, also set "
        "`sparse_updates` if NULL in an update means unchanged. If these settings are right, check that the table's "
        "metadata is up to date. Then update the row at the source: set a column to itself"),
    _code("OLD_KEY_MISSING", _LETTER, Lift.LETTER,
        "An update changed the key of a row, or may have changed it, and does not contain the old key. The row with "
        "the old key cannot be removed.",
        "let the source send old values: @include_old_values = 1 for change events, before images in a Qlik task. Then "
        f"{RESET} with an initial load. If keys of this table never change, set `keys_never_change: true` in the "
        "mirror file instead, and replay the dead letters",
        never="set `keys_never_change` if a key may change: rows of old keys would stay at the target"),
    _code("PKKEY_CONTRADICTED", _LETTER, Lift.LETTER,
        "The `pkkey` of a change event contains another key than the row in the event. It is unknown which of the two "
        "keys was changed. So the target row of either key may be out of date.",
        f"find out what altered the message, or who else writes to this stream. Deliver an intact copy and {_LIFT}. "
        f"If there is no copy, {RESET}"),
    _code("ROWS_MISSING", _LETTER, Lift.RESET,
        "Rows of a Qlik change table are missing or duplicated, or the task could not write some of them. Which row of "
        "the source was changed is unknown.",
        "check that only one Qlik task writes to the change table, and that it stores before and after images. Look "
        f"in the task's log for records that it could not write. Then {RESET} with an initial load"),
    # A job or command is refused.
    _code("UNREACHABLE", _ERROR, Lift.NEXT_RUN,
        "A server, service or disk does not answer, or gives an answer that cannot be understood. What needs this "
        "server or disk is not done.",
        "wait: the next run tries again. If the error stays, check the server, its connection, the disk and the "
        "network",
        Trait.PASSES),
    _code("CHANGED_MEANWHILE", (Kind.ERROR, Kind.NOTE), Lift.NEXT_RUN,
        "A file, a table, the change log or the ledger changed while a job worked with it, or two runs overlapped.",
        "do nothing: the next run repeats the work, and a command can be called again. If this happens often, find out "
        "what else uses the same landing zone, change log or ledger", Trait.PASSES),
    _code("SERVICE_REFUSED", _ERROR, Lift.CALL,
        "A service or database refuses a request. The message contains the error code of that service.",
        "look up the error code in the documentation of the service. Check the address, the connection and the "
        "permissions of its login", Trait.WAITED_FOR),
    _code("ACCESS_DENIED", _ERROR, Lift.CALL,
        "A login, or the operating system's user of the job, lacks the permission to read or write.",
        "correct the login of the connection, or grant its identity the permission that the message names. For "
        "files of this machine, grant it to the user of the job", Trait.WAITED_FOR),
    _code("CONNECTION_INVALID", _ERROR, Lift.CALL,
        "A connection is not set, or is wrong.",
        "set the connection in Airflow or as `AIRFLOW_CONN_<NAME>` (docs/how-to/connections.md). If a broker's "
        "certificate is refused, set `ssl.ca.location` in the connection's extra", Trait.WAITED_FOR),
    _code("PLACE_MISSING", _ERROR, Lift.CALL,
        "A folder, table, topic, container or item that the mirror file names does not exist, or is of another kind.",
        "correct the name in the mirror file, or create the place that it names. Check that the login may see this "
        "place",
        Trait.WAITED_FOR),
    _code("DISK_FULL", _ERROR, Lift.NEXT_RUN,
        "A disk is full, or over its quota. What the job had not committed is not done.",
        "free space or raise the quota. The next run continues"),
    _code("MEMORY_FULL", _ERROR, Lift.NEXT_RUN,
        "A job needed more memory than the machine has.",
        "give the machine or the job more memory, or run fewer jobs at a time. The next run continues"),
    _code("STORE_UNFIT", _ERROR, Lift.CALL,
        "The storage lacks an operation that exactly-once publishing needs, or answers otherwise than documented. "
        "Nothing is published to this storage.",
        "run `open-mirroring check` to see what the storage lacks. Use a local filesystem of Linux, OneLake, or an "
        "object storage with conditional writes. If OneLake answers otherwise than documented, show the message to the "
        "support of Fabric"),
    _code("SOURCE_REWRITTEN", _ERROR, Lift.CALL,
        "A source file of an unfinished batch is missing or was replaced. Or a file that is still growing became "
        "shorter, or its lines changed after they were read. Or files of Event Hubs Capture are missing between "
        "others.",
        "restore the files as they were, and deliver new content under a new name. Then run again. If files are lost, "
        "run `open-mirroring prove` to see which rows are missing at the target. A file that was read completely may "
        "be removed", Trait.WAITED_FOR),
    _code("MESSAGES_LOST", _ERROR, Lift.RESET,
        "A broker deleted messages before they were read, or the topic was re-created. Changes may be lost.",
        "lengthen the retention time of the topic. Let the source write to a new topic, and name the new topic in the "
        "mirror file. Then reset every table (`open-mirroring reload-table`) with an initial load"),
    _code("TRANSACTION_UNBOUNDED", _ERROR, Lift.CALL,
        "The mirror file sets `consistency: transaction`, but the source does not show which changes belong to a "
        "transaction, or in which order. Nothing is lost.",
        "do what the message names: set `partition_count`, let the Qlik task send `transactionEventCounter`, or "
        "make a mirror for each task. Or set `consistency: key`. Then run again"),
    _code("LEDGER_DAMAGED", _ERROR, Lift.CALL,
        "The ledger's file is not an SQLite database, or is damaged.",
        "restore an intact copy. Without one, remove the damaged file and rebuild the ledger (`open-mirroring "
        "rebuild-ledger`)"),
    _code("LEDGER_UNFIT", _ERROR, Lift.CALL,
        "The database that `ledger` names in the mirror file belongs to another program, or to another version of "
        "this product.",
        "install the version of this product that wrote the ledger, or give the ledger a database or schema of its "
        "own"),
    _code("TABLE_REDECLARED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "A setting on which published rows depend was changed in the mirror file, the table was removed, or a salt for "
        "`hash` was changed.",
        f"restore the setting, table or salt. If the table is stopped, then {_LIFT}. To change the setting on purpose, "
        f"{RESET}. To remove the table for good, {DROP}"),
    _code("MIRROR_CLASH", _ERROR, Lift.CALL,
        "The mirror file uses the name, landing zone or change log of another mirror, or names other places than "
        "before. Nothing was written.",
        "if the file is a copy, give it its own `mirror`, `landing_zone`, `change_log` and `ledger`. If it is not a "
        "copy, restore these settings"),
    _code("CONFIG_INVALID", _ERROR, Lift.CALL,
        "The mirror file is wrong. Nothing runs until it is fixed.",
        "correct the setting that the message names. `open-mirroring check` shows all problems at once"),
    _code("SECRET_IN_FILE", _ERROR, Lift.CALL,
        "The mirror file contains a password, key or token.",
        "move the secret into an Airflow connection. Then replace the secret by a new one, because others may have "
        "read the file"),
    _code("ARGUMENT_INVALID", _ERROR, Lift.CALL,
        "An argument is missing or invalid, or names something that does not exist. Nothing was done.",
        "correct the argument that the message names, and call the command again"),
    _code("COMMAND_REFUSED", _ERROR, Lift.CALL,
        "The command does not fit the present state of the table or mirror. Nothing was done.",
        "do what the message names. `open-mirroring status` shows the state of every table"),
    _code("REPAIR_REFUSED", _ERROR, Lift.RESET,
        "A lost file, or rows that differ, cannot be published again in the requested way.",
        f"do what the message names. If that is not possible, {RESET}"),
    _code("PROOF_FAILED", _ERROR, Lift.CALL,
        "A table could not be compared with its source. The result of the last successful proof stays valid.",
        "fix what the message names, and run the proof again (`open-mirroring prove`)"),
    _code("INSTALLATION_INCOMPLETE", _ERROR, Lift.CALL,
        "A part of the installation, or of its set-up for Spark, is missing or has another version.",
        "install or set what the message names, in one version everywhere. For jars run `open-mirroring jars`"),
    _code("JOB_FAILED", _ERROR, Lift.NEXT_RUN,
        "A job or task ended with an error, or before it could report why.",
        "read the last lines of the log of this job or task. The next attempt continues where this attempt ended"),
    _code("TABLES_STOPPED", _ERROR, Lift.DECISION,
        "A run ended with an error because tables are stopped, or wait until an operator acts. The other tables do not "
        "wait for them.",
        "look up the code that the message names for each stopped table"),
    _code("DONE_WITH_LOSSES", _ERROR, Lift.DECISION,
        "A run ended with an error because tables lack changes. Nothing else failed in this run.",
        "look up the code that the message names for each table with losses"),
    _code("NOT_EQUAL", _ERROR, Lift.DECISION,
        "A proof found rows at the target that differ from the source.",
        f"find the cause. Then correct the rows (`open-mirroring prove FILE --correct`), or {RESET}",
        never="correct rows before you know the cause: other rows may differ for the same reason"),
    # It is worth a look.
    _code("NOT_SEEN", _NOTE, Lift.ITSELF,
        "The source has not sent anything about a table or column that the mirror file names. Or a table became silent "
        "while a table that is not mirrored appeared.",
        "compare the names in the mirror file with those at the source, character by character. If a table became "
        "silent, find out whether it was renamed at the source. If all names are right, do nothing: the table or "
        "column had no change"),
    _code("BEGUN_LATE", _NOTE, Lift.RESET,
        "The table has no initial load, and messages from before the first message that was read were not available. "
        "Rows from that time may be missing at the target.",
        f"run `open-mirroring prove` to see which rows are missing. Then {RESET} with an initial load"),
    _code("SETUP_INCOMPLETE", _NOTE, Lift.CALL,
        "The source is set up so that some changes are not sent, or would stop the table.",
        "let the source send what the message names: old values, complete rows or masks of changed columns"),
    _code("CONTROL_TABLE_UNREAD", _NOTE, Lift.ITSELF,
        "A control table of the Qlik task does not exist, or the login may not read it. Suspended tables and errors of "
        "the task are not reported.",
        "let the Qlik task write the control table into the schema that `control_schema` names, and grant the login "
        "SELECT on it"),
    _code("TASK_ERRORS", _NOTE, Lift.ITSELF,
        "The Qlik task recorded errors of a table. Changes that the task failed to write may be missing.",
        "read the errors in the task and its control tables. Changes that the task has written are published as "
        "usual"),
    _code("TASK_UNKNOWN", _NOTE, Lift.ITSELF,
        "The control tables contain rows of several Qlik tasks, or no row of the task that the mirror file names. So "
        "suspended tables and errors of the task may go unreported.",
        "name the Qlik task as `task` under `source` in the mirror file. If the control tables contain rows of tasks "
        "that no longer exist, delete these rows"),
    _code("TABLE_UNMIRRORED", _NOTE, Lift.ITSELF,
        "The source sends changes of tables that the mirror file does not name.",
        "add the tables to the mirror file (`open-mirroring init FILE --add`), or list the tables under `ignore`"),
    _code("TARGET_LIMIT", _NOTE, Lift.CALL,
        "The mirror is near or above a limit of Fabric: the number of tables in a mirrored database, or of columns of "
        "a table.",
        "divide the tables between several mirrors, or leave columns out with `columns` in the mirror file"),
    _code("NOT_INSPECTED", _NOTE, Lift.NEXT_RUN,
        "The landing zone has not been inspected lately, so its state is unknown.",
        "run `open-mirroring tick`, or press \"Look again now\" on the mirror's web page. If a schedule is set, "
        "check why Airflow does not run it",
        Trait.RUN_HELPS),
)
# fmt: on

CODES: Mapping[str, Code] = {code.name: code for code in _TABLE}
"""Every code by its name, in the order of the runbook."""

_OTHER_STEP = "do what the message says, then clear the stop of this table (`open-mirroring resume`)"


def next_step_of(name: str) -> str:
    """Return what to do about the code *name*, as a part of a sentence.

    For an unknown code, the result is what helps with any stop.
    """
    code = CODES.get(name)
    return _OTHER_STEP if code is None else code.next_step


@cache
def of_kind(kind: Kind) -> frozenset[str]:
    """Return the names of all codes that can be reported as this kind, such as all stops."""
    return frozenset(code.name for code in _TABLE if kind in code.kinds)


@cache
def having(trait: Trait) -> frozenset[str]:
    """Return the names of all codes that have this trait."""
    return frozenset(code.name for code in _TABLE if trait in code.traits)


WHY_RESET: Mapping[str, str] = {code.name: code.why_reset for code in _TABLE if code.why_reset}
"""The reason by code, for stops that end only when the table is built again (a reset). The next run checks all other
stops."""

WHY_LOAD: Mapping[str, str] = {code.name: code.why_load for code in _TABLE if code.why_load}
"""The reason by code, for stops after which the change log lacks changes: only an initial load has all rows of the
table."""
