"""The table of all codes of errors, stops, holds, losses, dead letters and notes, with their meaning and next step.

A code stands for one cause and one next step; the message next to it has the details. If the product acts on a code,
the code has a *trait* for that. docs/runbook.md is generated from this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from functools import cache
from typing import NamedTuple

RESET = "reset the table (`open-mirroring reload-table`)"
"""Drop the table at the target and build it from scratch, by a load or from the log."""
FROM_LOG = ", from the log if that contains every row, otherwise with a new `initial_load`"
DROP = "drop it at the target (`open-mirroring drop-table`)"
_LIFT = "lift the stop (`open-mirroring resume`)"
_DELIVER = "deliver it again under a new name; changes that were read before are not applied twice"


class Kind(StrEnum):
    """What a code reports, the most serious first."""

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
    """How the condition that a code reports ends: by itself, by a run, or by an operator."""

    ITSELF = "It ends by itself once its cause is gone."
    NEXT_RUN = "The next run ends it."
    RESUME = "`open-mirroring resume` ends it once its cause is gone."
    DECISION = "Your decision ends it."
    RESET = "Only a reset of the table ends it."
    LETTER = "A later change of the row ends it, or you do: replay or accept the dead letter."
    CALL = "It ends when you have fixed it and run again."


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
    """One code.

    Attributes:
        name: the code.
        kinds: how it is reported, the most serious first.
        lift: who ends it.
        means: what is wrong, and what it means for the data.
        next_step: what to do, as a part of a sentence.
        why_reset: why only a reset of the table ends the stop; empty for other codes.
        why_load: why the log does not contain every change of the table after this stop; empty for other codes.
        traits: what the product does by it.
        never: what not to do, as a part of a sentence; empty where nothing tempts.
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
        "The table's folder was deleted, copied or re-created: the target may have lost what was published.",
        f"find out who deleted or replaced the folder. Then {RESET}",
        never="copy the marker back: a copy is another object, and the stop stays"),
    _code("FOREIGN_WRITER", _STOP, Lift.ITSELF,
        "Another ledger or tool publishes into the table's folder. Two writers would use the same file numbers.",
        "find the other deployment that publishes there. End one of the two, give this one its own landing zone or "
        f"`target`, or let both use one ledger. If the other ledger is lost, {RESET}",
        never="delete the other writer's files before you know whether the service has applied them"),
    _code("LEDGER_LOST", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "This mirror has published or logged before, but its ledger has no record of that. Nothing is read, published "
        "or removed.",
        "restore the newest ledger, or name it in the mirror file (`ledger`). If another deployment of this mirror "
        "publishes into the same landing zone, end one of the two, or let both use one ledger. Without any ledger, "
        f"rebuild it (`open-mirroring rebuild-ledger`), or {RESET}",
        never="start with an empty ledger: the mirror would publish everything a second time"),
    _code("METADATA_CHANGED", _STOP, Lift.RESUME,
        "The table's `_metadata.json` is missing, unreadable, or names another key.",
        f"restore the `_metadata.json` that the table was created with. If the service has read other keys, {RESET}",
        never="edit the key columns in place: updates and deletes would hit the wrong rows"),
    _code("FOREIGN_ITEM", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "The table's folder contains something that does not belong there, or a link is in the way.",
        "find out who put it there. Compare a numbered file with the processed file of the same number, then move it "
        f"away. If the service has applied it, {RESET}",
        never="delete a numbered file before you have compared it: the service keeps the file with the highest number "
        "on purpose"),
    _code("LEDGER_BEHIND", _STOP, Lift.ITSELF,
        "The landing zone or the change log contains numbers that this ledger never assigned: the ledger is an older "
        "copy.",
        f"stop the other writer, or restore the newest ledger. If it is lost, {RESET}",
        never="publish with the older ledger: it would use numbers twice"),
    _code("CONTENT_CHANGED", _STOP, Lift.RESUME,
        "A published file differs from the one that was sealed. The target may have applied either version.",
        "find out who replaced the file or edited the ledger. If the service may have applied other rows than the "
        f"ledger records, {RESET}",
        never="overwrite a numbered file: the service never reads a processed number again"),
    _code("FILE_MISSING", _STOP, Lift.ITSELF,
        "A published file is missing, and the service did not purge it. The target waits for it, or has lost it.",
        "find out who removed the file, and move that very file back. If it is lost and the target has not applied it, "
        f"publish it again (`open-mirroring repair`). Otherwise {RESET}", Trait.REPAIRED, Trait.REPAIRABLE,
        never="renumber or copy other files to fill the gap"),
    _code("TARGET_FAILED", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "The target reports that the table failed, or that mirroring of its database was stopped.",
        f"read the error at the target and fix its cause, or {RESET}. Never restart the target's database for one "
        "table", Trait.REPAIRED),
    _code("TARGET_RESTARTED", _STOP, Lift.RESUME,
        "The target counts fewer rows than before: it started the table from scratch.",
        "find out who stopped and started mirroring, or changed the table at the target. If all rows are there and "
        f"only the count restarted, run `open-mirroring resume`. Otherwise {RESET}, and every other table with this "
        "code",
        never="stop and start mirroring again: the service would read files that may have been purged"),
    _reset("CONFLICT",
        "Another writer put its own file under the number of a file that this mirror had sealed.",
        f"find out who wrote that file. The service may have applied it: {RESET}",
        "the service may have applied the other writer's file",
        never="overwrite or delete the other file: the service may have applied it"),
    _reset("AMBIGUOUS",
        "A sealed file is missing, and nothing shows whether the target applied it.",
        f"it is unknown whether the file was applied before it was lost: {RESET}",
        "whether the file was applied is unknown, and publishing it again could apply it twice",
        never="clean staging folders by hand: that is the usual cause"),
    _code("FILE_UNFIT", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "A file's columns, keys or row markers are not those of its table. A new file like this is not published.",
        "run again. If it happens again, report it with the version that wrote the file, and compare the target with "
        f"the source. If they differ, {RESET}"),
    _code("COUNTS_DIFFER", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The counts in the ledger do not add up: changes may be missing.",
        "find out who edited or restored the ledger. If no one did, report it as a defect. Compare the target with the "
        f"source (`open-mirroring prove`), or {RESET}"),
    Code("LOG_DAMAGED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The change log differs from what was sealed: parts are missing or were changed.",
        "see in the change log's Delta history who changed it. Restore that version, or a backup. If neither is "
        f"possible, {RESET}",
        why_load="parts of the change log are missing or were changed",
        never="let another tool compact, vacuum or edit the change log"),
    _code("LOG_CONFLICT", (Kind.STOP, Kind.ERROR), Lift.DECISION,
        "The change log contains a batch with other files than the ledger sealed. Nothing is read or published.",
        "restore a ledger and a change log of the same time. Then run `open-mirroring resume-extraction`",
        never="edit the ledger by hand until it matches"),
    _reset("LEDGER_UNKNOWN",
        "The ledger was lost and rebuilt, and what it knew of this table could not be recovered.",
        f"{RESET}. The other tables go on",
        "which of its changes were published is unknown"),
    # The changes cannot be published as they are.
    _code("NEW_TABLE", _STOP, Lift.DECISION,
        "The table matches a pattern of the mirror file that asks you before it mirrors a new table. Nothing of it is "
        "published yet.",
        "accept it (`open-mirroring accept-table`): all of its changes are already logged. Or name it under `exclude` "
        f"of its pattern, and {DROP}"),
    _reset("SCHEMA_CHANGED",
        "The table's structure changed in a way that published rows cannot follow. Earlier changes are published.",
        f"the target cannot change a column's type, or bring a column back: {RESET}{FROM_LOG}. If an export without "
        "`types` contained the column, name its SQL type under `types` of `initial_load` first",
        "published files contain the column in its old type or with old values, and neither can change in place",
        Trait.FOLLOWED,
        never="load before reading has caught up: a change of the old type would stop the table again"),
    _reset("COLUMN_NOT_STREAMED",
        "Changes do not contain some loaded columns: they were dropped at the source, or it does not send them.",
        "if they were dropped at the source, run `open-mirroring accept-schema FILE --table TABLE --dropped COLUMN "
        "--why WHY`. If the source does not send them, exclude them in the mirror file (`columns: {exclude: […]}`), "
        f"and {RESET}",
        "published rows contain the column as it was loaded, and changes do not contain it", Trait.EXPLAINED),
    _code("RENAME_POSSIBLE", _STOP, Lift.DECISION,
        "A column is missing and a new one is there: it may have been renamed.",
        "look at the source. If the column was dropped, run `open-mirroring accept-schema FILE --table TABLE --dropped "
        "COLUMN --why WHY`, and the table goes on. If it was renamed, use `--renamed OLD=NEW`, and the table is built "
        "from scratch. If `columns` leaves the new name out, its values were not logged: add it to `columns`, and "
        f"{RESET} with a new initial load. To treat every such column as dropped, set `on_possible_rename: dropped`",
        Trait.FOLLOWED, Trait.EXPLAINED,
        never="guess: if a renamed column counts as dropped, its values stay under the old name"),
    _reset("COLUMN_RENAMED",
        "A column was renamed at the source. Rows that have not changed since then have its values under the old name.",
        f"{RESET}{FROM_LOG}. Both put the values under the new name",
        "rows that have not changed since the rename have the values under the old name",
        Trait.FOLLOWED, Trait.EXPLAINED),
    _code("COLUMN_ADDED", _STOP, Lift.RESUME,
        "A column was added. If it has a default at the source, rows that have not changed since then lack it.",
        f"if the column has a default at the source, {RESET} with a new initial load. If it has none, set "
        f"`require_reload_on_add: false` and {_LIFT}"),
    _code("COLUMN_NAME_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The target cannot have this column name: it is reserved, too long, or differs from another one only in case.",
        "in the mirror file, rename the column (`rename`) or leave it out (`columns: {exclude: […]}`). Or rename it at "
        f"the source. Then {_LIFT}"),
    _code("HASH_UNMATCHED", (Kind.STOP, Kind.LOSS), Lift.RESUME,
        "`hash` names a column that the table does not have. A misspelled column would be published unhashed.",
        "spell the column under `hash` as the source does. If it is still to come, use a pattern such as `email*`, or "
        "leave it out. If the table is stopped, then lift the stop"),
    _code("FILTER_UNDECIDED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "`where` cannot be decided for a row: a column that it names is absent, or a literal is not of its column's "
        "type. Whether the row is to be mirrored is unknown.",
        "spell the columns of `where` as the source does, and the literals as docs/types.md shows for their types. If "
        f"older rows lack a column that was added later, {RESET} with an `initial_load`. Then {_LIFT}"),
    _code("TYPE_UNSUPPORTED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "A column's type is unknown, or the landing zone has no such type.",
        "land the column as text (`types: {column: string}` in the mirror file), or as a type of docs/types.md that "
        f"fits. A column outside the key can also be left out (`columns: {{exclude: […]}}`). Then {_LIFT}"),
    _code("KEY_INVALID", (Kind.STOP, Kind.LETTER, Kind.ERROR), Lift.RESUME,
        "The `key` in the mirror file does not identify rows: a column is absent, NULL or unreadable, or a key occurs "
        "twice.",
        "compare `key` in the mirror file with the complete primary key at the source, in names and spelling. Fix it, "
        f"or the source or export, and {RESET}. A type that loses digits in the target, such as datetime2(7), cannot "
        "be a key"),
    _code("KEY_DIFFERS", (Kind.LETTER, Kind.ERROR, Kind.NOTE), Lift.LETTER,
        "The key at the source differs from `key` in the mirror file: two rows could become one.",
        "set `key` in the mirror file to all columns of the source's key. If the table began with an initial load, "
        "reset it. If your key is unique anyway, set `key_is_unique: true`, replay the dead letters and resume "
        "the table",
        never="set `key_is_unique` without checking: two rows would become one"),
    Code("KEY_UNKNOWN", _STOP, Lift.RESET,
        "A change could not be assigned to a row. Which row lacks it is unknown.",
        "compare `key` in the mirror file with the primary key at the source, and fix it. If no change is logged under "
        "the old key, the next run reads the rejected changes again. If a newer version of this product can read the "
        f"dead letter, replay it. Otherwise {RESET} with a load",
        "a change is missing whose row is unknown, and no run reads it again",
        "a change is missing whose row is unknown", frozenset({Trait.HIDES_CHANGES})),
    Code("KEY_CORRECTED", _STOP, Lift.NEXT_RUN,
        "The mirror file names another key since the table stopped. Changes that the wrong key rejected have not been "
        "read again yet.",
        "run again (`open-mirroring tick`): rejected changes are read again by the new key",
        why_load="changes that the wrong key rejected have not been read again yet; the next run does that",
        traits=frozenset({Trait.RUN_HELPS})),
    Code("CHANGES_MISSING", _STOP, Lift.RESUME,
        "A file or message of the table could not be read. Changes are missing.",
        f"deliver what the message names again, intact and under a new name. Once that is read, {_LIFT}. Changes that "
        "were read before are not applied twice",
        why_load="changes could not be read", traits=frozenset({Trait.HIDES_CHANGES}),
        never="resume without a new delivery: the table would lack those changes for good"),
    _code("CHANGES_RECOVERED", _STOP, Lift.RESUME,
        "Every dead letter that hid a change of the table has been read since.",
        f"{_LIFT}: the recovered changes take their place in the order"),
    Code("PARTIAL_ROWS", _STOP, Lift.RESUME,
        "Updates contain only the changed columns, but the target needs complete rows.",
        f"set @include_all_columns = 1 for the table at the source, and {RESET}. Or change the mirror file: set "
        "`full_rows: true` if its updates contain complete rows, or `complete_rows: true` if the log contains each row "
        f"from its insert or its load on. Then {_LIFT}",
        why_load="its updates contain only the changed columns",
        traits=frozenset({Trait.BEFORE_A_LOAD, Trait.EXPLAINED}),
        never="set `full_rows: true` unless you know that updates contain complete rows: NULL would replace values"),
    Code("ROW_INCOMPLETE", _STOP, Lift.ITSELF,
        "Changes of a row contain only some columns, and no earlier change contains the rest.",
        "the batch that contains the missing changes lifts the stop by itself. If they never come, set "
        f"@include_all_columns = 1 for the table at the source, and {RESET}",
        why_load="no change contains the other columns of a row", traits=frozenset({Trait.BEFORE_A_LOAD})),
    _code("SWAP_POSSIBLE", _STOP, Lift.ITSELF,
        "In one transaction a row took a key, and a row left it. It is unknown whether both are the same row, and so "
        "whether a row with that key is left.",
        "update the row with that key at the source: set a column to itself. If there is no such row, insert one and "
        f"delete it. The batch with that change lifts the stop by itself. Or {RESET} with an `initial_load` made after "
        "that transaction"),
    _code("TABLE_NAME_DIFFERS", (Kind.STOP, Kind.LETTER, Kind.ERROR), Lift.RESUME,
        "The source spells the table, its folder or its topic differently from the mirror file. Its changes are not "
        "read.",
        "spell `source`, `change_table`, `table_suffix` or `topics` in the mirror file as the source does. Then replay "
        f"the dead letters and {_LIFT}. If both names are different tables, accept the dead letters of the other one",
        Trait.HEALED_BY_COPY),
    _code("LOAD_UNREAD", _STOP, Lift.RESUME,
        "There is a full load next to the changes, but the table has no initial load: its rows would be missing.",
        "give the table an `initial_load` with the format qlik-full-load and the folder of that load, and "
        f"{RESET}. If its rows do not matter, move its files out of the source's folder and {_LIFT}"),
    _code("HEADER_INVALID", (Kind.STOP, Kind.LETTER), Lift.RESUME,
        "The header columns of a change table or message are absent, ambiguous or unreadable.",
        "select change_seq and change_oper in the task's Store Changes settings, and fix `header_prefix` or "
        "`sequence_digits`. If a data column has the name of a header, leave it out of `columns`. Only the task may "
        f"write there. Then replay the dead letters and {_LIFT}"),
    _code("CHANGES_WENT_BACK", _STOP, Lift.RESUME,
        "A change table counts from a lower place than before: it was re-created or restored. Changes may be lost.",
        "find out whether the change table was re-created or restored. Give `load` of `source` a new name in the "
        f"mirror file, and {RESET}. That new name begins a new stream for every table of the mirror: the others stop "
        "with `EPOCH_UNKNOWN`"),
    _reset("IDENTITY_CONFLICT",
        "Two changes have the same position and key, but different values.",
        "check that the source path contains the events of one stream group of one database only. The events do not "
        f"show which of the two values is right: {RESET}",
        "the events do not show which of the two values is right", Trait.BEFORE_A_LOAD,
        why_load="it contains two versions of one change",
        never="deliver a corrected copy under the same position"),
    _code("SENDER_OTHER", (Kind.STOP, Kind.NOTE), Lift.RESUME,
        "Two databases or tasks send changes of one table.",
        "name the database to mirror as `source.database`, or remove the topic of one task from the mirror file. Then "
        f"{RESET} with a load. If it is the same source under a new name and nothing was missed, {_LIFT}",
        never="resume while both senders send: rows of two tables would overwrite each other"),
    _reset("SCHEMA_SHARED",
        "Messages of one table were read as changes of another one.",
        f"{RESET}, and the other table that is named, each with a load made after this stop. Name the `topic` of each "
        "table, or let the task put schema and table into its headers",
        "rows of one table were published as rows of another one",
        why_load="it contains changes of one table as those of another one"),
    Code("EPOCH_UNKNOWN", _STOP, Lift.DECISION,
        "Streaming was set up again. Changes between the two streams may never have been sent.",
        f"{RESET} with a load made after the new stream began. If nothing changed at the source in between, accept "
        "the stream by its GUID (`open-mirroring accept-epoch`). If a Qlik task wrote a new full load next to the "
        "change tables, accept it (`open-mirroring accept-reload`)",
        why_load="changes between two streams are in neither of them",
        never="accept the stream if the source may have changed in between: those changes would be missing for good"),
    _reset("LATE_BELOW_HORIZON",
        "A change came so late that the log may no longer contain the changes to compare it with.",
        "find out why the source sent it so late. Raise `maintenance.keep_days` if that may happen again. Whether "
        f"it is still the newest change of its key is unknown: {RESET}",
        "the log no longer contains the changes to compare the late one with"),
    _reset("RELOAD_SEEN",
        "The source was loaded again. Keys that the new load lacks would stay at the target.",
        "when that load has ended at the source, accept it (`open-mirroring accept-reload`). The next run then builds "
        f"the table from it and the changes after it. If that is refused (`RELOAD_UNCLEAR`), {RESET} with an "
        "`initial_load` made after that load ended",
        "keys that the new load lacks would stay, and its rows have positions below every earlier change",
        Trait.BEFORE_A_LOAD, why_load="keys that a reload of the source lacks would stay",
        never="accept the load before it has ended at the source"),
    Code("LOAD_REPEATED", _STOP, Lift.ITSELF,
        "A full load came a second time, and some rows of the first have not come again.",
        "wait until the second load has ended: the stop is lifted once every row has come again. If some never do, "
        f"accept the second load (`open-mirroring accept-reload`), or {RESET} with an `initial_load` made after it "
        f"ended. If messages were only delivered twice, {_LIFT}",
        why_load="keys that a second load of the source lacks would stay", traits=frozenset({Trait.BEFORE_A_LOAD})),
    _code("RELOAD_UNCLEAR", _ERROR, Lift.DECISION,
        "The newest full load cannot be distinguished from earlier rows, or there is none.",
        f"give the table an `initial_load` made after that load ended, and {RESET}"),
    Code("LOAD_NEEDED", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The log does not contain every change of the table: only a load can provide its rows.",
        f"give the table an `initial_load` in the mirror file. Then {RESET}",
        "changes from the time in which the table was not mirrored were not read"),
    _reset("KEYLESS_CHANGE",
        "A table without key received an update or a delete.",
        f"a table without key can only take inserts: give it a `key`, and {RESET}",
        "which row the change meant is unknown", Trait.BEFORE_A_LOAD,
        why_load="which row a change meant is unknown"),
    # The first rows cannot be loaded.
    _code("VALUE_INVALID", (Kind.STOP, Kind.LETTER, Kind.NOTE), Lift.RESET,
        "A value does not fit its column, or is ambiguous. The target shows the row as it was before.",
        "compare the value with its column's type at the source. Correct it there, or name the column's SQL type under "
        "`types`. Or export it with its padding and all its digits, or leave the column out of `columns`. Then "
        f"{RESET}. For a single change it is enough to update the row at the source"),
    _code("LOAD_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The load cannot be read as the mirror file describes it: a file or a column is absent or unexpected.",
        "fix `columns` or `types`, or deliver a complete export: plain files, all alike, in a folder of its own. "
        f"If the load had begun, {RESET}"),
    _code("STREAM_FROM_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The load does not fit the stream: changes would be missing, or counted twice.",
        "export again. Set `stream_from` to the first commit that is not in the export, and `handover: exact` for a "
        f"table without key. Then load it, or {RESET}"),
    _code("LOAD_CHANGED", _ERROR, Lift.CALL,
        "Settings or files of a load have changed since it began.",
        f"put them back as they were and run `open-mirroring initial-load`; or {RESET}", Trait.WAITED_FOR),
    # It passes by itself.
    _code("PAUSED", _HOLD, Lift.ITSELF,
        "Mirroring of the target's database is paused. Changes are logged.",
        "resume the capacity. Changes are logged in the meantime",
        never="stop and start the database: a start rebuilds it from the beginning"),
    _code("TARGET_BUSY", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The target's database is still starting, or the service throttles calls. Changes are logged meanwhile.",
        "wait until the database runs, or for the time that the service names. The next run publishes"),
    _code("STATUS_UNKNOWN", _HOLD, Lift.ITSELF,
        "The target's status could not be understood. Changes are logged.",
        "check that the target's status call works. The next run asks again"),
    _code("STATUS_REFUSED", _HOLD, Lift.ITSELF,
        "The login may not read the target's status, so a failed table would go unnoticed.",
        "give the connection's identity Contributor in the workspace, or read and write on the item. The tenant must "
        "let service principals use Fabric APIs. Try it with `open-mirroring check`. Or publish without asking for the "
        "status: `gate.status: none`", Trait.ASKS_OPERATOR,
        never="leave `gate.status: none` set: only the backlog would then show a failed target"),
    _code("BACKLOG", _HOLD, Lift.ITSELF,
        "More files wait for the target than the limits allow. Changes are logged.",
        "wait: publishing goes on when the target has caught up. If it never does, look at its status",
        never="raise the limits in `gate` unless the service keeps up with them"),
    _code("RESET_OPEN", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The table is being reset. It waits for the target, or is being rebuilt.",
        "let `open-mirroring reload-table` (or `drop-table`) finish: it goes on where it stopped. Changes are logged "
        "in the meantime",
        never="confirm that a table is gone while it is still there, and delete no folder by hand"),
    _code("LOAD_PENDING", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The table's initial load is not complete. Changes are logged.",
        "run the initial load to its end. If something refused it, fix that first. Changes are logged in the meantime"),
    _code("LOAD_AHEAD", _HOLD, Lift.ITSELF,
        "The stream has not yet reached `stream_from`, the position at which it continues the load.",
        "compare `stream_from` with the last commit before the export began. If it is right, wait until the source "
        f"commits a later change. If it is too high, correct it and {RESET}"),
    # The table goes on, and lacks something.
    _code("DEAD_LETTERS_OPEN", _LOSS, Lift.LETTER,
        "Changes of the table could not be read or typed. Their rows are as they were before.",
        "run `open-mirroring dead-letters`: it shows what to do about each. If one cannot be fixed, settle it "
        "(`open-mirroring accept-dead-letters`), or tolerate it with `dead_letters` in the mirror file"),
    _code("DEAD_LETTERS_UNNAMED", _LOSS, Lift.LETTER,
        "Messages do not name their table: any table may lack a change.",
        "run `open-mirroring dead-letters FILE --raw NEWFILE` to see which table each belongs to. Replay them once the "
        "cause is fixed. If they concern no mirrored table, settle them (`open-mirroring accept-dead-letters`)"),
    _code("DEAD_LETTERS_UNCOUNTED", _LOSS, Lift.NEXT_RUN,
        "The open dead letters of the log have not been counted yet.",
        "run `open-mirroring tick`, or `open-mirroring status`: both count them", Trait.RUN_HELPS),
    _code("TABLE_RENAMED", _LOSS, Lift.RESET,
        "The table no longer sends changes, but one with a similar name does.",
        "find out whether the table was renamed at the source. If so, name the new one in the mirror file with an "
        "initial load, and drop this one (`open-mirroring drop-table`). Otherwise list the other one under `ignore`"),
    _code("CHANGES_IGNORED", (Kind.LOSS, Kind.NOTE), Lift.DECISION,
        "Changes of the table were read and ignored before the mirror file named it.",
        f"{RESET} with an initial load. If those changes do not matter, or were read again since, list the table "
        "under `ignore`: it stays mirrored, and this report ends", Trait.RESET_HELPS),
    _code("OFFSETS_MISSING", _LOSS, Lift.LETTER,
        "Messages between two that were read are missing: any table may lack a change.",
        "deliver the lines with these offsets, in any file. If they are lost, `open-mirroring prove` finds the rows "
        "that differ, and `open-mirroring accept-dead-letters FILE --code OFFSETS_MISSING --why WHY` settles the gaps. "
        "If the files leave messages out on purpose, set `offset_gaps: expected` under `source`",
        never="set `offset_gaps: expected` for a topic without compaction or transactions: losses would go unreported"),
    _code("FILE_UNKNOWN", (Kind.LOSS, Kind.LETTER), Lift.ITSELF,
        "Something in the source's folder is not read, because its name or kind is not known: it may contain changes.",
        "repair links, and give folders and files plain names with the right ending. Keep other things elsewhere. The "
        "next run looks again. Then accept the dead letter", Trait.HEALED_BY_COPY,
        Trait.OF_A_FILE),
    _code("TABLE_SUSPENDED", _LOSS, Lift.ITSELF,
        "The task at the source has suspended the table: its changes do not come.",
        "fix the reason that the task names, and let it continue or reload the table. After a reload, or "
        f"if changes were lost, {RESET} with an initial load", Trait.RESET_HELPS),
    _code("TABLE_EMPTIED", (Kind.LOSS, Kind.LETTER), Lift.RESET,
        "The table was truncated or dropped at the source. Its old rows are still at the target.",
        f"{RESET} with an initial load made afterwards. If the source no longer has the table, {DROP}",
        Trait.RESET_HELPS),
    _code("LOAD_NOT_MADE", _LOSS, Lift.DECISION,
        "The mirror file names an initial load, but the table began without one: first rows may be missing.",
        f"{RESET}: it then begins with that load. If the table began empty, remove `initial_load` from the mirror "
        "file"),
    # A message or row is set aside.
    _code("BODY_MISSING", _LETTER, Lift.LETTER,
        "A message has no content, so it contains no change.",
        "find out who sends messages without content to this stream"),
    _code("MESSAGE_INVALID", _LETTER, Lift.LETTER,
        "A message does not have the source's format: it is cut, altered, newer, or from another sender.",
        "find out what altered the message, or who else writes there, and deliver an intact copy. Changes that were "
        "read before are not applied twice. If the format is newer, update this product and replay the dead letters. "
        "Let the source send its own format as JSON or Avro", Trait.HEALED_BY_COPY),
    _code("METADATA_MISSING", (Kind.LETTER, Kind.ERROR), Lift.LETTER,
        "The structure of a message is unknown: it was not announced, or cannot be read.",
        "let the Qlik task publish its metadata messages to a topic of this mirror, or give the structure under "
        "`structures` in the mirror file. Then replay the dead letters, and resume the table if it is stopped. If "
        "metadata only comes late, raise `fragment_timeout_hours`", Trait.HEALED_BY_COPY),
    _code("FRAGMENTS_INCOMPLETE", _LETTER, Lift.LETTER,
        "Pieces of a split message are missing.",
        "check whether a partition or file is missing at the source, and that only one stream group feeds this path. "
        "Deliver all pieces again together. If they only come late, raise `fragment_timeout_hours`",
        Trait.HEALED_BY_COPY),
    _code("TABLE_UNNAMED", _LETTER, Lift.LETTER,
        "A message does not name its table or its schema.",
        "set *Message key* of the task's target to *Schema and table name*, or include schema and table in the "
        "headers. Let each task publish to its own topics. If a topic contains one table only, name it as `topic` of "
        "that table. Then replay the dead letters"),
    _code("FILE_DAMAGED", _LETTER, Lift.LETTER,
        "A source file cannot be read beyond some place, or contradicts its metadata file.",
        "check whether the file is complete at the source. Deliver it again under a new name, with its metadata file "
        "if it has one. Deliver a Capture file under its own name. Then resume the table. Changes that were read "
        "before are not applied twice", Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("FILE_INCOMPLETE", _LETTER, Lift.LETTER,
        "A data file or its metadata file is missing or empty. It is read once it is complete.",
        "check whether the task or the copying failed. Copy the missing or empty file to its place, and resume the "
        "table", Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("FORMAT_UNSUPPORTED", _LETTER, Lift.LETTER,
        "A file is not written as the mirror file describes it, or NULL or a field's end is ambiguous.",
        "set `encoding` or `layout` under `source` to those of the file. Or change delimiters, quotes, NULL or "
        f"compression at the file target, as the reason says. Then {_DELIVER}", Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("ROW_INVALID", _LETTER, Lift.LETTER,
        "A row does not fit its table: its columns or its operation are wrong.",
        "find out what wrote the row. The target shows the row as it was before, until a later change of its key "
        "comes. To send one, update the row at the source: set a column to itself"),
    _code("MASK_INVALID", _LETTER, Lift.LETTER,
        "The mask of changed columns does not fit the row or the table.",
        "set `mask_order` to the byte order of the source's masks. If NULL in updates means unchanged, set "
        "`sparse_updates`. Otherwise check that the table's metadata is up to date, and update the row at the source"),
    _code("OLD_KEY_MISSING", _LETTER, Lift.LETTER,
        "A key changed, or may have changed, and the row of the old key cannot be removed.",
        "let the source send the old values: @include_old_values = 1 for change events, before images (`beforeData`) "
        "in a Qlik task. If keys of this table never change, set `keys_never_change: true` and replay the dead "
        "letters. Otherwise the table is stopped until it is reloaded",
        never="set `keys_never_change` if a key may change: rows of old keys would stay at the target"),
    _code("PKKEY_CONTRADICTED", _LETTER, Lift.LETTER,
        "A message names two rows: the key in its `pkkey` is not that of its row.",
        "find out what altered the message, or who writes to this stream. Either row may be out of date. Deliver an "
        "intact copy and resume the table, or reload it"),
    _code("ROWS_MISSING", _LETTER, Lift.RESET,
        "Rows of a change table are missing or duplicated. Which row was meant is unknown.",
        "check that only one task writes there, and that it stores before and after images. Look in its log for "
        f"records that it could not write. Then {RESET} with a load"),
    # A job or command is refused.
    _code("UNREACHABLE", _ERROR, Lift.NEXT_RUN,
        "A server, service or disk does not answer. Nothing was guessed.",
        "the next run tries again. If the error stays, check the server, its connection, the disk and the network",
        Trait.PASSES),
    _code("CHANGED_MEANWHILE", (Kind.ERROR, Kind.NOTE), Lift.NEXT_RUN,
        "Something changed while a job worked on it, or two runs overlapped.",
        "nothing: the next run looks again. If it happens often, find out who else works there", Trait.PASSES),
    _code("SERVICE_REFUSED", _ERROR, Lift.CALL,
        "A service or database refuses a request. The message contains its own error code.",
        "look up the service's error code. Check addresses, connection and rights", Trait.WAITED_FOR),
    _code("ACCESS_DENIED", _ERROR, Lift.CALL,
        "A login or the user of the job may not read or write there.",
        "correct the login of the connection, or grant the right that the message names to its identity or to the user "
        "of the job", Trait.WAITED_FOR),
    _code("CONNECTION_INVALID", _ERROR, Lift.CALL,
        "A connection is not set, or is wrong.",
        "set the connection in Airflow or as `AIRFLOW_CONN_<NAME>` (docs/how-to/connections.md). If a broker's "
        "certificate is refused, set `ssl.ca.location` in the connection's extra", Trait.WAITED_FOR),
    _code("PLACE_MISSING", _ERROR, Lift.CALL,
        "A folder, table, topic, container or item of the mirror file does not exist, or is of another kind.",
        "correct the name in the mirror file, or create what it names. Check that the login may see it",
        Trait.WAITED_FOR),
    _code("DISK_FULL", _ERROR, Lift.NEXT_RUN,
        "A disk is full, or over its quota.",
        "free space or raise the quota. The next run goes on"),
    _code("MEMORY_FULL", _ERROR, Lift.NEXT_RUN,
        "A job needed more memory than the machine has.",
        "give the machine or the job more memory, or run fewer jobs at a time. The next run goes on"),
    _code("STORE_UNFIT", _ERROR, Lift.CALL,
        "The store lacks an operation that exactly-once needs. Nothing is published there.",
        "use a local filesystem of Linux, OneLake, or an object storage with conditional writes. Run "
        "`open-mirroring check` to see each deviation"),
    _code("SOURCE_REWRITTEN", _ERROR, Lift.CALL,
        "Files of the source are missing, shorter or different from what was read or bound.",
        "put them back as they were, and deliver new content under a new name. Run `open-mirroring prove` to see what "
        "is lost", Trait.WAITED_FOR),
    _code("MESSAGES_LOST", _ERROR, Lift.RESET,
        "A broker deleted messages before they were read, or the topic was re-created. Changes may be lost.",
        "lengthen the retention. Let the source write to a new topic, name that in the mirror file, and "
        "reload the tables"),
    _code("TRANSACTION_UNBOUNDED", _ERROR, Lift.CALL,
        "With `consistency: transaction`, the source does not show where all transactions begin or end.",
        "do what the message says: set `partition_count`, let the task send `transactionEventCounter`, or make a "
        "mirror for each task. Or set `consistency: key`. Then run again"),
    _code("LEDGER_DAMAGED", _ERROR, Lift.CALL,
        "The ledger's file is not an SQLite database, or is damaged.",
        "restore an intact copy. Or remove it and rebuild it (`open-mirroring rebuild-ledger`)"),
    _code("LEDGER_UNFIT", _ERROR, Lift.CALL,
        "The database that `ledger` names belongs to something else, or to another version.",
        "install the version that wrote it, or give the ledger a database or schema of its own"),
    _code("TABLE_REDECLARED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The mirror file, or a salt that it names, changed a setting on which published rows depend.",
        "put it back as it was. To change it on purpose, reset the table (`open-mirroring reload-table`). To remove "
        "the table for good, drop it (`open-mirroring drop-table`)"),
    _code("MIRROR_CLASH", _ERROR, Lift.CALL,
        "The mirror file uses a name, landing zone or change log of another mirror. Nothing was written.",
        "give a copy its own `mirror`, `landing_zone`, `change_log` and `ledger`. Otherwise put the settings back"),
    _code("CONFIG_INVALID", _ERROR, Lift.CALL,
        "The mirror file is wrong. Nothing runs until it is fixed.",
        "correct the setting that the message names. `open-mirroring check` shows all problems at once"),
    _code("SECRET_IN_FILE", _ERROR, Lift.CALL,
        "The mirror file contains a secret.",
        "move the secret into a connection, and change it, because it was in a file"),
    _code("ARGUMENT_INVALID", _ERROR, Lift.CALL,
        "An argument names something that does not exist, or is missing. Nothing was done.",
        "correct the argument that the message names, and call again"),
    _code("COMMAND_REFUSED", _ERROR, Lift.CALL,
        "The command does not apply to the present state. Nothing was done.",
        "do what the message says. `open-mirroring status` shows what the table waits for"),
    _code("REPAIR_REFUSED", _ERROR, Lift.RESET,
        "A lost file or differing rows cannot be published again as requested.",
        f"do what the message says; otherwise {RESET}"),
    _code("PROOF_FAILED", _ERROR, Lift.CALL,
        "A table could not be compared with its source. An earlier proof stays valid.",
        "fix what the message names, and prove it again"),
    _code("INSTALLATION_INCOMPLETE", _ERROR, Lift.CALL,
        "A part of the installation, or of its set-up for Spark, is missing or has another version.",
        "install or set what the message names, in one version everywhere. For jars run `open-mirroring jars`"),
    _code("JOB_FAILED", _ERROR, Lift.NEXT_RUN,
        "A job or task ended before it could report why.",
        "read the last lines of its log. The next attempt goes on where this one ended"),
    _code("TABLES_STOPPED", _ERROR, Lift.DECISION,
        "A run failed because tables are stopped. All other tables are done.",
        "look up the code that the message names for each table"),
    _code("DONE_WITH_LOSSES", _ERROR, Lift.DECISION,
        "A run failed because of losses. Everything was published.",
        "look up the code that the message names for each loss"),
    _code("NOT_EQUAL", _ERROR, Lift.DECISION,
        "A proof found rows that differ from the source.",
        "find the cause. Then correct the rows (`open-mirroring prove FILE --correct`), or reset the table",
        never="correct rows before you know the cause: what one row lacks, others will lack again"),
    # It is worth a look.
    _code("NOT_SEEN", _NOTE, Lift.ITSELF,
        "The source has not sent anything about a table or column that the mirror file names.",
        "compare the names with the source, character by character. A table or column may also not have changed yet"),
    _code("BEGUN_LATE", _NOTE, Lift.RESET,
        "The stream was not read from its first message on, and there is no load with the first rows.",
        f"run `open-mirroring prove` to see which rows are missing. Then {RESET} with an initial load"),
    _code("SETUP_INCOMPLETE", _NOTE, Lift.CALL,
        "As the source is set up, some changes would stop the table, or are not sent.",
        "let the source send old values, complete rows or masks, or set what the message names"),
    _code("CONTROL_TABLE_UNREAD", _NOTE, Lift.ITSELF,
        "A control table of the task is absent, or may not be read.",
        "let the task write it, in the schema that `control_schema` names, and grant SELECT on it"),
    _code("TASK_ERRORS", _NOTE, Lift.ITSELF,
        "The task at the source recorded errors of a table.",
        "look at the task and its control tables. Earlier changes are published"),
    _code("TASK_UNKNOWN", _NOTE, Lift.ITSELF,
        "The control tables belong to several tasks, or to none that the mirror file names.",
        "name the task as `task` under `source`, or delete the rows of a task that no longer exists"),
    _code("TABLE_UNMIRRORED", _NOTE, Lift.ITSELF,
        "The source sends tables that are not mirrored.",
        "add them to the mirror file (`open-mirroring init FILE --add`), or list them under `ignore`"),
    _code("TARGET_LIMIT", _NOTE, Lift.CALL,
        "The mirror is near a limit of its target: the number of tables, or of columns of a table.",
        "divide the tables between mirrors, or leave columns out with `columns`"),
    _code("NOT_INSPECTED", _NOTE, Lift.NEXT_RUN,
        "The landing zone has not been inspected lately: its state is unknown.",
        "run `open-mirroring tick`, or press \"Look again now\" on the mirror's web page. Check why the scheduler does "
        "not run the mirror",
        Trait.RUN_HELPS),
)
# fmt: on

CODES: Mapping[str, Code] = {code.name: code for code in _TABLE}
"""Every code by its name, in the order of the runbook."""

_OTHER_STEP = "do what the message says, then clear the stop of this table (`open-mirroring resume`)"


def next_step_of(name: str) -> str:
    """What to do about a code, as a part of a sentence; for an unknown code, what helps with any stop."""
    code = CODES.get(name)
    return _OTHER_STEP if code is None else code.next_step


@cache
def of_kind(kind: Kind) -> frozenset[str]:
    """The names of all codes that can be reported as this kind, such as stops."""
    return frozenset(code.name for code in _TABLE if kind in code.kinds)


@cache
def having(trait: Trait) -> frozenset[str]:
    """The names of all codes with this trait."""
    return frozenset(code.name for code in _TABLE if trait in code.traits)


WHY_RESET: Mapping[str, str] = {code.name: code.why_reset for code in _TABLE if code.why_reset}
"""The reason by code, for stops that end only when the table is built again (a reset). The next run checks all other
stops."""

WHY_LOAD: Mapping[str, str] = {code.name: code.why_load for code in _TABLE if code.why_load}
"""The reason by code, for stops after which the change log lacks changes: only an initial load has all rows of the
table."""
