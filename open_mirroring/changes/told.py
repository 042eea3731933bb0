"""What a source tells beside its changes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.changes.told_statements import Statement

_RUNNING = ("FULL LOAD", "CHANGE PROCESSING")


class TaskState(NamedTuple):
    """A task as it described itself last.

    Attributes:
        name: the task.
        status: what it says that it does.
        status_at: when it said so.
        read_up_to: up to which moment it had read its source then.
        pending: how many changes it had still to bring to its target.
    """

    name: str
    status: str
    status_at: datetime | None = None
    read_up_to: datetime | None = None
    pending: int | None = None

    @property
    def is_running(self) -> bool:
        """Whether it says that it loads or reads changes."""
        return self.status.upper() in _RUNNING

    @property
    def lag(self) -> timedelta | None:
        """How far it was behind its source when it said so."""
        if self.status_at is None or self.read_up_to is None:
            return None
        return max(timedelta(0), self.status_at - self.read_up_to)


class Told(NamedTuple):
    """What a source tells beside its changes.

    Attributes:
        signals: how tables fare, by table and code.
        statements: what was done to them, by table; None where nothing tells it.
        tasks: the tasks that send them.
        by: what tells the statements.
    """

    signals: Mapping[tuple[str, str], str] = MappingProxyType({})
    statements: Mapping[str, Sequence[Statement]] | None = None
    tasks: Sequence[TaskState] = ()
    by: str = ""
