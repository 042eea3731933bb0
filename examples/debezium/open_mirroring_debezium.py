"""Debezium's SQL Server connector as a format: each message one change event, JSON with the schema of its rows.

Public source: Debezium documentation, *Debezium Connector for SQL Server*, "Data change events". An event of another
connector is a dead letter, for its positions have another order. A value that may have been another one is, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.log_position import position_text
from open_mirroring.changes.row_key import encode_key
from spark_jobs.changelog.schema import DELETE, INSERT, UPDATE, LogRow, RawMessage
from spark_jobs.sources.contract.decoded import Damage, MirroredTable, Refusal, SourceSchema, shown
from spark_jobs.sources.contract.json_numbers import JsonNumber
from spark_jobs.sources.contract.source import Announced, AnnouncedColumn, Format
from spark_jobs.sources.contract.table_changes import TableChanges, TableEvent, change_rows, exact_json
from spark_jobs.sources.sql_server.row_columns import Column, RowColumns
from spark_jobs.sources.sql_server.types import converter

_OPERATIONS = {"c": INSERT, "r": INSERT, "u": UPDATE, "d": DELETE}
_LSN = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}")
_TIME = "io.debezium.time."
_DIGITS = {f"{_TIME}Timestamp": 3, f"{_TIME}MicroTimestamp": 6, f"{_TIME}NanoTimestamp": 9}
_SQL = {"int8": "smallint", "int16": "smallint", "int32": "int", "int64": "bigint", "boolean": "bit"}
_SQL |= {"string": "nvarchar(max)", "float": "real", "double": "float", f"{_TIME}Date": "date"}
_SQL |= {name: f"datetime2({min(7, digits)})" for name, digits in _DIGITS.items()}
_JSON = {"boolean": (bool,), "string": (str,), "float": (int, JsonNumber), "double": (int, JsonNumber)}
"""What a column of a Connect type, or of its semantic name, is at the source, and as what JSON has its values."""


def _text(kind: str, value: Any) -> str:
    if type(value) not in _JSON.get(kind, (int,)):
        raise ValueError(f"{shown(value)} is no {kind}")
    if kind == f"{_TIME}Date":
        return str(date(1970, 1, 1) + timedelta(days=value))
    if kind not in _DIGITS:
        return str(int(value)) if kind == "boolean" else str(value)
    seconds, rest = divmod(value, 10 ** _DIGITS[kind])
    text = f"{datetime(1970, 1, 1) + timedelta(seconds=seconds)}.{rest:0{_DIGITS[kind]}d}"
    return text.removesuffix("00") if _DIGITS[kind] == 9 else text  # the source counts hundreds of nanoseconds


def _moment(milliseconds: Any) -> str | None:
    """When a change was committed; information only."""
    try:
        return _text(f"{_TIME}Timestamp", milliseconds)
    except (ValueError, OverflowError):
        return None


class DebeziumFormat(Format):
    """Change events of Debezium's SQL Server connector; a mirror file has nothing to choose."""

    def decoder(self, tables: Mapping[str, MirroredTable], schemas: Sequence[SourceSchema] = ()) -> DebeziumDecoder:
        """As :meth:`Format.decoder`."""
        return DebeziumDecoder(tables)

    def announced(self, messages: Iterable[RawMessage | Damage]) -> Iterator[Announced]:
        """As :meth:`Format.announced`; the key is that of the message, where the transport has it."""
        decoder = DebeziumDecoder({})
        for message in messages:
            try:
                event = None if isinstance(message, Damage) else decoder.read(message.body or b"null")
                if event is None or isinstance(message, Damage):
                    continue
                row = _Row(event.content.get("schema"), MirroredTable("", (), ColumnChoice(())))
                named = exact_json(message.key) if message.key else None
            except Refusal:
                continue
            key = named.get("payload", named) if isinstance(named, dict) else None
            columns = tuple(AnnouncedColumn(name, _SQL.get(kind, str(kind))) for name, kind in row.types.items())
            is_change = event.content["payload"].get("op") in ("u", "d")
            stated = tuple(key) if isinstance(key, dict) else None
            yield Announced(event.schema, event.table, columns, stated, changes_rows=is_change, sender=event.epoch)


class DebeziumDecoder(TableChanges):
    """Decodes change events."""

    def read(self, body: bytes) -> TableEvent | None:
        """As :meth:`TableChanges.read`; the connector's name and the database stand for the incarnation."""
        stated: list[Any] = [None]
        content = exact_json(body)
        if content is None or (isinstance(content, dict) and content.get("payload", ...) is None):
            return None
        if isinstance(content, dict) and "payload" not in content:
            content = {"payload": content}
        match content:
            case {"payload": {"source": dict(source)}}:
                stated = [source.get(name) for name in ("name", "db", "schema", "table")]
        if not all(isinstance(part, str) and part for part in stated):
            raise Refusal("MESSAGE_INVALID", "no change event: `source` tells no name, db, schema and table")
        return TableEvent(f"{stated[0]}/{stated[1]}", stated[2], stated[3], content)

    def position(self, content: Any) -> str:
        """As :meth:`TableChanges.position`; a row of the snapshot holds all commits up to the one that it names."""
        event, source = content["payload"], content["payload"]["source"]
        if source.get("connector") != "sqlserver":
            raise Refusal("MESSAGE_INVALID", f"no event of the sqlserver connector: {shown(source.get('connector'))}")
        op, is_snapshot = event.get("op"), event.get("op") == "r"
        if str(op) not in _OPERATIONS or (is_snapshot and source.get("snapshot") == "incremental"):
            raise Refusal("MESSAGE_INVALID", f"op {shown(op)}, snapshot {shown(source.get('snapshot'))}")
        lsns = [source.get("commit_lsn"), *([] if is_snapshot else [source.get("change_lsn")])]
        serial = 0 if is_snapshot else source.get("event_serial_no")
        is_number = type(serial) is int and 0 <= serial < 10**10
        if not is_number or not all(isinstance(lsn, str) and _LSN.fullmatch(lsn) for lsn in lsns):
            raise Refusal("MESSAGE_INVALID", f"commit_lsn, change_lsn {shown(lsns)}, event_serial_no {shown(serial)}")
        major, minor = (lsn.replace(":", "").upper() for lsn in (*lsns, "F" * 20)[:2])
        return position_text(major, f"{minor}{serial:010d}", int(op != "d"))

    def rows(self, content: Any, at: LogRow, table: MirroredTable) -> Sequence[LogRow]:
        """As :meth:`TableChanges.rows`."""
        event, op = content["payload"], content["payload"]["op"]
        before, after = event.get("before"), event.get("after")
        if op == "u" and before is None:
            raise Refusal("OLD_KEY_MISSING", "an update without `before` does not tell which key it left")
        if (before is None, after is None) != (op in "cr", op == "d") or (op == "r" and not table.key):
            raise Refusal("ROW_INVALID", f"op {op} with the wrong ones of `before` and `after`, or without a key")
        row = _Row(content.get("schema"), table)
        keys = [row.key(image) for image in (before, after) if image is not None]
        try:
            texts = [None if image is None else row.text(image, is_old=image is before) for image in (before, after)]
        except Refusal as why:
            raise Refusal(why.code, why.reason, keys[0] if keys[0] == keys[-1] else None) from why
        if table.columns.logs_transactions:
            source = event["source"]
            at = at._replace(committed=_moment(source.get("ts_ms")), transaction=source["commit_lsn"])
        return change_rows(at, _OPERATIONS[op], keys, row.columns.text, texts[1], texts[0])


class _Row:
    """The columns of an event's rows, by its schema."""

    def __init__(self, schema: Any, table: MirroredTable) -> None:
        try:
            structs = {part["field"]: part.get("fields") for part in schema["fields"]}
            self.types = {field["field"]: field.get("name") or field["type"] for field in structs["after"]}
            self._defaults = {f["field"]: f.get("default") for f in structs["after"] if f.get("optional")}
            columns = [Column(n, _SQL.get(kind, ""), at) for at, (n, kind) in enumerate(self.types.items())]
        except (TypeError, KeyError, AttributeError) as error:
            what = "no schema of its rows: set value.converter.schemas.enable=true"
            raise Refusal("ROW_INVALID", what) from error
        if structs.get("before") != structs["after"] or len(columns) != len(structs["after"]):
            raise Refusal("ROW_INVALID", "`before` and `after` have other columns, or one column twice")
        self.columns = RowColumns(columns, table.key, table.columns)
        self._key = table.key
        for name in self.columns.kept:
            if self.types[name] not in _SQL:
                mend = "; set decimal.handling.mode=string" if str(self.types[name]).endswith(".Decimal") else ""
                raise Refusal("ROW_INVALID", f"{shown(name)} has the type {shown(self.types[name])}{mend}")

    def key(self, image: Any) -> str | None:
        """The key in a row, which must have exactly the columns of the schema: one that is absent is not NULL."""
        if not isinstance(image, dict) or image.keys() != self.types.keys():
            raise Refusal("ROW_INVALID", "a row has other columns than its schema")
        texts = self.columns.key_texts({name: self._value(name, image[name]) for name in self._key if name in image})
        return encode_key(texts) if texts else None

    def text(self, image: Mapping[str, Any], is_old: bool) -> str:
        """A row as the log has it; in an old one NULL tells nothing, for large values are left out of it."""
        defaults = [n for n in self.columns.kept if image[n] is not None and image[n] == self._defaults.get(n)]
        if defaults and not is_old:
            mend = "the converter may have written it for NULL: have the connector leave out defaults"
            raise Refusal("VALUE_INVALID", f"{shown(defaults[0])} has its default; {mend}")
        stated = [n for n in self.columns.kept if not is_old or (image[n] is not None and n not in defaults)]
        row = {name: self._value(name, image[name]) for name in stated}
        return json.dumps(row, ensure_ascii=False, separators=(",", ":"))

    def _value(self, name: str, value: Any) -> str | None:
        if value is None:
            return None
        sql_type = _SQL[self.types[name]]
        try:
            text = _text(self.types[name], value)
            converter(sql_type)(text)
        except (ValueError, OverflowError) as error:
            raise Refusal("VALUE_INVALID", f"column {shown(name)} ({sql_type}): {error}") from error
        return text
