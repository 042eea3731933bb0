"""Declares once what an operator can do with a mirror.

Commands, DAGs, forms and buttons are made from these declarations. To add an operation, declare it here, then write its
code. A decision needs a case in :mod:`open_mirroring.operate.deciding`. Any other operation needs a job, or the
function named by *run*.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NamedTuple

from open_mirroring.operate.arguments import Argument, argument, flag, positive, required, seconds, stated


class Operation(NamedTuple):
    """Something that an operator can do with a mirror.

    *about* is the operation's help text. *job* is the job's module in ``spark_jobs``. *run* is the command's function,
    as ``module:function`` in :mod:`spark_jobs.cli`; if *run* is empty, the command runs the job. *label* is the text
    on buttons and forms of a decision; it is empty for an operation that is not a decision.
    """

    name: str
    about: str
    arguments: tuple[Argument, ...]
    run: str = ""
    job: str = ""
    label: str = ""

    @property
    def fields(self) -> tuple[Argument, ...]:
        """The arguments of the operation that appear in forms."""
        return tuple(one for one in self.arguments if one.title)

    @property
    def needs(self) -> tuple[str, ...]:
        """The names of the required fields of the operation's form, except the operator's reason."""
        return tuple(one.field for one in self.fields if one.is_required and one.field != REASON.field)

    @property
    def may_have(self) -> tuple[str, ...]:
        """The names of the optional fields of the operation's form."""
        return tuple(one.field for one in self.fields if not one.is_required)

    def command(self, file: Path, **given: str) -> str:
        """Return the operation's command line, to be copied by an operator.

        *given* has values by field name; a field without a value becomes a placeholder.
        """
        words = ["open-mirroring", self.name, shlex.quote(str(file))]
        for one in (one for one in self.arguments if one.name.startswith("--")):
            if value := given.get(one.field):
                words += [one.name, shlex.quote(value)]
            elif one.is_required:
                words += [one.name, str(one.options["metavar"])]
        return " ".join(words)


FILE = argument("file", "the mirror file (mirrors/NAME.yaml)", metavar="FILE", type=Path)
JSON = flag("--json", "print the result as JSON")
TABLE = argument("--table", "its `source` in the mirror file", title="Table", required=True, metavar="NAME")
WHY = argument("--why", "kept in the ledger's audit", field="reason", title="Reason", type=stated, metavar="TEXT")
REASON = WHY._replace(name="--reason")
APPROVED_BY = argument("--approved-by", "who approves it; kept in the audit", type=stated, metavar="NAME")
REQUEST = argument(
    "--request",
    "ask again for this request, which never has a second effect (default: a new one)",
    type=stated,
    metavar="ID",
)
BEGIN = argument("--from", "begin of the interval to backfill: 2026-01-05T10:00:00Z", dest="start", metavar="MOMENT")
END = argument("--to", "its end, excluded", dest="end", metavar="MOMENT")
REREAD = flag(
    "--reread",
    "read again what was read of the interval before; the target changes only where it lacks something",
    title="Read again",
    says="Read again what was read of the interval before; for backfills, and for runs with a logical date.",
)
EVERY = argument("--every", "again every TIME (60s, 5m, 1h), until interrupted", type=seconds, metavar="TIME")
ROUTINE = flag(
    "--routine",
    "only what is due by prove.cover_in_days: the next part of each table, and the keys that changed",
    title="Routine",
)
EXPORT = argument(
    "--export", "compare with an export: a file or folder per table, by its name", type=Path, metavar="FOLDER"
)
EXPORT_FORMAT = argument("--export-format", "", choices=["parquet", "csv", "qlik-full-load"], default="parquet")
PROOF = argument(
    "--proof",
    "its id, as `prove --json` and the task `prove` name it: of one table, and corrected once",
    title="Proof",
    schema={"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
    required=True,
    metavar="ID",
)
NUMBER = argument(
    "--number",
    "the lost file number, as the stop names it (FILE_MISSING)",
    title="File number",
    type=positive,
    required=True,
    metavar="N",
)
NOT_APPLIED = argument(
    "--not-applied",
    "how you know that the target has not applied it; leave it out where a trusted counter proves it",
    title="Not applied",
    schema={"minLength": 0},
    metavar="TEXT",
)
WAIT = argument("--wait", "for the target (default 10)", type=float, default=10.0, metavar="MINUTES")
LETTERS = (
    argument("--code", "only dead letters of this code, such as MESSAGE_INVALID", title="Code"),
    argument("--table", "only dead letters of this source table", title="Table", metavar="NAME"),
    argument(
        "--after",
        "only dead letters at this position of their stream or later; those without a position are left out",
        title="From position",
        metavar="POSITION",
    ),
    argument(
        "--before", "only dead letters before this position of their stream", title="To position", metavar="POSITION"
    ),
)
"""Options that select dead letters; without any of them, all are selected."""
APPROVED = required(REASON), required(APPROVED_BY)
_RESETTING = (
    *APPROVED,
    REQUEST,
    WAIT,
    flag("--request-only", "record the request, and delete nothing yet"),
)


def _tables(what: str) -> Argument:
    says = f"{what} only these tables; none chosen means all."
    about = "only these source tables (reading always takes all)"
    return argument("--tables", about, title="Tables", says=says, metavar="A,B")


def _subject(name: str, title: str, about: str, **options: Any) -> Argument:
    return argument(name, about, field="subject", title=title, required=True, **options)


def _decision(
    name: str, label: str, about: str, *of: Argument, table: Argument | None = TABLE, run: str = "decided"
) -> Operation:
    of_table = () if table is None else (table,)
    return Operation(name, about, (FILE, *of_table, *of, required(WHY), REQUEST), f"deciding:{run}", label=label)


CREATE = Operation(
    "create",
    "make the mirrored database, its tables' folders and first files, and start mirroring",
    (FILE, JSON),
    "creating:create",
)
INITIAL_LOAD = Operation(
    "initial-load",
    "load the tables' first rows; if it was killed, run it again to finish it",
    (FILE, JSON, _tables("Load")),
    "working:initial_load",
    "initial_load",
)
TICK = Operation(
    "tick",
    "read what is new, publish what may be published, reconcile",
    (FILE, JSON, _tables("Publish"), EVERY),
    "working:tick",
)
BACKFILL = Operation(
    "backfill",
    "a tick that reads an interval of the source first",
    (FILE, JSON, _tables("Publish"), required(BEGIN), required(END), REREAD),
    "working:backfill",
)
RECONCILE = Operation(
    "reconcile", "check every file, row and digest", (FILE, JSON, _tables("Check")), job="reconcile_sequence"
)
PROVE = Operation(
    "prove",
    "compare the source's tables with the mirrored ones, row by row",
    (
        FILE,
        JSON,
        _tables("Compare"),
        ROUTINE,
        EXPORT,
        EXPORT_FORMAT,
        argument("--since", "the last commit before the export began; none: nothing changed since", metavar="LSN"),
        argument("--settle", "between two looks (default: as the file says)", type=float, metavar="SECONDS"),
        argument("--looks", "at most so many (default: as the file says)", type=positive, metavar="N"),
        argument("--repair-plan", "write the keys whose rows have to be sent again", type=Path, metavar="NEWFILE"),
        flag("--correct", "publish the rows of the keys that differ from the source again"),
        APPROVED_BY,
        WHY._replace(title=""),
    ),
    "working:prove",
    "prove",
)
CORRECT = Operation(
    "correct",
    "log the rows of the keys that a proof found to differ, as the source has them now; the next tick publishes them",
    (FILE, PROOF, required(WHY), required(APPROVED_BY)),
    job="corrections",
)
MAINTAIN = Operation(
    "maintain", "move the horizon, drop the log below it, sweep what nothing refers to", (FILE, JSON), job="maintain"
)
REPLAY = Operation(
    "replay-dead-letters",
    "decode open dead letters again, by today's decoder and settings",
    (FILE, JSON, *LETTERS),
    job="replay_dead_letters",
)
RELOAD = Operation(
    "reload-table",
    "drop one table at the target and build it from scratch; if it was killed, run it again to finish it",
    (
        FILE,
        TABLE._replace(says="It is dropped at the target and built from scratch; the others go on."),
        *_RESETTING,
        flag("--again", "begin from scratch, although a reset is under way"),
    ),
    job="reload_table",
)
DROP = Operation(
    "drop-table",
    "drop a table that was taken out of the mirror file; if it was killed, run it again to finish it",
    (FILE, TABLE, *_RESETTING),
    "deciding:drop_table",
)
REPAIR = Operation(
    "repair",
    "publish a lost number again that the target has not applied; if it was killed, run it again to finish it",
    (FILE, TABLE, NUMBER, NOT_APPLIED, *APPROVED, REQUEST),
    job="repairs",
)
REBUILD_LEDGER = Operation(
    "rebuild-ledger",
    "re-create a lost ledger from landing zone and change log; without --apply only show what would come of it",
    (FILE, JSON, flag("--apply", "write it, while no job of the mirror runs"), APPROVED_BY, REASON),
    "deciding:rebuild_ledger",
)

RESUME = _decision("resume", "Resume this table", "clear its stop once the cause is fixed; the next run checks again")
RESUME_EXTRACTION = _decision(
    "resume-extraction",
    "Resume reading",
    "clear the stop of the mirror's reading; the next run compares log and ledger again",
    table=None,
)
ACCEPT_EPOCH = _decision(
    "accept-epoch",
    "Accept a stream that began again",
    "go on with a stream that began again: all its changes count as later than those of the streams before",
    _subject("--epoch", "Stream", "the stream's GUID, as the stop names it", metavar="GUID"),
)
ACCEPT_SCHEMA = _decision(
    "accept-schema",
    "A column was dropped or renamed",
    "record that columns which newer rows lack were dropped at the source, or that one was renamed",
    _subject("", "Column", "the column, by its old name; several dropped ones divided by commas"),
    argument("", "of a renamed column; none: it was dropped", field="renamed_to", title="New name"),
    argument("--dropped", "they were dropped: the table goes on", nargs="+", metavar="COLUMN", is_either=True),
    argument("--renamed", "it was renamed: the table waits for a reload", metavar="OLD=NEW", is_either=True),
    run="accept_schema",
)
ACCEPT_TABLE = _decision(
    "accept-table",
    "Mirror this table",
    "let a table be published that joined by a pattern which asks (new_tables: ask), from its first change on",
)
ACCEPT_RELOAD = _decision(
    "accept-reload",
    "Accept the newest full load",
    "build a table from the full load that its Qlik task sent again, and the changes behind it",
    run="accept_reload",
)
TARGET_GONE = _decision(
    "target-says-gone",
    "The table is gone",
    "you see at the target that a table in a reset is gone: its reset goes on; never of one that is still there",
)
TARGET_BACK = _decision(
    "target-says-back",
    "The table is back",
    "you see at the target that a table in a reset was created again: its reset is over",
)
ACCEPT_LETTERS = _decision(
    "accept-dead-letters",
    "Accept dead letters as lost",
    "settle dead letters as lost for ever",
    _subject("", "Code", "their code; without a table, of those that name none"),
    *(one._replace(title="") for one in LETTERS),
    argument("--letter", "this one, as `dead-letters --json` lists it", nargs=3, metavar=("BATCH", "ORIGIN", "PLACE")),
    table=argument("", TABLE.help, field=TABLE.field, title=TABLE.title),
    run="accept_dead_letters",
)

OPERATIONS = tuple(one for one in tuple(vars().values()) if isinstance(one, Operation))
DECISIONS = {one.name: one for one in OPERATIONS if one.label}
"""The decisions by name, as the page and the DAG ``<mirror>__decide`` offer them. None needs Spark."""
