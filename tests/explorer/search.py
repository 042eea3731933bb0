"""Breadth-first search over every choice of a world, and the backward closure that finds dead ends.

A *world* is a finite transition system. The search visits every state once, so that the first violation it meets
has the shortest story; afterwards it asks of every state whether the actors' own undisturbed steps can still
bring it to a goal.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

DEAD_END = "DEAD_END"
"""A state from which the actors' own steps never reach a goal."""


class Violation(Exception):
    """A transition broke an invariant."""

    def __init__(self, invariant: str, what: str) -> None:
        super().__init__(invariant, what)
        self.invariant = invariant
        self.what = what


class Move(NamedTuple):
    """One possible transition: *own* says that an actor made it, undisturbed."""

    label: tuple[Any, ...]
    own: bool
    state: Any
    """The state reached, or the :class:`Violation` that the transition is."""


class World(Protocol):
    """A finite transition system; states are canonical and hashable."""

    def initial(self) -> Hashable:
        """The state in which the search begins."""
        ...

    def moves(self, state: Any) -> Iterable[Move]:
        """Every transition that is possible in a state."""
        ...

    def is_goal(self, state: Any) -> bool:
        """Whether nothing is left to be done, or the world waits for a person's decision."""
        ...

    def tell(self, path: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[str]:
        """The path, as pairs of a state and the label of the move made in it, in words."""
        ...


@dataclass(frozen=True)
class Finding:
    """A counterexample: the invariant that breaks and the shortest way there."""

    invariant: str
    what: str
    story: tuple[str, ...]

    def __str__(self) -> str:
        steps = "\n".join(f"  {n:2}. {line}" for n, line in enumerate(self.story, 1))
        return f"{self.invariant}: {self.what}\n{steps}"


@dataclass(frozen=True)
class Outcome:
    """What a search found. *complete* is False when the limit cut it off."""

    states: int
    transitions: int
    complete: bool
    finding: Finding | None


def search(world: World, *, limit: int = 5_000_000) -> Outcome:
    """Explore *world* until every state was expanded, an invariant breaks, or *limit* states are known."""
    first = world.initial()
    number: dict[Hashable, int] = {first: 0}
    states: list[Any] = [first]
    came_from: list[tuple[int, tuple[Any, ...]]] = [(-1, ())]
    own_before: list[list[int]] = [[]]
    transitions = 0
    at = 0
    while at < len(states):
        if len(states) > limit:
            return Outcome(len(states), transitions, False, None)
        for label, own, after in world.moves(states[at]):
            transitions += 1
            if isinstance(after, Violation):
                finding = Finding(after.invariant, after.what, _story(world, states, came_from, at, label))
                return Outcome(len(states), transitions, False, finding)
            known = number.get(after)
            if known is None:
                known = number[after] = len(states)
                states.append(after)
                came_from.append((at, label))
                own_before.append([])
            if own and known != at:
                own_before[known].append(at)
        at += 1
    return Outcome(len(states), transitions, True, _dead_end(world, states, came_from, own_before))


def _dead_end(
    world: World, states: list[Any], came_from: list[tuple[int, tuple[Any, ...]]], own_before: list[list[int]]
) -> Finding | None:
    alive = bytearray(world.is_goal(state) for state in states)
    todo = [index for index, good in enumerate(alive) if good]
    while todo:
        for before in own_before[todo.pop()]:
            if not alive[before]:
                alive[before] = True
                todo.append(before)
    stuck = alive.find(0)
    if stuck < 0:
        return None
    return Finding(DEAD_END, "no own step leads on to a goal", _story(world, states, came_from, stuck, None))


def _story(
    world: World,
    states: list[Any],
    came_from: list[tuple[int, tuple[Any, ...]]],
    at: int,
    last: tuple[Any, ...] | None,
) -> tuple[str, ...]:
    path: list[tuple[Any, tuple[Any, ...]]] = [] if last is None else [(states[at], last)]
    while came_from[at][0] >= 0:
        before, label = came_from[at]
        path.append((states[before], label))
        at = before
    return tuple(world.tell(path[::-1]))
