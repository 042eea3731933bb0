"""The one table of codes: what each means, how it is told, who ends it and what to do.

A code names a cause with its next step, whoever found it; the message beside it says the particular. Whatever the
product decides by a code is a trait of its record here, and the last chapter of docs/runbook.md is written from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, StrEnum
from functools import cache
from typing import NamedTuple

RESET = "reset the table (`open-mirroring reload-table`)"
"""Drop the table at the target and build it anew, by a load or from the log."""
FROM_LOG = ", which builds it from the log where that tells every row, and says so where a new `initial_load` is needed"
DROP = "drop it at the target (`open-mirroring drop-table`)"
_LIFT = "lift the stop (`open-mirroring resume`)"
_DELIVER = "deliver it again under a new name: what was read already is dropped"


class Kind(StrEnum):
    """What a code tells of, the gravest first."""

    STOP = "stop"
    """A table is not published until the stop is lifted. Its changes are logged."""
    HOLD = "hold"
    """A table is not published until the cause is gone. Its changes are logged."""
    LOSS = "loss"
    """The table goes on, and lacks something. The exit code says so."""
    LETTER = "dead letter"
    """A message or row is set aside, and nothing waits for it."""
    ERROR = "error"
    """A command, a job or a mirror file is refused, or a job ends early. Nothing is committed by halves."""
    NOTE = "note"
    """Something is worth a look. It changes nothing."""


class Lift(StrEnum):
    """Who ends what a code tells of."""

    ITSELF = "nobody: it ends once its cause is gone"
    NEXT_RUN = "the next run"
    RESUME = "you, by `resume`"
    DECISION = "you, by the decision that the next step names"
    RESET = "you, by a reset of the table"
    LETTER = "a later change of the row, or you: replay or accept the dead letter"
    CALL = "you: mend it and call again"


class Trait(Enum):
    """What the product does by a code."""

    HEALED_BY_COPY = "the dead letter hides whole changes, and a sound copy or a decoder that knows more heals it"
    OF_A_FILE = "the dead letter is of a file, not of a message: only reading the file again makes anything of it"
    HIDES_CHANGES = "a dead letter causes the stop: it hides which rows were meant"
    BEFORE_A_LOAD = "the cause of the stop may lie before the newest full load: what lies behind it is judged anew"
    FOLLOWED = "a change of structure that a run may follow by building the table anew"
    EXPLAINED = "the stop may be over once it is known what became of a column"
    REPAIRED = "publishing a lost number again mends it, or the stop does not speak against that"
    REPAIRABLE = "a number that is lost can be published again"
    RESET_HELPS = "a reset of the table ends the loss"
    RUN_HELPS = "a run ends it"
    ASKS_SOMEBODY = "a hold whose cause nothing but an operator removes"
    WAITED_FOR = "a load waits until its cause is put back as it was; any other error of a row ends the load"
    PASSES = "the deep check tells it and stops nothing"


class Code(NamedTuple):
    """One code.

    Attributes:
        name: the code.
        kinds: how it is told, the gravest first.
        lift: who ends it.
        means: what is wrong, and what it means for the data.
        next_step: what to do, as a part of a sentence.
        why_reset: of a stop that no clearing mends, why only a reset of the table does.
        why_load: of a stop after which the log does not hold every change of the table, why not.
        traits: what the product does by it.
    """

    name: str
    kinds: tuple[Kind, ...]
    lift: Lift
    means: str
    next_step: str
    why_reset: str = ""
    why_load: str = ""
    traits: frozenset[Trait] = frozenset()


def _code(name: str, kinds: tuple[Kind, ...], lift: Lift, means: str, next_step: str, *traits: Trait) -> Code:
    return Code(name, kinds, lift, means, next_step, traits=frozenset(traits))


def _reset(name: str, means: str, next_step: str, why_reset: str, *traits: Trait, why_load: str = "") -> Code:
    return Code(name, (Kind.STOP,), Lift.RESET, means, next_step, why_reset, why_load, frozenset(traits))


_STOP, _HOLD, _LOSS, _LETTER = (Kind.STOP,), (Kind.HOLD,), (Kind.LOSS,), (Kind.LETTER,)
_ERROR, _NOTE = (Kind.ERROR,), (Kind.NOTE,)

# fmt: off
_TABLE = (
    # The landing zone is not as we left it.
    _code("INCARNATION_CHANGED", _STOP, Lift.RESUME,
        "The table's folder was deleted, copied or made anew: the target may have lost what was published.",
        f"find out who deleted or replaced the folder, then {RESET}"),
    _code("FOREIGN_WRITER", _STOP, Lift.ITSELF,
        "Another ledger or tool publishes into the table's folder. Two writers would use the same numbers.",
        "find the other deployment that publishes there: end one of the two, give this one a landing zone or `target` "
        f"of its own, or let both use one ledger; if the other's ledger is lost, {RESET}"),
    _code("LEDGER_LOST", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "This mirror has published or logged before, and its ledger knows nothing of it. Nothing begins anew.",
        "put the newest ledger back, or name it in the mirror file (`ledger`): it goes on where it was; if another "
        "deployment of this mirror publishes there, end one of the two, or let both use one ledger; without any "
        f"ledger, make it again (`open-mirroring rebuild-ledger`), or {RESET}"),
    _code("METADATA_CHANGED", _STOP, Lift.RESUME,
        "The table's `_metadata.json` is gone, unreadable or names another key than ours.",
        f"restore the _metadata.json of the table's creation; if the service read other keys, {RESET}"),
    _code("FOREIGN_ITEM", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "Something lies in the table's folder that does not belong there, or a link stands in the way.",
        "find out who put it there, compare a number with the processed one, and move it away; if the service has "
        f"applied it, {RESET}"),
    _code("LEDGER_BEHIND", _STOP, Lift.ITSELF,
        "Landing zone or change log hold numbers or batches that the ledger never gave: it is an older copy.",
        f"stop the other writer, or restore the newest ledger; if there is none, {RESET}"),
    _code("CONTENT_CHANGED", _STOP, Lift.RESUME,
        "A published file is not the one that was sealed. The target may have applied either.",
        "find out who exchanged the file or edited the ledger; if the service may have applied other rows than the "
        f"ledger says, {RESET}"),
    _code("FILE_MISSING", _STOP, Lift.ITSELF,
        "A published number is nowhere, and was not purged. The target waits for it, or has lost it.",
        "find out who removed the file and move that very file back; if it is lost and the target has not applied it, "
        f"publish it again (`open-mirroring repair`); else {RESET}", Trait.REPAIRED, Trait.REPAIRABLE),
    _code("TARGET_FAILED", (Kind.STOP, Kind.ERROR), Lift.ITSELF,
        "The target says that the table failed, or that mirroring of its database was stopped.",
        f"read the error at the target and mend its cause, or {RESET}; never restart the target's database for one "
        "table", Trait.REPAIRED),
    _code("TARGET_RESTARTED", _STOP, Lift.RESUME,
        "The target counts fewer rows than before: it began the table anew.",
        "find out who stopped and started mirroring, or touched the table at the target; its rows are not ours any "
        f"more: {RESET}, and so every table that says so; if its rows are all there and only the count began anew, "
        "`open-mirroring resume`"),
    _reset("CONFLICT",
        "Our sealed number is visible with the content of another writer.",
        f"find out who wrote under this number; if the service may have applied it, {RESET}",
        "the service may have applied what somebody else wrote under our number"),
    _reset("AMBIGUOUS",
        "A sealed file is nowhere, and nothing tells whether the target applied it.",
        f"nothing here tells whether the number was applied before it was lost: {RESET}",
        "whether the number was applied is not known, and publishing it again could apply it twice"),
    _code("FILE_UNFIT", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "A file's columns, keys or markers are not those of its table. One that was just written is not published.",
        "run again; if it stays, report it with the version that wrote the file, and compare the target's rows with "
        f"the source's; if they differ, {RESET}"),
    _code("COUNTS_DIFFER", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "What the ledger records does not add up: changes may be missing.",
        "find out who edited or restored the ledger; if nobody did, changes may be lost: report it, and compare the "
        f"target with the source or {RESET}"),
    Code("LOG_DAMAGED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The change log, or the ledger's record of it, is not as it was sealed: parts are missing or others.",
        "find out from the change log's Delta history who changed it, and restore that version, or a backup; what "
        f"cannot be restored has to be read again, or {RESET}",
        why_load="parts of it are missing, or somebody rewrote them"),
    _code("LOG_CONFLICT", (Kind.STOP, Kind.ERROR), Lift.DECISION,
        "The change log holds a batch with other files than the ledger sealed. Nothing is read or published.",
        "put ledger and change log of the same time together, then `open-mirroring resume-extraction`"),
    _reset("LEDGER_UNKNOWN",
        "The ledger was lost and made again, and what it knew of the table could not be found out.",
        f"{RESET}; the other tables go on",
        "what of it was published is not known"),
    # The changes cannot be published as they are.
    _code("NEW_TABLE", _STOP, Lift.DECISION,
        "The table joined by a pattern that asks first. Nothing of it is published yet.",
        "accept it (`open-mirroring accept-table`): its changes are logged from the first one on; or name it under "
        f"`exclude` of its pattern, and {DROP}"),
    _reset("SCHEMA_CHANGED",
        "The table's structure changed so that published rows cannot follow. What came before is published.",
        f"the target cannot change a column's type or bring one back in place: {RESET}{FROM_LOG}; if an export without "
        "`types` brought the column, name its SQL type under `types` of the load first",
        "published files hold the column in its old type or with old values, and neither can change in place",
        Trait.FOLLOWED),
    _reset("COLUMN_NOT_STREAMED",
        "Loaded columns are in no change: they were dropped at the source, or it does not send them.",
        "if they were dropped at the source, run `open-mirroring accept-schema --dropped COLUMN…`; if the source does "
        f"not send them, exclude them in the mirror file (`columns: {{exclude: […]}}`), and {RESET}",
        "published rows hold the column as it was loaded, and no change tells what became of it", Trait.EXPLAINED),
    _code("RENAME_POSSIBLE", _STOP, Lift.DECISION,
        "A column is gone and another one came: it may have been renamed.",
        "look at the source: if a column was dropped, run `open-mirroring accept-schema --dropped COLUMN…`, and the "
        "table goes on; if it was renamed, `--renamed OLD=NEW`, and the table is built from scratch; "
        "`on_possible_rename: dropped` answers for all; where `columns` does not list the new name, list it instead, "
        f"and {RESET} with a new initial load", Trait.FOLLOWED, Trait.EXPLAINED),
    _reset("COLUMN_RENAMED",
        "A column was renamed at the source. Rows that did not change since have it under the old name.",
        f"{RESET}{FROM_LOG}; either brings the values under the new name",
        "the values of rows that did not change since the rename stand under the old name",
        Trait.FOLLOWED, Trait.EXPLAINED),
    _code("COLUMN_ADDED", _STOP, Lift.RESUME,
        "A column came, perhaps with a default that rows have which did not change.",
        "nothing tells whether the column came with a default, which the rows have that did not change: "
        f"{RESET} with a new initial load; or, if it came without one, say `require_reload_on_add: false` and {_LIFT}"),
    _code("COLUMN_NAME_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The target cannot have this column name: reserved, too long, or equal to another one without case.",
        "give the column another name by `rename`, or leave it out (`columns: {exclude: […]}`), in the mirror file, or "
        f"rename it at the source; then {_LIFT}"),
    _code("HASH_UNMATCHED", (Kind.STOP, Kind.LOSS), Lift.RESUME,
        "A column that is to be hashed is none of the table's: one that is meant would land in clear.",
        "spell the column under `hash` as the source does; if it is still to come, write a pattern, as in `email*`, or "
        "leave it out; where the table stopped, lift the stop then"),
    _code("TYPE_UNSUPPORTED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "A column's type is unknown, or has no counterpart in the landing zone.",
        "land the column as text (`types: {column: string}` in the mirror file), or name a type of docs/types.md that "
        f"fits, and {_LIFT}; a column that is no key can also be left out (`columns: {{exclude: […]}}`)"),
    _code("KEY_INVALID", (Kind.STOP, Kind.LETTER, Kind.ERROR), Lift.RESUME,
        "What the mirror file calls the key is none: a column is absent, NULL or unreadable, or a key stands twice.",
        "compare `key` in the mirror file with the whole primary key at the source, in names and spelling; mend it, or "
        f"the source or export, and {RESET}; a type that loses digits in the target, such as datetime2(7), can be no "
        "key"),
    _code("KEY_DIFFERS", (Kind.LETTER, Kind.ERROR, Kind.NOTE), Lift.LETTER,
        "The source announces another key than the mirror file names: rows of two keys could become one.",
        "name all columns of the announced key as `key` in the mirror file, and reset a table that was published with "
        "a load; or, if no two rows of the table ever have one value of yours, say `key_is_unique: true`, replay the "
        "dead letters and resume the table"),
    Code("KEY_UNKNOWN", _STOP, Lift.RESET,
        "A change could not be attributed to a row. A change of an unknown row is missing.",
        "compare `key` in the mirror file with the primary key at the source, and mend it: while no change is logged "
        "by the old one, the next run reads again by the new one what was rejected; where a newer version of this "
        f"product reads the dead letter, replay it; else {RESET} with a load",
        "a change of an unknown row is missing, and nothing looks at it again",
        "a change of an unknown row is missing", frozenset({Trait.HIDES_CHANGES})),
    Code("KEY_MENDED", _STOP, Lift.NEXT_RUN,
        "The mirror file names another key since the table stopped. What was rejected is not read again yet.",
        "run again (`open-mirroring tick`): what was rejected is read again by the key of now",
        why_load="what a wrong key rejected is not read again yet, which the next run does",
        traits=frozenset({Trait.RUN_HELPS})),
    Code("CHANGES_MISSING", _STOP, Lift.RESUME,
        "A file or message of the table could not be read. Whole changes are missing.",
        f"deliver what the message names again, sound and under a new name; once that is read, {_LIFT}: what was read "
        "already is dropped",
        why_load="changes could not be read", traits=frozenset({Trait.HIDES_CHANGES})),
    _code("CHANGES_RECOVERED", _STOP, Lift.RESUME,
        "Every dead letter that hid a change of the table was read after all.",
        f"{_LIFT}: what a dead letter hid was replayed or read again, and takes its place in the order"),
    Code("PARTIAL_ROWS", _STOP, Lift.RESUME,
        "Updates carry only what changed, and the target takes whole rows.",
        "set @include_all_columns = 1 for the table at the source and reset it; or, if its updates carry whole rows, "
        "say `full_rows: true`, or, if the log holds its rows from their insert or load on, `complete_rows: true` in "
        f"the mirror file, and {_LIFT}",
        why_load="its updates carry only what changed", traits=frozenset({Trait.BEFORE_A_LOAD, Trait.EXPLAINED})),
    Code("ROW_INCOMPLETE", _STOP, Lift.ITSELF,
        "A row's changes carry only what changed, and no earlier one tells the rest.",
        "the batch that brings the missing changes lifts the stop by itself; if they never come, set "
        f"@include_all_columns = 1 for the table at the source, and {RESET}",
        why_load="parts of a row are told by no change", traits=frozenset({Trait.BEFORE_A_LOAD})),
    _code("SWAP_POSSIBLE", _STOP, Lift.ITSELF,
        "A row left a key that another one had just taken, and nothing tells which row it was.",
        "touch at the source the row of that key (an update that sets a column to itself), or, if there is none, "
        f"insert one and delete it: the batch that brings it lifts the stop by itself; or {RESET} with an "
        "`initial_load` made after that transaction"),
    _code("TABLE_NAME_DIFFERS", (Kind.STOP, Kind.LETTER, Kind.ERROR), Lift.RESUME,
        "The source names the table, its folder or its topic otherwise than the mirror file. Its changes are not read.",
        "spell `source`, `change_table`, `table_suffix` or `topics` in the mirror file as the source does; then replay "
        f"the dead letters and {_LIFT}; if both names are tables of their own, accept the letters of the other one",
        Trait.HEALED_BY_COPY),
    _code("LOAD_UNREAD", _STOP, Lift.RESUME,
        "A full load lies beside the changes, and the table names no initial load: its rows would be missing.",
        "give the table an `initial_load` with the format qlik-full-load and the folder of that load, and "
        f"{RESET}; or, if its rows do not matter, move its files out of the source's folder and {_LIFT}"),
    _code("HEADER_INVALID", (Kind.STOP, Kind.LETTER), Lift.RESUME,
        "The header columns of a task's change table or message are absent, ambiguous or unreadable.",
        "select change_seq and change_oper in the task's Store Changes settings, mend `header_prefix` or "
        "`sequence_digits`, or name `columns` without the one that is meant; see that only the task writes there; "
        f"then replay the dead letters and {_LIFT}"),
    _code("CHANGES_WENT_BACK", _STOP, Lift.RESUME,
        "A change table counts from a lower place than before: it was made anew or restored. Changes may be lost.",
        "see whether the change table was made anew or restored: changes may be lost, and new ones count from a lower "
        f"place; give `load` a new name in the mirror file, and {RESET}"),
    _reset("IDENTITY_CONFLICT",
        "Two changes have one position and key, and other values.",
        "see that the source path holds the events of one stream group of one database only; which of the two values "
        f"is true cannot be decided from the events: {RESET}",
        "which of the two values is true cannot be decided from the events", Trait.BEFORE_A_LOAD,
        why_load="it holds two contents of one change"),
    _code("SENDER_OTHER", (Kind.STOP, Kind.NOTE), Lift.RESUME,
        "Two databases or tasks send changes of one table.",
        "of two databases name the one to mirror as `source.database`, of two tasks take the topic of one out, and "
        f"{RESET} with a load; or, if it is the same source under a new name and nothing was missed, {_LIFT}"),
    _reset("SCHEMA_SHARED",
        "Messages of one table were taken for changes of another one.",
        f"{RESET}, and the other table that is named, each with a load made after this stop; name the `topic` of each "
        "table, or have the task name schema and table in its headers, so that ids decide nothing",
        "rows of one table were published as rows of another one",
        why_load="it holds changes of one table as those of another one"),
    Code("EPOCH_UNKNOWN", _STOP, Lift.DECISION,
        "Streaming was set up anew. Changes between the two streams may never have been sent.",
        f"{RESET} with a load made after the new stream began; or, if nothing changed at the source in between, accept "
        "the stream by its GUID: `open-mirroring accept-epoch`; if a Qlik task has written its full load anew beside "
        "the change tables, say that it counts: `open-mirroring accept-reload`; if the table was dropped and made "
        "again, empty, before it, say that with the reset (`--made-anew`)",
        why_load="what happened between two streams is in none of them"),
    _reset("LATE_BELOW_HORIZON",
        "A change came so late that the log may no longer hold what it has to be compared with.",
        "find out why the source sent it so late, and raise `maintenance.keep_days` if that may happen again; whether "
        f"it is still the newest of its key is not known: {RESET}",
        "the log no longer holds what the late change has to be compared with"),
    _reset("RELOAD_SEEN",
        "The source was loaded again. Keys that the new load lacks would stay at the target.",
        "when that load has ended at the source, say that it counts (`open-mirroring accept-reload`): the next run "
        "builds the table anew from it and the changes behind it; where the log does not tell where it begins, "
        f"{RESET} with an `initial_load` made after it",
        "keys that the new load lacks would stay, and its rows lie below every change of the old one",
        Trait.BEFORE_A_LOAD, why_load="keys that a reload of the source lacks would stay"),
    Code("LOAD_REPEATED", _STOP, Lift.ITSELF,
        "A full load came a second time, and rows of the first have not come again.",
        "wait until the second load has come to its end: the stop is lifted once every row came again; if some never "
        "do, the source may have them no more: say that the second load counts (`open-mirroring accept-reload`), or "
        f"{RESET} with an `initial_load` made after that load ended; if nothing was loaded again, and messages were "
        f"only delivered twice, {_LIFT}",
        why_load="keys that a second load of the source lacks would stay", traits=frozenset({Trait.BEFORE_A_LOAD})),
    _code("RELOAD_UNCLEAR", _ERROR, Lift.DECISION,
        "The newest full load cannot be told from what came before, or there is none.",
        f"give the table an `initial_load` made after that load ended, and {RESET}"),
    Code("LOAD_NEEDED", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The log does not hold every change of the table: only a load tells its rows.",
        f"give the table an `initial_load` in the mirror file, then {RESET}",
        "changes of the time in which the table was not mirrored were not read"),
    _reset("KEYLESS_CHANGE",
        "A table without key received an update or a delete.",
        f"without key a table takes inserts only: give it a `key`, and {RESET}",
        "which row the change meant is not known", Trait.BEFORE_A_LOAD,
        why_load="which row a change meant is not known"),
    # The first rows cannot be loaded.
    _code("VALUE_INVALID", (Kind.STOP, Kind.LETTER, Kind.NOTE), Lift.RESET,
        "A value does not fit its column, or can be two things. The target shows the row as it was before.",
        "compare the value with its column's type at the source; correct it there, or name the column's SQL type under "
        f"`types`, have the export write it in full, or list `columns` without it, and {RESET}; of a single change, "
        "touching the row at the source is enough"),
    _code("LOAD_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The load cannot be read as the mirror file says: a file of the export or a column is absent or odd.",
        "mend `columns` or `types`, or deliver a complete export of plain files, all alike, in a folder of its own; "
        f"once the load began, {RESET}"),
    _code("STREAM_FROM_INVALID", (Kind.STOP, Kind.ERROR), Lift.RESET,
        "The load does not fit the stream: changes would be missing, or be in both.",
        "export anew, with the first commit that is not in the export as `stream_from` (and `handover: exact` for a "
        f"table without key); then load it, or {RESET}"),
    _code("LOAD_CHANGED", _ERROR, Lift.CALL,
        "Settings or files of a load are others than those that it began with.",
        f"put them back as they were and run `open-mirroring initial-load`; or {RESET}", Trait.WAITED_FOR),
    # It passes by itself.
    _code("PAUSED", _HOLD, Lift.ITSELF,
        "Mirroring of the target's database is paused. Changes are logged.",
        "resume the capacity; changes are logged meanwhile"),
    _code("TARGET_BUSY", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The target's database is still starting, or the service is throttled. Changes are logged.",
        "wait until the database runs, or for the time that the service names; changes are logged meanwhile"),
    _code("STATUS_UNKNOWN", _HOLD, Lift.ITSELF,
        "The target gives no status that is understood. Changes are logged.",
        "look whether the target's status call works; the next run asks again"),
    _code("STATUS_REFUSED", _HOLD, Lift.ITSELF,
        "The login may not ask how the target is: nothing would tell of a failed one.",
        "let the connection's identity ask: give it Contributor in the workspace, or read and write on the item; the "
        "tenant must let service principals use Fabric APIs; `open-mirroring check` tries it; or publish without "
        "asking: `gate.status: none`", Trait.ASKS_SOMEBODY),
    _code("BACKLOG", _HOLD, Lift.ITSELF,
        "More files wait for the target than the limits allow. Changes are logged.",
        "wait: publishing goes on when the target has caught up; if it never does, look at its status"),
    _code("RESET_OPEN", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The table is being reset, and waits for the target or its rebuilding.",
        "let `open-mirroring reload-table` (or `drop-table`, as it was asked for) come to its end: it goes on where it "
        "stopped; changes are logged meanwhile"),
    _code("LOAD_PENDING", (Kind.HOLD, Kind.ERROR), Lift.ITSELF,
        "The table's initial load is not complete. Changes are logged.",
        "mend what refused it, if anything did, and run the initial load to its end; changes are logged meanwhile"),
    _code("LOAD_AHEAD", _HOLD, Lift.ITSELF,
        "The stream has not reached the position from which the load says that it goes on.",
        "compare `stream_from` with the last commit before the export began: if it is right, wait until the source "
        f"commits a change above it; if it is too high, mend it and {RESET}"),
    # The table goes on, and lacks something.
    _code("DEAD_LETTERS_OPEN", _LOSS, Lift.LETTER,
        "Changes of the table could not be read or typed. Their rows are as they were before.",
        "look at `open-mirroring dead-letters`: it says what to do about each; what nobody can mend is settled by "
        "`open-mirroring accept-dead-letters`, or tolerated by `dead_letters` in the mirror file"),
    _code("DEAD_LETTERS_HOMELESS", _LOSS, Lift.LETTER,
        "Messages tell no table: any table may lack a change.",
        "look at `open-mirroring dead-letters --raw` for whose they are; replay them once the cause is mended, or "
        "settle what concerns no mirrored table by `open-mirroring accept-dead-letters`"),
    _code("DEAD_LETTERS_UNCOUNTED", _LOSS, Lift.NEXT_RUN,
        "Nobody has counted the open dead letters of the log yet.",
        "run `open-mirroring tick`, or `open-mirroring status`: both count them", Trait.RUN_HELPS),
    _code("TABLE_RENAMED", _LOSS, Lift.RESET,
        "Nothing comes of the table any more, while changes come of one with a similar name.",
        "find out whether it was renamed at the source: if so, name the new one in the mirror file, with an initial "
        "load, and drop this one (`open-mirroring drop-table`); else list the other one under `ignore`"),
    _code("CHANGES_IGNORED", (Kind.LOSS, Kind.NOTE), Lift.RESET,
        "Changes of the table were read and ignored before the mirror file named it.",
        f"{RESET} with an initial load; if those changes were read again since, or do not matter, list the table "
        "under `ignore`", Trait.RESET_HELPS),
    _code("OFFSETS_MISSING", _LOSS, Lift.LETTER,
        "Messages between two that were read have not come: any table may lack a change.",
        "deliver the lines with these offsets, in any file; if they are lost, `open-mirroring prove` tells the rows "
        "that differ, and `open-mirroring accept-dead-letters --code OFFSETS_MISSING` settles the gaps; where the "
        "lines are only some of the messages, say `offset_gaps: expected` under `source`"),
    _code("FILE_UNKNOWN", (Kind.LOSS, Kind.LETTER), Lift.ITSELF,
        "Something in the source's folder is not read, for its name or kind says nothing: changes may be in it.",
        "repair the links, and give folders and files plain names with the ending of what they hold, or keep what is "
        "none of the source's elsewhere; the next run looks again; then accept the dead letter", Trait.HEALED_BY_COPY,
        Trait.OF_A_FILE),
    _code("TABLE_SUSPENDED", _LOSS, Lift.ITSELF,
        "The task at the source has suspended the table: no change of it comes.",
        "mend what the task names as the reason, and have it go on with the table or reload it; after a reload, or "
        f"where changes were lost, {RESET} with an initial load", Trait.RESET_HELPS),
    _code("TABLE_EMPTIED", (Kind.LOSS, Kind.LETTER), Lift.RESET,
        "The table was truncated or dropped at the source. Its old rows are still at the target.",
        f"{RESET} with an initial load made afterwards; one that the source has no more: {DROP}", Trait.RESET_HELPS),
    _code("LOAD_NOT_MADE", _LOSS, Lift.RESET,
        "The mirror file names an initial load, and the table began without one: first rows may be missing.",
        f"{RESET}, which then begins with that load; or take `initial_load` out of the mirror file, if the table began "
        "empty"),
    # A message or row is set aside.
    _code("BODY_MISSING", _LETTER, Lift.LETTER,
        "A message has no content. A change is in none of them.",
        "find out who sends messages without content to this stream; a change is in none of them"),
    _code("MESSAGE_INVALID", _LETTER, Lift.LETTER,
        "A message is none of the source's format: cut, altered, of a newer format, or of somebody else.",
        "find out what altered the message or who else writes there, and deliver a sound copy: copies of what was read "
        "already are dropped; if the format is newer, update this product and replay the dead letters; have the "
        "source send its own format as JSON or Avro", Trait.HEALED_BY_COPY),
    _code("METADATA_MISSING", (Kind.LETTER, Kind.ERROR), Lift.LETTER,
        "Nothing tells how to read a message: its structure is not announced, or cannot be read.",
        "let the Qlik task publish its metadata messages to a topic of this mirror, or give the structure under "
        "`structures` in the mirror file; then replay the dead letters, and resume the table if it is stopped; raise "
        "`fragment_timeout_hours` if metadata only comes late", Trait.HEALED_BY_COPY),
    _code("FRAGMENTS_INCOMPLETE", _LETTER, Lift.LETTER,
        "The pieces of a split message do not come together.",
        "look whether a partition or file is missing at the source, and that one stream group feeds this path; deliver "
        "all pieces again together: complete ones are joined; raise `fragment_timeout_hours` if they only come late",
        Trait.HEALED_BY_COPY),
    _code("TABLE_UNTOLD", _LETTER, Lift.LETTER,
        "A message does not tell its table or its schema.",
        "set *Message key* of the task's target to *Schema and table name*, or include schema and table in the "
        "headers; let each task publish to topics of its own; if a topic holds one table alone, name it as `topic` of "
        "that table; then replay the dead letters"),
    _code("FILE_DAMAGED", _LETTER, Lift.LETTER,
        "A source file cannot be read from some place on, or the metadata file beside it tells otherwise.",
        "look whether the file is complete at the source; deliver it again under a new name, with its metadata file if "
        "it has one (a Capture file under its own name), then resume the table: what was read already is dropped",
        Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("FILE_INCOMPLETE", _LETTER, Lift.LETTER,
        "A data file or its metadata file is missing or empty. It is read once it is whole.",
        "look whether the task or the copying has failed; copy the data file or its metadata file, whichever is "
        "missing or empty, to its place, and resume the table", Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("FORMAT_UNSUPPORTED", _LETTER, Lift.LETTER,
        "A file is not written as the mirror file says, or so that NULL or a field's end cannot be told.",
        "set `encoding` or `layout` under `source` to what the file is, or change delimiters, quotes, NULL or "
        f"compression at the file target, as the reason says; then {_DELIVER}", Trait.HEALED_BY_COPY, Trait.OF_A_FILE),
    _code("ROW_INVALID", _LETTER, Lift.LETTER,
        "A row is none of its table: its columns or its operation do not fit.",
        "find out what wrote the row; until a later change of its key arrives, the target shows the row as it was "
        "before; touching the row at the source sends such a change"),
    _code("MASK_INVALID", _LETTER, Lift.LETTER,
        "The mask of changed columns does not fit the row or the table.",
        "set `mask_order` to how the source orders the bytes of its masks; if NULLs in updates stand for what did not "
        "change, set `sparse_updates`; else see whether the table's metadata is up to date, and touch the row"),
    _code("OLD_KEY_MISSING", _LETTER, Lift.LETTER,
        "A key changed, or may have, and the row of the old key cannot be removed.",
        "have the source send what was before: @include_old_values = 1 for change events, before images (`beforeData`) "
        "in a Qlik task; if keys of this table never change, say `keys_never_change: true` and replay the dead "
        "letters; else the table is stopped until it is reloaded"),
    _code("PKKEY_CONTRADICTED", _LETTER, Lift.LETTER,
        "A message names two rows: `pkkey` says another one than the row.",
        "find out what altered the message, or writes to this stream; either row may be out of date; deliver a sound "
        "copy and resume the table, or reload it"),
    _code("ROWS_MISSING", _LETTER, Lift.RESET,
        "Rows of a change table are missing or stand twice. Which row was meant is not known.",
        "see that one task alone writes there and stores before and after images; look into its log for records that "
        f"it could not write; then {RESET} with a load"),
    # A job or command is refused.
    _code("UNREACHABLE", _ERROR, Lift.NEXT_RUN,
        "A server, service or disk does not answer. No run rests on a guess.",
        "the next run goes on; if it stays so, look at the server, its connection, the disk and the network between",
        Trait.PASSES),
    _code("CHANGED_MEANWHILE", (Kind.ERROR, Kind.NOTE), Lift.NEXT_RUN,
        "Something changed while a job worked on it, or two runs overlapped.",
        "nothing: the next run looks again; if it is seen often, see who else works there", Trait.PASSES),
    _code("SERVICE_REFUSED", _ERROR, Lift.CALL,
        "A service or database refuses a request. Its own code stands in the message.",
        "look the service's code up; compare addresses, connection and rights", Trait.WAITED_FOR),
    _code("ACCESS_DENIED", _ERROR, Lift.CALL,
        "A login or the user of the job may not read or write there.",
        "correct the login of the connection, or give its identity or the user of the job the right that is named",
        Trait.WAITED_FOR),
    _code("CONNECTION_INVALID", _ERROR, Lift.CALL,
        "A connection is not set, or what it says is wrong.",
        "set the connection as its page says: `AIRFLOW_CONN_<NAME>`, or in Airflow; for a certificate name its "
        "authority", Trait.WAITED_FOR),
    _code("PLACE_MISSING", _ERROR, Lift.CALL,
        "A folder, table, topic, container or item that the mirror file names is not there, or is another kind.",
        "mend the name in the mirror file, or create what it names; a login that may not see it, too, finds nothing",
        Trait.WAITED_FOR),
    _code("DISK_FULL", _ERROR, Lift.NEXT_RUN,
        "A disk is full, or over quota.",
        "free space or raise the quota; the next run goes on"),
    _code("MEMORY_FULL", _ERROR, Lift.NEXT_RUN,
        "A job wanted more memory than the machine gives.",
        "give the machine or the job more memory, or let less run at a time; the next run goes on"),
    _code("STORE_UNFIT", _ERROR, Lift.CALL,
        "The store cannot do what exactly-once rests on. Nothing is published there.",
        "use a local filesystem of Linux, OneLake, or a storage that keeps conditions of calls; `open-mirroring check` "
        "names each deviation"),
    _code("SOURCE_REWRITTEN", _ERROR, Lift.CALL,
        "Files of the source are gone, shorter or others than what was read or bound of them.",
        "put them back as they were, and deliver what is new under a new name; what is lost `open-mirroring prove` "
        "tells", Trait.WAITED_FOR),
    _code("MESSAGES_LOST", _ERROR, Lift.RESET,
        "A broker deleted messages before they were read, or the topic was made anew. Changes may be lost.",
        "lengthen the retention; let the source write to a topic of another name, name that in the mirror file, and "
        "load the tables anew"),
    _code("TRANSACTION_UNTOLD", _ERROR, Lift.CALL,
        "With `consistency: transaction`, the source does not tell where all transactions begin or end.",
        "do what the message says (set `partition_count`, have the task send the header, or make a mirror for each "
        "task), or set `consistency: key`, and run again"),
    _code("LEDGER_DAMAGED", _ERROR, Lift.CALL,
        "The ledger's file is no SQLite database, or a damaged one.",
        "put a sound copy back, or take it away and make it again (`open-mirroring rebuild-ledger`)"),
    _code("LEDGER_UNFIT", _ERROR, Lift.CALL,
        "The database that `ledger` names belongs to something else, or to another version.",
        "install the version that wrote it, or give the ledger a database or schema of its own"),
    _code("TABLE_REDECLARED", (Kind.STOP, Kind.ERROR), Lift.RESUME,
        "The mirror file, or a salt that it names, changed what published rows of a table rest on.",
        "put it back as it was; a change on purpose is a reset (`open-mirroring reload-table`), a table that is taken "
        "out for good is dropped (`open-mirroring drop-table`)"),
    _code("MIRROR_CLASH", _ERROR, Lift.CALL,
        "The mirror file claims a name, landing zone or change log of another mirror. Nothing was written.",
        "give a copy a `mirror`, `landing_zone`, `change_log` and `ledger` of its own; else put the settings back"),
    _code("CONFIG_INVALID", _ERROR, Lift.CALL,
        "The mirror file is wrong. Nothing runs until it is mended.",
        "mend the setting that the message names (`open-mirroring check` tells all at once)"),
    _code("SECRET_IN_FILE", _ERROR, Lift.CALL,
        "A secret stands in the mirror file.",
        "take the secret out, into a connection, and change it, for it was in a file"),
    _code("ARGUMENT_INVALID", _ERROR, Lift.CALL,
        "A call names something that is not there, or lacks what it needs. Nothing was done.",
        "mend the argument that the message names, and call again"),
    _code("COMMAND_REFUSED", _ERROR, Lift.CALL,
        "The command does not apply as things are. Nothing was done.",
        "do what the message says; `open-mirroring status` shows what the table waits for"),
    _code("REPAIR_REFUSED", _ERROR, Lift.RESET,
        "A lost number or differing rows cannot be published again as asked.",
        f"see to what the message names; else {RESET}"),
    _code("PROOF_FAILED", _ERROR, Lift.CALL,
        "A table could not be compared with its source. An earlier proof stays.",
        "mend what the message says, and prove it again"),
    _code("INSTALLATION_INCOMPLETE", _ERROR, Lift.CALL,
        "A part of the installation or of its set-up for Spark is missing, or of another version.",
        "install or set what the message names, of one version everywhere; for jars: `open-mirroring jars`"),
    _code("JOB_FAILED", _ERROR, Lift.NEXT_RUN,
        "A job or task ended before it could say why.",
        "read the last lines of its log; the next attempt goes on where this one ended"),
    _code("TABLES_STOPPED", _ERROR, Lift.DECISION,
        "A run is red because tables are stopped. The others are done.",
        "see to each table by the code that the message names"),
    _code("DONE_WITH_LOSSES", _ERROR, Lift.DECISION,
        "A run is red because of losses. Everything was published.",
        "see to each loss by the code that the message names"),
    _code("NOT_EQUAL", _ERROR, Lift.DECISION,
        "A proof found rows that differ from the source.",
        "find the cause, then correct the rows (`open-mirroring prove FILE --correct`), or reset the table"),
    # It is worth a look.
    _code("NOT_SEEN", _NOTE, Lift.ITSELF,
        "The source tells nothing of a table or column that the mirror file names.",
        "compare the names with the source, letter by letter; one that nobody changed yet comes with its first change"),
    _code("BEGUN_LATE", _NOTE, Lift.RESET,
        "The stream was not read from its first message on, and nothing else brought the first rows.",
        f"`open-mirroring prove` shows which rows are missing; {RESET} with an initial load to bring them"),
    _code("SETUP_INCOMPLETE", _NOTE, Lift.CALL,
        "The source is set up so that some change would stop the table, or is not told.",
        "let the source send old values, whole rows or masks, or say the setting that the message names"),
    _code("CONTROL_TABLE_UNREAD", _NOTE, Lift.ITSELF,
        "A control table of the task is absent, or may not be read.",
        "have the task write it, in the schema that `control_schema` names, and grant SELECT on it"),
    _code("TASK_ERRORS", _NOTE, Lift.ITSELF,
        "The task at the source recorded errors of a table.",
        "look at the task and its control tables; what came before is published"),
    _code("TASK_UNKNOWN", _NOTE, Lift.ITSELF,
        "The control tables are of several tasks, or of none that the mirror file names.",
        "name the task as `task` under `source`, or delete rows of a task that is no more"),
    _code("TABLE_UNMIRRORED", _NOTE, Lift.ITSELF,
        "The source sends tables that nobody mirrors.",
        "add them to the mirror file (`open-mirroring init FILE --add`), or list them under `ignore`"),
    _code("TARGET_LIMIT", _NOTE, Lift.CALL,
        "The mirror comes near a limit of its target: tables, or columns of a table.",
        "divide the tables between mirrors, or leave columns out with `columns`"),
    _code("NOT_INSPECTED", _NOTE, Lift.NEXT_RUN,
        "Nobody has looked at the landing zone lately: nothing is known to be wrong, and nothing to be right.",
        "run `open-mirroring tick`, or look again on the page; see why the scheduler does not run the mirror",
        Trait.RUN_HELPS),
)
# fmt: on

CODES: Mapping[str, Code] = {code.name: code for code in _TABLE}
"""Every code by its name, in the order of the runbook."""

_OTHER_STEP = "do what the message says, then clear the stop of this table (`open-mirroring resume`)"


def next_step(name: str) -> str:
    """What to do about a code, as a part of a sentence; for one of another version what helps with any stop."""
    code = CODES.get(name)
    return _OTHER_STEP if code is None else code.next_step


@cache
def of_kind(kind: Kind) -> frozenset[str]:
    """The codes that are told in a way."""
    return frozenset(code.name for code in _TABLE if kind in code.kinds)


@cache
def having(trait: Trait) -> frozenset[str]:
    """The codes by which the product does something."""
    return frozenset(code.name for code in _TABLE if trait in code.traits)


WHY_RESET: Mapping[str, str] = {code.name: code.why_reset for code in _TABLE if code.why_reset}
"""Stops that no clearing mends, and why: the table has to be reset. All others are checked again by the next run."""

WHY_LOAD: Mapping[str, str] = {code.name: code.why_load for code in _TABLE if code.why_load}
"""Stops after which the log does not hold every change of the table, and why: what a load brings is all that counts."""
