"""The state of the service in the shapes of its monitoring.

Shapes: the REST calls ``getMirroringStatus`` and ``getTablesMirroringStatus`` (Fabric REST API specification), and
the files ``Files/Monitoring/replicator.json`` and ``tables.json`` (as read by Microsoft's Fabric toolbox). The two
name the same things differently; ``processedRows`` is cumulative over a table's life and no row count (field).
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fabric_emulator.state import ServiceState, TableState, write_if_changed


def table_status(table: TableState) -> str:
    """``Initialized``, ``Snapshotting``, ``Replicating`` or ``Failed``.

    Snapshotting: only files without marker so far, and more are waiting. A stopped or paused database leaves the
    status of its tables as it is (field: a stale status misleads).
    """
    if table.latch is not None:
        return "Failed"
    if table.number == 0:
        return "Initialized"
    if table.pending and not table.incremental:
        return "Snapshotting"
    return "Replicating"


def rest_entry(table: TableState) -> dict[str, Any]:
    """A table as ``getTablesMirroringStatus`` shows it."""
    schema, name = table.target.split("/", 1)
    metrics: dict[str, Any] = {"processedBytes": table.bytes, "processedRows": table.rows}
    if table.number:
        metrics["lastSyncDateTime"] = _utc(table.synced)
    entry: dict[str, Any] = {
        "sourceObjectType": "Table",
        "sourceSchemaName": schema,
        "sourceTableName": name,
        "status": table_status(table),
        "metrics": metrics,
    }
    if table.latch is not None:
        entry["error"] = {
            "errorCode": table.latch.code,
            "message": table.latch.message,
            "relatedResource": table.latch.path,
            "isRetriable": False,
        }
    return entry


def write_monitoring(folder: Path, state: ServiceState) -> None:
    """Write ``replicator.json`` and ``tables.json`` into *folder*, if their content changed."""
    replicator = {"status": state.status, "errorCode": None, "errorMessage": None}
    tables = [_file_entry(name, table) for name, table in sorted(state.tables.items())]
    write_if_changed(folder / "replicator.json", json.dumps(replicator, indent=1))
    write_if_changed(folder / "tables.json", json.dumps({"tables": tables}, ensure_ascii=False, indent=1))


def _file_entry(folder: str, table: TableState) -> dict[str, Any]:
    schema, name = table.target.split("/", 1)
    return {
        "id": folder,
        "status": table_status(table),
        "errorCode": None if table.latch is None else table.latch.code,
        "errorMessage": None if table.latch is None else table.latch.message,
        "normalizedTableName": name,
        "sourceTableName": name,
        "sourceSchemaName": schema,
        "metrics": {
            "processedRowCount": table.rows,
            "processedByte": table.bytes,
            "lastSourceCommitTimeUtc": None,
            "lastSyncTimeUtc": _utc(table.synced) if table.number else None,
        },
    }


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
