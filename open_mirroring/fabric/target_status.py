"""Parses answers of the Fabric REST API, and combines the status of a table with the status of its database.

A status word that is unknown here is not an error: the table counts as *not ready* (R-02). The two states are combined
because they can differ (R-09): a table may have failed in a running database, and Fabric still calls the tables of a
stopped database *Replicating*. Public source: Microsoft Learn, *Fabric REST APIs: MirroredDatabase*; *Monitor Fabric
mirrored database replication*; R-07.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeVar

from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, name_identity, split_table_folder

_SHOWN_CHARACTERS = 300


class DatabaseState(Enum):
    """The state of a mirrored database; ``UNKNOWN`` for a word of Fabric that this version does not know (R-02)."""

    INITIALIZING = "Initializing"
    INITIALIZED = "Initialized"
    STARTING = "Starting"
    RUNNING = "Running"
    PAUSED = "Paused"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    UNKNOWN = ""


class TableMirrorState(Enum):
    """The state of a table's mirroring; ``UNKNOWN`` for a word of Fabric that this version does not know (R-02)."""

    INITIALIZED = "Initialized"
    SNAPSHOTTING = "Snapshotting"
    REPLICATING = "Replicating"
    RESEEDING = "Reseeding"
    STOPPED = "Stopped"
    FAILED = "Failed"
    UNKNOWN = ""


class DatabaseStatus(NamedTuple):
    """The answer of ``getMirroringStatus``: the state, Fabric's own word for it (*said*), and the error if any."""

    state: DatabaseState
    said: str
    error: str = ""


class TableMirroringStatus(NamedTuple):
    """The entry of one table in the answer of ``getTablesMirroringStatus``.

    *said* is Fabric's own word for the state. *processed_rows* and *processed_bytes* count since the table was
    created; they are None if not reported. *last_sync* is a time in UTC, as Fabric wrote it.
    """

    schema: str
    table: str
    state: TableMirrorState
    said: str
    processed_rows: int | None = None
    last_sync: str = ""
    error: str = ""
    processed_bytes: int | None = None


State = TypeVar("State", DatabaseState, TableMirrorState)


def database_status(document: Mapping[str, Any]) -> DatabaseStatus:
    """Parse the status of a mirrored database from an answer of the API."""
    said = str(document.get("status", ""))
    return DatabaseStatus(_state(DatabaseState, said), _shown(said), error_text(document.get("error")))


def table_status(entry: Mapping[str, Any]) -> TableMirroringStatus:
    """Parse the status of one table from its entry in an answer of the API."""
    metrics = entry.get("metrics")
    known: Mapping[str, Any] = metrics if isinstance(metrics, dict) else {}
    said = str(entry.get("status", ""))
    return TableMirroringStatus(
        schema=str(entry.get("sourceSchemaName") or ""),
        table=str(entry.get("sourceTableName") or ""),
        state=_state(TableMirrorState, said),
        said=_shown(said),
        processed_rows=_count(known.get("processedRows")),
        last_sync=_shown(str(known.get("lastSyncDateTime") or "")),
        error=error_text(entry.get("error")),
        processed_bytes=_count(known.get("processedBytes")),
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _state(states: type[State], said: str) -> State:
    return next((state for state in states if state.value == said), states(""))


def error_text(error: object) -> str:
    """Return the error in an answer of the API as one line; empty if the answer contains no error."""
    if not isinstance(error, dict):
        return ""
    return _shown(f"{error.get('errorCode') or 'error'}: {error.get('message') or ''}")


def _shown(text: str) -> str:
    line = "".join(character if character.isprintable() else " " for character in text)
    return line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}…"


class TargetState(Enum):
    """The combined state of a table and its database, from Fabric's status calls (I24).

    ``UNKNOWN``: Fabric gave no answer that this version understands, even when asked twice, or Fabric asked to wait
    (R-02). ``REFUSED``: Fabric does not allow this login to read the status, or the status of this mirrored database
    (R-03, R-08).
    """

    RUNNING = "running"
    NOT_STARTED = "not started"
    """Never started since its creation (R-06). Structure and first files have to be written before the start (F-42)."""
    NOT_READY = "not ready"
    PAUSED = "paused"
    THROTTLED = "throttled"
    FAILED = "failed"
    STOPPED = "stopped"
    UNKNOWN = "unknown"
    REFUSED = "refused"


class TargetStatus(NamedTuple):
    """The status of one table at the target: the combined state, and Fabric's own words (*detail*).

    *counted_rows* and *counted_bytes* are Fabric's counts since the table was created; None if not reported. The
    counts do not show whether a certain file was applied (F-35). *last_sync* is when the last change was applied, as
    Fabric wrote it.
    """

    state: TargetState
    detail: str = ""
    counted_rows: int | None = None
    last_sync: str = ""
    counted_bytes: int | None = None


_OF_DATABASE = {
    DatabaseState.INITIALIZING: TargetState.NOT_READY,
    DatabaseState.INITIALIZED: TargetState.NOT_STARTED,
    DatabaseState.STARTING: TargetState.NOT_READY,
    DatabaseState.RUNNING: TargetState.RUNNING,
    DatabaseState.PAUSED: TargetState.PAUSED,
    DatabaseState.STOPPING: TargetState.STOPPED,
    DatabaseState.STOPPED: TargetState.STOPPED,
    DatabaseState.UNKNOWN: TargetState.UNKNOWN,
}
_WORSE = {TableMirrorState.FAILED: TargetState.FAILED, TableMirrorState.STOPPED: TargetState.STOPPED}


def target_status(database: DatabaseStatus, table: TableMirroringStatus | None) -> TargetStatus:
    """Combine the status of a database and of one table; *table* is None if Fabric does not list the table.

    A failed or stopped table takes precedence over the database's state, unless the database has failed. An unknown
    word takes precedence over *running*. No documented word means *throttled*: this state is recognized by Fabric's
    error text (assumed).
    """
    of_table = "not listed" if table is None else f"{table.said}{_because(table.error)}"
    words = f"database {database.said}{_because(database.error)}; table {of_table}"
    state = _OF_DATABASE[database.state]
    if database.said == "Failed":  # the portal's word; the API documents no such word
        state = TargetState.FAILED
    if table is not None:
        if table.state in _WORSE and state is not TargetState.FAILED:
            state = _WORSE[table.state]
        elif table.state is TableMirrorState.UNKNOWN and state is TargetState.RUNNING:
            state = TargetState.UNKNOWN
    if state in (TargetState.RUNNING, TargetState.PAUSED, TargetState.UNKNOWN) and "throttl" in words.casefold():
        state = TargetState.THROTTLED
    return (
        TargetStatus(state, words)
        if table is None
        else TargetStatus(state, words, table.processed_rows, table.last_sync, table.processed_bytes)
    )


def entry_of(folder: str, tables: Iterable[TableMirroringStatus]) -> TableMirroringStatus | None:
    """Find Fabric's entry for the table at *folder* of the landing zone; None if Fabric does not list the table.

    A folder without schema belongs to the default schema (F-03). Names are compared without case, as Fabric compares
    them.
    """
    schema, name = split_table_folder(folder)
    schemas = {name_identity(schema)} if schema is not None else {"", name_identity(DEFAULT_SCHEMA)}
    for table in tables:
        if name_identity(table.table) == name_identity(name) and name_identity(table.schema) in schemas:
            return table
    return None


def _because(error: str) -> str:
    return f" ({error})" if error else ""
