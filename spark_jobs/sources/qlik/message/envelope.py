"""Determines the kind of a Qlik message (K-01 to K-06), and the table that its key or its remains name (K-60, K-63).

The first bytes decide the kind: a brace begins JSON, ``atMSG`` an Avro envelope, a zero byte the header of a schema
registry, ``Obj`` an Avro container. Public source: Qlik Help, *Message key*; Confluent, *Wire format*.
"""

from __future__ import annotations

import io
import json
import re
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro
import msgspec

from spark_jobs.sources.contract.avro_codecs import UNREADABLE
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.contract.json_numbers import JsonNumber, no_number
from spark_jobs.sources.qlik.message.avro import ENVELOPE, read_container, read_datum, read_metadata

MAGIC = "atMSG"
_CONTAINER, _REGISTRY = b"Obj\x01", b"\x00"
_BLANKS = b" \t\r\n"
_HEAD = 4096
_JSON_ID = re.compile(rb'"messageSchemaId"\s*:\s*"([0-9A-Za-z_.-]{1,64})"')
_AVRO_ID = re.compile(rb"atMSG\x04DT\x00\x02\x40([0-9A-Za-z]{32})")
_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_$#-]{0,60}\.[A-Za-z_][A-Za-z0-9_$#-]{0,60}")
_AVRO_SPACE = "com.attunity.queue.msg."


class Metadata(NamedTuple):
    """A metadata message, with all of its members unchanged."""

    record: Any


class JsonData(NamedTuple):
    """A data message in JSON: its members, and the id of its structure; None if the message has no id."""

    schema_id: str | None
    record: dict[str, Any]


class AvroData(NamedTuple):
    """A data message in Avro, not decoded yet: the id of its writer schema, or the writer schema itself, or neither."""

    schema_id: str | None
    schema: str | None
    datum: bytes


def registry_id(number: int) -> str:
    """The id of a schema in a schema registry, spelled so that it can never equal a ``schemaId`` of Qlik (K-10)."""
    return f"registry:{number}"


def registry_number(identity: str) -> int | None:
    """The number in the schema registry for which a fragment waits; None if it waits for something else.

    *identity* is the fragment's ``fragment_of``.
    """
    name, _, number = identity.rpartition(":")
    return int(number) if name.endswith(":schema:registry") and number.isdigit() else None


def read_message(body: bytes, *, unframed_avro: bool = False) -> Metadata | JsonData | AvroData:
    """The kind and content of a message. Raises a Refusal if the bytes are no Qlik message.

    With *unframed_avro*, bytes in no known form are an Avro record without header.
    """
    if body.startswith(b"{"):
        return _of_json(_json(body))
    if body.startswith(MAGIC.encode()):
        return _of_envelope(read_datum(body, ENVELOPE, "message envelope"))
    if body.startswith(_REGISTRY) and not unframed_avro:
        if len(body) < 6:
            raise Refusal("MESSAGE_INVALID", f"a schema registry's frame of {len(body)} bytes holds no record")
        return AvroData(registry_id(int.from_bytes(body[1:5], "big")), None, body[5:])
    if body.startswith(_CONTAINER):
        schema, datum = read_container(body)
        if datum.startswith(MAGIC.encode()):
            return _of_envelope(read_datum(datum, ENVELOPE, "message envelope"))
        return AvroData(None, schema, datum)
    if not body.strip(_BLANKS):
        raise Refusal("BODY_MISSING", "the message is empty")
    if unframed_avro:
        return AvroData(None, None, body)
    if body[0] in _BLANKS or body[:1] in b'["-0123456789tfn':
        return _of_json(_json(body))
    raise Refusal("MESSAGE_INVALID", f"neither JSON nor Avro: the message begins with {shown(body[:8])}")


def _of_json(whole: dict[str, Any]) -> Metadata | JsonData:
    if "magic" not in whole and "message" not in whole:
        is_data = "headers" in whole and ("data" in whole or "beforeData" in whole)
        return Metadata(whole) if "tableStructure" in whole and not is_data else JsonData(None, whole)
    if whole.get("magic") != MAGIC:
        raise Refusal("MESSAGE_INVALID", f"magic is {shown(whole.get('magic'))}, not {MAGIC!r}")
    kind, message = _kind(whole.get("type")), whole.get("message")
    if isinstance(message, str) and not isinstance(message, JsonNumber):
        message = _json(message.encode("utf-8", "surrogatepass"))
    if not isinstance(message, dict):
        raise Refusal("MESSAGE_INVALID", f"message is no object but {shown(message)}")
    if kind == "MD":
        return Metadata(message)
    schema_id = whole.get("messageSchemaId")
    if schema_id is not None and (type(schema_id) is not str or not schema_id.isascii()):
        raise Refusal("MESSAGE_INVALID", f"messageSchemaId is {shown(schema_id)}")
    return JsonData(schema_id or None, message)


def _of_envelope(envelope: dict[str, Any]) -> Metadata | AvroData:
    kind = _kind(envelope["type"])
    if kind == "DT":
        return AvroData(envelope["messageSchemaId"] or None, envelope["messageSchema"] or None, envelope["message"])
    if not envelope["messageSchema"]:
        raise Refusal("METADATA_MISSING", "a metadata message in Avro without its messageSchema")
    return Metadata(read_metadata(envelope["message"], envelope["messageSchema"]))


def _kind(kind: object) -> str:
    if kind not in ("MD", "DT"):
        raise Refusal("MESSAGE_INVALID", f"type is {shown(kind)}, not 'MD' or 'DT'")
    return str(kind)


def _json(body: bytes) -> dict[str, Any]:
    try:
        try:
            whole = _decode(body)
        except msgspec.DecodeError:  # also half a surrogate pair, which must not hide the message's table
            whole = json.loads(body, parse_float=JsonNumber, parse_constant=no_number)
    except (ValueError, RecursionError) as error:
        raise Refusal("MESSAGE_INVALID", str(error)) from error
    if not isinstance(whole, dict):
        raise Refusal("MESSAGE_INVALID", f"the message is no JSON object but {shown(whole)}")
    return whole


_decode = msgspec.json.Decoder(float_hook=JsonNumber).decode


@lru_cache(maxsize=4096)
def table_of_key(key: bytes) -> str | None:
    """The table, ``schema.table``, that a message's key names; None if the key names no table."""
    if key.startswith(b"Obj\x01"):
        return _table_of_container(key)
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    if text[:1] in ("{", '"'):
        try:
            said = msgspec.json.decode(text)
        except (msgspec.DecodeError, RecursionError):
            return None
        if isinstance(said, dict):
            schema, table = said.get("schema"), said.get("table")
            return f"{schema}.{table}" if isinstance(schema, str) and isinstance(table, str) and table else None
        text = said if isinstance(said, str) else ""
    schema, plus, table = text.partition("+")
    return f"{schema}.{table}" if plus and schema and table and "+" not in table else None


def named_by_key(key: bytes) -> str | None:
    """The table that a message's key may name, whether or not the table is known.

    None if the key does not have the form of a table's name.
    """
    named = table_of_key(key)
    return named if named is not None and _NAMES.fullmatch(named) else None


def key_that_decides(name: str) -> bytes:
    """A message key that names the table *name*, for a message whose own key was not stored."""
    schema, _, table = name.partition(".")
    return msgspec.json.encode({"schema": schema, "table": table})


def table_of_avro_schema(schema: Any) -> str | None:
    """The table, ``schema.table``, in the name of an Avro record; None for a record that no Qlik task named."""
    name = str(schema["name"])
    full = name if "." in name else f"{schema.get('namespace', '')}.{name}"
    parts = full.split(".")
    return ".".join(parts[-3:-1]) if full.startswith(_AVRO_SPACE) and len(parts) >= 7 else None


def schema_id_in(body: bytes) -> str | None:
    """The id of the structure in an unreadable message; None if the id is unreadable, too."""
    if body.startswith(b"\x00") and len(body) >= 5:
        return registry_id(int.from_bytes(body[1:5], "big"))
    found = _AVRO_ID.match(body) or (_JSON_ID.search(body, 0, _HEAD) if b"{" in body[:16] else None)
    return None if found is None else found[1].decode()


def _table_of_container(key: bytes) -> str | None:
    try:
        return table_of_avro_schema(fastavro.reader(io.BytesIO(key)).writer_schema)
    except (*UNREADABLE, AttributeError):
        return None
