"""The part of a mirror file about its source: format, transport, and the choices that each of them leaves open.

Each check belongs to one field and may look at the fields before it, so that one mistake does not hide another. Rule
ids name the choice that a format leaves open.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    Field,
    StrictBool,
    StringConstraints,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from open_mirroring.config import names
from open_mirroring.config.section import ConnectionName, Positive, Section

COMBINATIONS: Mapping[str, tuple[str, ...]] = {
    "sqlserver-ces": ("capture", "files", "kafka"),
    "qlik-change-table": ("files", "jdbc"),
    "qlik-message": ("files", "kafka"),
    "debezium-json": ("files",),
}
"""Which transport can carry which format."""
HEADER_PREFIX, TABLE_SUFFIX, OVERLAP_MINUTES = "header__", "__ct", 10
GAP_TIMEOUT_MINUTES, MAX_MESSAGES_PER_RUN, SEQUENCE_DIGITS = 60, 10_000_000, 35
"""What holds where the mirror file does not choose. No other module says it again."""
_PATH_TRANSPORTS = ("capture", "files")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CES, _CHANGE_TABLE, _MESSAGE = "sqlserver-ces", "qlik-change-table", "qlik-message"
_BELONGS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "layout": (tuple(name for name in COMBINATIONS if name != _CHANGE_TABLE), ("files",)),
    "topics": ((_CES, _MESSAGE), ("kafka",)),
    "max_messages_per_run": ((_CES, _MESSAGE), ("kafka",)),
    "database": ((_CES,), ("capture", "files", "kafka")),
    "gap_timeout_minutes": ((_CES,), ("capture",)),
    "partition_key_scheme": ((_CES,), ("capture", "files", "kafka")),
    "partition_count": ((_CES,), ("capture", "files", "kafka")),
    "binary": ((_CES, _MESSAGE), ("capture", "files", "kafka")),
    "load": ((_CHANGE_TABLE, _MESSAGE), ("files", "kafka", "jdbc")),
    "mask_order": ((_CHANGE_TABLE, _MESSAGE), ("files", "kafka", "jdbc")),
    "sequence_digits": ((_MESSAGE,), ("files", "kafka")),
    "schema_registry": ((_MESSAGE,), ("files", "kafka")),
    "header_prefix": ((_CHANGE_TABLE,), ("files", "jdbc")),
    "table_suffix": ((_CHANGE_TABLE,), ("files", "jdbc")),
    "sparse_updates": ((_CHANGE_TABLE,), ("files", "jdbc")),
    "before_images": ((_CHANGE_TABLE,), ("files", "jdbc")),
    "unframed_avro": ((_MESSAGE,), ("files", "kafka")),
    "partitions": ((_CHANGE_TABLE,), ("jdbc",)),
    "overlap_minutes": ((_CHANGE_TABLE,), ("jdbc",)),
}
"""To which formats and transports a setting belongs; elsewhere it would be ignored in silence, so it is refused."""


def _setting(default: Any, description: str) -> Any:
    """A setting of some formats and transports; its default is no choice, so it is not refused for the others."""
    return Field(default=default, validate_default=False, description=description)


def _topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or name in (".", ".."):
        way_out = "use letters, digits, dots, underscores and hyphens; patterns are not taken"
        raise names.refusal("VALUE_INVALID", f"{name!r} is no name of a topic", way_out)
    return name


class Source(Section):
    """Where the changes come from."""

    format: Literal["sqlserver-ces", "qlik-change-table", "qlik-message", "debezium-json"] = Field(
        description="Format of the changes: SQL Server change event streaming, Qlik change tables, or Qlik (Talend) "
        "Kafka messages; debezium-json (events of Debezium's SQL Server connector) is an example, not promised."
    )
    transport: Literal["capture", "files", "kafka", "jdbc"] = Field(
        description="How they arrive. sqlserver-ces: capture (Avro files of Event Hubs Capture), files (JSON lines) or "
        "kafka (also the Kafka endpoint of Event Hubs). qlik-change-table: files (data files with .dfm) or jdbc. "
        "qlik-message: kafka or files (JSON lines). debezium-json: files (JSON lines)."
    )
    path: str = Field(
        default="",
        description="Folder or file with the changes; needed for capture and files. A local path, or an address in "
        "object storage: abfss://…, az://… or s3://….",
    )
    layout: Literal["wrapped", "bare"] = _setting(
        "wrapped",
        "For JSON lines: wrapped (each line holds topic, partition, offset and the value) or "
        "bare (each line is one message).",
    )
    connection: ConnectionName | None = Field(
        default=None, description="Name of the connection; needed for kafka, jdbc and a path in object storage."
    )
    topics: tuple[Annotated[str, AfterValidator(_topic)], ...] | None = Field(
        default=None, min_length=1, description="For kafka: the topics to read, by their full names."
    )
    max_messages_per_run: Positive = _setting(
        MAX_MESSAGES_PER_RUN,
        "For kafka: about so many messages are read by one run, so that a long backlog becomes many "
        "batches. Default: 10 million.",
    )
    database: str | None = Field(
        default=None,
        min_length=1,
        description="For sqlserver-ces: read only events of this database and ignore others (C-12). Default: all.",
    )
    gap_timeout_minutes: Positive = _setting(
        GAP_TIMEOUT_MINUTES,
        "For capture: minutes for which files behind a hole in the numbers of their partition wait for the "
        "missing ones; then the mirror stops (C-93).",
    )
    partition_key_scheme: Literal["none", "stream-group", "table", "column"] = _setting(
        "none",
        "For sqlserver-ces: the @partition_key_scheme of the stream group (C-87). Only with one that keeps "
        "order inside partitions the stream has a complete position (C-88). Default: none, that is round robin.",
    )
    partition_count: Positive | None = Field(
        default=None,
        description="For sqlserver-ces: number of partitions that carry changes of the stream group; a transaction is "
        "whole once all of them have shown a later one (C-34). Default: 1 with the scheme stream-group.",
    )
    binary: Literal["hex", "base64"] = _setting(
        "hex",
        "For sqlserver-ces, and qlik-message in JSON: how binary values are spelled (C-84, K-35). "
        "Default: hex, with or without 0x.",
    )
    load: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,39}$")] = _setting(
        "1",
        "For Qlik: name of the task's full load to which the changes belong. Give a new one after a "
        "reload, for positions of two loads cannot be compared (G-01).",
    )
    mask_order: Literal["auto", "msb_text", "le_bytes"] = _setting(
        "auto",
        "For Qlik: how change masks are read (T-24). msb_text: hexadecimal text, one number, most "
        "significant digit first; le_bytes: bytes, the first for columns 1 to 8; auto (the default): by their form.",
    )
    sequence_digits: Positive = _setting(
        SEQUENCE_DIGITS,
        "For qlik-message: number of digits of `changeSequence`, should the source not write 35 (T-10).",
    )
    schema_registry: ConnectionName | None = Field(
        default=None,
        description="For qlik-message: name of the connection to the schema registry, for Avro messages that carry "
        "only a schema's number (K-04).",
    )
    unframed_avro: StrictBool = _setting(
        False,
        "For qlik-message: whether bytes in no known form are bare Avro records, read by the one known "
        "schema of their table that fits; the table is known by `topic` or by the message's key (K-60). "
        "Default: false.",
    )
    header_prefix: Annotated[str, StringConstraints(max_length=60)] = _setting(
        HEADER_PREFIX,
        "For change tables: what the names of header columns begin with (T-02); an empty text where the "
        "task writes them without a prefix.",
    )
    table_suffix: Annotated[str, StringConstraints(min_length=1, max_length=60)] = _setting(
        TABLE_SUFFIX, "For change tables: what their names end with (T-01)."
    )
    sparse_updates: StrictBool = _setting(
        False,
        "For change tables: whether NULL in an update may stand for a column that did not change (T-32). "
        "Default: false.",
    )
    before_images: StrictBool | None = Field(
        default=None,
        description="For change tables: whether every update has its before image as a row of its own (T-19). Unset: "
        "judged from the rows that come together.",
    )
    partitions: Annotated[str, AfterValidator(names.check_source_name)] | None = Field(
        default=None,
        description="For change tables over jdbc, where Change Data Partitioning is on: schema and name of the control "
        "table that lists closed partitions, such as control.attrep_cdc_partitions (T-34).",
    )
    overlap_minutes: Positive = _setting(
        OVERLAP_MINUTES,
        "For change tables over jdbc without partitions: how far back each run reads again, for rows that "
        "were committed late (T-18).",
    )
    fragment_timeout_hours: Positive = Field(
        default=24,
        description="Hours after which messages that wait for others (pieces of a split event, a before image, the "
        "description of a structure) are dead letters, and after which a data file of change tables without its "
        "metadata file stops its table.",
    )

    @property
    def ordered_partitions(self) -> int:
        """The partitions that have to show a later commit before a transaction is whole; 0 where nothing can tell."""
        if self.partition_key_scheme == "none" or self.layout == "bare":
            return 0
        return self.partition_count or (1 if self.partition_key_scheme == "stream-group" else 0)

    def is_kept_by_task(self, connection: str) -> bool:
        """Whether tables of a database are those that the Qlik task keeps beside its change tables there (T-30)."""
        return self.format == _CHANGE_TABLE and self.connection == connection

    @property
    def place(self) -> str:
        """Where the changes are, for people: a path, or topics or a database behind the name of a connection."""
        topics = f"{', '.join(self.topics)} of " if self.topics else ""
        return self.path or f"{topics}connection {self.connection}"

    @field_validator("transport")
    @classmethod
    def _combination(cls, transport: str, info: ValidationInfo) -> str:
        chosen = info.data.get("format")
        if chosen is not None and transport not in COMBINATIONS[chosen]:
            way_out = f"choose one of: {', '.join(COMBINATIONS[chosen])}"
            raise names.refusal("COMBINATION_INVALID", f"{chosen} does not come over {transport}", way_out)
        return transport

    @field_validator("path")
    @classmethod
    def _path(cls, path: str, info: ValidationInfo) -> str:
        # `transport` is absent here when it was refused; then the mistake is reported already.
        transport = info.data.get("transport")
        if path and transport is not None and transport not in _PATH_TRANSPORTS:
            raise names.refusal("COMBINATION_INVALID", f"the transport {transport} has no path", "leave `path` out")
        return names.check_place(path) if path or transport in _PATH_TRANSPORTS else path

    @field_validator("connection")
    @classmethod
    def _connection(cls, connection: str | None, info: ValidationInfo) -> str | None:
        transport = info.data.get("transport")
        if transport in _PATH_TRANSPORTS:
            return names.check_connection_of(info.data.get("path", ""), connection)
        if connection is None and transport is not None and transport not in _PATH_TRANSPORTS:
            way_out = "name it, and set the connection in the environment as AIRFLOW_CONN_<NAME>"
            raise names.refusal("SETTING_MISSING", f"the transport {transport} needs a connection", way_out)
        return connection

    @field_validator(*_BELONGS, mode="wrap")
    @classmethod
    def _belongs(cls, value: Any, check: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        chosen, transport, name = info.data.get("format"), info.data.get("transport"), info.field_name or ""
        if value is None:
            if name == "topics" and transport == "kafka":
                raise names.refusal(
                    "SETTING_MISSING", "the transport kafka needs topics", "list them: `topics: [name]`"
                )
            return cls.model_fields[name].default
        found = check(value)
        formats, transports = _BELONGS[name]
        if chosen is not None and transport is not None:
            if chosen not in formats:
                raise names.refusal("COMBINATION_INVALID", f"{chosen} has no {name}", f"leave `{name}` out")
            if transport not in transports:
                what = f"the transport {transport} has no {name}"
                raise names.refusal("COMBINATION_INVALID", what, f"leave `{name}` out")
        return found


def check_complete_position(source: Source) -> None:
    """Refuse a source that never tells that nothing older can come (C-34, C-88).

    Raises:
        PydanticCustomError: ``COMBINATION_INVALID`` or ``SETTING_MISSING``, with the setting that would help.
    """
    key = "set `consistency: key`: every row is exact, and late changes repair it"
    if source.format == _MESSAGE:
        what = "messages of Qlik tell no end of a transaction that could be waited for (K-26): no complete position"
        raise names.refusal("COMBINATION_INVALID", what, key)
    if source.format == _CHANGE_TABLE:
        what = "a complete position of change tables is not built yet"
        raise names.refusal("NOT_YET_SUPPORTED", what, key)
    if source.format != _CES:
        raise names.refusal("COMBINATION_INVALID", f"{source.format} has no complete position", key)
    if source.partition_key_scheme == "none":
        what = "changes spread round robin over partitions have no complete position (C-88)"
        way_out = "at the source choose a @partition_key_scheme other than None, and name it in `partition_key_scheme`"
        raise names.refusal("COMBINATION_INVALID", what, f"{way_out}; or {key}")
    if source.layout == "bare":
        what = "bare lines do not tell the partition that a message came from"
        raise names.refusal("COMBINATION_INVALID", what, f"use the layout wrapped; or {key}")
    if not source.ordered_partitions:
        what = f"with partitions by {source.partition_key_scheme} their number must be known (C-34)"
        raise names.refusal("SETTING_MISSING", what, "name those that carry changes: `partition_count: 4`")
