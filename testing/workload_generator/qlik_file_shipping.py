"""Changes as a Qlik task stores them with a file target: data files of change tables, each with its ``.dfm``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from workload_generator.database import Change
from workload_generator.qlik_change_tables import ChangeTableOptions, stored_changes
from workload_generator.qlik_file_target import change_files
from workload_generator.shipping import Parcel, Run, Shipment
from workload_generator.transports import write_files

_ROWS_PER_FILE = 40


class ChangeFileShipping:
    """Change tables in the folder of a file target, next to the full load.

    A task stores the changes of each table in order, so none is late and *hold_back* has no effect. But in every run it
    is resumed once from a little too early: a range with changes of every table is stored twice (K-42).
    """

    name = "qlik-change-table"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def pack(self, run: Run, memory: dict[str, Any]) -> Shipment:
        """The files of a run, each data file before its ``.dfm``."""
        start, end = _stretch(run.changes, run.rng)
        again = run.changes[start:end]
        options = ChangeTableOptions()
        stored = [*stored_changes([*run.changes[:end], *again, *run.changes[end:]], options)]
        first = memory.setdefault("files", 0) + 1
        files = [*change_files(stored, options, rows_per_file=_ROWS_PER_FILE, first_number=first)]
        memory["files"] += len(files) // 2
        parcels = [Parcel(path, None, content) for path, content in files]
        return Shipment(parcels, len(stored), [], {"duplicates": [change.table.full_name for change in again]})

    def send(self, parcels: Sequence[Parcel]) -> int:
        """Write the files and return their number."""
        return len(write_files(self._folder, [(one.address, one.content) for one in parcels]))


def _stretch(changes: Sequence[Change], rng: Random) -> tuple[int, int]:
    """The range of changes that is stored twice: the shortest one before its end with changes of every table."""
    if not changes:
        return 0, 0
    tables = {change.table.full_name for change in changes}
    first_complete = max(min(n for n, one in enumerate(changes) if one.table.full_name == name) for name in tables)
    end = rng.randint(first_complete, len(changes) - 1) + 1
    start = min(max(n for n, one in enumerate(changes[:end]) if one.table.full_name == name) for name in tables)
    return start, end
