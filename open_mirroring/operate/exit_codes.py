"""The exit codes of jobs and of the command line. Importing this module needs neither Spark nor a JVM."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from open_mirroring.config import ConfigError
from open_mirroring.errors import MirroringError, TerminalError, TransientError


class Exit(IntEnum):
    """Exit codes of jobs and of the command line."""

    DONE = 0
    TERMINAL = 1
    USAGE = 2
    TABLES_STOPPED = 3
    TRANSIENT = 4
    ON_HOLD = 5
    DONE_WITH_LOSSES = 6
    NOT_EQUAL = 7


def exit_of_report(stopped: object, losses: object) -> Exit:
    """Return the exit code of a job that ran to its end.

    If tables are stopped and there are losses, stopped tables decide.
    """
    if stopped:
        return Exit.TABLES_STOPPED
    return Exit.DONE_WITH_LOSSES if losses else Exit.DONE


class UsageError(TerminalError):
    """A wrong command line argument that is noticed only after the mirror file was read, such as an unknown table."""

    def __init__(self, what: str, next_step: str, code: str = "ARGUMENT_INVALID") -> None:
        super().__init__(code, what, next_step=next_step)

    def __reduce__(self) -> tuple[Any, ...]:
        return UsageError, (self.what, self.next_step, self.code)


def exit_of(error: MirroringError) -> Exit:
    """Return the exit code of an error. By the exit code a scheduler decides whether to try again."""
    if isinstance(error, ConfigError | UsageError):
        return Exit.USAGE
    return Exit.TRANSIENT if isinstance(error, TransientError) else Exit.TERMINAL
