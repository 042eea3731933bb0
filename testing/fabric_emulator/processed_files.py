"""Moves applied files out of the table folder, keeps them for some days, and purges them.

F-35: the last one stays, so that a publisher can find the next number; F-36: the two folders and the seven days
(Microsoft Learn: landing zone format). Where the folders lie is unknown (F-36, assumed: in the table folder).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from fabric_emulator.file_identity import folder_identity
from fabric_emulator.settings import Settings
from fabric_emulator.state import TableState
from fabric_emulator.table_folders import TableFolder, numbered_files
from open_mirroring.landing_zone.layout import PROCESSED_FOLDERS

_DAY = 86_400


def processed_folder(zone: Path, folder: TableFolder, settings: Settings) -> Path:
    """Where the applied files of a table go."""
    if settings.processed_at_zone_root:
        return zone / settings.processed_folder / folder.name
    return folder.path / settings.processed_folder


def tidy(zone: Path, folder: TableFolder, state: TableState, settings: Settings, now: float) -> None:
    """Move applied files away but the last one, and purge those that have waited long enough.

    Args:
        zone: the landing zone.
        folder: the table.
        state: says what is applied; holds since when each processed file has been waiting.
        settings: folder, place and purge age.
        now: the emulator's time in seconds.

    Raises:
        FileNotFoundError: the folder, or what is in it, is being deleted.
    """
    away = processed_folder(zone, folder, settings)
    # Opened first and compared then, this is the folder whose files were applied, whatever its name means later:
    # files that somebody puts into a recreated folder right now must not be taken for them.
    opened = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if folder_identity(folder.path) != state.life:
            return
        present = numbered_files(folder.path, state.extension)
        last = state.number if settings.last_kept == "applied" else max(present, default=0)
        waiting = numbered_files(away, state.extension)
        for number, path in sorted(present.items()):
            # A number that was processed before and is back is not read again (F-37), displaces nothing (assumed).
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
    """Remove processed files at the zone's root of a table folder that is gone (assumed)."""
    for folder in PROCESSED_FOLDERS:
        shutil.rmtree(zone / folder / name, ignore_errors=True)
