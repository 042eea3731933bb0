"""Reads the newest batch of a change log from the entry of its newest commit.

Every run needs the newest batch. Reading one entry avoids importing delta-rs and reading all entries since the last
checkpoint. Public source: Delta Lake, *Delta Transaction Log Protocol*.
"""

from __future__ import annotations

import json
from contextlib import suppress

from open_mirroring.errors import MirroringError
from open_mirroring.storage.object_path import Place

_ENTRIES = 20
"""So many newest entries are read: those without a batch come from maintenance, at most a few in a row."""


def app_id(mirror: str) -> str:
    """The Delta application id under which a mirror's commits name their batches."""
    return f"open_mirroring/{mirror}"


def newest_in_log(root: Place, mirror: str) -> int:
    """The newest batch in the change log of *mirror*; 0 if there is no batch or no change log. Creates nothing.

    Raises ``CHANGED_MEANWHILE`` when the change log cannot be opened; ``MIRROR_CLASH`` when the change log belongs to
    another mirror.
    """
    newest = None
    # If this fails, reading the complete state reports the reason.
    with suppress(OSError, ValueError, LookupError, AttributeError, TypeError, MirroringError):
        newest = _by_entries(root / "_delta_log", app_id(mirror))
    if newest is not None:
        return newest
    from spark_jobs.changelog.delta_log import opened_log, refuse_foreign

    table = opened_log(root)
    if table is None:
        return 0
    refuse_foreign(table, root, mirror)
    return table.transaction_version(app_id(mirror)) or 0


def _by_entries(folder: Place, app: str) -> int | None:
    """The batch in the newest entries of the log; None if they name none of this application."""
    names = [entry.name for entry in folder.glob("*")]
    versions = [int(name[:20]) for name in names if name[:20].isdigit() and name[20:] == ".json"]
    for version in range(newest := max(versions, default=-1), max(newest - _ENTRIES, -1), -1):
        for line in (folder / f"{version:020}.json").read_bytes().splitlines():
            transaction = json.loads(line).get("txn")
            if transaction is not None and transaction["appId"] == app:
                return int(transaction["version"])
    return None
