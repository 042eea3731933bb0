"""Reads Avro data messages by their writer schema, and converts values to strings as the change log stores them.

This module applies logical types itself, because a library may silently round a decimal (K-03, K-04, K-35). Public
source: Apache Avro 1.11 specification, *Logical Types*; Qlik Help, *Kafka data types*.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import lru_cache, partial
from typing import Any, NamedTuple

import fastavro
from fastavro.schema import SchemaParseException, UnknownType

from spark_jobs.sources.contract.avro_codecs import UNREADABLE, only_record, refuse_missing_codec
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.qlik.message.headers import refuse_other_sections

ENVELOPE = fastavro.parse_schema(
    {
        "type": "record",
        "name": "MessageEnvelope",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 5}},
            {"name": "type", "type": "string"},
            {"name": "headers", "type": ["null", {"type": "map", "values": "string"}]},
            {"name": "messageSchemaId", "type": ["null", "string"]},
            {"name": "messageSchema", "type": ["null", "string"]},
            {"name": "message", "type": "bytes"},
        ],
    }
)
"""The envelope (K-01; public source: Qlik Help, *The Replicate envelope*)."""

_NO_SCHEMA = (*UNREADABLE, SchemaParseException, UnknownType, AttributeError)

_DAY = date(1970, 1, 1).toordinal()
_EPOCH = datetime(1970, 1, 1)


class Field(NamedTuple):
    """A column of the Avro schema: its type in the change log, how values become strings, logical type and scale."""

    name: str
    log_type: str
    text: Callable[[Any], str]
    logical: str = ""
    scale: int = 0


class DataSchema:
    """The writer schema of data messages: a record with ``data``, ``beforeData`` and ``headers``."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            schema = json.loads(text)
            if "changeSequence" in text:
                refuse_other_sections([field["name"] for field in schema["fields"]])
            self.parsed: Any = fastavro.parse_schema(_without_logical_types(schema))
            named: dict[str, Any] = {}
            whole: Any = fastavro.parse_schema(schema, named)
            parts = {field["name"]: _single(field["type"], named) for field in whole["fields"]}
            if not parts.keys() >= {"data", "headers"}:
                raise ValueError("its record has not data and headers")
            data, headers = parts["data"], parts["headers"]
            self.fields = tuple(_field(field, named) for field in data["fields"])
            self._texts = [(field.name, field.text) for field in self.fields if field.text is not _itself]
            # The namespace ends with the table: com.attunity.queue.msg.<task>.<schema>.<table> (K-04).
            full = f"{schema.get('namespace', '')}.{schema['name']}".split(".")
        except _NO_SCHEMA as error:
            reason = f"no Avro schema of data messages: {type(error).__name__}: {error}"
            raise Refusal("METADATA_MISSING", reason[:300]) from error
        of_headers = {field["name"] for field in headers.get("fields", ())} if isinstance(headers, dict) else set()
        names_table = not {"schema", "table"}.isdisjoint(parts.keys() | of_headers)
        self.is_plain = parts.get("beforeData", data) == data and bool(of_headers) and not names_table
        """Whether ``data`` and ``beforeData`` have the same type, and no member names the table (K-15)."""
        self.task, self.table = (full[-4], ".".join(full[-3:-1])) if len(full) >= 5 else ("", "")

    def read(self, datum: bytes) -> dict[str, Any]:
        """Reads one record; logical types are not applied, so a decimal is still bytes."""
        return read_datum(datum, self.parsed, "data message")

    def image(self, values: Mapping[str, Any]) -> dict[str, str | None]:
        """The values of ``data`` or ``beforeData`` as the change log's strings; ValueError for an invalid value."""
        image: dict[str, str | None] = {**values}
        name = ""
        try:
            for name, text in self._texts:
                value = values.get(name)
                if value is not None:
                    image[name] = text(value)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"the value of {shown(name)}, {shown(values[name])}: {error}") from error
        return image


data_schema = lru_cache(maxsize=512)(DataSchema)
""":class:`DataSchema` of a text, cached."""


def read_datum(datum: bytes, schema: Any, what: str) -> dict[str, Any]:
    """Reads the record in *datum*. Raises a Refusal if *datum* is not exactly one record.

    *what* is the name of the record in the Refusal.
    """
    try:
        return only_record(datum, schema)
    except UNREADABLE as error:
        # The library's text for a truncated record contains the address of its stream.
        said = "the bytes end too early" if isinstance(error, EOFError) else f"{type(error).__name__}: {error}"
        reason = f"no Avro record of a {what}: {said}"
        raise Refusal("MESSAGE_INVALID", reason[:300]) from error


def read_metadata(datum: bytes, schema_text: str) -> Any:
    """The content of a metadata message in Avro, read by the schema in the message."""
    try:
        schema = fastavro.parse_schema(json.loads(schema_text))
    except _NO_SCHEMA as error:
        reason = f"messageSchema is no Avro schema: {type(error).__name__}: {error}"
        raise Refusal("METADATA_MISSING", reason[:300]) from error
    return read_datum(datum, schema, "metadata message")


def read_container(body: bytes) -> tuple[str, bytes]:
    """The writer schema and the only record of a message that is an Avro container file."""
    try:
        reader = fastavro.block_reader(io.BytesIO(body))
        blocks = [(block.num_records, block.bytes_.getvalue()) for block in reader]  # type: ignore[attr-defined]
        schema = reader.metadata["avro.schema"]
        if [records for records, _ in blocks if records] != [1]:
            raise ValueError(f"{sum(records for records, _ in blocks)} records instead of one")
    except _NO_SCHEMA as error:
        refuse_missing_codec(error)
        reason = f"no Avro container of one message: {type(error).__name__}: {error}"
        raise Refusal("MESSAGE_INVALID", reason[:300]) from error
    return schema, next(datum for records, datum in blocks if records)


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical_types(part) for name, part in schema.items() if name != "logicalType"}
    return [_without_logical_types(part) for part in schema] if isinstance(schema, list) else schema


def _single(kind: Any, named: Mapping[str, Any]) -> Any:
    """The only type besides null; *named* are the records and other types that have a name."""
    if isinstance(kind, list):
        others = [branch for branch in kind if branch != "null"]
        if len(others) != 1:
            raise ValueError(f"a union of {len(others)} types has no column type")
        kind = others[0]
    return named.get(kind, kind) if isinstance(kind, str) else kind


def _field(field: Any, named: Mapping[str, Any]) -> Field:
    kind = _single(field["type"], named)
    plain = kind if isinstance(kind, str) else kind["type"]
    logical = "" if isinstance(kind, str) else str(kind.get("logicalType", ""))
    if logical == "decimal" and plain in ("bytes", "fixed"):
        precision, scale = int(kind["precision"]), int(kind.get("scale", 0))
        text = partial(decimal_text, scale=scale)
        return Field(field["name"], f"decimal({precision},{scale})", text, logical, scale)
    found = _LOGICAL.get((plain, logical)) or _PLAIN.get(plain)
    if found is None:
        raise ValueError(f"the column {shown(field['name'])} has the type {shown(plain)}")
    return Field(field["name"], *found, logical if (plain, logical) in _LOGICAL else "")


def decimal_text(raw: bytes, scale: int) -> str:
    """The decimal in big-endian two's-complement bytes, as a string with *scale* digits after the point."""
    unscaled = int.from_bytes(raw, "big", signed=True)
    digits = f"{abs(unscaled):0{scale + 1}d}"
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def _clock(per_second: int) -> Callable[[int], str]:
    digits = len(str(per_second)) - 1

    def text(value: int) -> str:
        if not 0 <= value < 86_400 * per_second:
            raise ValueError("no time of day")
        seconds, fraction = divmod(value, per_second)
        return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{fraction:0{digits}d}"

    return text


def _moment(per_second: int) -> Callable[[int], str]:
    digits = len(str(per_second)) - 1

    def text(value: int) -> str:
        seconds, fraction = divmod(value, per_second)
        return f"{(_EPOCH + timedelta(0, seconds)).isoformat(' ')}.{fraction:0{digits}d}"

    return text


def _itself(text: str) -> str:
    return text


_PLAIN: dict[Any, tuple[str, Callable[[Any], str]]] = {
    "string": ("varchar(max)", _itself),
    "enum": ("varchar(max)", _itself),
    "int": ("int", str),
    "long": ("bigint", str),
    "float": ("real", repr),
    "double": ("float", repr),
    "boolean": ("bit", lambda value: "true" if value else "false"),
    "bytes": ("varbinary(max)", lambda raw: "0x" + raw.hex().upper()),
    "fixed": ("varbinary(max)", lambda raw: "0x" + raw.hex().upper()),
}
_LOGICAL: dict[tuple[Any, str], tuple[str, Callable[[Any], str]]] = {
    ("int", "date"): ("date", lambda days: date.fromordinal(_DAY + days).isoformat()),
    ("int", "time-millis"): ("time(3)", _clock(10**3)),
    ("long", "time-micros"): ("time(6)", _clock(10**6)),
    ("long", "timestamp-millis"): ("datetime2(3)", _moment(10**3)),
    ("long", "timestamp-micros"): ("datetime2(6)", _moment(10**6)),
    ("long", "timestamp-nanos"): ("datetime2(7)", _moment(10**9)),
    ("long", "local-timestamp-millis"): ("datetime2(3)", _moment(10**3)),
    ("long", "local-timestamp-micros"): ("datetime2(6)", _moment(10**6)),
    ("long", "local-timestamp-nanos"): ("datetime2(7)", _moment(10**9)),
}

PLAIN_TYPES = {name: text for name, (text, _) in _PLAIN.items()}
LOGICAL_TYPES = {name: text for name, (text, _) in _LOGICAL.items()}
"""The log's type of each Avro type, and of each Avro type with a logical type."""
