"""The settings of the emulator: one for each rule that is configurable or undocumented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from fabric_emulator.failures import EmulatorError
from open_mirroring.landing_zone.layout import PROCESSED_FOLDERS, READY_TO_DELETE_FOLDER


@dataclass(frozen=True)
class Settings:
    """The service's behavior where the documentation leaves a choice.

    Raises:
        EmulatorError: ``SETTING_INVALID`` for an unknown processed folder, a negative time or a limit below one.
    """

    default_schema: str = "dbo"
    """Schema of a table folder without a schema level (F-03; field)."""

    processed_folder: str = READY_TO_DELETE_FOLDER
    """The folder of applied files (F-36: either folder; field: directly this one)."""

    processed_at_zone_root: bool = False
    """Applied files go to ``<zone>/<processed folder>/<table folder>/`` instead of into the table folder (F-36,
    assumed)."""

    purge_after_days: float = 7.0
    """How long applied files are kept in the processed folder (F-36, Microsoft Learn: landing zone format)."""

    last_kept: Literal["applied", "highest"] = "applied"
    """Which file is "the last one" that stays in the table folder (F-35): the last one applied, or the highest
    number present (assumed)."""

    files_per_poll: int | None = None
    """The maximum of files per table and poll; None applies all. Makes a backlog visible (no rule of the service)."""

    ignore_folder_without_metadata: bool = True
    """A folder without ``_metadata.json`` is not a table yet (F-10, field); False treats it as a table without keys
    (F-12, Microsoft Learn)."""

    marker_must_be_last: bool = True
    """The marker column has to be the last one (F-50, Microsoft Learn); False accepts it anywhere (field: as in the
    preview)."""

    null_marker: Literal["fail", "default"] = "fail"
    """A row with a null marker fails the table, or counts as a row without marker (assumed: undocumented)."""

    column_left_out_of_update: Literal["null", "keep"] = "null"
    """The value of a column that an update does not contain: NULL, as in every new row (F-84), or the previous value
    (assumed: F-55 requires complete rows)."""

    fails_without_files_after_days: float = 14.0
    """How long a table may have metadata and no data file: *Snapshotting* until then, then *Failed*, and the database
    is paused (field: reports of 2026 say "about two weeks")."""

    restart_reads_processed: bool = False
    """Whether a restarted database also finds its numbers in the processed folder. Field: it does not, and a table
    whose first files are gone does not return (F-76)."""

    def __post_init__(self) -> None:
        if self.processed_folder not in PROCESSED_FOLDERS:
            raise _invalid("processed_folder", self.processed_folder, f"one of {', '.join(PROCESSED_FOLDERS)}")
        for name in ("purge_after_days", "fails_without_files_after_days"):
            if getattr(self, name) < 0:
                raise _invalid(name, getattr(self, name), "zero or more days")
        if self.files_per_poll is not None and self.files_per_poll < 1:
            raise _invalid("files_per_poll", self.files_per_poll, "one or more files, or None")


def _invalid(name: str, value: object, allowed: str) -> EmulatorError:
    return EmulatorError("SETTING_INVALID", f"{name} is {value!r}.", next_step=f"give {allowed}")
