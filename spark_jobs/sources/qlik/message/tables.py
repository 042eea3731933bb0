"""Finds the table of a message by the message's key, or by the readable part of a damaged message (K-15, K-60, K-63).

A Qlik task can write the message's key as ``schema+table``, or as a record with schema and table. Public source: Qlik
Help, *Message key*.
"""

from __future__ import annotations

import io
import re
from functools import lru_cache
from typing import Any

import fastavro
import msgspec

from spark_jobs.sources.contract.avro_codecs import UNREADABLE
from spark_jobs.sources.qlik.message.envelope import registry_id

_HEAD = 4096
_JSON_ID = re.compile(rb'"messageSchemaId"\s*:\s*"([0-9A-Za-z_.-]{1,64})"')
_AVRO_ID = re.compile(rb"atMSG\x04DT\x00\x02\x40([0-9A-Za-z]{32})")
_NAMES = re.compile(r"[A-Za-z_][A-Za-z0-9_$#-]{0,60}\.[A-Za-z_][A-Za-z0-9_$#-]{0,60}")
_AVRO_SPACE = "com.attunity.queue.msg."


@lru_cache(maxsize=4096)
def table_of_key(key: bytes) -> str | None:
    """The table, ``schema.table``, that a message's key names; None if the key names no table."""
    if key.startswith(b"Obj\x01"):
        return _table_of_record(key)
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


def table_of_avro_name(full: str) -> str | None:
    """The table, ``schema.table``, in *full*, the full name of an Avro record of a Qlik task.

    None for a record that no Qlik task named.
    """
    parts = full.split(".")
    return ".".join(parts[-3:-1]) if full.startswith(_AVRO_SPACE) and len(parts) >= 7 else None


def schema_id_in(body: bytes) -> str | None:
    """The id of the structure in an unreadable message; None if the id is unreadable, too."""
    if body.startswith(b"\x00") and len(body) >= 5:
        return registry_id(int.from_bytes(body[1:5], "big"))
    found = _AVRO_ID.match(body) or (_JSON_ID.search(body, 0, _HEAD) if b"{" in body[:16] else None)
    return None if found is None else found[1].decode()


def _table_of_record(key: bytes) -> str | None:
    try:
        schema: Any = fastavro.reader(io.BytesIO(key)).writer_schema
        name = str(schema["name"])
        return table_of_avro_name(name if "." in name else f"{schema.get('namespace', '')}.{name}")
    except (*UNREADABLE, AttributeError):
        return None
