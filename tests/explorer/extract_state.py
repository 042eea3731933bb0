"""What a state of the extract world is made of, how large the world may be, and what must hold in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from open_mirroring.protocols import extracting as x

from .extract_ports import LogFile

ROWS_ONCE = "ROWS_ONCE"
"""The rows of a batch enter the log once; nothing is committed a second time (I2)."""
SEALED_ONLY = "SEALED_ONLY"
"""The log holds exactly the sealed files of a batch (I29)."""
BINDING = "BINDING"
"""A sealed manifest never changes (I29)."""
RANGES_ONCE = "RANGES_ONCE"
"""Every source range belongs to exactly one batch, and no batch is skipped (I1)."""
IN_ORDER = "IN_ORDER"
"""A batch enters the log after the one before it."""
FILES_THERE = "FILES_THERE"
"""The log never refers to a deleted file (I1)."""
COMPLETED_IN_LOG = "COMPLETED_IN_LOG"
"""What the ledger calls committed is in the log, once (I29)."""
STOP_CAUSE = "STOP_CAUSE"
"""The mirror never stops: nobody here puts foreign files into the log."""


@dataclass(frozen=True)
class Bounds:
    """How large the world is; crashes, lost requests and skipped commits are unlimited."""

    writers: int = 2
    ranges: int = 2
    """Source ranges that appear one by one, the first at once."""
    late: int = 1
    """Requests of *late_kinds* that execute after their caller gave up, or a second time."""
    late_kinds: tuple[type, ...] = (x.CommitLog,)
    maintenance: int = 1
    """Runs of the maintenance; each may compact and vacuum."""


class Run(NamedTuple):
    """A run of the maintenance and what it has read; None for what it has not read yet."""

    completed: int | None = None
    live: tuple[LogFile, ...] | None = None
    newest: bool = True
    """The log has not moved since it was read."""


class State(NamedTuple):
    """A state; *row*, *writers* and *late* are interned numbers."""

    row: int
    writers: tuple[int, ...]
    late: tuple[int, ...]
    live: tuple[LogFile, ...]
    deleted: tuple[LogFile, ...]
    """Files deleted by VACUUM that somebody still refers to."""
    sealed: tuple[str, ...]
    """Ghost: per batch, its sealed manifest."""
    bound: int
    """How many source ranges are bound."""
    available: int
    run: Run | None
    left: tuple[int, int]
    """Late requests and maintenance runs that may still come."""
