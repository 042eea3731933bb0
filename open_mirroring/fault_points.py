"""Names the points in the code at which a test can kill the process, one after each durable step.

Tests set the variable ``OPEN_MIRRORING_FAULT`` to the ``name`` of a point, or to ``name:n`` for the n-th time that the
point is reached. The process then ends by SIGKILL: no ``finally`` and no exit handler runs, as after a power cut. If
the variable is not set, a point costs nothing.
"""

from __future__ import annotations

import os
import signal

FAULT_POINTS = (
    "extract.bound",
    "extract.joined",
    "extract.written",
    "extract.sealed",
    "extract.committed",
    "publish.intended",
    "publish.staged",
    "publish.sealed",
    "publish.renamed",
    "publish.all_renamed",
    "publish.confirmed",
    "reset.requested",
    "reset.deleted",
    "reset.folder_deleted",
    "reset.table_gone",
    "reset.rebuilding",
    "reset.rebuilt",
    "reset.table_back",
    "reset.dropped",
    "repair.requested",
    "repair.staged",
    "repair.sealed",
    "repair.renamed",
    "prove.looked",
    "prove.recorded",
    "correct.approved",
)
_reached: dict[str, int] = {}


def reach(name: str) -> None:
    """Mark a point in the code. If ``OPEN_MIRRORING_FAULT`` names this point, the process is killed here."""
    wanted = os.environ.get("OPEN_MIRRORING_FAULT")
    if not wanted:
        return
    if name not in FAULT_POINTS:
        raise ValueError(f"{name!r} is not a registered fault point")
    _reached[name] = _reached.get(name, 0) + 1
    if wanted in (name, f"{name}:{_reached[name]}"):
        os.kill(os.getpid(), signal.SIGKILL)
