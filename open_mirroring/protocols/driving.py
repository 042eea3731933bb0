"""The loop that runs the state machines of the protocols, and the requests and replies that all protocols share.

A protocol is a state machine over plain values: a state makes one request, and the reply gives the next state. A driver
carries out the requests. If the ledger does not answer, it is unknown whether a write was done. So every state machine
then reads the ledger row again and continues from what the row shows. After several unanswered requests this run ends,
and the next run continues.
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
    """Request to the ledger: raise the row's version, which makes this process the owner, and read the row.

    The reply is `Owned` or `Unknown`.
    """


@dataclass(frozen=True, slots=True)
class Stop:
    """Request to the ledger, by compare-and-set: stop the table, or the mirror's reading, until an operator decides."""

    version: int
    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Finished:
    """No further request: there is nothing to do, or the table or mirror is stopped."""

    stopped: str | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Reply: another process has changed the version of the ledger row and owns it now, so nothing was written."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """Reply: the outcome of the request is unknown.

    The request may have been carried out already, may be carried out later, or never.

    *why* is the error that left the outcome unknown, if any.
    """

    why: TransientError | None = field(default=None, compare=False)


class Machine(Protocol):
    """The state of a protocol, with the next request of this state."""

    @property
    def request(self) -> Any:
        """The request of this state; the reply to this request gives the next state."""
        ...


S = TypeVar("S", bound=Machine)


def drive(
    states: Mapping[str, S],
    step: Callable[[S, Any], S],
    answer: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    is_over: Callable[[str, S], bool],
    silent: TransientError,
) -> dict[str, S]:
    """Run state machines in parallel, each to its end, and return their last states.

    Args:
        states: the initial states by name.
        step: the protocol: computes the next state from a state and the reply to its request.
        answer: carries out the present request of each state machine, and returns the replies.
        is_over: whether a state machine has no further request.
        silent: raised if requests stay unanswered too often without an error of their own.
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
    """Run one state machine until its request is of the type *end*, and return its last state.

    Raises ``UNREACHABLE`` (a TransientError) if the ledger does not answer.
    """
    ended = drive(
        {"": state},
        step,
        lambda requests: {"": answer(requests[""])},
        lambda _, current: isinstance(current.request, end),
        silent=TransientError("UNREACHABLE", "the ledger does not answer", next_step="try again later"),
    )
    return ended[""]
