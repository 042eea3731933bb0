"""Processes one table in one poll: reads the folder, applies the next files, keeps a failed table failed.

Rules: F-13 keys never change; F-25 text keeps its marker; F-32 a missing number blocks the table; F-33 and F-37 a
number below the next is not read; F-34 strictly in order (Microsoft Learn). A failed table stays failed until its bad
file is replaced under the same name (F-40) or its folder re-created (F-72, F-75); field: nothing after a bad file is
read before.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from fabric_emulator.change_file import read_change_file
from fabric_emulator.delta_table import MirroredDeltaTable, Progress
from fabric_emulator.failures import TableFailure, bad_file, needs_rebuild
from fabric_emulator.file_identity import content_identity, folder_identity
from fabric_emulator.settings import Settings
from fabric_emulator.state import Latch, TableState
from fabric_emulator.table_folders import TableFolder, numbered_files, timed_files
from fabric_emulator.table_metadata import TableMetadata, read_metadata
from open_mirroring.landing_zone.layout import METADATA_FILE, ROW_MARKER

NO_DATA_FILES = "NoDataFiles"


class Applied(NamedTuple):
    """A file that was applied.

    *table* is ``<schema>/<table>``, *rows* and *bytes* are the file's, *version* is the Delta version that holds it.
    """

    table: str
    number: int
    rows: int
    bytes: int
    version: int


def files_of(folder: Path, state: TableState) -> dict[int, Path]:
    """The data files of a folder by number; if ordered by time, by their place."""
    if state.by_time:
        return timed_files(folder, state.extension, state.taken)
    return numbered_files(folder, state.extension)


class TableMirror:
    """Applies one table folder to one Delta table.

    Args:
        state: the stored state of the table; updated as files are applied.
        path: the Delta table.
        life: identifies this incarnation of the folder; a Delta table of another one is replaced.
        more_files: a second folder to search for numbers, or None.
    """

    def __init__(
        self, folder: TableFolder, state: TableState, path: Path, life: str, settings: Settings, more_files: Path | None
    ) -> None:
        self._folder = folder
        self._state = state
        self._path = path
        self._life = life
        self._settings = settings
        self._more_files = more_files
        self._reading: tuple[str, str | None] = ("", None)  # the file being read, with its identity before

    def apply_pending(self, now: float, *, look_closely: bool) -> Iterator[Applied]:
        """Apply the next files, each in its own commit, until one is missing or fails.

        A failure of the table is stored in its state, not raised.

        Args:
            now: the emulator's time in seconds.
            look_closely: compare with the Delta table even when no file is waiting.
        """
        state = self._state
        if self._latched():
            return
        waiting: dict[int, Path] = {}
        try:
            metadata = self._metadata()
            if metadata is None:
                return
            waiting = self._waiting()
            if state.number + 1 in waiting or look_closely:
                table = MirroredDeltaTable(self._path, self._life)
                self._recover(table.progress)
                if state.by_time:
                    # After a crash, unsaved files are the next in the same order.
                    recovered = range(len(state.taken) + 1, state.number + 1)
                    state.taken += [waiting[number].name for number in recovered if number in waiting]
                applied = 0
                while (path := waiting.get(state.number + 1)) and applied != self._settings.files_per_poll:
                    done = self._apply(table, path, metadata, now)
                    if done is None:
                        break
                    applied += 1
                    yield done
            self._refuse_empty(now, bool(waiting))
        except TableFailure as failure:
            self._latch(failure)
        finally:
            state.pending = sum(number > state.number for number in waiting)

    def _refuse_empty(self, now: float, has_files: bool) -> None:
        """A table without a file in time fails (field: it stays Snapshotting for about two weeks)."""
        state = self._state
        if state.number or has_files:
            state.empty_since = None
            return
        state.empty_since = now if state.empty_since is None else state.empty_since
        days = self._settings.fails_without_files_after_days
        if now - state.empty_since >= days * 86_400:
            raise needs_rebuild(NO_DATA_FILES, f"{METADATA_FILE} was there for {days:g} days, and no data file came.")

    def _waiting(self) -> dict[int, Path]:
        found = {} if self._more_files is None else files_of(self._more_files, self._state)
        return found | files_of(self._folder.path, self._state)

    def _metadata(self) -> TableMetadata | None:
        self._reading = (METADATA_FILE, content_identity(self._folder.path / METADATA_FILE))
        metadata = read_metadata(self._folder.path)
        if metadata is None:
            return None if self._settings.ignore_folder_without_metadata or self._state.keys else TableMetadata()
        if self._state.keys and self._state.keys != list(metadata.keys):
            raise needs_rebuild(
                "KeyColumnsChanged", f"keyColumns changed from {self._state.keys} to {list(metadata.keys)} (F-13)."
            )
        self._state.keys = list(metadata.keys)
        self._state.extension, self._state.by_time = metadata.extension, metadata.by_time
        return metadata

    def _recover(self, found: Progress) -> None:
        """Read from the Delta table what was not saved before a crash."""
        state = self._state
        if found.number < state.number:
            raise needs_rebuild(
                "MirroredTableLost",
                f"the Delta table holds files up to {found.number}, {state.number} were applied: it was changed from "
                "outside.",
            )
        state.number, state.rows, state.bytes, state.synced, state.incremental = found

    def _apply(self, table: MirroredDeltaTable, path: Path, metadata: TableMetadata, now: float) -> Applied | None:
        state, number = self._state, self._state.number + 1
        self._reading = (path.name, content_identity(path))
        try:
            content = path.read_bytes()
        except FileNotFoundError:  # the folder is being deleted, which the next poll sees
            return None
        change = read_change_file(content, path.name, metadata, self._settings)
        if metadata.text is not None and state.incremental and not change.incremental:
            raise bad_file("InvalidRowMarker", f"{path.name} lacks {ROW_MARKER}, which earlier files had (F-25).")
        if folder_identity(self._folder.path) != state.life:
            return None
        after = Progress(
            number,
            state.rows + change.rows.num_rows,
            state.bytes + len(content),
            now,
            state.incremental or change.incremental,
        )
        version = table.apply(change, metadata.keys, after, path.name, self._settings)
        state.number, state.rows, state.bytes, state.synced, state.incremental = after
        if state.by_time:
            state.taken.append(path.name)
        return Applied(state.target, number, change.rows.num_rows, len(content), version)

    def _latched(self) -> bool:
        latch = self._state.latch
        if latch is None:
            return False
        if latch.path is None:
            return True
        now = content_identity(self._folder.path / latch.path)
        if now is None or now == latch.content:
            return True
        self._state.latch = None
        return False

    def _latch(self, failure: TableFailure) -> None:
        path, content = self._reading if failure.by_replacement else (None, None)
        self._state.latch = Latch(failure.code, str(failure), path, content)
