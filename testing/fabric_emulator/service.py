"""The mirroring service of one landing zone.

It moves applied files out of the table folder, keeps them for some days, and purges them. F-35: the last one stays, so
that a publisher can find the next number; F-36: the two folders and the seven days (Microsoft Learn: landing zone
format). The location of the folders is unknown (F-36, assumed: in the table folder).

It reports its state in the forms of the monitoring: the REST calls ``getMirroringStatus`` and
``getTablesMirroringStatus`` (Fabric REST API specification), and the files ``Files/Monitoring/replicator.json`` and
``tables.json`` (as read by Microsoft's Fabric toolbox). The two use different names; ``processedRows`` is cumulative
over a table's life and not a row count (field).
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fabric_emulator.delta_table import bury_dropped, drop
from fabric_emulator.failures import EmulatorError
from fabric_emulator.file_identity import folder_identity
from fabric_emulator.settings import Settings
from fabric_emulator.state import Latch, ServiceState, StateFile, TableState, write_if_changed
from fabric_emulator.table_folders import TableFolder, table_folders
from fabric_emulator.table_mirror import NO_DATA_FILES, Applied, TableMirror, files_of
from open_mirroring.landing_zone.layout import METADATA_FILE, PROCESSED_FOLDERS


def table_status(table: TableState) -> str:
    """``Initialized``, ``Snapshotting``, ``Replicating`` or ``Failed``.

    Snapshotting: only files without marker so far, and more are waiting; or metadata, and no file yet (field). A
    stopped or paused database leaves the status of its tables unchanged (field: an outdated status misleads).
    """
    if table.latch is not None:
        return "Failed"
    if table.number == 0:
        return "Initialized" if table.empty_since is None else "Snapshotting"
    if table.pending and not table.incremental:
        return "Snapshotting"
    return "Replicating"


def rest_entry(table: TableState) -> dict[str, Any]:
    """A table's entry in ``getTablesMirroringStatus``."""
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


_DAY = 86_400


def processed_folder(zone: Path, folder: TableFolder, settings: Settings) -> Path:
    """The folder for the applied files of a table."""
    if settings.processed_at_zone_root:
        return zone / settings.processed_folder / folder.name
    return folder.path / settings.processed_folder


def tidy(zone: Path, folder: TableFolder, state: TableState, settings: Settings, now: float) -> None:
    """Moves applied files, except the last one, to the processed folder, and deletes old ones from it.

    Raises:
        FileNotFoundError: the folder or its content is being deleted.
    """
    away = processed_folder(zone, folder, settings)
    # Opened first and compared then, this is the folder whose files were applied, even if its name now belongs to
    # another one: files in a re-created folder must not be confused with them.
    opened = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if folder_identity(folder.path) != state.life:
            return
        present = files_of(folder.path, state)
        last = state.number if settings.last_kept == "applied" else max(present, default=0)
        waiting = {number: path for number, path in files_of(away, state).items() if number <= state.number}
        for number, path in sorted(present.items()):
            # A number that was processed before and has returned is not read again (F-37), and replaces nothing
            # (assumed).
            if number <= state.number and number != last and number not in waiting:
                away.mkdir(parents=True, exist_ok=True)
                waiting[number] = away / path.name
                os.rename(path.name, waiting[number], src_dir_fd=opened)
    finally:
        os.close(opened)
    state.processed = {number: state.processed.get(number, now) for number in sorted(waiting)}
    for number, since in list(state.processed.items()):
        if now - since >= settings.purge_after_days * _DAY:
            waiting[number].unlink(missing_ok=True)
            del state.processed[number]


def forget(zone: Path, name: str) -> None:
    """Remove processed files of a deleted table folder from the zone's root (assumed)."""
    for folder in PROCESSED_FOLDERS:
        shutil.rmtree(zone / folder / name, ignore_errors=True)


_COLLISION = "TargetCollision"


class MirroringService:
    """Applies the tables of a landing zone to Delta tables at ``<tables>/<schema>/<table>``.

    Any number of services, in sequence or in parallel, may work on the same *tables*: polls take turns. A service that
    was killed is continued by the next one without applying a file twice.

    Args:
        tables: the folder for the Delta tables, and for ``_monitoring/tables.json``.
        state: folder of the service's own state; by default ``<tables>/_state``.
        clock: seconds since 1970; :meth:`advance_clock` adds to it.
    """

    def __init__(
        self,
        landing_zone: Path,
        tables: Path,
        *,
        settings: Settings | None = None,
        state: Path | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._zone = Path(landing_zone)
        self._tables = Path(tables)
        self._settings = settings or Settings()
        self._state = StateFile(state or self._tables / "_state")
        self._clock = clock
        self._seen: set[str] = set()

    def poll(self) -> list[Applied]:
        """Do one round of the service's work and return the applied files, in order per table.

        Tables whose folder is gone are dropped, re-created ones rebuilt, pending files applied, applied ones moved and
        purged. A failed table stays failed, as :meth:`status` shows. Nothing happens while paused or stopped.

        Raises:
            EmulatorError: ``PLACE_MISSING`` when tables are known and the complete zone is gone, ``STATE_INVALID``.
            ExceptionGroup: errors of the file system or of Delta, after all other tables.
        """
        with self._turn() as state:
            return self._poll(state) if state.status == "Running" else []

    def status(self) -> dict[str, dict[str, Any]]:
        """Each table folder's entry of ``getTablesMirroringStatus``, as of the last poll."""
        return {name: rest_entry(table) for name, table in sorted(self._state.read().tables.items())}

    def database_status(self) -> str:
        """``Initialized`` (never started), ``Running``, ``Paused`` or ``Stopped``."""
        return self._state.read().status

    def initialize(self) -> None:
        """Wait for the first :meth:`start`, like a database that was created by REST (R-06, field)."""
        with self._turn() as state:
            if not state.tables and not state.restarts:
                state.status = "Initialized"

    def pause(self) -> None:
        """Apply nothing until :meth:`resume`, like a paused capacity; a stopped database stays stopped."""
        self._change_status({"Running": "Paused"})

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._change_status({"Paused": "Running"})

    def stop(self) -> None:
        """Stop mirroring; the tables stay unchanged."""
        self._change_status({"Running": "Stopped", "Paused": "Stopped"})

    def start(self) -> None:
        """Start a stopped database: every table is dropped and begins again at number 1 (F-76, Microsoft Learn).

        One that was never started just begins. Nothing happens when it is paused or running.
        """
        with self._turn() as state:
            if state.status == "Initialized":
                state.status = "Running"
            if state.status != "Stopped":
                return
            dropped, state.tables = list(state.tables.values()), {}
            state.status, state.restarts = "Running", state.restarts + 1
            self._seen.clear()
            # Saved first: the new count of restarts makes these tables foreign, even if they are never dropped.
            self._state.save(state)
            for table in dropped:
                drop(self._tables / table.target)

    def advance_clock(self, seconds: float) -> None:
        """Advance the emulator's time permanently."""
        with self._turn() as state:
            state.clock += seconds

    def _change_status(self, change: dict[str, str]) -> None:
        with self._turn() as state:
            state.status = change.get(state.status, state.status)

    @contextmanager
    def _turn(self) -> Iterator[ServiceState]:
        with self._state.held() as state:
            try:
                yield state
            finally:
                write_monitoring(self._tables / "_monitoring", state)

    def _poll(self, state: ServiceState) -> list[Applied]:
        bury_dropped(self._tables)
        now = self._clock() + state.clock
        folders = self._find(state)
        starved = _starved(state)
        applied: list[Applied] = []
        errors: list[Exception] = []
        for folder in folders:
            try:
                applied += self._mirror(folder, state).apply_pending(now, look_closely=folder.name not in self._seen)
                self._seen.add(folder.name)
            except Exception as error:  # one table's error must not delay the others; raised below
                errors.append(error)
        if _starved(state) - starved:
            state.status = "Paused"  # field: one such table pauses the replication of all
        # Only files that the state lists as applied are moved, so that a crash never hides an unread file.
        self._state.save(state)
        for folder in folders:
            try:
                tidy(self._zone, folder, state.tables[folder.name], self._settings, now)
            except FileNotFoundError:  # the folder is being deleted, which the next poll sees
                continue
        if errors:
            raise ExceptionGroup("some tables could not be polled", errors)
        return applied

    def _find(self, state: ServiceState) -> list[TableFolder]:
        """The folders to work on, each with an entry in the state, after dropping deleted and re-created ones."""
        try:
            found = {folder.name: folder for folder in table_folders(self._zone)}
        except FileNotFoundError:
            if state.tables:
                raise EmulatorError(
                    "PLACE_MISSING",
                    f"the landing zone {self._zone} does not exist.",
                    next_step="give the right path; to drop its tables on purpose, delete their folders one by one",
                ) from None
            return []
        lives = {name: life for name, folder in found.items() if (life := folder_identity(folder.path))}
        for name, known in list(state.tables.items()):
            if lives.get(name) != known.life:  # F-71 deleted, F-72 re-created
                if not _collides(known):
                    drop(self._tables / known.target)
                forget(self._zone, name)
                del state.tables[name]
                self._seen.discard(name)
        owners = {table.target.casefold(): name for name, table in state.tables.items() if not _collides(table)}
        for name, life in lives.items():
            folder = found[name]
            if name not in state.tables and not self._is_table(folder):
                continue
            target = f"{folder.schema or self._settings.default_schema}/{folder.table}"
            entry = state.tables.setdefault(name, TableState(target, life))
            owner = owners.setdefault(target.casefold(), name)
            if owner != name and entry.latch is None:
                entry.latch = Latch(
                    _COLLISION, f"{name} and {owner} are both the table {target}. Next step: delete this folder."
                )
        return [found[name] for name in lives if name in state.tables]

    def _is_table(self, folder: TableFolder) -> bool:
        return not self._settings.ignore_folder_without_metadata or (folder.path / METADATA_FILE).is_file()

    def _mirror(self, folder: TableFolder, state: ServiceState) -> TableMirror:
        entry = state.tables[folder.name]
        again = state.restarts and self._settings.restart_reads_processed
        return TableMirror(
            folder,
            entry,
            self._tables / entry.target,
            f"{entry.life}/{state.restarts}",
            self._settings,
            processed_folder(self._zone, folder, self._settings) if again else None,
        )


def _starved(state: ServiceState) -> set[str]:
    return {name for name, table in state.tables.items() if table.latch and table.latch.code == NO_DATA_FILES}


def _collides(table: TableState) -> bool:
    """Whether this folder claims a table that belongs to another folder (F-02, assumed: names compare without case)."""
    return table.latch is not None and table.latch.code == _COLLISION
