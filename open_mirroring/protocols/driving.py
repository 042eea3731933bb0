"""Drives the protocols: the loop that runs their state machines, and the requests and replies that all of them share.

A protocol is a machine over plain values: a state makes one request, and the reply gives the next state. A driver
carries out the requests. When the ledger does not answer, nobody knows whether a write was done, so every machine reads
the row again and goes on from there. After several such silences the run ends, and the next run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from open_mirroring.errors import TransientError

MAX_UNKNOWN = 5
"""More silences than these end a run: what does not answer is not asked for ever."""


@dataclass(frozen=True, slots=True)
class Acquire:
    """Ledger: raise the row's version and read it; reply `Owned` or :class:`Unknown`."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Ledger, compare-and-set: stop the table, or the mirror's extraction, until somebody decides."""

    version: int
    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Finished:
    """No further request: nothing to do, or what the protocol is of is stopped."""

    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The row's version had moved: somebody else owns the row now, and nothing was written."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The outcome is not known: it may have happened, may still happen, or never. *why* is the error, if one came."""

    why: TransientError | None = field(default=None, compare=False)


class Machine(Protocol):
    """The state of a protocol."""

    @property
    def request(self) -> Any:
        """What it asks next."""
        ...


S = TypeVar("S", bound=Machine)


def drive(
    states: Mapping[str, S],
    step: Callable[[S, Any], S],
    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    is_over: Callable[[str, S], bool],
    silent: TransientError,
) -> dict[str, S]:
    """Run machines side by side, each to its end; their last states.

    Args:
        states: by name, where each begins.
        step: the protocol.
        answer: the replies to one request of each machine.
        is_over: whether a machine asks nothing more.
        silent: what is raised when requests stay unanswered too often and none of them says why.
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
    """Run one machine until its request is the *end*; its last state.

    Raises:
        TransientError: ``UNREACHABLE``.
    """
    ended = drive(
        {"": state},
        step,
        lambda requests: {"": answer(requests[""])},
        lambda _, current: isinstance(current.request, end),
        silent=TransientError("UNREACHABLE", "the ledger does not answer", way_out="try again later"),
    )
    return ended[""]
