"""The Avro schemas of CES messages (C-60 to C-62): the envelope, and the data of generations b and c.

Public source: Microsoft Learn, *SQL Server: change event streaming, message format*. Nothing in the bytes says which
generation they are; read with the schema of the other one they decode without an error, into wrong values.
"""

from __future__ import annotations

from typing import Any

import fastavro


def _record(record: str, /, **fields: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": record,
        "fields": [{"name": field, "type": kind} for field, kind in fields.items()],
    }


def _data(**before_commit_time: str) -> Any:
    column = _record("Column", name="string", type="string", index="int")
    key = _record("PkKey", columnname="string", value="string")
    transaction = _record(
        "Transaction",
        commitlsn="string",
        beginlsn="string",
        sequencenumber="int",
        **before_commit_time,
        committime="string",
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
    row = _record("EventRow", old="string", current="string")
    return fastavro.parse_schema(_record("Data", eventsource=source, eventrow=row))


CHANGE_EVENT: Any = fastavro.parse_schema(
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
"""The envelope, parsed."""

DATA: dict[str, Any] = {"b": _data(), "c": _data(finalevent="boolean")}
"""The schema of ``data`` by generation, parsed."""
