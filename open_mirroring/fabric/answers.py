"""Answers of the Fabric REST API about a mirrored database and its tables, as plain values.

An unknown status word is not an error: it counts as *not ready*, and is shown as the service wrote it (R-02). Public
source: Microsoft Learn, *Fabric REST APIs*, Get Mirroring Status, Get Tables Mirroring Status.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeVar

_SHOWN_CHARACTERS = 300


class DatabaseState(Enum):
    """The state of a mirrored database; ``UNKNOWN`` for a word of a later version (R-02)."""

    INITIALIZING = "Initializing"
    INITIALIZED = "Initialized"
    STARTING = "Starting"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    UNKNOWN = ""


class TableMirrorState(Enum):
    """The state of a table's mirroring; ``UNKNOWN`` for a word of a later version (R-02)."""

    INITIALIZED = "Initialized"
    SNAPSHOTTING = "Snapshotting"
    REPLICATING = "Replicating"
    RESEEDING = "Reseeding"
    STOPPED = "Stopped"
    FAILED = "Failed"
    UNKNOWN = ""


class DatabaseStatus(NamedTuple):
    """The answer of ``getMirroringStatus``. *said* is the service's own word, *error* its error or empty."""

    state: DatabaseState
    said: str
    error: str = ""


class TableMirroringStatus(NamedTuple):
    """The entry of one table in the answer of ``getTablesMirroringStatus``.

    *processed_rows* counts over the table's life; None if not reported. *last_sync* is in UTC, as the service wrote it.
    """

    schema: str
    table: str
    state: TableMirrorState
    said: str
    processed_rows: int | None = None
    last_sync: str = ""
    error: str = ""


State = TypeVar("State", DatabaseState, TableMirrorState)


def database_status(document: Mapping[str, Any]) -> DatabaseStatus:
    """The status of a database in an answer."""
    said = str(document.get("status", ""))
    return DatabaseStatus(_state(DatabaseState, said), _shown(said), error_text(document.get("error")))


def table_status(entry: Mapping[str, Any]) -> TableMirroringStatus:
    """The status of one table in an answer."""
    metrics = entry.get("metrics")
    known: Mapping[str, Any] = metrics if isinstance(metrics, dict) else {}
    said, count = str(entry.get("status", "")), known.get("processedRows")
    return TableMirroringStatus(
        schema=str(entry.get("sourceSchemaName") or ""),
        table=str(entry.get("sourceTableName") or ""),
        state=_state(TableMirrorState, said),
        said=_shown(said),
        processed_rows=count if type(count) is int and count >= 0 else None,
        last_sync=_shown(str(known.get("lastSyncDateTime") or "")),
        error=error_text(entry.get("error")),
    )


def _state(states: type[State], said: str) -> State:
    return next((state for state in states if state.value == said), states(""))


def error_text(error: object) -> str:
    """An error in an answer as one line of text, or an empty text."""
    if not isinstance(error, dict):
        return ""
    return _shown(f"{error.get('errorCode') or 'error'}: {error.get('message') or ''}")


def _shown(text: str) -> str:
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"
