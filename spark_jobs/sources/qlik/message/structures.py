"""Reads the structure of a table from a metadata message or from an Avro schema alone (K-10 to K-14).

Public source: Qlik Help, *Metadata and data messages*.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import msgspec

from open_mirroring.errors import TerminalError
from spark_jobs.sources.contract.decoded import SERVER_UNKNOWN, USED, Refusal, SourceSchema, shown
from spark_jobs.sources.contract.json_numbers import JsonNumber
from spark_jobs.sources.qlik.message.avro import DataSchema, Field, data_schema
from spark_jobs.sources.qlik.message.envelope import registry_id, table_of_avro_schema
from spark_jobs.sources.qlik.types import (
    LARGE_OBJECTS,
    is_longer_than_a_double,
    is_longer_than_a_float,
    log_type,
)

MAX_COLUMNS = 4096
"""More than any source has in a table."""
MAX_ID, MAX_NAME = 200, 300
"""The ledger's limits."""
_WHOLE_AND_CUT = {"float": ("INT8",), "real": ("INT4", "INT8", "UINT4")}
"""Integers that a float of the writer schema cannot all represent."""
_REGISTERED, _TYPE = "registeredSchema", "schemaType"
_MEMBERS = ("ordinal", "type", "length", "precision", "scale", "primaryKeyPosition")
"""What a metadata message contains about a column, in the order of :class:`Column`."""


class Unfit(NamedTuple):
    """A schema in a schema registry by which no change messages were written (K-62).

    *table* is the schema's table if a Qlik task named the table, else None.
    """

    reason: str
    table: str | None
    code: str = "METADATA_MISSING"


class Column(NamedTuple):
    """One column of a structure.

    *ordinal* counts from 1, *type* is Qlik's type, *key_position* is the place in the key or 0 (K-12). *known_type* is
    the change log's type if the writer schema or the mirror file gives it; None if it follows from Qlik's type.
    """

    name: str
    ordinal: int
    type: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    key_position: int = 0
    known_type: str | None = None

    @property
    def is_large(self) -> bool:
        """Whether the column is a large object, which masks do not show (K-22)."""
        return self.type.upper() in LARGE_OBJECTS

    @property
    def bit(self) -> int:
        """The mask that names only this column (K-20)."""
        return 1 << (self.ordinal - 1)

    def log_type(self) -> str:
        """The column's type as the change log names it."""
        return self.known_type or log_type(self.type, self.length, self.precision, self.scale)


class Structure:
    """One announced version of a table's structure; the larger *version* is newer (K-11).

    *topic* and *schema_id* are empty if the structure has none. *avro* is the writer schema of the table's data
    messages.
    """

    def __init__(
        self,
        topic: str,
        schema_id: str,
        table: str,
        version: int,
        columns: Sequence[Column],
        avro: str | None,
        timestamp: str = "",
    ) -> None:
        self.topic, self.schema_id, self.table, self.version = topic, schema_id, table, version
        self.columns, self._avro, self._timestamp = tuple(columns), avro, timestamp
        self.by_name = {column.name: column for column in self.columns}
        self.bits = max(column.ordinal for column in self.columns)
        self.key_names = frozenset(column.name for column in self.columns if column.key_position)

    @cached_property
    def avro(self) -> DataSchema:
        """The writer schema of the table's data messages.

        Raises a Refusal if the announcement has no such schema, or if the schema contradicts the announced columns.
        """
        if self._avro is None:
            raise Refusal("METADATA_MISSING", f"the metadata of {shown(self.table)} has no dataSchema")
        found = data_schema(self._avro)
        unknown = [field.name for field in found.fields if field.name not in self.by_name]
        if unknown:
            raise Refusal("METADATA_MISSING", f"dataSchema has {shown(unknown)}, which tableStructure has not")
        for field in found.fields:
            self._refuse_what_loses(field)
        return found

    def _refuse_what_loses(self, field: Field) -> None:
        """Refuse a type of the writer schema that cannot hold what the description of its column promises."""
        column, written = self.by_name[field.name], field.log_type.partition("(")[0]
        try:
            stated = column.log_type().partition("(")[0]
        except TerminalError as error:
            if written == "varbinary":
                raise Refusal("ROW_INVALID", error.what) from error
            stated = ""
        fits = {"varchar": ("varchar",), "varbinary": ("varbinary", "varchar")}.get(stated)
        is_cut = (written == "real" and is_longer_than_a_float(column.type, column.precision)) or (
            written == "float" and is_longer_than_a_double(column.type, column.precision)
        )
        is_cut |= column.type.upper() in _WHOLE_AND_CUT.get(written, ())
        if is_cut or (fits is not None and written not in fits) or (written == "varbinary" and stated != written):
            is_bytes = "bytes" if written == "varbinary" else field.log_type
            what = f"dataSchema has {is_bytes} for {shown(field.name)}, tableStructure {column.type or stated}"
            raise Refusal("METADATA_MISSING", f"{what}, of which that may have lost something")

    @property
    def is_described(self) -> bool:
        """Whether the structure comes from a metadata message, not from a writer schema alone (K-14)."""
        return any(column.known_type is None for column in self.columns)

    @property
    def sender(self) -> str:
        """The Qlik task in the namespace of the writer schema, for a structure without metadata message (K-82).

        Empty if the structure comes from a metadata message, or if the namespace does not name its table.
        """
        return "" if self.is_described or self.avro.table != self.table else SERVER_UNKNOWN + self.avro.task

    @property
    def age(self) -> tuple[int, str, str]:
        """A sort key, larger for a newer structure: by version, then by the time of the announcement."""
        return (self.version, self._timestamp, self._document)

    @property
    def announced(self) -> SourceSchema:
        """The structure as the ledger stores it."""
        return SourceSchema(self.topic, self.schema_id, self.table, self.version, self._document)

    def used_in(self, topic: str) -> list[SourceSchema]:
        """A ledger record: messages of *topic* use this structure, which another topic announced (K-85).

        Empty if *topic* itself announced the structure, or if the structure has an id of a schema registry.
        """
        if not topic or self.topic in ("", topic):
            return []
        return [SourceSchema(topic, self.schema_id, self.table, 0, USED)]

    @cached_property
    def _document(self) -> str:
        schema, _, table = self.table.partition(".")
        columns = {column.name: dict(zip(_MEMBERS, column[1:7], strict=True)) for column in self.columns}
        whole = {
            "schemaId": self.schema_id,
            "lineage": {
                "schema": schema,
                "table": table,
                "tableVersion": self.version,
                "timestamp": self._timestamp,
            },
            "tableStructure": {"tableColumns": columns},
            "dataSchema": self._avro,
        }
        return msgspec.json.encode(whole).decode()


def read_announcement(record: Any, topic: str) -> Structure:
    """The structure in the metadata message *record*. Raises a Refusal if it is not valid."""
    lineage, structure = _object(record, "lineage"), _object(record, "tableStructure")
    described = _object(structure, "tableColumns")
    if not 1 <= len(described) <= MAX_COLUMNS:
        raise Refusal("METADATA_MISSING", f"tableColumns has {len(described)} columns")
    columns = sorted((_column(name, described[name]) for name in described), key=lambda column: column.ordinal)
    ordinals = [column.ordinal for column in columns]
    if len(set(ordinals)) != len(ordinals) or not 1 <= ordinals[0] <= ordinals[-1] <= MAX_COLUMNS:
        raise Refusal("METADATA_MISSING", f"the ordinals of tableColumns are {shown(ordinals)}")
    schema, table = _text(lineage, "schema"), _text(lineage, "table")
    if not table:
        raise Refusal("METADATA_MISSING", "lineage names no table")
    avro = record.get("dataSchema")
    if isinstance(avro, dict):
        avro = json.dumps(avro)
    if avro is not None and (not isinstance(avro, str) or isinstance(avro, JsonNumber)):
        raise Refusal("METADATA_MISSING", f"dataSchema is {shown(avro)}")
    version, timestamp = _number(lineage, "tableVersion"), _text(lineage, "timestamp")
    if len(_text(record, "schemaId")) > MAX_ID or len(schema) + len(table) >= MAX_NAME:
        raise Refusal(
            "METADATA_MISSING", f"schemaId or the table's name is longer than {MAX_ID} or {MAX_NAME} characters"
        )
    found = Structure(topic, _text(record, "schemaId"), f"{schema}.{table}", version, columns, avro or None, timestamp)
    try:
        found.announced.document.encode()
    except UnicodeEncodeError as error:
        raise Refusal("METADATA_MISSING", f"a name is not text: {error.reason}") from error
    return found


def announced_table(record: Any) -> str | None:
    """The table that a metadata message names, even if the rest of the message is not valid.

    None if schema or table name contain a period, because nothing would separate the two.
    """
    lineage = record.get("lineage") if isinstance(record, Mapping) else None
    schema, table = (lineage.get(name) if isinstance(lineage, Mapping) else None for name in ("schema", "table"))
    if type(schema) is not str or type(table) is not str or not table or "." in schema + table:
        return None
    return f"{schema}.{table}"


def task_of(record: Any) -> str | None:
    """The Qlik server and task that a metadata message names; None unless the message names both."""
    lineage = record.get("lineage") if isinstance(record, Mapping) else None
    stated = [lineage.get(name) for name in ("server", "task")] if isinstance(lineage, Mapping) else []
    names = [name for name in stated if isinstance(name, str) and name]
    return "/".join(names) if len(names) == 2 else None


@lru_cache(maxsize=512)
def derived_structure(topic: str, schema_id: str, table: str, version: int, avro: str) -> Structure:
    """The structure in a writer schema alone: names, order and Avro types of the columns (K-14)."""
    fields = data_schema(avro).fields
    columns = [Column(field.name, place, "", known_type=field.log_type) for place, field in enumerate(fields, 1)]
    if not columns:
        raise Refusal("METADATA_MISSING", "the Avro schema has no columns")
    return Structure(topic, schema_id, table, version, columns, avro)


def unfit_schema(number: int, kind: str, text: str) -> SourceSchema:
    """A record for the ledger of a schema in a schema registry by which no change messages were written.

    The record is kept because a later version of the decoder may be able to read the schema.
    """
    return SourceSchema("", registry_id(number), "", number, json.dumps({_TYPE: kind, _REGISTERED: text}))


def _judged(schema: SourceSchema, kind: str, text: str) -> Structure | Unfit:
    number = f"the schema registry's {schema.schema_id}"
    if kind != "AVRO":
        return Unfit(f"{number} is a schema of the type {shown(kind)}, not Avro", None)
    try:
        found = data_schema(text)
        return derived_structure("", schema.schema_id, found.table, schema.version, text)
    except Refusal as refusal:
        table = None
        with suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            table = table_of_avro_schema(json.loads(text))
        return Unfit(f"{number}: {refusal.reason}", table, refusal.code)


def registry_schema(number: int, table: str, version: int, avro: str) -> SourceSchema:
    """A record for the ledger of a registry's schema, in the form that :class:`QlikMessageDecoder` reads."""
    return SourceSchema("", registry_id(number), table, version, avro)


def known_structure(schema: SourceSchema) -> Structure | Unfit:
    """Parses the structure of a table from *schema*, a record of the ledger or of the mirror file.

    A record of the ledger contains an announced structure or a schema of a schema registry. A record of the mirror file
    contains an Avro schema or a metadata message, from the setting `structures`. The result is Unfit if the schema of a
    registry describes no change messages.
    """
    try:
        record = json.loads(schema.document)
        if isinstance(record, dict) and _REGISTERED in record:
            return _judged(schema, str(record.get(_TYPE)), str(record[_REGISTERED]))
        if isinstance(record, dict) and "tableStructure" not in record:
            return derived_structure(schema.topic, schema.schema_id, schema.table, schema.version, schema.document)
        found = read_announcement(record, schema.topic)
    except (Refusal, ValueError, RecursionError) as error:
        said = error.reason if isinstance(error, Refusal) else str(error)
        raise TerminalError(
            "METADATA_MISSING",
            f"the schema {schema.schema_id!r} of {schema.table} cannot be read: {said}",
            where=f"topic {schema.topic or '(any)'}",
            next_step="give a metadata message, or an Avro schema with data, beforeData and headers, as JSON",
        ) from error
    return Structure(
        schema.topic, schema.schema_id, schema.table, schema.version, found.columns, found._avro, found._timestamp
    )


def _object(record: Any, name: str) -> Mapping[str, Any]:
    value = record.get(name) if isinstance(record, Mapping) else None
    if not isinstance(value, Mapping):
        raise Refusal("METADATA_MISSING", f"{name} is not an object but {shown(value)}")
    return value


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, JsonNumber):
        raise Refusal("METADATA_MISSING", f"{name} is not text but {shown(value)}")
    return value


def _number(record: Mapping[str, Any], name: str) -> int:
    value = record.get(name)
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63:
        return value
    raise Refusal("METADATA_MISSING", f"{name} is not a whole number but {shown(value)}")


def _column(name: str, described: Any) -> Column:
    if not name or not isinstance(described, Mapping):
        raise Refusal("METADATA_MISSING", f"the column {shown(name)} is {shown(described)}")
    members: list[Any] = [(_text if member == "type" else _number)(described, member) for member in _MEMBERS]
    return Column(name, *members)
