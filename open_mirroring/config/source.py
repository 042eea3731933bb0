"""The section `source` of a mirror file: one class per combination of format and transport.

Each class has only the settings that its format and transport use, so a setting of another combination is refused.
Change event streaming leaves out columns of some SQL types (C-77; Microsoft Learn, *Configure change event streaming*).
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticKnownError

from open_mirroring.changes.manifest import GAPS
from open_mirroring.changes.streamed_types import is_streamed
from open_mirroring.config import names
from open_mirroring.config.section import ConnectionName, ConnectionOfPath, PlaceText, Positive, Section, TableName
from open_mirroring.errors import TerminalError

HEADER_PREFIX, TABLE_SUFFIX, OVERLAP_MINUTES = "header__", "__ct", 10
GAP_TIMEOUT_MINUTES, MAX_MESSAGES_PER_RUN, SEQUENCE_DIGITS = 60, 10_000_000, 35
"""Defaults. No other module repeats them."""
UTF8 = "utf-8"
FORMATS = "open_mirroring.formats"
"""The entry point group for message formats of installed packages."""
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CONNECTION = Field(
    description="Name of the connection, which is set in the scheduler or in the environment as AIRFLOW_CONN_<NAME>."
)
_WHERE_READ = ("transport", "path", "connection", "topics", "database", "binary", "encoding", GAPS)
_UNSAID = {"encoding": UTF8, GAPS: "lost"}
"""Values of settings in _WHERE_READ that are left out, because they are what is expected without the setting."""
_BINARY = "How binary values are spelled in JSON. Default: hex, with or without 0x."


def _topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        next_step = "use letters, digits, dots, underscores and hyphens; patterns are not taken"
        raise names.unfit(f"{name!r} is no name of a topic", next_step)
    return name


def _encoding(name: str) -> str:
    try:
        "".encode(name)
    except (LookupError, UnicodeError):
        raise names.unfit(f"{name!r} is no encoding of text", "write for example cp1252") from None
    if codecs.lookup(name).name in ("utf-16", "utf-32"):
        what = f"{name!r} does not say the order of bytes of a file without a byte order mark"
        raise names.unfit(what, f"write {name}-le or {name}-be; with a mark no `encoding` is needed")
    return UTF8 if codecs.lookup(name).name == UTF8 else name


OffsetGaps = Literal["lost", "expected"]


class AnySource(Section):
    """Settings that every source has, whatever its format and transport."""

    spells_by_reading: ClassVar[bool] = False
    """Whether rows have the columns that the table had when it was read, not when it changed (T-33)."""
    is_surveyed: ClassVar[bool] = False
    """Whether settings at the source decide what it sends, so that `check` inspects them."""
    fragment_timeout_hours: Positive = Field(
        default=24,
        description="Hours after which messages that wait for others are dead letters. A data file of change tables "
        "that has no metadata file by then stops its table.",
    )

    @property
    def connections(self) -> dict[str, str]:
        """The names of the source's connections, by the setting that contains the name."""
        named = {setting: getattr(self, setting, None) for setting in ("connection", "schema_registry")}
        return {setting: name for setting, name in named.items() if name is not None}

    @property
    def ordered_partitions(self) -> int:
        """How many partitions must show a later commit before a transaction counts as complete.

        The number is 0 if it is unknown in how many partitions changes arrive.
        """
        return 0

    @property
    def text_encoding(self) -> str:
        """The encoding of text files that do not begin with a byte order mark (T-46)."""
        return str(getattr(self, "encoding", UTF8))

    @property
    def place(self) -> str:
        """The place of the changes, for messages: a path, or topics or a database with the name of their connection."""
        path, topics = getattr(self, "path", ""), getattr(self, "topics", ())
        of_topics = f"{', '.join(topics)} of " if topics else ""
        return path or f"{of_topics}connection {self.connections['connection']}"

    @property
    def reads(self) -> dict[str, list[str]]:
        """The settings for where messages are read from and how their bytes are decoded, by setting's name (G-142).

        The same bytes have another content in another encoding. Gaps in the offsets of messages are expected only
        where `offset_gaps` is set to `expected` (G-113).
        """
        said = {name: getattr(self, name, None) for name in _WHERE_READ}
        named = {name: value for name, value in said.items() if value and value != _UNSAID.get(name)}
        return {name: [value] if isinstance(value, str) else [*value] for name, value in named.items()}


class InFolder(AnySource):
    """Base class of sources whose changes are files below a local path, or in object storage."""

    path: PlaceText = Field(
        description="The folder or file with the changes: a local path, or an address in object storage (abfss://…, "
        "az://… or s3://…)."
    )
    connection: ConnectionOfPath = Field(
        default=None, description="Name of the connection; needed for a path in object storage."
    )


class InLines(InFolder):
    """Base class of sources whose messages are JSON lines in files."""

    transport: Literal["files"] = Field(description="JSON lines.")
    layout: Literal["wrapped", "bare"] = Field(
        default="wrapped",
        description="wrapped (each line holds topic, partition, offset and the value) or bare (each line is one "
        "message).",
    )
    offset_gaps: OffsetGaps = Field(
        default="lost",
        description="With the layout wrapped, what a missing offset is. lost (the default): a loss of the mirror "
        "until it comes; expected: nothing, as the topic is compacted, or the lines are only some of its messages.",
    )


class InCapture(InFolder):
    """Base class of sources whose messages are in Avro files of Event Hubs Capture."""

    transport: Literal["capture"] = Field(description="Avro files of Event Hubs Capture.")
    gap_timeout_minutes: Positive = Field(
        default=GAP_TIMEOUT_MINUTES,
        description="Minutes for which files behind a hole in the numbers of their partition wait for the missing "
        "ones; then the mirror stops.",
    )


class InTopics(AnySource):
    """Base class of sources whose messages are in topics of a Kafka broker, or of the Kafka endpoint of Event Hubs."""

    transport: Literal["kafka"] = Field(description="Topics of Kafka, also at the Kafka endpoint of Event Hubs.")
    connection: ConnectionName = _CONNECTION
    topics: tuple[Annotated[str, AfterValidator(_topic)], ...] = Field(
        min_length=1, description="The topics to read, by their full names: `topics: [name]`."
    )
    max_messages_per_run: Positive = Field(
        default=MAX_MESSAGES_PER_RUN,
        description="About so many messages are read by one run: a long backlog becomes many batches. Default: 10 "
        "million.",
    )


class ChangeEvents(AnySource):
    """Settings of change event streaming (SQL Server and Azure SQL), whatever the transport is."""

    format: Literal["sqlserver-ces"] = Field(description="Change event streaming of SQL Server and Azure SQL.")
    database: str | None = Field(
        default=None,
        min_length=1,
        description="Read only events of this database and ignore others. Default: all.",
    )
    partition_key_scheme: Literal["none", "stream-group", "table", "column"] = Field(
        default="none",
        description="The @partition_key_scheme of the stream group. Only one that keeps order inside partitions "
        "gives a complete position. Default: none, that is round robin.",
    )
    partition_count: Positive | None = Field(
        default=None,
        description="Number of partitions that carry changes of the stream group; a transaction is complete once all "
        "have shown a later one. Default: 1 with the scheme stream-group.",
    )
    binary: Literal["hex", "base64"] = Field(default="hex", description=_BINARY)

    @property
    def ordered_partitions(self) -> int:
        # Bare lines do not show the partition of a message.
        if self.partition_key_scheme == "none" or (isinstance(self, InLines) and self.layout == "bare"):
            return 0
        return self.partition_count or (1 if self.partition_key_scheme == "stream-group" else 0)


class QlikTask(AnySource):
    """Settings of a Qlik task, whatever the transport is."""

    is_surveyed = True

    load: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")] = Field(
        default="1",
        description="Name of the task's full load to which the changes belong. Change tables need a new one after a "
        "reload; messages only where the task was re-created or set back.",
    )
    mask_order: Literal["auto", "msb_text", "le_bytes"] = Field(
        default="auto",
        description="How change masks are read. msb_text: hexadecimal text, most significant digit first; le_bytes: "
        "bytes, the first for columns 1 to 8; auto (the default): by their form.",
    )


class ChangeTables(QlikTask):
    """Settings of Qlik's change tables, whatever the transport is."""

    format: Literal["qlik-change-table"] = Field(description="Change tables of a Qlik task.")
    header_prefix: Annotated[str, StringConstraints(max_length=60)] = Field(
        default=HEADER_PREFIX,
        description="What the names of header columns begin with; an empty text where the task writes no prefix.",
    )
    table_suffix: Annotated[str, StringConstraints(min_length=1, max_length=60)] = Field(
        default=TABLE_SUFFIX, description="What the names of change tables end with."
    )
    sparse_updates: StrictBool = Field(
        default=False,
        description="Whether NULL in an update may stand for a column that did not change. Default: false.",
    )
    before_images: StrictBool | None = Field(
        default=None,
        description="Whether every update has its before image as a row of its own. Unset: judged from the rows.",
    )


class Messages(QlikTask):
    """Settings of messages of Qlik Replicate and Talend, whatever the transport is."""

    format: Literal["qlik-message"] = Field(description="Kafka messages of Qlik and Talend.")
    binary: Literal["hex", "base64"] = Field(default="hex", description=_BINARY)
    sequence_digits: Positive = Field(
        default=SEQUENCE_DIGITS,
        description="Number of digits of `changeSequence`, should the source not write 35.",
    )
    schema_registry: ConnectionName | None = Field(
        default=None,
        description="Name of the connection to the schema registry, for Avro messages that carry a schema's number.",
    )
    unframed_avro: StrictBool = Field(
        default=False,
        description="Whether bytes in no known form are bare Avro records, read by the one known schema of their "
        "table that fits. Default: false.",
    )
    partition_count: Positive = Field(
        default=1,
        description="For `consistency: transaction`: number of partitions, over all topics, to which the task sends "
        "changes. Default: 1.",
    )

    @property
    def ordered_partitions(self) -> int:
        return self.partition_count


class CesInCapture(ChangeEvents, InCapture, title="sqlserver-ces over capture"):
    """Change events in files of Event Hubs Capture."""


class CesInLines(ChangeEvents, InLines, title="sqlserver-ces over files"):
    """Change events as JSON lines."""


class CesInTopics(ChangeEvents, InTopics, title="sqlserver-ces over kafka"):
    """Change events in topics of a Kafka broker or of Event Hubs."""


class ChangeTablesInFolder(ChangeTables, InFolder, title="qlik-change-table over files"):
    """Qlik change tables as data files, each with a ``.dfm`` metadata file."""

    transport: Literal["files"] = Field(description="Data files, with a .dfm next to each.")
    encoding: Annotated[str, AfterValidator(_encoding)] = Field(
        default=UTF8,
        description="Encoding (code page) of CSV and JSON files without byte order mark, also of full loads: cp1252, "
        "utf-16-le …. Default: utf-8.",
    )


class ChangeTablesInDatabase(ChangeTables, title="qlik-change-table over jdbc"):
    """Qlik change tables in the database to which the Qlik task writes them."""

    spells_by_reading: ClassVar[bool] = True
    transport: Literal["jdbc"] = Field(description="The database that the task writes change tables to.")
    connection: ConnectionName = _CONNECTION
    partitions: TableName | None = Field(
        default=None,
        description="Where Change Data Partitioning is on: schema and name of the control table, such as "
        "control.attrep_cdc_partitions.",
    )
    control_schema: str | None = Field(
        default=None,
        min_length=1,
        description="Schema of Qlik's control tables, which are looked at in each run. Default: that of "
        "`partitions`; without both none is looked at.",
    )
    task: str | None = Field(
        default=None,
        min_length=1,
        description="Where control tables are those of several tasks: the one that writes the change tables. "
        "Default: all.",
    )
    overlap_minutes: Positive = Field(
        default=OVERLAP_MINUTES,
        description="Without `partitions`: how far back each run reads again, for rows that were committed late.",
    )

    @property
    def control_tables_in(self) -> str | None:
        """The schema of Qlik's control tables; None if the control tables are not read."""
        if self.control_schema is None and self.partitions is not None:
            return names.split_source_name(self.partitions).schema
        return self.control_schema

    @property
    def ordered_partitions(self) -> int:
        # Qlik's Change Data Partitioning puts all changes into one order (T-80).
        return 0 if self.partitions is None else 1


class MessagesInCapture(Messages, InCapture, title="qlik-message over capture"):
    """Qlik messages in files of Event Hubs Capture, which contain no message keys."""


class MessagesInLines(Messages, InLines, title="qlik-message over files"):
    """Qlik messages as JSON lines."""


class MessagesInTopics(Messages, InTopics, title="qlik-message over kafka"):
    """Qlik messages in topics of a Kafka broker or of Event Hubs."""


FormatName = Literal["sqlserver-ces", "qlik-change-table", "qlik-message"]


class RegisteredMessages(AnySource):
    """Messages in a format that an installed package registers. The format has no settings of its own."""

    format: str = Field(
        description="Name of a format of messages that an installed package registers.",
        json_schema_extra={"not": {"enum": [*get_args(FormatName)]}},
    )


class RegisteredInCapture(RegisteredMessages, InCapture, title="registered format over capture"):
    """Messages of a registered format in files of Event Hubs Capture."""


class RegisteredInLines(RegisteredMessages, InLines, title="registered format over files"):
    """Messages of a registered format as JSON lines."""


class RegisteredInTopics(RegisteredMessages, InTopics, title="registered format over kafka"):
    """Messages of a registered format in Kafka topics."""


class _Chosen(Section, extra="ignore"):
    """Format and transport alone, which determine the other settings of a source."""

    format: str
    transport: Literal["capture", "files", "kafka", "jdbc"]

    @field_validator("format")
    @classmethod
    def _is_known(cls, name: str) -> str:
        ours = get_args(FormatName)
        if name not in ours and name not in entry_points(group=FORMATS).names:
            raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, ours))})
        return name

    @field_validator("transport")
    @classmethod
    def _combination(cls, transport: str, info: ValidationInfo) -> str:
        chosen = info.data.get("format")
        if chosen is not None and transport not in (ways := _models_of(chosen)):
            raise names.unfit(f"{chosen} does not come over {transport}", f"choose one of: {', '.join(ways)}")
        return transport


def _known(value: Any) -> Any:
    if not isinstance(value, AnySource):
        _Chosen.model_validate(value)
    return value


def _tag(value: Any) -> str:
    kind = type(value) if isinstance(value, AnySource) else _models_of(value["format"])[value["transport"]]
    return f"({kind.__name__})"


Source = Annotated[
    Annotated[CesInCapture, Tag("(CesInCapture)")]
    | Annotated[CesInLines, Tag("(CesInLines)")]
    | Annotated[CesInTopics, Tag("(CesInTopics)")]
    | Annotated[ChangeTablesInFolder, Tag("(ChangeTablesInFolder)")]
    | Annotated[ChangeTablesInDatabase, Tag("(ChangeTablesInDatabase)")]
    | Annotated[MessagesInCapture, Tag("(MessagesInCapture)")]
    | Annotated[MessagesInLines, Tag("(MessagesInLines)")]
    | Annotated[MessagesInTopics, Tag("(MessagesInTopics)")]
    | Annotated[RegisteredInCapture, Tag("(RegisteredInCapture)")]
    | Annotated[RegisteredInLines, Tag("(RegisteredInLines)")]
    | Annotated[RegisteredInTopics, Tag("(RegisteredInTopics)")],
    Discriminator(_tag),
    BeforeValidator(_known),
]
"""The source of the changes."""


_REGISTERED = "(registered)"


def _chosen_by(source: type[AnySource]) -> tuple[str, str]:
    format_, transport = (get_args(source.model_fields[name].annotation) for name in ("format", "transport"))
    return format_[0] if format_ else _REGISTERED, transport[0]


def _models_of(format_: str) -> Mapping[str, type[AnySource]]:
    known = format_ if format_ in get_args(FormatName) else _REGISTERED
    return {transport: source for (name, transport), source in SOURCES.items() if name == known}


SOURCES: Mapping[tuple[str, str], type[AnySource]] = {
    _chosen_by(get_args(member)[0]): get_args(member)[0] for member in get_args(get_args(Source)[0])
}
"""The class of settings by format and transport."""


def check_complete_position(source: AnySource) -> None:
    """Refuse a source without a complete position (the position below which no older change can arrive).

    The setting `consistency: transaction` publishes a transaction only when no older change can arrive (C-34, C-88,
    K-80, T-80).
    """
    key = "set `consistency: key`: every row is exact, and late changes repair it"
    if isinstance(source, ChangeTablesInFolder):
        raise names.unfit("a file with older changes of a table may still come: there is no complete position", key)
    if isinstance(source, ChangeTablesInDatabase):
        if source.partitions is None:
            what = "without closed partitions a lower change_seq may be committed after a higher one was read"
            next_step = "switch Change Data Partitioning on, and name its control table in `partitions`"
            raise names.unfit(what, f"{next_step}; or {key}")
        return
    if not isinstance(source, ChangeEvents | Messages):
        raise names.unfit("this format has no complete position", key)
    if isinstance(source, ChangeEvents) and source.partition_key_scheme == "none":
        what = "changes spread round robin over partitions have no complete position"
        next_step = (
            "at the source choose a @partition_key_scheme other than None, and name it in `partition_key_scheme`"
        )
        raise names.unfit(what, f"{next_step}; or {key}")
    if isinstance(source, InLines) and source.layout == "bare":
        what = "bare lines do not show the partition that a message came from"
        raise names.unfit(what, f"use the layout wrapped; or {key}")
    if isinstance(source, ChangeEvents) and not source.ordered_partitions:
        what = f"with partitions by {source.partition_key_scheme} their number must be known"
        raise names.unfit(what, "name those that carry changes: `partition_count: 4`")


def keeps_tables(source: AnySource, connection: str) -> bool:
    """Whether *connection* names the database in which the Qlik task keeps both tables and change tables (T-30)."""
    return isinstance(source, ChangeTablesInDatabase) and source.connection == connection


def refuse_unstreamed(source: AnySource, columns: Iterable[tuple[str, str | None]], where: str) -> None:
    """Refuse to load columns that change events never contain.

    The first change of a row would set these columns to NULL. *columns* pairs each column's name with its SQL type, or
    with None if the type is unknown. The error names *where*, such as a table. Raises ``COLUMN_NOT_STREAMED`` if the
    source is change event streaming and one of the types is left out.
    """
    found = [f"{name!r} ({sql_type})" for name, sql_type in columns if sql_type and not is_streamed(sql_type)]
    if found and isinstance(source, ChangeEvents):
        raise TerminalError(
            "COLUMN_NOT_STREAMED",
            f"change event streaming leaves out columns of these types, so that loaded values would become NULL with "
            f"the first change of their row: {', '.join(found[:5])}",
            where=where,
            next_step="list `columns` without them in the mirror file",
        )
