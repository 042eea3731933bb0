"""Small messages of a Qlik task for tests: what a target topic would hold, with any part of it replaced."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.contract.decoded import Decoded, MirroredTable, SourceSchema
from spark_jobs.sources.qlik.message.avro import ENVELOPE
from spark_jobs.sources.qlik.message.decoder import QlikMessageDecoder, QlikMessageSettings

ID = "0123456789ABCDEF0123456789ABCDEF"
ORDERS = MirroredTable("dbo.orders", ("id",))
# Name, type, length, precision, scale, place in the key; ordinals in this order.
COLUMNS: Sequence[tuple[str, str, int, int, int, int]] = (
    ("id", "INT4", 10, 0, 0, 1),
    ("name", "WSTRING", 100, 0, 0, 0),
    ("price", "NUMERIC", 0, 8, 2, 0),
    ("note", "NCLOB", 0, 0, 0, 0),
)
ROW = {"id": 7, "name": "Ada", "price": "1.50", "note": "x"}
OLD = {"id": 7, "name": "Ada", "price": "1.00", "note": "x"}
FIELDS: Mapping[str, Any] = {"id": "int", "name": "string", "price": "string", "note": "string"}


def sequence(number: int) -> str:
    return f"2026080716301050{number:019d}"


def metadata(
    columns: Sequence[tuple[str, str, int, int, int, int]] = COLUMNS,
    *,
    schema_id: str | None = ID,
    table: str = "orders",
    version: int = 1,
    avro: Any = None,
    **replaced: Any,
) -> dict[str, Any]:
    """A metadata message's members; a replacement of `...` leaves one out."""
    described = {
        name: dict(
            zip(("ordinal", "type", "length", "precision", "scale", "primaryKeyPosition"), (n, *rest), strict=True)
        )
        for n, (name, *rest) in enumerate(columns, 1)
    }
    whole = {
        "schemaId": schema_id,
        "lineage": {
            "server": "QLIKSRV",
            "task": "task1",
            "schema": "dbo",
            "table": table,
            "tableVersion": version,
            "timestamp": "2026-08-07T16:30:10.123",
        },
        "tableStructure": {"tableColumns": described},
        "dataSchema": avro,
    } | replaced
    return {name: value for name, value in whole.items() if value is not ...}


def change(
    operation: Any = "INSERT",
    data: Any = None,
    before: Any = None,
    /,
    *,
    number: int = 1,
    members: Mapping[str, Any] | None = None,
    **headers: Any,
) -> dict[str, Any]:
    """A data message's members; a header of `...` is left out."""
    if data is None and operation != "DELETE":
        data = ROW
    said: dict[str, Any] = {
        "operation": operation,
        "changeSequence": sequence(number),
        "timestamp": "2026-08-07T16:30:10.123",
        "streamPosition": "0000002c:00000010:0001",
        "transactionId": "ABCD",
        "changeMask": None,
        "columnMask": None,
        "transactionEventCounter": number,
        "transactionLastEvent": False,
    } | headers
    said = {name: value for name, value in said.items() if value is not ...}
    return {"data": data, "beforeData": before, "headers": said, **(members or {})}


def enveloped(kind: str, message: Any, schema_id: str | None = None, **replaced: Any) -> bytes:
    whole = {
        "magic": "atMSG",
        "type": kind,
        "headers": None,
        "messageSchemaId": schema_id,
        "messageSchema": None,
        "message": message,
    } | replaced
    return json.dumps({name: value for name, value in whole.items() if value is not ...}, ensure_ascii=False).encode()


def md(*args: Any, **parts: Any) -> bytes:
    """A metadata message in a JSON envelope."""
    return enveloped("MD", metadata(*args, **parts))


def dt(*args: Any, schema_id: str | None = ID, **parts: Any) -> bytes:
    """A data message in a JSON envelope."""
    return enveloped("DT", change(*args, **parts), schema_id)


def avro_schema(fields: Mapping[str, Any] = FIELDS, table: str = "orders", **headers: Any) -> dict[str, Any]:
    """The schema of data messages: every column may be null."""

    def record(name: str, parts: Mapping[str, Any]) -> dict[str, Any]:
        return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in parts.items()]}

    data = record("Data", {name: ["null", kind] for name, kind in fields.items()})
    operation = {"type": "enum", "name": "operation", "symbols": ["INSERT", "UPDATE", "DELETE", "REFRESH", "TRUNCATE"]}
    said = {"operation": operation, "changeSequence": "string", "changeMask": ["null", "bytes"]}
    said |= {"columnMask": ["null", "bytes"], "transactionEventCounter": ["null", "long"], **headers}
    whole = record("DataRecord", {"data": ["null", data], "beforeData": ["null", "Data"], "headers": record("H", said)})
    return {**whole, "namespace": f"com.attunity.queue.msg.task1.dbo.{table}"}


def datum(schema: Any, record: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), record)
    return stream.getvalue()


def avro_enveloped(kind: str, message: bytes, schema_id: str | None = None, schema: str | None = None) -> bytes:
    envelope = {"magic": b"atMSG", "type": kind, "headers": None, "messageSchemaId": schema_id}
    return datum(ENVELOPE, {**envelope, "messageSchema": schema, "message": message})


def avro_md(
    schema: Any | None = None, columns: Sequence[tuple[str, str, int, int, int, int]] = COLUMNS, **parts: Any
) -> bytes:
    """A metadata message in an Avro envelope, announcing *schema*, under :data:`ID` unless *parts* say otherwise."""
    column = {"type": "record", "name": "Column", "fields": [{"name": "type", "type": "string"}]}
    for name in ("ordinal", "length", "precision", "scale", "primaryKeyPosition"):
        column["fields"].append({"name": name, "type": "int"})  # type: ignore[attr-defined]
    lineage = {"type": "record", "name": "Lineage", "fields": [{"name": "tableVersion", "type": "int"}]}
    for name in ("server", "task", "schema", "table", "timestamp"):
        lineage["fields"].append({"name": name, "type": "string"})  # type: ignore[attr-defined]
    structure = {"name": "tableColumns", "type": {"type": "map", "values": column}}
    fields = [
        {"name": "schemaId", "type": "string"},
        {"name": "lineage", "type": lineage},
        {"name": "tableStructure", "type": {"type": "record", "name": "Structure", "fields": [structure]}},
        {"name": "dataSchema", "type": "string"},
    ]
    writer = {"type": "record", "name": "Metadata", "fields": fields}
    record = metadata(columns, avro=json.dumps(avro_schema() if schema is None else schema), **parts)
    return avro_enveloped("MD", datum(writer, record), schema=json.dumps(writer))


def avro_dt(*args: Any, schema: Any | None = None, schema_id: str | None = ID, **parts: Any) -> bytes:
    """A data message in an Avro envelope."""
    return avro_enveloped("DT", datum(avro_schema() if schema is None else schema, change(*args, **parts)), schema_id)


def by_name(*tables: MirroredTable) -> dict[str, MirroredTable]:
    """Tables by their names in messages, where nothing is quoted."""
    return {table.source.replace("[", "").replace("]", ""): table for table in tables}


def decoder(*tables: MirroredTable, schemas: Sequence[SourceSchema] = (), **settings: Any) -> QlikMessageDecoder:
    return QlikMessageDecoder(by_name(*tables or (ORDERS,)), schemas, QlikMessageSettings(**settings))


def decode(
    *bodies: bytes | None,
    tables: Sequence[MirroredTable] = (ORDERS,),
    schemas: Sequence[SourceSchema] = (),
    topic: str = "cdc",
    **settings: Any,
) -> Decoded:
    """Decode bodies as the offsets 0, 1, … of partition 0."""
    messages = [RawMessage(f"{topic}/0", place, body) for place, body in enumerate(bodies)]
    return decoder(*tables, schemas=schemas, **settings).decode(messages)


def only(decoded: Decoded) -> LogRow:
    assert len(decoded.rows) == 1, decoded.rows
    return decoded.rows[0]
