"""The loop that runs the state machines of the protocols, and the requests and replies that all of them share.

A protocol is a machine over plain values: a state makes one request, and the reply gives the next state. A driver
carries out the requests. When the ledger does not answer, it is unknown whether a write was done, so every machine
reads the row again and continues from there. After several unanswered requests the run ends, and the next run
continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from open_mirroring.errors import TransientError

MAX_UNKNOWN = 5
"""A run ends after more unanswered requests than these."""


@dataclass(frozen=True, slots=True)
class Acquire:
    """Ledger: raise the row's version, which makes this process its owner, and read it; reply `Owned` or `Unknown`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Ledger, compare-and-set: stop the table, or the mirror's extraction, until an operator decides."""

    version: int
    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Finished:
    """No further request: there is nothing to do, or the table or mirror is stopped."""

    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The row's version had changed: another process owns the row now, and nothing was written."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome is unknown: it may have happened, may still happen, or never. *why* is the error, if any."""

    why: TransientError | None = field(default=None, compare=False)


class Machine(Protocol):
    """The state of a protocol, with its next request."""

    @property
    def request(self) -> Any:
        """The request whose reply gives the next state."""
        ...


S = TypeVar("S", bound=Machine)


def drive(
    states: Mapping[str, S],
    step: Callable[[S, Any], S],
    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    is_over: Callable[[str, S], bool],
    silent: TransientError,
) -> dict[str, S]:
    """Run machines in parallel, each to its end, and return their last states.

    Args:
        states: the initial states by name.
        step: the protocol.
        answer: answers one request of each machine.
        is_over: whether a machine has no further request.
        silent: raised when requests stay unanswered too often without an error of their own.
    """
    running, ended, unknowns = dict(states), dict[str, S](), 0
    while running:
        for name in [name for name, state in running.items() if is_over(name, state)]:
            ended[name] = running.pop(name)
        replies = answer({name: state.request for name, state in running.items()}) if running else {}
        unknown = [reply for reply in replies.values() if isinstance(reply, Unknown)]
        unknowns += bool(unknown)
        if unknowns > MAX_UNKNOWN:
            raise next((reply.why for reply in unknown if reply.why is not None), silent)
        running = {name: step(running[name], reply) for name, reply in replies.items()}
    return ended


def drive_one(state: S, step: Callable[[S, Any], S], answer: Callable[[Any], Any], end: type) -> S:
    """Run one machine until its request is of the type *end*, and return its last state.

    Raises ``UNREACHABLE`` (a TransientError) when the ledger does not answer.
    """
    ended = drive(
        {"": state},
        step,
        lambda requests: {"": answer(requests[""])},
        lambda _, current: isinstance(current.request, end),
        silent=TransientError("UNREACHABLE", "the ledger does not answer", next_step="try again later"),
    )
    return ended[""]
