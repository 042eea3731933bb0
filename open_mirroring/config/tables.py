"""The settings of one table in a mirror file, or of a pattern of tables: names, columns, key, and initial load.

Each check belongs to one field and may use the fields before this field. Rules: G-08 (initial loads), F-02, F-03
(folders, colliding names), F-20 to F-25 (delimited text; Microsoft Learn, *Open mirroring landing zone requirements*).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    PrivateAttr,
    StrictBool,
    Tag,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from open_mirroring.changes.column_choice import DELETED_AT, ColumnChoice, lacking, plain_names
from open_mirroring.changes.history_names import history_of, logged_as
from open_mirroring.config import names
from open_mirroring.config.problems import Mistake, SettingPath
from open_mirroring.config.row_filter import Condition, parse_condition
from open_mirroring.config.section import (
    ColumnList,
    ColumnName,
    ColumnNames,
    ConnectionName,
    ConnectionOfPath,
    DeadLetters,
    ExtraColumns,
    LandingTypes,
    PlaceText,
    Positive,
    Section,
    SqlType,
    SqlTypes,
    TableName,
)
from open_mirroring.landing_zone.layout import PARQUET, name_identity
from open_mirroring.landing_zone.schema import POSITION_KEY, extra_columns
from open_mirroring.landing_zone.text_format import DATA_TYPES, NULL_TEXT, TextFormat
from open_mirroring.storage.address import is_address

SOURCE_NAME = r"^.+\..+$"
_DEFAULT_SCHEMA = "dbo"


OnSchemaChange = Literal["stop", "log", "reload"]
"""What to do with a table after a change of structure."""


OnPossibleRename = Literal["ask", "dropped", "reload"]
"""What to do with a table of which a column may have been renamed."""


OnReload = Literal["stop", "rebuild"]
"""What to do with a table whose source sent its full load again."""


OnDelete = Literal["remove", "keep"]
"""What to do at the target with a row that was deleted at the source."""


class History(Section):
    """A second target table of a source table, with every change of the source table's rows (G-194)."""

    target: Annotated[str, AfterValidator(names.check_target)] = Field(
        description="schema/table, or only table, in the mirrored database.",
        json_schema_extra={"pattern": "^[^/]+(/[^/]+)?$"},
    )
    form: Literal["changes", "scd2"] = Field(
        default="changes",
        description="changes: one row for each change, with `_operation`, `_commit_time`, `_position` and "
        "`_transaction`. scd2: one row for each version of a row, with `valid_from`, `valid_to` and `is_current` in "
        "place of `_commit_time`; its key is that of the row with `_position`. `extra_columns` may give other names to "
        "those that begin with _.",
    )


_OF_CHANGES = {"operation": "_operation", "log_position": "_position", "transaction": "_transaction"}
_HISTORY_COLUMNS = {
    "changes": {"commit_time": "_commit_time", **_OF_CHANGES},
    "scd2": {"valid_from": "valid_from", "valid_to": "valid_to", "is_current": "is_current", **_OF_CHANGES},
}
"""What a history says of each change or version, and the name of its column there."""


_NULL_VALUE = r"^([A-Za-z_/\\][A-Za-z0-9_/.\\-]{0,31})?$"
"""Empty, or a word that cannot be a number, date or separator."""


class DelimitedText(Section):
    """Settings for a table written as delimited text instead of Parquet, whose columns can never change (F-23)."""

    columns: Annotated[dict[ColumnName, str], Field(min_length=1), AfterValidator(names.check_distinct)] = Field(
        description="Every column in order with its landing type, as docs/types.md has it for the source: "
        f"{', '.join(DATA_TYPES)}. Text has no decimals, and no column can be added later.",
    )
    extension: str = Field(
        default="csv",
        description="Extension of the files, without the dot.",
        json_schema_extra={"pattern": "^[a-z0-9]{1,16}$"},
    )
    column_separator: Literal[",", ";", "|", "\t"] = Field(default=",", description="Between two values.")
    row_separator: Literal["\r\n", "\n", "\r"] = Field(default="\r\n", description="Behind each row.")
    null_value: str = Field(
        default=NULL_TEXT,
        description="The text that stands for NULL, quoted or not; a row with such a value is a dead letter: choose "
        "a text that no value is.",
        json_schema_extra={"pattern": _NULL_VALUE},
    )

    @field_validator("columns")
    @classmethod
    def _columns(cls, columns: dict[str, str]) -> dict[str, str]:
        for name, kind in columns.items():
            if kind not in DATA_TYPES:
                what = f"delimited text has no type {kind!r} for the column {name!r}"
                next_step = f"choose from {', '.join(DATA_TYPES)}; with a decimal column leave `delimited_text` out"
                raise names.refusal("TYPE_UNSUPPORTED", what, next_step)
        return columns

    @field_validator("extension")
    @classmethod
    def _extension(cls, extension: str) -> str:
        letters = extension.isascii() and extension.isalnum() and extension == extension.lower()
        if not letters or len(extension) > 16 or extension == PARQUET:
            next_step = "up to 16 lower-case letters and digits: csv, tsv, psv"
            raise names.unfit(f"{extension!r} can be no extension of text files", next_step)
        return extension

    @field_validator("null_value")
    @classmethod
    def _null_value(cls, null_value: str) -> str:
        is_value = null_value.casefold() in ("true", "false", "nan", "inf", "infinity")
        if is_value or not re.fullmatch(_NULL_VALUE, null_value):
            next_step = "choose a word that no value is, such as __null__, or leave `null_value` out"
            raise names.unfit(f"{null_value!r} cannot stand for NULL in files of text", next_step)
        return null_value

    @property
    def text_format(self) -> TextFormat:
        """These settings in the form that the ledger stores, with the columns named as at the source."""
        return TextFormat(
            self.extension, self.column_separator, self.row_separator, self.null_value, tuple(self.columns.items())
        )


Handover = Literal["quiesced", "exact"]
"""How an initial load and the change stream avoid having a row twice, for tables without a key (G-127)."""


def check_handover(handover: Handover, position: str) -> None:
    """Refuse a `handover` that does not fit *position*, from which the stream is applied over the initial load."""
    if handover == "quiesced" and position != names.BEGINNING:
        what = "where nothing was changed between export and stream, the entire stream comes after the load"
        raise names.unfit(what, "set `stream_from: beginning`, or `handover: exact`")
    if handover == "exact" and position == names.BEGINNING:
        what = "`handover: exact` needs the first commit of the stream that is not in the export"
        raise names.unfit(what, "name it as `stream_from`, or set `handover: quiesced`")


class StreamFromFile(Section):
    """The name of a JSON file with the stream position of an export; the program that exports writes this file."""

    file: PlaceText = Field(
        description="JSON file with the key stream_from; in object storage it is read by the export's connection."
    )


StreamFrom = Annotated[
    Annotated[str, AfterValidator(names.stream_position), Tag("(text)")]
    | Annotated[StreamFromFile, Tag("(StreamFromFile)")],
    Discriminator(lambda value: "(text)" if isinstance(value, str) else "(StreamFromFile)"),
]


class ExportLoad(Section):
    """An initial load of a table from exported files."""

    format: Literal["parquet", "csv", "qlik-full-load"] = Field(
        description="Format of the exported files; qlik-full-load is the full load of a Qlik file target, each data "
        "file with its .dfm."
    )
    path: PlaceText = Field(description="File or folder of the export: a local path, or an address in object storage.")
    connection: ConnectionOfPath = Field(
        default=None, description="Name of the connection; needed for a path in object storage."
    )
    stream_from: StreamFrom = Field(
        description="Position in the stream before the export began: 'beginning', a commit LSN in quotes, or "
        "{file: …} naming a JSON file with the key stream_from."
    )
    handover: Handover | None = Field(
        default=None,
        description="For a table without key, where the load ends and the stream begins. quiesced: nothing was "
        "changed between the export and the first change of the stream. exact: stream_from is the first commit of "
        "the stream that is not in the export.",
    )
    types: SqlTypes = Field(
        default_factory=dict,
        description="SQL type of each column; csv needs it. For qlik-full-load only of those that shall have another "
        "one.",
    )

    @field_validator("stream_from")
    @classmethod
    def _stream_from(cls, given: str | StreamFromFile, info: ValidationInfo) -> str | StreamFromFile:
        if isinstance(given, StreamFromFile) and is_address(given.file):
            names.check_connection_of(given.file, info.data.get("connection"))
        return given

    @field_validator("handover")
    @classmethod
    def _handover(cls, handover: Handover | None, info: ValidationInfo) -> Handover | None:
        if handover is not None and isinstance(position := info.data.get("stream_from"), str):
            check_handover(handover, position)
        return handover

    @field_validator("types")
    @classmethod
    def _types(cls, types: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        if info.data.get("format") == "csv" and not types:
            raise names.unfit("a CSV export has no types", "name the SQL type of every column")
        return types


class JdbcLoad(Section):
    """An initial load of a table, read from the source database."""

    format: Literal["jdbc"] = Field(description="Read over JDBC.")
    connection: ConnectionName = Field(description="Name of the connection to the source database.")
    table: TableName | None = Field(
        default=None,
        description="schema.table to read; default: the table's `source`.",
        json_schema_extra={"pattern": SOURCE_NAME},
    )
    stream_from: Literal["beginning"] | None = Field(
        default=None,
        description="beginning, only for a table next to the change tables of `source` that stays as the full load "
        "of a Qlik task left it: after a reset, too, all logged changes apply to it. Unset there: after a reset the "
        "loaded rows are unverified until a proof.",
    )
    split_column: ColumnName | None = Field(
        default=None, description="Number or date column by which the read is cut into chunks."
    )
    chunks: Positive = Field(
        default=1, description="How many chunks are read side by side; more than one needs split_column."
    )
    max_connections: Positive | None = Field(
        default=None,
        description="At most so many chunks are read side by side. Unset: one for each core of the Spark application.",
    )
    max_rows_per_second: Positive | None = Field(
        default=None, description="All chunks together are read at most so fast. Unset: as fast as it goes."
    )
    handover: Handover | None = Field(
        default=None,
        description="For a table without key: quiesced, if nothing is changed in it from before it is read until the "
        "load is complete.",
    )

    @field_validator("handover")
    @classmethod
    def _handover(cls, handover: Handover | None) -> Handover | None:
        if handover == "exact":
            what = "a database is read while it changes, so no position divides what is read from the stream"
            raise names.unfit(what, "set `handover: quiesced` if it is at rest, or load an export")
        return handover

    @field_validator("chunks")
    @classmethod
    def _chunks(cls, chunks: int, info: ValidationInfo) -> int:
        if chunks > 1 and info.data.get("split_column", "") is None:
            raise names.unfit("chunks need a column to cut by", "set `split_column`, or leave `chunks` out")
        return chunks


def _without_stream(prove: JdbcLoad) -> JdbcLoad:
    for setting in ("handover", "stream_from"):
        if getattr(prove, setting) is not None:
            what = f"a proof hands nothing over to a stream, so `{setting}` means nothing"
            raise names.unfit(what, f"leave `{setting}` out")
    return prove


JdbcProof = Annotated[JdbcLoad, AfterValidator(_without_stream)]
"""Rows of the source that are read from its database for a proof."""


class ProofExport(Section):
    """An export of the source's rows, with which `open-mirroring prove` compares the mirrored table."""

    format: Literal["parquet", "csv", "qlik-full-load"] = Field(description="Format of the exported files.")
    path: PlaceText = Field(description="File or folder of the export: a local path, or an address in object storage.")
    connection: ConnectionOfPath = Field(
        default=None, description="Name of the connection; needed for a path in object storage."
    )
    since: Annotated[str, AfterValidator(names.stream_position)] | None = Field(
        default=None,
        description="The last commit LSN before the export began: what was changed later proves nothing. Unset: "
        "nothing was changed since the export began.",
    )
    types: dict[ColumnName, SqlType] = Field(
        default_factory=dict, description="SQL type of each column; csv needs it, as text files have no types."
    )


def _or_jdbc(export: type[Section]) -> Discriminator:
    def tag(value: Any) -> str:
        if isinstance(value, export | JdbcLoad):
            return f"({type(value).__name__})"
        chosen = value.get("format") if isinstance(value, dict) else None
        return "(JdbcLoad)" if chosen == "jdbc" else f"({export.__name__})"

    return Discriminator(tag)


ProofSource = Annotated[
    Annotated[ProofExport, Tag("(ProofExport)")] | Annotated[JdbcProof, Tag("(JdbcLoad)")], _or_jdbc(ProofExport)
]
InitialLoad = Annotated[
    Annotated[ExportLoad, Tag("(ExportLoad)")] | Annotated[JdbcLoad, Tag("(JdbcLoad)")], _or_jdbc(ExportLoad)
]


class ColumnSelection(Section):
    """The columns to mirror, by names and patterns. In a pattern, * matches any characters. Case is ignored."""

    include: ColumnList | None = Field(
        default=None, description="Only these columns are mirrored. Unset: all that `exclude` leaves."
    )
    exclude: ColumnNames = Field(
        default=(), description="These are not mirrored: no value of them leaves the source's messages."
    )
    rename: Annotated[dict[ColumnName, ColumnName], AfterValidator(names.check_distinct)] = Field(
        default_factory=dict,
        description="Columns that have another name at the target, each with that name. Everything else calls them "
        "by their name at the source. It is fixed for the life of the target's table.",
    )

    @field_validator("rename")
    @classmethod
    def _rename(cls, rename: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        names.check_landed_names(rename.values())
        if patterns := [name for name in rename if "*" in name]:
            what = f"`rename` takes names, and {patterns[0]!r} is a pattern"
            raise names.unfit(what, "write out each column that has another name at the target")
        if "include" in info.data:
            _refuse_left_out("rename", rename, _selected(info.data["include"], info.data.get("exclude", ())))
        return rename

    @property
    def chosen(self) -> ColumnChoice:
        """The selection in the form that decoders use."""
        return _selected(self.include, self.exclude)._replace(renamed=tuple(self.rename.items()))


def _selected(include: tuple[str, ...] | None, exclude: tuple[str, ...]) -> ColumnChoice:
    if include is None:
        return ColumnChoice(excluded=exclude)
    fitting = tuple(name for name in include if "*" in name)
    return ColumnChoice(tuple(name for name in include if "*" not in name), fitting, exclude)


Columns = Annotated[
    Annotated[ColumnList, Tag("(names)")] | Annotated[ColumnSelection, Tag("(ColumnSelection)")],
    Discriminator(lambda value: "(ColumnSelection)" if isinstance(value, dict | ColumnSelection) else "(names)"),
]


def _chosen(columns: tuple[str, ...] | ColumnSelection | None) -> ColumnChoice:
    return columns.chosen if isinstance(columns, ColumnSelection) else ColumnChoice(columns)


def _refuse_left_out(setting: str, named: Iterable[str], chosen: ColumnChoice) -> None:
    if out := [name for name in named if not chosen.of([name])]:
        what = f"`{setting}` names the column {out[0]!r}, which `columns` leaves out"
        raise names.unfit(what, f"correct the name, leave it out of `{setting}`, or mirror it")


def _refuse_unread(hashed: tuple[str, ...], columns: tuple[str, ...] | ColumnSelection | None) -> None:
    """Refuse a name under `hash` that a list of columns leaves out: the one that is meant would land in clear."""
    if (chosen := _chosen(columns)).listed is not None:
        _refuse_left_out("hash", plain_names(hashed), chosen)


def hashed_key(key: Sequence[str], hashed: tuple[str, ...]) -> tuple[str, str] | None:
    """Why a key column cannot be hashed, and the fix; None if *hashed* contains no column of *key*."""
    of_key = [name for name in key if ColumnChoice(hashed=hashed).hashes(name)]
    if not of_key:
        return None
    what = f"the key column {of_key[0]!r} cannot land as a hash: ledger, dead letters and proofs name rows by their key"
    return what, "leave it out of `hash`, or of the mirror by `columns` and `key`"


_WITHOUT_HISTORY = {
    "complete_rows": "its changes contain parts of rows only",
    "where": "a row that no longer fulfils it has no last change",
    "delimited_text": "a history has other columns than are declared for it",
}
"""Settings of a table that can have no history, each with the reason."""


class Table(Section):
    """One mirrored table."""

    source: TableName = Field(
        description="schema.table at the source; a part that holds a dot is in brackets, [my.schema].orders.",
        json_schema_extra={"pattern": SOURCE_NAME},
    )
    target: Annotated[str, AfterValidator(names.check_target)] = Field(
        description="schema/table, or only table, in the mirrored database.",
        json_schema_extra={"pattern": "^[^/]+(/[^/]+)?$"},
    )
    columns: Columns | None = Field(
        default=None,
        description="Only these columns are mirrored; they must include the key. A list of names, or {include: […], "
        "exclude: […], rename: {a: b}} of names and patterns, in any case. Default: all.",
    )
    key: ColumnNames = Field(description="Key columns in order. An empty list is a table with inserts only.")
    types: LandingTypes = Field(
        default_factory=dict,
        description="Columns that land as another type than their source's. string for any; int16, int32, int64 or "
        "decimal(p,s) for a number, where a value that does not fit is a dead letter; float64 or timestamp for what "
        "they hold. Names in any case.",
    )
    hash: ColumnNames = Field(
        default=(),
        description="Columns that land as hashes: names in any case, and patterns with * for any characters. No key "
        "column. The salt is in `hash` of the mirror.",
    )
    extra_columns: ExtraColumns | None = Field(
        default=None,
        description="Columns that describe the change which made a row. Default: those of the mirror; {} is none.",
    )
    full_rows: StrictBool | None = Field(
        default=None, description="Whether update events carry complete rows. Unset: judged from the events."
    )
    complete_rows: StrictBool | None = Field(
        default=None,
        description="Whether update events that carry only what changed are completed by earlier changes of their "
        "row. The log must hold the row from its insert, or from an initial load, which goes through the log.",
    )
    keys_never_change: StrictBool | None = Field(
        default=None,
        description="A promise that no update of this table changes its key. Without it, an update without the key "
        "before it stops the table: the row of an old key would stay for ever.",
    )
    key_is_unique: StrictBool | None = Field(
        default=None,
        description="A promise that no two rows of the source have the same `key`, although the announced primary "
        "key has more columns. Without it such a table stops.",
    )
    require_reload_on_add: StrictBool | None = Field(
        default=None,
        description="Whether a column that is added at the source stops the table until it is reloaded: other rows "
        "may have a default there. Default: that of the mirror.",
    )
    on_schema_change: OnSchemaChange | None = Field(
        default=None,
        description="After a change of structure: stop, log or reload, as under `publish`. Default: that of the "
        "mirror.",
    )
    on_possible_rename: OnPossibleRename | None = Field(
        default=None,
        description="If a column may have been renamed: ask, dropped or reload, as under `publish`. Default: that of "
        "the mirror.",
    )
    on_reload: OnReload | None = Field(
        default=None,
        description="If a Qlik task loads the table again: stop or rebuild, as under `publish`. Default: that of the "
        "mirror.",
    )
    on_delete: OnDelete = Field(
        default="remove",
        description="A row that is deleted at the source. remove: it is deleted at the target. keep: it stays there "
        "with its last values, and `_deleted_at` is when it was deleted; `extra_columns: {deleted_at: NAME}` names the "
        "column. An initial load then goes through the log.",
    )
    where: str | None = Field(
        default=None,
        description="Only rows that fulfil this condition are mirrored, such as country = 'DE' AND amount >= 10: "
        "comparisons of columns with literals, IN, IS NULL, AND, OR, NOT. A row that no longer does is deleted at the "
        "target. A row that lacks one of the columns stops the table.",
    )
    delimited_text: DelimitedText | None = Field(
        default=None, description="How its files are written as delimited text. Default: they are Parquet."
    )
    append_only: StrictBool = Field(
        default=False,
        description="A promise that rows are only ever inserted: the files have no marker column, so that the service "
        "may read them faster. Needs `key: []`. An update or delete stops the table.",
    )
    history: History | None = Field(
        default=None,
        description="A further table with the history of this one. Needs a `key`. It begins with the first change that "
        "is read after it was declared; an initial load then goes through the log.",
    )
    topic: str | None = Field(
        default=None,
        min_length=1,
        description="For qlik-message: the topic that holds this table's messages and no others; only needed where "
        "nothing names the table.",
    )
    change_table: TableName | None = Field(
        default=None,
        description="For qlik-change-table over jdbc: schema and name of the change table. Default: `source` and the "
        "suffix.",
        json_schema_extra={"pattern": SOURCE_NAME},
    )
    dead_letters: DeadLetters | None = Field(
        default=None, description="How many of its open dead letters are no loss. Default: that of the mirror."
    )
    initial_load: InitialLoad | None = Field(
        default=None,
        description="Rows that were there before the stream. Unset: the table starts empty at the beginning.",
    )
    prove: ProofSource | None = Field(
        default=None,
        description="Where `open-mirroring prove` reads the rows of the source. Unset: where an initial load over "
        "JDBC does.",
    )

    _hashed_everywhere: tuple[str, ...] = PrivateAttr(default=())
    _extra_everywhere: ExtraColumns = PrivateAttr(default=ExtraColumns())
    _joined: bool = PrivateAttr(default=False)
    """Whether a pattern found the table. Settings of such a table may name columns that the table lacks."""
    _keys_of_rows: tuple[str, ...] | None = PrivateAttr(default=None)

    @cached_property
    def folder(self) -> str:
        """The table's folder, relative to the landing zone."""
        return names.target_folder(self.target)

    @property
    def text_format(self) -> TextFormat | None:
        """The format of the table's delimited text files, with the columns at the target; None for Parquet files."""
        if self.delimited_text is None:
            return None
        text = self.delimited_text.text_format
        extra = tuple((column.landed_name, column.type) for column in extra_columns(self.chosen.extra))
        named = tuple((self.chosen.landed_name(name), kind) for name, kind in text.columns)
        return text._replace(columns=(*named, *extra))

    @property
    def loads_through_log(self) -> bool:
        """Whether the rows of the initial load are written to the change log before they are published, as changes are.

        The change log needs these rows in four cases: later changes complete the loaded rows (G-04); deleted rows keep
        their last values (G-192); the table has a history, which begins with these rows (G-194); or the table is
        published as delimited text, so that all its files have one format.
        """
        through_log = self.complete_rows or self.keeps_deleted or self.history is not None
        return bool(through_log) or self.delimited_text is not None

    @property
    def keeps_deleted(self) -> bool:
        """Whether rows that are deleted at the source stay at the target (G-192)."""
        return self.on_delete == "keep"

    @cached_property
    def row_filter(self) -> Condition | None:
        """The condition for mirroring a row (`where` in the mirror file); None: every row is mirrored (G-193)."""
        return None if self.where is None else parse_condition(self.where)

    @property
    def begins_with_load_of_task(self) -> bool:
        """Whether the initial load is the full load that a Qlik task wrote as files before the task's changes.

        Rule G-128.
        """
        load = self.initial_load
        if not isinstance(load, ExportLoad):
            return False
        return load.format == "qlik-full-load" and load.stream_from == names.BEGINNING

    @property
    def source_name(self) -> names.SourceName:
        return names.split_source_name(logged_as(self.source))

    @property
    def keys_of_rows(self) -> tuple[str, ...] | None:
        """For a history table, the key of the source rows whose changes it contains; None for any other table.

        The history table itself has no key, or a key that also contains the position of the change.
        """
        return self._keys_of_rows

    @property
    def history_table(self) -> Table | None:
        """The table's history as a table of its own; None if the mirror file sets no history.

        A history of the form `changes` has no key, because its rows are only ever inserted. In the form `scd2` the key
        is the key of the source row and the position of the change.
        """
        if self.history is None:
            return None
        key = (*self.key, POSITION_KEY) if self.history.form == "scd2" else ()
        own = {"source": history_of(self.source), "target": self.history.target, "key": key, "append_only": not key}
        without = dict.fromkeys(("history", "initial_load", "prove", "keys_never_change", "key_is_unique"))
        # A history row of a change from before a column was added is correct without this column.
        others = {"on_delete": "remove", "require_reload_on_add": False}
        table = self.model_copy(update={**own, **without, **others})
        table._keys_of_rows = self.key
        for copied in ("chosen", "folder"):
            table.__dict__.pop(copied, None)
        return table

    @cached_property
    def chosen(self) -> ColumnChoice:
        """The columns that are read, with their names and types at the target."""
        hashed, extra = (*self.hash, *self._hashed_everywhere), self._extra(self._extra_everywhere)
        where = "" if self.row_filter is None else str(self.row_filter)
        chosen = _chosen(self.columns)._replace(types=tuple(self.types.items()), hashed=hashed, extra=extra)
        return chosen._replace(where=where, dated=self.history is not None)

    def _extra(self, everywhere: ExtraColumns) -> tuple[tuple[str, str], ...]:
        """The properties of a change that its extra columns contain, each with its name."""
        named = dict((everywhere if self.extra_columns is None else self.extra_columns).named)
        if self.keys_of_rows is not None:
            named = {**_HISTORY_COLUMNS["scd2" if self.key else "changes"], **named}
        deleted_at = named.pop(DELETED_AT, f"_{DELETED_AT}")
        return (*named.items(), *([(DELETED_AT, deleted_at)] if self.keeps_deleted else []))

    def take_over(self, hashed: tuple[str, ...], extra: ExtraColumns) -> None:
        """Apply the mirror's defaults to the table: also hash the columns *hashed*, and add the columns *extra*."""
        self._hashed_everywhere, self._extra_everywhere = hashed, extra
        self.__dict__.pop("chosen", None)

    def taken_names(self, everywhere: ExtraColumns) -> list[str]:
        """Return the names of extra columns that another column already has at the target (G-118).

        *everywhere* are the extra columns that the mirror adds to every table.
        """
        chosen = _chosen(self.columns)
        text = self.delimited_text.columns if self.delimited_text else ()
        known = (*(name for name, _ in chosen.renamed), *(chosen.listed or ()), *self.key, *self.types, *text)
        landed = {chosen.landed_name(name).casefold() for name in known}
        return [name for _, name in self._extra(everywhere) if name.casefold() in landed]

    def unhashed(self, known: Iterable[str]) -> list[str]:
        """Return the columns that `hash` in the mirror file lists by name, but *known* does not contain (G-122)."""
        return [] if self._joined else lacking(self.chosen.of(plain_names(self.hash)), known)

    def unseen(self, known: Iterable[str]) -> dict[str, list[str]]:
        """Return the column names that *known* lacks, by the setting of the table that names the columns."""
        chosen, known = self.chosen, [*known]
        own = () if self._joined else (("`columns` renames", chosen.renamed), ("`types` names", chosen.types))
        named = {"`columns` lists": chosen.listed or (), **{says: [name for name, _ in pairs] for says, pairs in own}}
        named["`where` names"] = () if self.row_filter is None else self.row_filter.columns
        return {says: missing for says, names in named.items() if (missing := lacking(names, known))}

    @field_validator("key")
    @classmethod
    def _key(cls, key: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        chosen = _chosen(info.data.get("columns"))
        spelled = {name.casefold(): name for name in chosen.listed or ()}
        mirrored = [name for name in chosen.of(key) if spelled.get(name.casefold(), name) == name]
        missing = [name for name in key if name not in mirrored]
        if missing:
            what = f"the key column {missing[0]!r} is not among `columns`"
            raise names.unfit(what, "add it to `columns`, spelled alike: no row is found without its key")
        known = (*(name for name, _ in chosen.renamed), *(chosen.listed or ()), *key)
        names.check_landed_names(map(chosen.landed_name, {name.casefold(): name for name in known}.values()))
        return key

    @field_validator("types")
    @classmethod
    def _types(cls, types: dict[str, str], info: ValidationInfo) -> dict[str, str]:
        _refuse_left_out("types", types, _chosen(info.data.get("columns")))
        return types

    @field_validator("hash")
    @classmethod
    def _hash(cls, hash: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _refuse_unread(hash, info.data.get("columns"))
        if refused := hashed_key(info.data.get("key", ()), hash):
            raise names.unfit(*refused)
        hashed = ColumnChoice(hashed=hash)
        if other := [n for n, kind in info.data.get("types", {}).items() if kind != "string" and hashed.hashes(n)]:
            what = f"`types` lands the column {other[0]!r} not as text, but its hash is text"
            raise names.unfit(what, "leave it out of `types`")
        return hash

    @field_validator("complete_rows")
    @classmethod
    def _complete_rows(cls, value: bool | None, info: ValidationInfo) -> bool | None:
        if value and info.data.get("full_rows"):
            what = "updates cannot both carry complete rows and need completing"
            raise names.unfit(what, "leave out `full_rows` or `complete_rows`")
        return value

    @field_validator("complete_rows", "keys_never_change", "key_is_unique", "on_delete", "history")
    @classmethod
    def _of_a_key(cls, value: Any, info: ValidationInfo) -> Any:
        if value not in (None, False, "remove") and info.data.get("key") == ():
            what = f"a table without key accepts inserts only, so `{info.field_name}` means nothing"
            raise names.unfit(what, "leave it out, or give the table a key")
        return value

    @field_validator("where")
    @classmethod
    def _where(cls, where: str | None, info: ValidationInfo) -> str | None:
        if where is not None:
            _refuse_left_out("where", parse_condition(where).columns, _chosen(info.data.get("columns")))
        return where

    @field_validator("delimited_text")
    @classmethod
    def _delimited_text(cls, text: DelimitedText | None, info: ValidationInfo) -> DelimitedText | None:
        if text is None:
            return None
        lacking = [name for name in info.data.get("key", ()) if name not in text.columns]
        if lacking:
            what = f"the key column {lacking[0]!r} is not among the columns of `delimited_text`"
            raise names.unfit(what, "add it, spelled alike")
        chosen = _chosen(info.data.get("columns"))
        differing = {*chosen.absent(text.columns), *text.columns} - {*chosen.of(text.columns)}
        if differing:
            what = f"`columns` and `delimited_text` differ in {min(differing)!r}"
            raise names.unfit(what, "name the same columns in both")
        names.check_landed_names(map(chosen.landed_name, text.columns))
        types = chosen._replace(types=tuple(info.data.get("types", {}).items()), hashed=info.data.get("hash", ()))
        if other := [n for n, kind in text.columns.items() if types.type_of(n) not in (None, kind)]:
            what = f"`types` and `delimited_text` say two types of the column {other[0]!r}"
            raise names.unfit(what, "say the same in both")
        return text

    @field_validator("append_only")
    @classmethod
    def _append_only(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("key"):
            raise names.unfit("rows that are only ever inserted are not found by a key", "set `key: []`")
        if value and info.data.get("delimited_text") is not None:
            raise names.unfit("files of delimited text keep their marker column", "leave out `append_only`")
        return value

    @field_validator("history")
    @classmethod
    def _history(cls, history: History | None, info: ValidationInfo) -> History | None:
        if history is None:
            return None
        for setting, why in _WITHOUT_HISTORY.items():
            if info.data.get(setting):
                raise names.unfit(f"`history` does not go with `{setting}`: {why}", "leave one of them out")
        return history

    @field_validator("initial_load")
    @classmethod
    def _initial_load(cls, load: ExportLoad | JdbcLoad | None, info: ValidationInfo) -> ExportLoad | JdbcLoad | None:
        if load is None or "key" not in info.data:
            return load
        if not info.data["key"]:
            if load.handover is None:
                what = "without a key a row that both the load and the stream bring would be there twice"
                next_step = "set `handover: quiesced` if nothing is changed between the load and the first change of "
                next_step += "the stream, `handover: exact` if `stream_from` of an export is the first commit that is "
                next_step += "not in it; or give the table a key"
                raise names.unfit(what, next_step)
            if info.data.get("delimited_text") is not None:
                what = "rows of a load that goes through the log are distinguished by their key"
                raise names.unfit(what, "leave `delimited_text` out, or the initial load")
        elif load.handover is not None:
            what = "over the load of a table with a key changes are published as upserts, whatever both hold"
            raise names.unfit(what, "leave `handover` out")
        wanted = [*info.data["key"], *(_chosen(info.data.get("columns")).listed or ())]
        complete = isinstance(load, ExportLoad) and load.types and load.format != "qlik-full-load"
        missing = [n for n in wanted if complete and isinstance(load, ExportLoad) and n not in load.types]
        if missing:
            what = f"`types` of the export does not name {missing}, of `key` or `columns`"
            raise names.unfit(what, "name the SQL type of every column, spelled alike")
        return load


class TablePattern(Section):
    """Settings that mirror all tables whose names match a pattern, each from the table's first change on (G-70).

    Key and columns are the ones that the source announces. Tables that the mirror file lists by name or under `ignore`
    are left out. If several patterns match a table, the first pattern applies.
    """

    source: TableName = Field(
        description="schema.table at the source, with * for any characters, as in sales.*. With a `key` it is one "
        "table of that name.",
        json_schema_extra={"pattern": r"^.*\*.*$"},
    )
    exclude: tuple[TableName, ...] = Field(
        default=(), description="schema.table, or patterns of them, that are not mirrored although they fit."
    )
    new_tables: Literal["join", "ask"] = Field(
        default="join",
        description="A table that is seen for the first time. join: it is mirrored. ask: its changes are logged, and "
        "nothing is published before `open-mirroring accept-table`.",
    )
    target: str = Field(
        default="{schema}/{table}",
        description="schema/table, or only table, in the mirrored database; {schema} and {table} stand for the "
        "source's.",
        json_schema_extra={"pattern": r"\{table\}"},
    )
    columns: ColumnSelection | None = Field(
        default=None,
        description="Which columns of each are mirrored, {include: […], exclude: […], rename: {a: b}}, with the key.",
    )
    types: LandingTypes = Field(
        default_factory=dict,
        description="As `types` of a table, of each that has the column.",
    )
    hash: ColumnNames = Field(default=(), description="As `hash` of a table, of each that has the column.")
    extra_columns: ExtraColumns | None = Field(default=None, description="As `extra_columns` of a table.")
    full_rows: StrictBool | None = Field(default=None, description="As `full_rows` of a table.")
    complete_rows: StrictBool | None = Field(default=None, description="As `complete_rows` of a table.")
    keys_never_change: StrictBool | None = Field(default=None, description="As `keys_never_change` of a table.")
    require_reload_on_add: StrictBool | None = Field(default=None, description="As `require_reload_on_add` of a table.")
    on_reload: OnReload | None = Field(default=None, description="As `on_reload` of a table.")
    on_delete: OnDelete = Field(default="remove", description="As `on_delete` of a table, of each that has a key.")
    dead_letters: DeadLetters | None = Field(default=None, description="As `dead_letters` of a table.")
    initial_load: JdbcLoad | None = Field(
        default=None,
        description="Rows that were there before the stream, of each table that has a key, from the table of its "
        "name. Unset: a table starts with the first change that is read of it.",
    )
    prove: JdbcProof | None = Field(default=None, description="As `prove` of a table, from the table of its name.")

    @field_validator("target")
    @classmethod
    def _target(cls, target: str) -> str:
        if "{table}" not in target:
            what = "all tables of the pattern would have one target"
            raise names.unfit(what, "write {table} in place of the table's name")
        names.check_target(target.replace("{schema}", "schema").replace("{table}", "table"))
        return target

    @field_validator("hash")
    @classmethod
    def _hash(cls, hash: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        _refuse_unread(hash, info.data.get("columns"))
        return hash

    @field_validator("initial_load", "prove")
    @classmethod
    def _of_each(cls, load: JdbcLoad | None) -> JdbcLoad | None:
        if load is not None and load.table is not None:
            what = "the rows of one table would be those of all"
            raise names.unfit(what, "leave `table` out: each is read by its own name")
        return load

    @field_validator("prove")
    @classmethod
    def _together(cls, prove: JdbcLoad | None, info: ValidationInfo) -> JdbcLoad | None:
        settings = {**info.data, "source": "schema.table", "target": "schema/table", "key": ("key",)}
        try:
            fields = settings.keys() & Table.model_fields.keys() - {"columns"}  # checked against each key
            Table.model_validate({name: settings[name] for name in fields})
        except ValidationError as error:
            first = error.errors()[0]
            context = first.get("ctx", {})
            next_step = context.get("next_step", "fix the pattern")
            raise names.refusal(first["type"], context.get("what", first["msg"]), next_step) from None
        return prove

    def fits(self, name: names.SourceName) -> bool:
        """Whether the pattern includes a table of this name."""
        return _fits(self.source, name) and not any(_fits(one, name) for one in self.exclude)

    def table(self, name: names.SourceName, source: str, key: Sequence[str]) -> Table:
        """Return the settings of a table found by this pattern, as if the mirror file listed the table with *key*.

        Raises ValidationError if a mirror file could not list the table with these settings.
        """
        own = {"source", "target"} if key else {"source", "target", "initial_load", "keys_never_change", "on_delete"}
        settings = Table.model_fields.keys() & TablePattern.model_fields.keys() - own
        target = self.target.replace("{schema}", name.schema).replace("{table}", name.table)
        found = {"source": source, "target": target, "key": tuple(key)}
        found |= {setting: getattr(self, setting) for setting in settings}
        table = Table.model_validate(found)
        table._joined = True
        return table


def _fits(pattern: str, name: names.SourceName) -> bool:
    return all(wanted.fullmatch(part) for wanted, part in zip(names.split_pattern(pattern), name, strict=True))


def _kind_of_table(value: Any) -> str:
    if isinstance(value, Table | TablePattern):
        return f"({type(value).__name__})"
    source = value.get("source") if isinstance(value, dict) else None
    # A table may have a * in its name, so an entry with a key is a table and not a pattern.
    is_pattern = isinstance(source, str) and names.is_pattern(source) and "key" not in value
    return "(TablePattern)" if is_pattern else "(Table)"


TableEntry = Annotated[
    Annotated[Table, Tag("(Table)")] | Annotated[TablePattern, Tag("(TablePattern)")], Discriminator(_kind_of_table)
]


def table_collisions(tables: Iterable[tuple[int, Table]]) -> list[Mistake]:
    """Find tables whose source or folder an earlier table has already (F-02).

    *tables* pairs the index of each table in the mirror file with the table.
    """
    found: list[Mistake] = []
    sources: dict[tuple[str, str], int] = {}
    folders: dict[str, SettingPath] = {}
    for index, table in tables:
        first = sources.setdefault(table.source_name, index)
        if first != index:
            what = f"the source table {table.source!r} is mirrored by tables[{first}] already"
            found.append(Mistake((index, "source"), "CONFIG_INVALID", what, "mirror each source table once"))
        targets: list[tuple[str, SettingPath]] = [(table.target, (index, "target"))]
        if table.history is not None:
            targets.append((table.history.target, (index, "history", "target")))
        for target, path in targets:
            # Without a schema the service uses the default one (F-03), `dbo` for databases that we create.
            folder = names.target_folder(target if "/" in target else f"{_DEFAULT_SCHEMA}/{target}")
            taken = folders.setdefault(name_identity(folder), path)
            if taken != path:
                what = f"the target {target!r} is the same table as that of tables[{taken[0]}]; "
                what += f"case does not count, and no schema is {_DEFAULT_SCHEMA}"
                found.append(Mistake(path, "CONFIG_INVALID", what, "choose another `target` for one of them"))
    return found
