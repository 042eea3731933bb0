"""Changes as Change Event Streaming messages: CloudEvents as SQL Server 2025 and Azure SQL send them.

Public source: Microsoft Learn, *SQL Server: change event streaming, message format*; rule ids in brackets. The three
wire generations (C-22), all called ``…DML.V1``:

* ``a``: ``splitindex``/``splittotalcnt`` (0/0 when not split), inner JSON pretty-printed, no transaction; JSON only
* ``b``: ``segmentindex``/``finalsegment``, ``transaction``, content type ``application/avro-json``
* ``c``: the same with ``transaction.finalevent`` (always false), content type ``application/json``

Encoding is a pure function of a change: sending it again gives the same bytes. Order, duplicates and partitions are
added by :mod:`workload_generator.delivery`.

The Avro schemas of CES messages (C-60 to C-62): the envelope, and the data of generations b and c.

Public source: Microsoft Learn, *SQL Server: change event streaming, message format*. The bytes do not show their
generation: with the schema of the other one they decode without an error, into wrong values.
"""

from __future__ import annotations

import hashlib
import io
import json
import uuid
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal

import fastavro

from workload_generator.database import Change
from workload_generator.delivery import Delivery, Message, Piece, deliver
from workload_generator.tables import Row


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


_FIRST_COMMIT = datetime(2026, 1, 5, 8, 0, 0, tzinfo=UTC)
_OPERATIONS = {"I": "INS", "U": "UPD", "D": "DEL"}
_CONTENT_TYPES = {"a": "application/json", "b": "application/avro-json", "c": "application/json"}


@dataclass(frozen=True, slots=True)
class CesOptions:
    """The settings of an event stream group, and the generation of its message format.

    Args:
        generation: ``a``, ``b`` or ``c``, see the module.
        encoding: ``json``, or ``avro``: both levels as raw Avro data, content type ``application/avro``.
        include_old_values: False leaves ``old`` of an update empty; a delete keeps its row there (C-71).
        include_all_columns: False sends key and changed columns only with updates, each with its own index (C-70).
        segment_base: first ``segmentindex``, 0 or 1 (C-52).
        max_data_bytes: longer ``data`` is split into several messages; None never splits.
        database: name in ``eventsource.db``.
        seed: of the stream's GUID and the message ids.

    Raises:
        ValueError: for a combination that does not exist.
    """

    generation: Literal["a", "b", "c"] = "c"
    encoding: Literal["json", "avro"] = "json"
    include_old_values: bool = True
    include_all_columns: bool = True
    segment_base: int = 0
    max_data_bytes: int | None = None
    database: str = "ShopDb"
    seed: int | str = 0

    def __post_init__(self) -> None:
        if self.generation not in _CONTENT_TYPES or self.encoding not in ("json", "avro"):
            raise ValueError(f"no CES generation {self.generation!r} in {self.encoding!r}")
        if (self.generation, self.encoding) == ("a", "avro"):
            raise ValueError("generation a exists as JSON only (C-53)")
        if self.segment_base not in (0, 1):
            raise ValueError(f"segment_base is 0 or 1, not {self.segment_base}")
        if self.max_data_bytes is not None and self.max_data_bytes < 4:
            raise ValueError("max_data_bytes must leave room for one character: 4 or more")

    @property
    def guid(self) -> str:
        """First part of every ``logicalid``: constant for a stream (C-33)."""
        return _guid(f"stream:{self.seed}")


def commit_lsn(txn: int) -> str:
    """The commit LSN of a transaction, ``XXXXXXXX:XXXXXXXX:XXXX``: rises with *txn*, as number and as text (C-32)."""
    return f"{0x2C + txn // 0x8000:08X}:{0x300 + 8 * (txn % 0x8000):08X}:{2 + txn * 7919 % 41:04X}"


def commit_time(txn: int) -> datetime:
    """The commit time of a transaction: an invented, rising UTC clock with milliseconds."""
    return _FIRST_COMMIT + timedelta(milliseconds=1_370 * txn)


def logical_id(change: Change, guid: str) -> str:
    """The common id of all messages of one change: GUID, commit LSN without colons, index in the transaction (C-30)."""
    return f"{guid}:{commit_lsn(change.txn).replace(':', '')}:{change.seq:020d}"


def render(
    changes: Iterable[Change],
    options: CesOptions | None = None,
    delivery: Delivery | None = None,
) -> list[Message]:
    """Encode *changes* and deliver them: the messages in order of arrival."""
    options = options or CesOptions()
    return deliver([piece for change in changes for piece in encode(change, options)], delivery or Delivery())


def encode(change: Change, options: CesOptions, *, cut_into: int = 1) -> list[Piece]:
    """The messages of one change, in segment order."""
    logical = logical_id(change, options.guid)
    data = _event_data(change, options)
    payloads: Collection[str | bytes]
    if options.encoding == "avro":
        raw = _avro(DATA[options.generation], data)
        payloads = [raw[start:end] for start, end in _cuts(raw, options.max_data_bytes, cut_into)]
    else:
        pretty = options.generation == "a"
        text = _json(data, indent=2) if pretty else _json(data)
        raw = text.encode()
        payloads = [raw[start:end].decode() for start, end in _cuts(raw, options.max_data_bytes, cut_into, text=True)]
    key = _json([one["value"] for one in data["eventsource"]["pkkey"]]).encode()
    pieces = []
    for index, payload in enumerate(payloads):
        envelope: dict[str, Any] = {
            "specversion": "1.0",
            "type": "com.microsoft.SQL.CES.DML.V1",
            "source": "/",
            "id": _guid(f"{options.seed}:{logical}:{index}"),
            "logicalid": logical,
            "time": _timestamp(change.txn),
            "datacontenttype": "application/avro" if options.encoding == "avro" else _CONTENT_TYPES[options.generation],
            "operation": _OPERATIONS[change.op],
        }
        if options.generation == "a":
            envelope |= {"splitindex": index, "splittotalcnt": len(payloads) if len(payloads) > 1 else 0}
        else:
            final = index == len(payloads) - 1
            envelope |= {"segmentindex": index + options.segment_base, "finalsegment": final}
        envelope["data"] = payload
        # SQL Server writes a slash as \/ in JSON; a slash occurs in texts only.
        body = (
            _avro(CHANGE_EVENT, envelope)
            if options.encoding == "avro"
            else _json(envelope).replace("/", "\\/").encode()
        )
        pieces.append(Piece(change.table.full_name, change.txn, change.seq, index, len(payloads), key, body))
    return pieces


def _event_data(change: Change, options: CesOptions) -> dict[str, Any]:
    table, row = change.table, change.after if change.after is not None else change.before
    assert row is not None, "a change has a row before or after it"
    columns = list(enumerate(table.columns))
    if change.op == "U" and not options.include_all_columns:
        before, after = change.before or {}, change.after or {}
        columns = [
            (place, column)
            for place, column in columns
            if column.name in table.key or before[column.name] != after[column.name]
        ]
    names = [column.name for _, column in columns]
    old = None if change.op == "U" and not options.include_old_values else change.before
    source: dict[str, Any] = {
        "db": options.database,
        "schema": table.schema,
        "tbl": table.name,
        "cols": [{"name": column.name, "type": column.sql_type, "index": place} for place, column in columns],
        "pkkey": [{"columnname": name, "value": row[name]} for name in table.key],
    }
    if options.generation != "a":
        lsn = commit_lsn(change.txn)
        final_event = {"finalevent": False} if options.generation == "c" else {}
        source["transaction"] = {
            "commitlsn": lsn,
            "beginlsn": f"{lsn[:-4]}0001",
            "sequencenumber": change.seq,
            **final_event,
            "committime": _timestamp(change.txn),
        }
    spaced = options.generation == "a"
    return {
        "eventsource": source,
        "eventrow": {"old": _image(old, names, spaced), "current": _image(change.after, names, spaced)},
    }


def _image(row: Row | None, names: Iterable[str], spaced: bool) -> str:
    if row is None:
        return "{}"
    image = {name: row[name] for name in names}
    return json.dumps(image, ensure_ascii=False) if spaced else _json(image)


def _cuts(data: bytes, limit: int | None, at_least: int, *, text: bool = False) -> list[tuple[int, int]]:
    """Where to split: pieces of at most *limit* bytes, never inside a character of a *text*, else anywhere."""
    size = len(data) if at_least <= 1 else max(4, -(-len(data) // at_least))
    size = min(size, limit) if limit else size
    cuts, start = [], 0
    while start < len(data):
        end = min(start + size, len(data))
        while text and end < len(data) and data[end] & 0xC0 == 0x80:
            end -= 1
        cuts.append((start, end))
        start = end
    return cuts


def _avro(schema: Any, record: dict[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, record)
    return buffer.getvalue()


def _json(value: Any, indent: int | None = None) -> str:
    separators = (",", ": ") if indent else (",", ":")
    return json.dumps(value, ensure_ascii=False, separators=separators, indent=indent)


@lru_cache(maxsize=1024)
def _timestamp(txn: int) -> str:
    return commit_time(txn).strftime("%Y-%m-%dT%H:%M:%S.") + f"{commit_time(txn).microsecond // 1000:03d}Z"


def _guid(name: str) -> str:
    return str(uuid.UUID(bytes=hashlib.md5(name.encode(), usedforsecurity=False).digest(), version=4))
