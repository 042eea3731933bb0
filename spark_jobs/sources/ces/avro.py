"""Reads change events in Avro: the header of a message, and the outer and inner Avro record (C-60 to C-63).

Microsoft does not document this header, so the bytes decide: a schema counts as the right one only if it reads every
byte, and if the log sequence number in the record is well formed (C-62). Public source: Microsoft Learn, *JSON Message
format - change event streaming*.
"""

from __future__ import annotations

import io
import re
from itertools import islice
from typing import Any

import fastavro

from spark_jobs.sources.ces.unreadable import DATUM_START
from spark_jobs.sources.contract.avro_codecs import UNREADABLE, only_record, refuse_missing_codec
from spark_jobs.sources.contract.decoded import Refusal, shown

_SINGLE_OBJECT, _CONFLUENT = b"\xc3\x01", b"\x00"
_LSN = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}")
_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})? ?(Z|[+-][0-9]{2}:[0-9]{2})?"
)


def _record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def _data(**finalevent: str) -> dict[str, Any]:
    column = _record("Column", name="string", type="string", index="int")
    key = _record("PkKey", columnname="string", value="string")
    transaction = _record(
        "Transaction", commitlsn="string", beginlsn="string", sequencenumber="int", **finalevent, committime="string"
    )
    source = _record(
        "EventSource",
        db="string",
        schema="string",
        tbl="string",
        cols={"type": "array", "items": column},
        pkkey={"type": "array", "items": key},
        transaction=transaction,
    )
    return _record("Data", eventsource=source, eventrow=_record("EventRow", old="string", current="string"))


CHANGE_EVENT = fastavro.parse_schema(
    _record(
        "ChangeEvent",
        specversion="string",
        type="string",
        source="string",
        id="string",
        logicalid="string",
        time="string",
        datacontenttype="string",
        operation="string",
        segmentindex="int",
        finalsegment="boolean",
        data="bytes",
    )
)
"""The Avro schema of a complete message: the CloudEvents attributes, and the change as bytes in ``data``."""

DATA_WITH_FINALEVENT = fastavro.parse_schema(_data(finalevent="boolean"))
"""The Avro schema of ``data`` since August 2026 (generation c)."""

DATA = fastavro.parse_schema(_data())
"""The Avro schema of ``data`` before August 2026 (generation b)."""

DATA_SCHEMAS = (DATA_WITH_FINALEVENT, DATA)

_TEXTS = ("specversion", "type", "source", "id", "logicalid", "time", "datacontenttype", "operation")
# Texts are read as bytes, which need not be UTF-8, and `data` by its length only: the rest of it may be missing.
_OUTER_START = fastavro.parse_schema(
    _record("Start", **dict.fromkeys(_TEXTS, "bytes"), segmentindex="int", finalsegment="boolean", length="long")
)
_INNER_START = fastavro.parse_schema(
    _record(
        "Start", db="string", schema="string", tbl="string", columns="long", name="string", type="string", index="int"
    )
)
_TYPE = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*( *\([0-9a-zA-Z, ]+\))?")


def unframed(body: bytes) -> bytes:
    """Returns an Avro message without the header that a schema registry puts before the record.

    Raises a Refusal if the message does not begin like a change event.
    """
    if body.startswith(b"\x06"):
        return body
    for mark, header, name in ((_SINGLE_OBJECT, 10, "single-object"), (_CONFLUENT, 5, "schema registry")):
        if body.startswith(mark):
            if body.startswith(DATUM_START, header):
                return body[header:]
            raise Refusal("MESSAGE_INVALID", f"an Avro {name} frame without a change event behind it")
    raise Refusal("MESSAGE_INVALID", f"neither JSON nor Avro: the message begins with {shown(body[:8])}")


def read_container(body: bytes) -> dict[str, Any]:
    """The fields of the only record in an Avro container file; the file contains its own schema (C-63)."""
    try:
        records: list[Any] = list(islice(fastavro.reader(io.BytesIO(body)), 2))
    except Exception as error:  # the file has its own schema, which may be anything
        refuse_missing_codec(error)
        raise Refusal("MESSAGE_INVALID", f"an Avro container file that cannot be read: {_described(error)}") from error
    if len(records) != 1 or not isinstance(records[0], dict):
        many = "more than one record" if records else "no record"
        raise Refusal("MESSAGE_INVALID", f"an Avro container file with {many}; one message is one event")
    return records[0]


def read_envelope(datum: bytes) -> dict[str, Any]:
    """The fields of the outer Avro record, a :data:`CHANGE_EVENT`."""
    try:
        return only_record(datum, CHANGE_EVENT)
    except UNREADABLE as error:
        raise Refusal("MESSAGE_INVALID", f"no ChangeEvent record: {_described(error)}") from error


def read_data(datum: bytes) -> dict[str, Any]:
    """The fields of the inner Avro record ``data``, read by the first matching schema in :data:`DATA_SCHEMAS`."""
    reasons = []
    for schema in DATA_SCHEMAS:
        try:
            record = only_record(datum, schema)
            transaction = record["eventsource"]["transaction"]
            if not _LSN.fullmatch(transaction["commitlsn"]):
                raise ValueError(f"commitlsn {shown(transaction['commitlsn'])} is not a log sequence number")
            if not _TIME.fullmatch(transaction["committime"]):
                raise ValueError(f"committime {shown(transaction['committime'])} is not a time")
            return record
        except UNREADABLE as error:
            reasons.append(_described(error))
    raise Refusal("MESSAGE_INVALID", f"no Data record; with finalevent: {reasons[0]}; without: {reasons[1]}")


def names_in_damaged(datum: bytes) -> tuple[str, str, str] | None:
    """Database, schema and table at the start of a damaged or truncated outer record.

    None if no list of columns follows them: then the bytes are probably something else.
    """
    stream = io.BytesIO(datum)
    try:
        fastavro.schemaless_reader(stream, _OUTER_START, None)
        start: Any = fastavro.schemaless_reader(stream, _INNER_START, None)
    except UNREADABLE:
        return None
    names = (start["db"], start["schema"], start["tbl"])
    texts = (*names, start["name"])
    is_column = 0 < start["columns"] <= 1024 and 0 <= start["index"] < 1024 and _TYPE.fullmatch(start["type"])
    return names if is_column and all(texts) and "".join(texts).isprintable() else None


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"[:200]
