"""Small CES messages for tests: what a source would send, with any part of it replaced."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import fastavro

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.ces import avro as ces_avro
from spark_jobs.sources.ces.decoder import CesDecoder
from spark_jobs.sources.contract.decoded import Decoded, MirroredTable

GUID = "9c8d4ad2-bf54-4f10-a96f-038af496997f"
COLS = (("id", "int"), ("name", "nvarchar(50)"), ("price", "decimal(8,2)"))
ROW = {"id": "7", "name": "Ada", "price": "1.50"}
ORDERS = MirroredTable("dbo.orders", ("id",))


def lsn(number: int) -> str:
    return f"0000002C:{number:08X}:0001"


def payload(
    current: Mapping[str, Any] | str | None = None,
    old: Mapping[str, Any] | str | None = None,
    *,
    cols: Sequence[tuple[str, str]] = COLS,
    pkkey: Mapping[str, Any] | None = None,
    commit: int = 16,
    sequence: int = 1,
    generation: str = "c",
    schema: str = "dbo",
    tbl: str = "orders",
    db: str = "shop",
) -> dict[str, Any]:
    """The `data` of an event; `current` and `old` may be given as text."""
    images = {
        name: image if isinstance(image, str) else json.dumps(image or {}, ensure_ascii=False)
        for name, image in (("old", old), ("current", current))
    }
    source: dict[str, Any] = {
        "db": db,
        "schema": schema,
        "tbl": tbl,
        "cols": [{"name": name, "type": kind, "index": index} for index, (name, kind) in enumerate(cols)],
        "pkkey": [{"columnname": name, "value": value} for name, value in (pkkey or {}).items()],
    }
    if generation != "a":
        source["transaction"] = {
            "commitlsn": lsn(commit),
            "beginlsn": lsn(1),
            "sequencenumber": sequence,
            **({"finalevent": False} if generation == "c" else {}),
            "committime": "2026-08-07T16:30:10.123Z",
        }
    return {"eventsource": source, "eventrow": images}


def envelope(
    operation: str, data: Any, /, *, commit: int = 16, sequence: int = 1, generation: str = "c", **replaced: Any
) -> dict[str, Any]:
    """The envelope around a `data` text; a replacement of `...` leaves the field out."""
    fields: dict[str, Any] = {
        "specversion": "1.0",
        "type": "com.microsoft.SQL.CES.DML.V1",
        "source": "/",
        "id": "d43f09a6-d13b-4902-86d4-17bdb5edb872",
        "logicalid": f"{GUID}:{lsn(commit).replace(':', '')}:{sequence:020d}",
        "time": "2026-08-07T16:30:10.123Z",
        "datacontenttype": "application/json",
        "operation": operation,
    }
    fields |= {"splitindex": 0, "splittotalcnt": 0} if generation == "a" else {"segmentindex": 0, "finalsegment": True}
    fields |= {"data": data} | replaced
    return {name: value for name, value in fields.items() if value is not ...}


def event(
    operation: str = "INS",
    current: Mapping[str, Any] | str | None = None,
    old: Mapping[str, Any] | str | None = None,
    *,
    indent: int | None = None,
    replaced: Mapping[str, Any] | None = None,
    **parts: Any,
) -> bytes:
    """One unsplit JSON message."""
    if operation == "INS" and current is None:
        current = ROW
    data = json.dumps(payload(current, old, **parts), indent=indent, ensure_ascii=False)
    where = {name: parts[name] for name in ("commit", "sequence", "generation") if name in parts}
    whole = envelope(operation, data, **where, **(replaced or {}))
    return json.dumps(whole, indent=indent, ensure_ascii=False).encode()


def avro(schema: Any, record: Mapping[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, record)
    return stream.getvalue()


def avro_event(operation: str = "INS", current: Any = None, old: Any = None, **parts: Any) -> bytes:
    """One unsplit Avro message of generation b or c."""
    replaced = parts.pop("replaced", {})
    generation = parts.get("generation", "c")
    schema = ces_avro.DATA_WITH_FINALEVENT if generation == "c" else ces_avro.DATA
    data = avro(schema, payload(ROW if operation == "INS" and current is None else current, old, **parts))
    where = {name: parts[name] for name in ("commit", "sequence") if name in parts}
    return avro(ces_avro.CHANGE_EVENT, envelope(operation, data, **where, **replaced))


def split(message: bytes, cuts: Sequence[int], base: int = 0) -> list[bytes]:
    """The message with its `data` cut at these places, as pieces with an `id` each."""
    whole = json.loads(message)
    data = whole["data"]
    ends = [0, *cuts, len(data)]
    pieces = []
    for number, (start, end) in enumerate(pairwise(ends)):
        last = number == len(ends) - 2
        place = (
            {"splitindex": number + base, "splittotalcnt": len(ends) - 1}
            if "splitindex" in whole
            else {"segmentindex": number + base, "finalsegment": last}
        )
        pieces.append(json.dumps({**whole, **place, "id": f"piece-{number}", "data": data[start:end]}).encode())
    return pieces


def decoder(*tables: MirroredTable, **settings: Any) -> CesDecoder:
    return CesDecoder({table.source: table for table in tables or (ORDERS,)}, **settings)


def decode(*bodies: bytes | None, tables: Sequence[MirroredTable] = (ORDERS,), **settings: Any) -> Decoded:
    """Decode bodies as the messages 0, 1, … of the file `in.jsonl`."""
    messages = [RawMessage("in.jsonl", place, body) for place, body in enumerate(bodies)]
    return decoder(*tables, **settings).decode(messages)


def only(decoded: Decoded) -> LogRow:
    assert len(decoded.rows) == 1, decoded.rows
    return decoded.rows[0]
