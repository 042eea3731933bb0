"""Inputs that a test makes itself: change events of SQL Server, and change files of a Qlik task."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from tests.field.trial import Trial

_GUID = "5b1f0c7e-2d34-4a86-9f10-77c0a1d2e3f4"
_HEADERS = ("change_seq", "change_oper", "change_mask", "operation")
Column = tuple[str, str]
Image = Mapping[str, str | None]


def mirror(folder: Path, source: Mapping[str, Any], tables: Sequence[Mapping[str, Any]], **more: Any) -> Trial:
    """A mirror file in a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = Trial(folder)
    write_mirror(trial, source, tables, **more)
    return trial


def write_mirror(trial: Trial, source: Mapping[str, Any], tables: Sequence[Mapping[str, Any]], **more: Any) -> None:
    """The mirror file of a trial."""
    said = {
        "mirror": "made",
        "source": dict(source),
        "landing_zone": {"store": "local", "path": "zone", "tables": "tables"},
        "ledger": "sqlite:///ledger.db",
        "change_log": "change_log",
        "tables": [dict(one) for one in tables],
        **more,
    }
    trial.file.write_text(yaml.safe_dump(said, allow_unicode=True), encoding="utf-8")


CES = {"format": "sqlserver-ces", "transport": "files", "layout": "bare", "path": "events"}
CHANGE_FILES = {"format": "qlik-change-table", "transport": "files", "path": "data", "before_images": False}
MESSAGES = {"format": "qlik-message", "transport": "files", "layout": "wrapped", "path": "messages"}


def event(
    at: int, table: str, columns: Sequence[Column], key: Sequence[str], new: Image | None, old: Image | None = None
) -> str:
    """One change event: an insert, an update or a delete by which images there are."""
    schema, name = table.split(".")
    row = new if new is not None else old or {}
    source = {
        "db": "made",
        "schema": schema,
        "tbl": name,
        "cols": [{"name": n, "type": kind, "index": place} for place, (n, kind) in enumerate(columns)],
        "pkkey": [{"columnname": n, "value": row[n]} for n in key],
        "transaction": {
            "commitlsn": f"0000002C:{at:08X}:0001",
            "beginlsn": f"0000002C:{at:08X}:0001",
            "sequencenumber": 1,
            "finalevent": False,
            "committime": "2026-11-20T08:00:00.000Z",
        },
    }
    images = {"old": json.dumps(old or {}), "current": json.dumps({} if new is None else new)}
    envelope = {
        "specversion": "1.0",
        "type": "com.microsoft.SQL.CES.DML.V1",
        "source": "/",
        "id": f"{at:032x}",
        "logicalid": f"{_GUID}:0000002C{at:08X}0001:{1:020d}",
        "time": "2026-11-20T08:00:00.000Z",
        "datacontenttype": "application/json",
        "operation": "DEL" if new is None else "INS" if old is None else "UPD",
        "segmentindex": 0,
        "finalsegment": True,
        "data": json.dumps({"eventsource": source, "eventrow": images}),
    }
    return json.dumps(envelope)


def write_events(trial: Trial, events: Sequence[str], name: str = "1.jsonl") -> None:
    """A file of change events."""
    (trial.folder / "events").mkdir(exist_ok=True)
    (trial.folder / "events" / name).write_text("".join(f"{one}\n" for one in events), encoding="utf-8")


def _dfm(name: str, table: str, columns: Sequence[Mapping[str, Any]], rows: int, content: str) -> str:
    extension = name.rpartition(".")[2]
    schema, target = table.split(".")
    form = {"csv": "delimited"}.get(extension, extension)
    options = {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": "", "quoteChar": '"', "escapeChar": ""}
    described = [
        {"ordinal": at + 1, "length": 0, "precision": 0, "scale": 0, "primaryKeyPos": 0, **one}
        for at, one in enumerate(columns)
    ]
    story = {
        "dfmVersion": "1.1",
        "taskInfo": {"name": "t1", "sourceEndpoint": "s", "operation": "dataProduced"},
        "fileInfo": {
            "name": name,
            "extension": extension,
            "location": "x",
            "content": content,
            "recordCount": rows,
            "errorCount": 0,
        },
        "formatInfo": {"format": form, "options": options},
        "dataInfo": {
            "sourceSchema": schema,
            "sourceTable": target.removesuffix("__ct"),
            "targetSchema": schema,
            "targetTable": target,
            "tableVersion": 1,
            "columns": described,
        },
    }
    return json.dumps(story)


def _write(path: Path, names: Sequence[str], rows: Sequence[Sequence[Any]], kinds: Mapping[str, pa.DataType]) -> None:
    if path.suffix == ".csv":
        lines = [",".join("" if value is None else str(value) for value in row) for row in [names, *rows]]
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    elif path.suffix == ".json":
        path.write_text("".join(json.dumps(dict(zip(names, r, strict=True))) + "\n" for r in rows), encoding="utf-8")
    else:
        columns = [pa.array([row[at] for row in rows], kinds.get(name)) for at, name in enumerate(names)]
        pq.write_table(pa.table(columns, names=list(names)), path)


def write_changes(
    trial: Trial,
    table: str,
    columns: Sequence[Mapping[str, Any]],
    rows: Sequence[Sequence[Any]],
    *,
    form: str = "csv",
    kinds: Mapping[str, pa.DataType] | None = None,
    first: int = 1,
) -> None:
    """A change file; each row begins with its operation: I, U, D, or B for the old row of the update behind it."""
    folder = trial.folder / "data" / f"{table}__ct"
    folder.mkdir(parents=True, exist_ok=True)
    headers = [{"name": f"header__{one}", "type": "BYTES" if "mask" in one else "STRING"} for one in _HEADERS]
    described = [*headers, *columns]
    names = {"I": "INSERT", "U": "UPDATE", "D": "DELETE", "B": "BEFOREIMAGE"}
    places = [first + at + (row[0] == "B") for at, row in enumerate(rows)]
    full = [
        [f"20261120080000{at:021d}", row[0], None, names[row[0]], *row[1:]]
        for at, row in zip(places, rows, strict=True)
    ]
    path = folder / f"20261120-08{first:07d}.{form}"
    _write(path, [str(one["name"]) for one in described], full, {"header__change_mask": pa.binary(), **(kinds or {})})
    path.with_suffix(".dfm").write_text(_dfm(path.name, f"{table}__ct", described, len(rows), "changes"))


def write_load(
    trial: Trial,
    table: str,
    columns: Sequence[Mapping[str, Any]],
    rows: Sequence[Sequence[Any]],
    *,
    form: str = "csv",
    kinds: Mapping[str, pa.DataType] | None = None,
) -> None:
    """A full load of one file."""
    folder = trial.folder / "data" / table
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"LOAD00000001.{form}"
    _write(path, [str(one["name"]) for one in columns], rows, kinds or {})
    path.with_suffix(".dfm").write_text(_dfm(path.name, table, columns, len(rows), "data"))


def write_messages(
    trial: Trial,
    table: str,
    columns: Sequence[Mapping[str, Any]],
    changes: Sequence[tuple[str, Mapping[str, Any] | None, Mapping[str, Any] | None]],
    name: str = "1.jsonl",
    first: int = 0,
) -> None:
    """Messages of a Qlik task: the structure, and changes as operation, ``data`` and ``beforeData``."""
    schema, target = table.split(".")
    story = {
        str(one["name"]): {
            "ordinal": at + 1,
            "length": 0,
            "precision": 0,
            "scale": 0,
            "primaryKeyPosition": one.get("primaryKeyPos", 0),
            **{part: value for part, value in one.items() if part not in ("name", "primaryKeyPos")},
        }
        for at, one in enumerate(columns)
    }
    lineage = {"server": "S", "task": "t1", "schema": schema, "table": target, "tableVersion": 1}
    structure = {
        "schemaId": "00000000000000000000000000000001",
        "lineage": {**lineage, "timestamp": "2026-11-20T08:00:00.000"},
        "tableStructure": {"tableColumns": story},
        "dataSchema": None,
    }
    sent = [{"magic": "atMSG", "type": "MD", "headers": None, "messageSchemaId": None, "messageSchema": None}]
    sent[0]["message"] = structure  # type: ignore[assignment]
    for at, (operation, data, before) in enumerate(changes):
        headers = {
            "operation": operation,
            "changeSequence": f"20261120080000{first + at + 1:021d}",
            "timestamp": "2026-11-20T08:00:00.000",
            "streamPosition": "x",
            "transactionId": "A1",
            "changeMask": None,
            "columnMask": None,
            "transactionEventCounter": 1,
            "transactionLastEvent": True,
        }
        message = {"data": data, "beforeData": before, "headers": headers}
        head = {"magic": "atMSG", "type": "DT", "headers": None, "messageSchemaId": structure["schemaId"]}
        sent.append({**head, "messageSchema": None, "message": message})  # type: ignore[dict-item]
    (trial.folder / "messages").mkdir(exist_ok=True)
    lines = [
        {"topic": "shop", "partition": 0, "offset": first + at, "encoding": "utf8", "value": json.dumps(one)}
        for at, one in enumerate(sent)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (trial.folder / "messages" / name).write_text(text, encoding="utf-8")


def write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    """A Parquet file of an export."""
    pq.write_table(pa.table(dict(columns)), path)
