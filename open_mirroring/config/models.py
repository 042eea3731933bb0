"""The content of a mirror file as frozen pydantic models, and the JSON Schema of mirror files.

Each check belongs to one field and may use the fields before this field. A check of the entire file would not run after
an error in a field, so one mistake would hide another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StringConstraints,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import InitErrorDetails

from open_mirroring.changes.column_choice import plain_names
from open_mirroring.config import ledger_address, names
from open_mirroring.config.connections import invalid
from open_mirroring.config.connections import resolve as resolve_connection
from open_mirroring.config.landing_zone import LandingZone
from open_mirroring.config.problems import Mistake, Problem, SettingPath, line_of, path_text
from open_mirroring.config.schedule import OnNewData, check_cron, next_after
from open_mirroring.config.section import (
    ColumnName,
    ConnectionName,
    DeadLetters,
    ExtraColumns,
    FolderSetting,
    Positive,
    Section,
    StoredPlace,
    TableName,
)
from open_mirroring.config.source import (
    ChangeTables,
    ChangeTablesInDatabase,
    ChangeTablesInFolder,
    InTopics,
    Messages,
    Source,
    check_complete_position,
    keeps_tables,
)
from open_mirroring.config.structures import GivenStructure
from open_mirroring.config.tables import (
    ExportLoad,
    JdbcLoad,
    OnPossibleRename,
    OnReload,
    OnSchemaChange,
    Table,
    TableEntry,
    TablePattern,
    hashed_key,
    table_collisions,
)
from open_mirroring.errors import MirroringError
from open_mirroring.landing_zone.layout import DEFAULT_COMPRESSION, Compression
from open_mirroring.landing_zone.salt import SHORTEST_SALT, Salt
from open_mirroring.storage.address import is_address

MIRROR_NAME = r"^[a-z][a-z0-9_]{0,62}$"


_FORMATS_OF_SETTINGS: Mapping[str, tuple[str, ...]] = {
    "topic": ("qlik-message",),
    "change_table": ("qlik-change-table",),
    "keys_never_change": ("sqlserver-ces", "qlik-change-table", "qlik-message"),
}
"""Settings of a table that only some formats have."""


class LedgerConnection(Section):
    """The setting `ledger`, if it names the connection to the ledger's database."""

    connection: ConnectionName = Field(description="Name of the connection to the ledger's database.")


class Gate(Section):
    """How far Fabric may be behind with applying published files before publishing waits."""

    max_files: Positive = Field(default=100, description="Files of one table not yet applied.")
    max_bytes: Positive = Field(default=10_000_000_000, description="Bytes of one table not yet applied.")
    max_age_minutes: Positive = Field(
        default=720, description="Minutes since the oldest file not yet applied was published."
    )
    timeout_minutes: Positive = Field(
        default=10, description="Minutes a run waits for the gate; keep it below the schedule."
    )
    status: Literal["none", "rest"] | None = Field(
        default=None,
        description="Whether the target is asked how it and its tables are. rest: by the Fabric REST API, the default "
        "for onelake. none: never, the only choice for local.",
    )


class Publish(Section):
    """How rows are written to files, and what happens to a table when its structure changes or it is reset."""

    max_rows_per_file: Positive = Field(default=1_000_000, description="Rows of one published file at most.")
    compression: Compression = Field(
        default=DEFAULT_COMPRESSION,
        description="How published files are compressed. zstd gives the smallest, snappy costs the least time.",
    )
    require_reload_on_add: StrictBool = Field(
        default=False,
        description="Whether a column that is added at the source stops its table until that is reloaded. Without, "
        "`status` shows that the column is unverified.",
    )
    empty_tables: Literal["wait", "create"] = Field(
        default="wait",
        description="A table that has no rows yet. wait: the target gets it with its first row. create: an empty "
        "Parquet file makes it there, as soon as its columns are known.",
    )
    on_schema_change: OnSchemaChange = Field(
        default="log",
        description="What happens to a table that a change of structure stopped. log: it is rebuilt by itself where "
        "the log contains every change and the target shows its tables. reload: also where it is reloaded from a "
        "database. stop: an operator runs `open-mirroring reload-table`.",
    )
    schema_reloads_per_day: Positive = Field(
        default=3, description="How often in 24 hours a table is rebuilt by `on_schema_change` at most."
    )
    on_possible_rename: OnPossibleRename = Field(
        default="ask",
        description="What happens to a table whose column may have been renamed. ask: it stops (RENAME_POSSIBLE). "
        "dropped: the old column counts as dropped. reload: the table is loaded again from its database; without "
        "such a load it stops and asks.",
    )
    on_reload: OnReload = Field(
        default="stop",
        description="What happens to a table that its Qlik task loads again. stop: an operator runs `open-mirroring "
        "accept-reload`. rebuild: it is rebuilt by itself once that load has ended, if the log shows where it begins "
        "and the target shows its tables.",
    )
    reloads_per_day: Positive = Field(
        default=3, description="How often in 24 hours a table is rebuilt by `on_reload` at most."
    )


class Maintenance(Section):
    """How long rows of the change log and entries of the audit trail are kept."""

    keep_days: Positive = Field(
        default=30,
        description="Days for which the change log can be compared with, and the source read again; a later change "
        "stops its table.",
    )
    audit_days: Positive = Field(default=400, description="Days for which the audit's entries are kept.")


class Alerts(Section):
    """Who is notified when a run fails, or is late."""

    connection: ConnectionName | None = Field(
        default=None,
        description="Name of the scheduler's http connection that messages are posted to. Unset: only the log.",
    )
    deadline_minutes: Positive | None = Field(
        default=None, description="Minutes after which a replicating run that is not done is reported. Unset: never."
    )


class Spark(Section):
    """How the Spark application is started by the scheduler."""

    connection: ConnectionName = Field(
        default="spark_default",
        description="Name of the scheduler's connection to Spark: of the type spark, spark_connect, or "
        "open_mirroring_livy for Fabric's own Spark.",
    )
    cores: Positive | None = Field(
        default=None, description="Cores for the application. Unset: what the connection gives."
    )
    memory: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}[mg]$")] | None = Field(
        default=None,
        description="Memory of the driver and of each executor, as in 2g or 512m. Unset: Spark's own default.",
    )
    start_above: Literal[0] | Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}[mg]$")] = Field(
        default="256m",
        description="Work of up to this size, as in 64m or 1g, is done in the job's own process, which is quicker "
        "than starting Spark. A table in PostgreSQL counts an eighth of its bytes, change events a quarter. "
        "A job that reads more than 32 MB of work shares it with helper processes, one for each further core, at most "
        "three. Each of these processes may do four times `start_above`. 0: Spark does everything.",
    )

    @property
    def most_without_spark(self) -> int:
        """The maximum number of bytes that a job processes without Spark; -1 means that every job uses Spark."""
        if self.start_above == 0:
            return -1
        return int(self.start_above[:-1]) * {"m": 2**20, "g": 2**30}[self.start_above[-1]]


class Prove(Section):
    """How often `open-mirroring prove` compares a table with its source, and how long it waits for late changes."""

    settle_seconds: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None,
        description="Seconds between two looks at keys that differ: longer than a change takes to where it is read. "
        "Unset: 30 for kafka, 60 for files and jdbc, 960 for capture.",
    )
    looks: Annotated[StrictInt, Field(ge=2)] = Field(
        default=6,
        description="How often a table is looked at, or its changes are waited for, before what still moves is "
        "unproven.",
    )
    schedule: Annotated[str, AfterValidator(check_cron)] | None = Field(
        default=None, description="Cron expression of five fields: when the scheduler proves. Unset: only by hand."
    )
    cover_in_days: Positive | None = Field(
        default=None,
        description="Days in which scheduled proofs compare every row once. Each compares the next part of each table, "
        "and the keys that changed since the last proof. Unset: each proof compares all rows.",
    )
    alert_after_days: Positive | None = Field(
        default=None,
        description="A message is sent when some rows of a table were not compared for so many days; needs "
        "cover_in_days. Unset: no message.",
    )

    @field_validator("alert_after_days")
    @classmethod
    def _alert_after_days(cls, days: int | None, info: ValidationInfo) -> int | None:
        cover = info.data.get("cover_in_days")
        if days is not None and (cover is None or days < cover):
            what = "rows are compared once in cover_in_days, so an alert needs that setting and comes no earlier"
            raise names.unfit(what, "set `cover_in_days`, and `alert_after_days` to as many days or more")
        return days

    def runs_from(self, now: datetime) -> int:
        """Return how many scheduled proofs there are in the `cover_in_days` after *now*, at least 1.

        Without a schedule, the count is one proof a day.
        """
        end, runs, at = now + timedelta(days=self.cover_in_days or 0), 0, next_after(self.schedule or "0 0 * * *", now)
        while at is not None and at <= end:
            runs, at = runs + 1, next_after(self.schedule or "0 0 * * *", at)
        return max(1, runs)


class Origin(NamedTuple):
    """Where a mirror was read from: the mirror file, the folder for relative paths, and the line of each setting."""

    file: Path
    home: Path
    lines: Mapping[SettingPath, int]


class Hashing(Section):
    """The salt of all hashes, and the names of columns that are hashed in every table."""

    salt: ConnectionName = Field(
        description=f"Name of the connection whose password is the salt: {SHORTEST_SALT} characters or more, any type."
    )
    columns: tuple[ColumnName, ...] = Field(
        default=(),
        description="Columns of any table that land as hashes: names in any case, and patterns with * for any "
        "characters.",
    )


class Mirror(Section):
    """One mirror file: a source, a landing zone, and the tables that are replicated from the source."""

    mirror: Annotated[str, StringConstraints(pattern=MIRROR_NAME)] = Field(
        description="Name of the mirror: a lower-case letter, then up to 62 lower-case letters, digits and underscores."
    )
    source: Source = Field(description="Where the changes come from.")
    landing_zone: LandingZone = Field(description="Where the files for the mirrored database go.")
    ledger: Annotated[
        Annotated[str, AfterValidator(ledger_address.check_url), Tag("(text)")]
        | Annotated[LedgerConnection, Tag("(LedgerConnection)")],
        Discriminator(lambda value: "(text)" if isinstance(value, str) else "(LedgerConnection)"),
    ] = Field(
        description="The database that decides what is read and published: sqlite:///FILE, "
        "postgresql+psycopg2://HOST/DATABASE without password, or {connection: NAME}."
    )
    change_log: FolderSetting = Field(
        description="Where the change log is, a Delta table: a folder, or {path: ADDRESS, connection: NAME} for object "
        "storage. Nothing else may write there."
    )
    consistency: Literal["key", "transaction"] = Field(
        default="key",
        description="key: each row is exact, of a transaction some rows may come before others. transaction: changes "
        "wait until their transaction is complete; only for a source that has a complete position.",
    )
    hash: Hashing | None = Field(
        default=None,
        description="The salt of columns that land as hashes, by `hash` of a table or pattern, or by `columns` here.",
    )
    extra_columns: ExtraColumns = Field(
        default=ExtraColumns(),
        description="Columns in addition to those of the source, for every table that does not set its own: "
        "properties of the change that made a row, each with its name. None by default.",
    )
    entries: tuple[TableEntry, ...] = Field(
        alias="tables",
        min_length=1,
        description="The mirrored tables; `open-mirroring init` writes them. An entry whose `source` holds a * "
        "stands for all tables of that pattern.",
    )
    structures: tuple[GivenStructure, ...] = Field(
        default=(),
        description="For qlik-message: structures of tables, given by hand where nothing announces them.",
    )
    ignore: tuple[TableName, ...] = Field(
        default=(),
        description="schema.table of tables at the source that are known not to be mirrored: no one asks whether one "
        "is a mirrored table under another name.",
    )
    dead_letters: DeadLetters = Field(
        default=DeadLetters(),
        description="How many open dead letters of each table, and how many without a table, are no loss.",
    )
    schedule: Annotated[
        Annotated[str, AfterValidator(check_cron), Tag("(text)")] | Annotated[OnNewData, Tag("(OnNewData)")],
        Discriminator(lambda value: "(text)" if isinstance(value, str) else "(OnNewData)"),
    ] = Field(
        default="0 * * * *",
        description="When the mirror replicates: a cron expression of five fields, or {on: new_data}, for topics and "
        "folders.",
    )
    gate: Gate = Field(default=Gate(), description="Limits of the backlog at the mirroring service.")
    publish: Publish = Field(default=Publish(), description="How files are cut and written.")
    maintenance: Maintenance = Field(default=Maintenance(), description="What is kept, and for how long.")
    alerts: Alerts = Field(default=Alerts(), description="Who is notified when a run fails, or is late.")
    spark: Spark = Field(default=Spark(), description="How Spark is started.")
    prove: Prove = Field(default=Prove(), description="How tables are compared with their source.")

    _origin: Origin = PrivateAttr(default_factory=lambda: Origin(Path("<memory>"), Path.cwd(), {(): 1}))
    _joined: tuple[tuple[TablePattern, Table], ...] = PrivateAttr(default=())
    _tables: tuple[Table, ...] = PrivateAttr(default=())

    def model_post_init(self, context: Any) -> None:
        """Set the mirrored tables to those that the mirror file lists by name, without its patterns."""
        self.join(())

    @field_validator("consistency")
    @classmethod
    def _consistency(cls, consistency: str, info: ValidationInfo) -> str:
        source: Source | None = info.data.get("source")
        if consistency == "transaction" and source is not None:
            check_complete_position(source)
        return consistency

    @field_validator("schedule")
    @classmethod
    def _schedule(cls, schedule: str | OnNewData, info: ValidationInfo) -> str | OnNewData:
        source: Source | None = info.data.get("source")
        if isinstance(schedule, OnNewData) and isinstance(source, ChangeTablesInDatabase):
            what = "change tables in a database are not watched, so new rows start no run"
            raise names.unfit(what, "write a cron expression, such as '*/5 * * * *' for every five minutes")
        return schedule

    @field_validator("gate")
    @classmethod
    def _status_of_the_zone(cls, gate: Gate, info: ValidationInfo) -> Gate:
        zone = info.data.get("landing_zone")
        if isinstance(zone, LandingZone) and zone.store == "local" and gate.status == "rest":
            what = "a local landing zone belongs to no database that could be asked"
            raise names.unfit(what, "leave `gate.status` out")
        return gate

    @field_validator("entries")
    @classmethod
    def _entries(cls, entries: tuple[TableEntry, ...], info: ValidationInfo) -> tuple[TableEntry, ...]:
        found = table_collisions(_tables_of(entries))
        for refused in (_settings_of_formats, _promises, _change_tables, _hashes, _extra_columns, _handovers):
            found += refused(entries, info.data)
        errors = [
            InitErrorDetails(type=names.refusal(one.code, one.what, one.next_step), loc=one.path, input=None)
            for one in found
        ]
        if errors:
            raise ValidationError.from_exception_data("tables", errors, hide_input=True)
        return entries

    @field_validator("structures")
    @classmethod
    def _structures(cls, given: tuple[GivenStructure, ...], info: ValidationInfo) -> tuple[GivenStructure, ...]:
        source: Source | None = info.data.get("source")
        if given and source is not None and not isinstance(source, Messages):
            raise names.unfit(f"{source.format} describes its tables itself", "leave `structures` out")
        entries = info.data.get("entries", ())
        mirrored = [table.source_name for _, table in _tables_of(entries)]
        patterns = [entry for entry in entries if isinstance(entry, TablePattern)]
        mirrored += [one.source_name for one in given if any(entry.fits(one.source_name) for entry in patterns)]
        for other in (one for one in given if entries and one.source_name not in mirrored):
            raise names.unfit(f"{other.table!r} is no mirrored table", "spell it as `source` of one of the tables")
        return given

    @property
    def _hashed(self) -> tuple[str, ...]:
        return () if self.hash is None else self.hash.columns

    def hashed_anywhere(self) -> list[tuple[list[str], list[Table]]]:
        """Return groups of column names to be hashed, each with the tables to search for them (G-122).

        One group has the names that the mirror file hashes in all tables. Each other group has the names that one table
        pattern hashes, with the tables found by this pattern. A name that none of the group's tables has is probably
        misspelled: the intended column would be published in clear text. Names that the tables' settings exclude from
        reading are left out.
        """
        claims = [(plain_names(self._hashed), [*self.tables])]
        for entry in self.entries:
            if isinstance(entry, TablePattern):
                claims.append((plain_names(entry.hash), [table for by, table in self._joined if by == entry]))
        read = (([n for n in names if any(t.chosen.of([n]) for t in tables)], tables) for names, tables in claims)
        return [(columns, tables) for columns, tables in read if columns]

    def salt(self) -> Salt | None:
        """Return the secret salt of hashed columns; None if the mirror hashes no column.

        Raises ``CONNECTION_INVALID`` if the salt's connection is missing, or its password is too short.
        """
        if self.hash is None:
            return None
        secret = resolve_connection(self.hash.salt).password or ""
        if len(secret) < SHORTEST_SALT:
            what = f"the password is the salt of hashes, and has fewer than {SHORTEST_SALT} characters"
            raise invalid(self.hash.salt, what)
        return Salt(secret)

    @property
    def name(self) -> str:
        return self.mirror

    @property
    def on_new_data(self) -> OnNewData | None:
        """The schedule that starts runs when new data arrives; None if only a cron expression starts runs."""
        return self.schedule if isinstance(self.schedule, OnNewData) else None

    @property
    def cron(self) -> str:
        """The cron expression by which runs start, whether or not new data arrived."""
        return self.schedule.cron if isinstance(self.schedule, OnNewData) else self.schedule

    @property
    def tables(self) -> tuple[Table, ...]:
        """The mirrored tables: first the tables listed in the mirror file, then the tables found by a pattern."""
        return self._tables

    @property
    def targets(self) -> tuple[Table, ...]:
        """Every table of the mirrored database: the mirrored tables, and the history tables of some of them (G-194)."""
        histories = (table.history_table for table in self._tables)
        return (*self._tables, *(table for table in histories if table is not None))

    @property
    def placed_tables(self) -> tuple[tuple[SettingPath, Table], ...]:
        """The mirrored tables, each with the path of its setting in the mirror file, such as ``("tables", 0)``."""
        written = [(("tables", at), table) for at, table in _tables_of(self.entries)]
        return (*written, *((("tables", self.entries.index(by)), table) for by, table in self._joined))

    @property
    def has_patterns(self) -> bool:
        """Whether the mirror file has a pattern of table names, so that new tables can be added."""
        return any(isinstance(entry, TablePattern) for entry in self.entries)

    def pattern_of(self, name: names.SourceName) -> TablePattern | None:
        """Return the pattern that matches the table *name*.

        The result is None if the mirror file lists the table itself, or no pattern matches the name.
        """
        if any(table.source_name == name for _, table in _tables_of(self.entries)):
            return None
        return next((one for one in self.entries if isinstance(one, TablePattern) and one.fits(name)), None)

    def ignores(self, name: names.SourceName) -> bool:
        """Whether the mirror file lists the table *name* under `ignore`.

        No pattern adds an ignored table. A table that a pattern added before stays in the mirror.
        """
        return any(names.split_source_name(one) == name for one in self.ignore)

    def join(self, tables: Sequence[tuple[TablePattern, Table]]) -> None:
        """Replace the tables that were found by patterns; each of *tables* is a table with its pattern."""
        self._joined = tuple(tables)
        self._tables = tuple(table for _, table in (*_tables_of(self.entries), *tables))
        for table in self._tables:
            table.take_over(self._hashed, self.extra_columns)

    @property
    def asks_status(self) -> bool:
        """Whether the mirrored database's status is asked of Fabric's REST API (`gate.status` in the mirror file)."""
        return self.landing_zone.store == "onelake" and self.gate.status != "none"

    def loads_of_task(self, table: Table) -> bool:
        """Whether the first rows of *table* come from a full load of the Qlik task that sends the table's changes."""
        load = table.initial_load
        if isinstance(load, JdbcLoad):
            return keeps_tables(self.source, load.connection)
        return isinstance(load, ExportLoad) and load.format == "qlik-full-load"

    def tolerated_letters(self, source: str | None) -> int:
        """Return how many open dead letters of the table *source* are tolerated.

        With *source* None, the result is the tolerated number of dead letters that name no table.
        """
        own = next((table.dead_letters for table in self.tables if table.source == source), None)
        return (own or self.dead_letters).tolerate

    @property
    def file(self) -> Path:
        return self._origin.file

    @property
    def home(self) -> Path:
        """The folder for relative paths: ``OPEN_MIRRORING_HOME``, or the parent of the mirror file's folder."""
        return self._origin.home

    def resolve(self, path: str) -> Path:
        """Return *path* as an absolute path; a relative path starts at :attr:`home`. No file or folder is created."""
        return self.home / path

    def resolved(self, place: str | StoredPlace) -> str:
        """Return a location as a string: an object storage address unchanged, a local path made absolute."""
        text = str(place)
        return text if is_address(text) else os.path.normpath(self.resolve(text))

    @property
    def reads(self) -> dict[str, list[str]]:
        """Where messages are read from and how their bytes are decoded: values by setting (G-142).

        Each value always has the same spelling. Paths inside :attr:`home` are relative to :attr:`home`.
        """
        found = self.source.reads
        for at, path in enumerate(found.get("path", ())):
            home, place = Path(os.path.normpath(self.home)), Path(os.path.normpath(self.resolve(path)))
            local = (place.relative_to(home) if place.is_relative_to(home) else place).as_posix()
            found["path"][at] = path.removesuffix("/") if is_address(path) else local
        if connection := found.get("connection"):
            found["connection"] = [name.lower() for name in connection]
        return found

    @property
    def writes(self) -> dict[str, list[str]]:
        """The places where rows are written, by setting, together with the name of the mirror file (G-175).

        The folders are absolute, because a copy of the mirror file with another :attr:`home` writes to other folders.
        """
        zone, log = self.landing_zone, self.change_log
        return {
            "landing_zone": [os.path.realpath(self.resolve(zone.path)) if zone.store == "local" else zone.place],
            "change_log": [os.path.realpath(self.resolve(log)) if isinstance(log, str) else log.path.removesuffix("/")],
            "file": [self.file.name],
        }

    def problem(self, path: SettingPath, code: str, what: str, next_step: str) -> Problem:
        """Build a problem of the setting *path*, with the setting's line in the mirror file."""
        return Problem(code, self.file, line_of(path, self._origin.lines), path_text(path), what, next_step)

    def problem_of(self, path: SettingPath, error: MirroringError) -> Problem:
        """Convert an error to a problem of the setting *path*, which caused the error."""
        place = f" ({error.where})" if error.where else ""
        return self.problem(path, error.code, f"{error.what}{place}", error.next_step)

    def ledger_url(self) -> str:
        """Return the SQLAlchemy URL of the ledger. The URL contains secrets: never print it.

        Raises ``CONNECTION_INVALID`` if the setting `ledger` names a connection that is missing or malformed.
        """
        if isinstance(self.ledger, LedgerConnection):
            return ledger_address.from_connection(resolve_connection(self.ledger.connection))
        return ledger_address.absolute(self.ledger, self.home)


class BegunMirror(Mirror):
    """A mirror file that may list no tables yet."""

    entries: tuple[TableEntry, ...] = Field(default=(), alias="tables", description="The mirrored tables.")


def _tables_of(entries: Sequence[TableEntry]) -> list[tuple[int, Table]]:
    return [(at, entry) for at, entry in enumerate(entries) if isinstance(entry, Table)]


def _unfit(path: SettingPath, what: str, next_step: str) -> Mistake:
    return Mistake(path, "CONFIG_INVALID", what, next_step)


# Compares the entries with the settings before them. Entries with mistakes of their own are not included.


def _settings_of_formats(entries: Sequence[TableEntry], before: Mapping[str, Any]) -> Iterator[Mistake]:
    source: Source | None = before.get("source")
    for index, entry in enumerate(entries):
        for setting, formats in _FORMATS_OF_SETTINGS.items():
            if source is not None and source.format not in formats and getattr(entry, setting, None) is not None:
                what = f"{source.format} has no {setting} of a table"
                yield _unfit((index, setting), what, f"leave `{setting}` out")


def _promises(entries: Sequence[TableEntry], before: Mapping[str, Any]) -> Iterator[Mistake]:
    """A single-table topic belongs to one table only, and must be one of those that are read."""
    source: Source | None = before.get("source")
    first = dict[str, int]()
    for index, table in _tables_of(entries):
        if table.topic is None:
            continue
        twin = first.setdefault(table.topic, index)
        if twin != index:
            what = f"the topic {table.topic!r} is promised to tables[{twin}] alone"
            yield _unfit(
                (index, "topic"), what, "promise a topic to one table; messages of the others have to name their table"
            )
        elif isinstance(source, InTopics) and table.topic not in source.topics:
            what = f"the topic {table.topic!r} is not among `source.topics`"
            yield _unfit((index, "topic"), what, "add it there, or fix its name")


def _change_tables(entries: Sequence[TableEntry], before: Mapping[str, Any]) -> Iterator[Mistake]:
    source: Source | None = before.get("source")
    if not isinstance(source, ChangeTables):
        return
    taken: dict[tuple[str, str], int] = {}
    for index, table in _tables_of(entries):
        if not isinstance(source, ChangeTablesInFolder):
            schema, name = table.source_name
            default = (schema, name + source.table_suffix)
            own = default if table.change_table is None else names.split_source_name(table.change_table)
            first = taken.setdefault(own, index)
            if first != index:
                what = f"the change table {'.'.join(own)!r} is read for tables[{first}] already"
                yield _unfit((index, "change_table"), what, "name the change table of this table")
        elif table.change_table is not None:
            what = "the .dfm next to each file names the source table"
            yield _unfit((index, "change_table"), what, "leave `change_table` out")


def _hashes(entries: Sequence[TableEntry], before: Mapping[str, Any]) -> Iterator[Mistake]:
    hashing: Hashing | None = before.get("hash")
    for at, entry in enumerate(entries):
        if entry.hash and hashing is None and "hash" in before:
            yield _unfit((at, "hash"), "no salt for the hashes is set", "add `hash: {salt: CONNECTION}`")
        elif isinstance(entry, Table) and hashing is not None and (refused := hashed_key(entry.key, hashing.columns)):
            yield _unfit((at, "key"), *refused)


def _extra_columns(entries: Sequence[TableEntry], before: Mapping[str, Any]) -> Iterator[Mistake]:
    tables = [(at, one) for at, table in _tables_of(entries) for one in (table, table.history_table) if one is not None]
    for at, table in tables:
        for name in table.taken_names(before.get("extra_columns", ExtraColumns())):
            what = f"`extra_columns` has the name {name!r}, under which a column of the source lands"
            yield Mistake(
                (at, "extra_columns"), "COLUMN_NAME_INVALID", what, "choose another name under `extra_columns`"
            )


def _handovers(entries: Sequence[TableEntry], before: Mapping[str, Any]) -> Iterator[Mistake]:
    source: Source | None = before.get("source")
    what = "only the commits of change events divide a stream exactly"
    next_step = "make the export while nothing changes, and set `handover: quiesced`; or give the table a key"
    kept = "only a table that a task keeps next to the change tables of `source` may stay as it was loaded"
    leave = "leave `stream_from` out, or read the table by the connection of `source`"
    for index, entry in enumerate(entries):
        load = entry.initial_load
        exact = isinstance(load, ExportLoad) and load.handover == "exact"
        if exact and source is not None and source.format != "sqlserver-ces":
            yield _unfit((index, "initial_load", "handover"), what, next_step)
        stays_in = load.connection if isinstance(load, JdbcLoad) and load.stream_from is not None else None
        if stays_in is not None and source is not None and not keeps_tables(source, stays_in):
            yield _unfit((index, "initial_load", "stream_from"), kept, leave)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a mirror file.

    Checks that JSON Schema cannot express are explained in the descriptions of the settings.
    """
    schema = Mirror.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "open_mirroring mirror file"}


def schema_document() -> str:
    """Return the JSON Schema of a mirror file as the content of ``docs/mirror.schema.json``."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
