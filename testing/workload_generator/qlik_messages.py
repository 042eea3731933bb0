"""Changes as messages of a Qlik or Talend task on Kafka: metadata and data messages, JSON or Avro.

Public source: Qlik Help, *Metadata and data messages*; rule ids in brackets. A structure is announced before its first
message; rows that existed before the first change come as REFRESH; a change of key is one UPDATE with the new key
(K-31). Delivery is at least once: a transaction may be interrupted and sent again from its first message (K-40).

Encoding is a pure function of a change: sending it again gives the same bytes. Times have six digits of a second.
Values are those of SQL Server, given as text, as in messages (K-35; Qlik Help, *Kafka data types*; Apache Avro
specification, *Logical Types*).
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import groupby
from random import Random
from typing import Any, Literal, NamedTuple

import fastavro

from workload_generator.ces import commit_time
from workload_generator.database import Change
from workload_generator.delivery import Delivery, Message, Piece, deliver
from workload_generator.history import History
from workload_generator.qlik_schemas import (
    ENVELOPE,
    METADATA,
    METADATA_TEXT,
    QlikType,
    data_schema,
    metadata,
    parsed_data_schema,
    qlik_type,
    schema_id,
)
from workload_generator.tables import Key, Row, TableDef


def json_value(kind: QlikType, text: str, _logical_types: bool) -> Any:
    """A value in JSON messages."""
    if kind.name in ("UINT1", "INT2", "INT4", "INT8"):
        return int(text)
    if kind.name.startswith("REAL"):
        return float(text)
    if kind.name == "BOOLEAN":
        return text == "1"
    if kind.name in ("BYTES", "BLOB"):
        return text[2:]
    return _six_digits(text) if kind.name == "DATETIME" else text


def avro_value(kind: QlikType, text: str, logical_types: bool) -> Any:
    """A value in an Avro record without conversions: logical types are applied already."""
    if kind.name in ("BYTES", "BLOB"):
        return bytes.fromhex(text[2:])
    if logical_types and kind.name == "DATE":
        return (date.fromisoformat(text) - date(1970, 1, 1)).days
    if logical_types and kind.name == "DATETIME":
        return (datetime.fromisoformat(_six_digits(text)) - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    if logical_types and kind.name == "NUMERIC":
        unscaled = int(text.replace(".", ""))
        return unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    return json_value(kind, text, logical_types)


def _six_digits(text: str) -> str:
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction[:6]:0<6}"


BY_KEY = Delivery(scheme="key")
"""The delivery of a task that partitions by key."""

_MAGIC = "atMSG"
_OPERATIONS = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}


@dataclass(frozen=True, slots=True)
class QlikMessageOptions:
    """The settings of the task's target.

    Args:
        framing: ``envelope`` (K-01); ``registry``, Avro behind a schema registry's id and without metadata messages
            (K-04); or ``bare``, JSON without envelope.
        logical_types: whether Avro uses them (K-35).
        mask_bytes: order of the bytes of masks in Avro: as a number, ``msb``, or as documented, ``le`` (T-24).
        table_names: headers name schema and table (K-15); JSON only.
        delete_in: the member with the row of a DELETE, ``data`` or ``beforeData`` (K-30).
        replays: the fraction of transactions that is interrupted and sent again from the beginning.
        seed: of the choice of transactions that are sent again.

    Raises:
        ValueError: for a combination that does not exist.
    """

    encoding: Literal["json", "avro"] = "json"
    framing: Literal["envelope", "registry", "bare"] = "envelope"
    logical_types: bool = True
    mask_bytes: Literal["msb", "le"] = "msb"
    table_names: bool = False
    delete_in: Literal["data", "beforeData"] = "data"
    replays: float = 0.0
    task: str = "task1"
    seed: int | str = 0

    def __post_init__(self) -> None:
        if (self.encoding, self.framing) in (("json", "registry"), ("avro", "bare")):
            raise ValueError(f"no {self.framing} framing in {self.encoding}")
        if self.table_names and self.encoding == "avro":
            raise ValueError("table names are written in JSON only")
        if not 0 <= self.replays <= 1:
            raise ValueError("replays is a part: between 0 and 1")


class RegisteredSchema(NamedTuple):
    """A data schema in a schema registry."""

    number: int
    table: str
    version: int
    schema: str


def render(
    history: History, options: QlikMessageOptions | None = None, delivery: Delivery | None = None
) -> list[Message]:
    """Encode a history and deliver it to one topic: the messages in order of arrival.

    Metadata messages have no key and go to partition 0 (K-43).
    """
    options = options or QlikMessageOptions()
    sent = deliver([*pieces(history, options)], delivery or BY_KEY)
    return [message._replace(key=message.key or None) for message in sent]


def pieces(history: History, options: QlikMessageOptions) -> Iterator[Piece]:
    """The messages in order of sending."""
    announced: dict[str, tuple[TableDef, int]] = {}
    rng = Random(f"replays:{options.seed}")
    for name, rows in history.initial.items():
        table = _first_structure(history.tables[name], rows)
        for row in rows.values():
            yield from _announcement(table, announced, options)
            yield piece(table, 0, 0, row, encode(refreshed(table, row), options))
    for txn, group in groupby(history.changes, key=lambda change: change.txn):
        changes = [*group]
        sent = []
        for change in changes:
            yield from _announcement(change.table, announced, options)
            keyed = change.after if change.after is not None else change.before or {}
            body = encode(change, options, is_last=change is changes[-1])
            sent.append(piece(change.table, txn, change.seq, keyed, body))
        if rng.random() < options.replays:
            yield from sent[: rng.randint(1, len(sent))]
        yield from sent


def registered(history: History, options: QlikMessageOptions) -> list[RegisteredSchema]:
    """All schemas in a schema registry that messages of a history may name."""
    found: dict[str, RegisteredSchema] = {}
    versions: dict[str, int] = {}
    earlier = [_first_structure(history.tables[name], rows) for name, rows in history.initial.items() if rows]
    for table in (*earlier, *(change.table for change in history.changes), *history.tables.values()):
        text = data_schema(table, options.task, options.logical_types)
        if text not in found:
            version = versions[table.full_name] = versions.get(table.full_name, 0) + 1
            found[text] = RegisteredSchema(_registry_id(table, options), table.full_name, version, text)
    return [*found.values()]


def refreshed(table: TableDef, row: Row) -> Change:
    """A row of the full load for :func:`encode`: an insert of transaction 0."""
    return Change(table, "I", None, row, 0, 0)


def change_sequence(change: Change) -> str:
    """Sixteen digits of time and a nineteen-digit number that rises with transaction and index (T-10)."""
    return commit_time(change.txn).strftime("%Y%m%d%H%M%S%f")[:16] + f"{change.txn:012d}{change.seq:07d}"


def encode(change: Change, options: QlikMessageOptions, *, is_last: bool = False) -> bytes:
    """The data message of one change; one of transaction 0 is a REFRESH, without position and masks (K-18)."""
    table, row = change.table, change.after
    before = change.before if change.op != "D" else None
    if change.op == "D":
        row, before = (change.before, None) if options.delete_in == "data" else (None, change.before)
    headers: dict[str, Any] = {
        "operation": _OPERATIONS[change.op],
        "changeSequence": change_sequence(change),
        "timestamp": commit_time(change.txn).strftime("%Y-%m-%dT%H:%M:%S.%f")[:23],
        "streamPosition": f"00000000.{change.txn:08x}.00000001.{change.seq:04x}.00.0000:1.{change.seq}.16",
        "transactionId": hashlib.md5(str(change.txn).encode(), usedforsecurity=False).hexdigest().upper(),
        "changeMask": _mask(table, _changed(change), options),
        "columnMask": _mask(table, {column.name for column in table.columns}, options),
        "transactionEventCounter": change.seq,
        "transactionLastEvent": is_last,
    }
    if change.txn == 0:
        headers = {name: None if name.endswith(("Mask", "Counter", "Event")) else "" for name in headers}
        headers["operation"] = "REFRESH"
    if options.table_names:
        headers |= {"schema": table.schema, "table": table.name}
    message = {"data": _values(table, row, options), "beforeData": _values(table, before, options), "headers": headers}
    if options.encoding == "json":
        return _json(message) if options.framing == "bare" else _enveloped("DT", table, message, options)
    datum = _avro(parsed_data_schema(table, options.task, options.logical_types), message)
    if options.framing == "registry":
        return b"\x00" + _registry_id(table, options).to_bytes(4, "big") + datum
    return _enveloped("DT", table, datum, options)


def announcement(table: TableDef, version: int, options: QlikMessageOptions) -> bytes:
    """The metadata message of a table's structure."""
    timestamp = commit_time(version).strftime("%Y-%m-%dT%H:%M:%S.000")
    record = metadata(table, version, options.task, options.logical_types, timestamp)
    if options.encoding == "json":
        return _json(record) if options.framing == "bare" else _enveloped("MD", table, record, options)
    return _enveloped("MD", table, _avro(METADATA, record), options)


def _first_structure(table: TableDef, rows: Mapping[Key, Row]) -> TableDef:
    """The table when these rows were loaded, without columns added later."""
    first = next(iter(rows.values()), {})
    return replace(table, columns=tuple(column for column in table.columns if column.name in first))


def _announcement(
    table: TableDef, announced: dict[str, tuple[TableDef, int]], options: QlikMessageOptions
) -> Iterator[Piece]:
    known, version = announced.get(table.full_name, (None, 0))
    if known is not None and known.columns == table.columns:
        return
    announced[table.full_name] = (table, version + 1)
    if options.framing != "registry":
        yield announcing_piece(table, version + 1, options)


def announcing_piece(table: TableDef, version: int, options: QlikMessageOptions) -> Piece:
    """A metadata message before it is sent, without a key (K-43)."""
    return Piece(table.full_name, 0, 0, 0, 1, b"", announcement(table, version, options))


def piece(table: TableDef, txn: int, seq: int, row: Row, body: bytes) -> Piece:
    """A data message before it is sent, with the key of *row*."""
    key: Mapping[str, Any] = {name: row[name] for name in table.key}
    return Piece(table.full_name, txn, seq, 0, 1, _json(key), body)


def _enveloped(kind: str, table: TableDef, message: Any, options: QlikMessageOptions) -> bytes:
    is_data, is_avro = kind == "DT", options.encoding == "avro"
    envelope = {
        "magic": _MAGIC.encode() if is_avro else _MAGIC,
        "type": kind,
        "headers": None,
        "messageSchemaId": schema_id(table, options.task, options.logical_types) if is_data else None,
        "messageSchema": METADATA_TEXT if is_avro and not is_data else None,
        "message": message,
    }
    return _avro(ENVELOPE, envelope) if is_avro else _json(envelope)


def _changed(change: Change) -> set[str]:
    """The columns that a change mask names (K-21); it never names large objects (K-22)."""
    table = change.table
    if change.op == "D":
        return set(table.key)
    before, after = change.before or {}, change.after or {}
    return {
        column.name
        for column in table.columns
        if not qlik_type(column.sql_type).is_large and (change.op == "I" or before[column.name] != after[column.name])
    }


def _mask(table: TableDef, names: Iterable[str], options: QlikMessageOptions) -> str | bytes:
    """Bit *n* for ordinal *n* + 1, in ⌊columns / 8⌋ + 1 bytes (K-20)."""
    wanted = {*names}
    number = sum(1 << place for place, column in enumerate(table.columns) if column.name in wanted)
    size = len(table.columns) // 8 + 1
    if options.encoding == "json":
        return f"{number:0{2 * size}X}"
    return number.to_bytes(size, "big" if options.mask_bytes == "msb" else "little")


def _values(table: TableDef, row: Row | None, options: QlikMessageOptions) -> dict[str, Any] | None:
    if row is None:
        return None
    value = json_value if options.encoding == "json" else avro_value
    values: dict[str, Any] = {}
    for column in table.columns:
        text = row[column.name]
        kind = qlik_type(column.sql_type)
        values[column.name] = None if text is None else value(kind, text, options.logical_types)
    return values


def _registry_id(table: TableDef, options: QlikMessageOptions) -> int:
    return int(schema_id(table, options.task, options.logical_types)[:7], 16)


def _avro(schema: Any, record: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, schema, record)
    return buffer.getvalue()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
