"""The emulator's state between polls, stored in addition to the Delta tables.

It is one JSON document, replaced in one step. Losing it loses error messages, the first keys, the age of processed
files and the clock, but not which files were applied: that is in the Delta commits.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from fabric_emulator.failures import EmulatorError

_DOCUMENT = "state.json"
_LOCK = "lock"


@dataclass
class Latch:
    """Why a table is ``Failed``.

    *path* (inside the table folder) is the file whose replacement repairs the table, *content* its identity; without a
    path only a re-created folder repairs it.
    """

    code: str
    message: str
    path: str | None = None
    content: str | None = None


@dataclass
class TableState:
    """One table.

    *life* identifies its folder. *keys* are the first ones seen (F-13). *number* to *incremental* are the progress of
    its Delta table. *pending* counts waiting files. *processed* has the emulator's time at which each number was first
    seen in the processed folder. *extension* is that of its data files. *empty_since* is the time when its metadata
    were first seen, until a file is applied. *by_time* are files in order of their time (F-43). *taken* are the names
    of applied files, whose numbers are their places in it.
    """

    target: str
    life: str
    keys: list[str] = field(default_factory=list)
    number: int = 0
    rows: int = 0
    bytes: int = 0
    synced: float = 0.0
    incremental: bool = False
    pending: int = 0
    latch: Latch | None = None
    processed: dict[int, float] = field(default_factory=dict)
    extension: str = "parquet"
    empty_since: float | None = None
    by_time: bool = False
    taken: list[str] = field(default_factory=list)


@dataclass
class ServiceState:
    """The state of the database.

    *status* is Initialized, Running, Paused or Stopped; *restarts* counts the starts from scratch; *clock* is the lead
    of the emulator's clock in seconds.
    """

    status: str = "Running"
    restarts: int = 0
    clock: float = 0.0
    tables: dict[str, TableState] = field(default_factory=dict)


class StateFile:
    """The state document of one service in its own folder.

    Raises:
        EmulatorError: ``STATE_INVALID`` when the document exists but cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / _DOCUMENT
        self._lock = folder / _LOCK

    @contextmanager
    def held(self) -> Iterator[ServiceState]:
        """The state, for one process at a time; changes are saved, even if the block fails."""
        with self._lock.open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.read()
            try:
                yield state
            finally:
                self.save(state)

    def read(self) -> ServiceState:
        """The last saved state; a fresh one when there is none."""
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return ServiceState()
        try:
            return _state(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise EmulatorError(
                "STATE_INVALID",
                f"{self._path} cannot be read: {error}.",
                next_step="remove it: the Delta tables know how far they are",
            ) from error

    def save(self, state: ServiceState) -> None:
        """Replace the document, if anything changed."""
        write_if_changed(self._path, json.dumps(asdict(state), ensure_ascii=False, indent=1))


def write_if_changed(path: Path, text: str) -> None:
    """Replace a small file in one step; readers see the old or the new content, never a part."""
    try:
        if path.read_text() == text:
            return
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def _state(document: dict[str, Any]) -> ServiceState:
    tables = {name: _table(entry) for name, entry in document.pop("tables").items()}
    return ServiceState(**document, tables=tables)


def _table(entry: dict[str, Any]) -> TableState:
    latch = entry.pop("latch")
    processed = {int(number): float(time) for number, time in entry.pop("processed").items()}
    return TableState(**entry, latch=None if latch is None else Latch(**latch), processed=processed)
