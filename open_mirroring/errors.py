"""The two base classes of every error that the product raises on purpose.

A *terminal* error needs a person: trying again gives the same result. A *transient* error may pass by itself: the
scheduler tries again. Every error has a stable code, and its text contains what happened, where, and the next step, so
that the line in the output of a run is enough to act on.
"""

from __future__ import annotations

import errno
from typing import Any


class MirroringError(Exception):
    """Base class of every error that this product raises on purpose.

    Args:
        code: stable identifier in UPPER_SNAKE case; runbook, tests and retry policies refer to the code.
        what: one sentence about what is wrong, with the wrong value.
        where: the file, table, position or setting concerned; empty if *what* names it.
        next_step: the next step for the operator.
    """

    def __init__(self, code: str, what: str, *, where: str = "", next_step: str = "") -> None:
        super().__init__(code, what, where, next_step)
        self.code = code
        self.what = what
        self.where = where
        self.next_step = next_step

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        fix = f". Next step: {self.next_step}" if self.next_step else ""
        return f"{self.code}: {self.what}{place}{fix}"

    def __reduce__(self) -> tuple[Any, ...]:
        # Keyword-only arguments do not survive the default protocol; workers and triggers send errors by value.
        return (_rebuild, (type(self), self.code, self.what, self.where, self.next_step))


def _rebuild(kind: type[MirroringError], code: str, what: str, where: str, next_step: str) -> MirroringError:
    return kind(code, what, where=where, next_step=next_step)


class TerminalError(MirroringError):
    """An error that stays when the call is repeated: an operator has to change something first."""


class TransientError(MirroringError):
    """An error that may pass by itself, so that the same call is worth repeating."""


def memory_error() -> MirroringError:
    """Build the transient error for a process that ran out of memory (``MEMORY_FULL``)."""
    return TransientError(
        "MEMORY_FULL",
        "the process ran out of memory",
        next_step="give the job more memory, or lower `spark.start_above` to leave it to Spark; the next run goes on",
    )


def disk_error(error: OSError, where: str = "") -> MirroringError | None:
    """Translate an ``OSError`` about a full disk or missing permissions into our error; None for any other ``OSError``.

    ``DISK_FULL`` is transient, ``ACCESS_DENIED`` is terminal. *where* replaces the file name of the error.
    """
    what, where = error.strerror or str(error), where or str(error.filename or "")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        next_step = "free space or raise the quota; the next run goes on"
        return TransientError("DISK_FULL", what, where=where, next_step=next_step)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        next_step = "give the user of this process the right to read or write in this folder, or choose another one"
        return TerminalError("ACCESS_DENIED", what, where=where, next_step=next_step)
    return None
