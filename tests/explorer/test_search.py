"""The search itself on worlds small enough to see through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .search import DEAD_END, Move, Violation, search


class Graph:
    """A world drawn by hand: edges by state, lower-case letters are own steps; 9 is the goal."""

    def __init__(self, edges: Mapping[int, Sequence[tuple[str, Any]]]) -> None:
        self._edges = edges

    def initial(self) -> int:
        return 0

    def is_goal(self, state: int) -> bool:
        return state == 9

    def moves(self, state: int) -> Iterator[Move]:
        for label, after in self._edges.get(state, ()):
            yield Move((label,), label.islower(), after)

    def tell(self, path: Sequence[tuple[Any, tuple[Any, ...]]]) -> list[str]:
        return [f"{state}{label[0]}" for state, label in path]


def test_the_story_of_a_violation_is_the_shortest() -> None:
    """Of two ways to a violation the shorter is reported, the forbidden move included."""
    broken = Violation("RULE", "broken")
    outcome = search(Graph({0: [("a", 1), ("b", 2)], 1: [("c", 3)], 3: [("d", broken)], 2: [("e", broken)]}))
    assert outcome.finding is not None
    assert outcome.finding.invariant == "RULE"
    assert outcome.finding.story == ("0b", "2e")


def test_a_state_that_only_others_can_save_is_a_dead_end() -> None:
    """The way out must be made of the actors' own steps; a cycle of own steps is no way out."""
    outcome = search(Graph({0: [("a", 9), ("b", 1)], 1: [("c", 2), ("A", 9)], 2: [("d", 1)]}))
    assert outcome.complete
    assert outcome.finding is not None
    assert outcome.finding.invariant == DEAD_END
    assert outcome.finding.story == ("0b",)


def test_a_search_without_finding_visits_every_state_once() -> None:
    """States and transitions are counted, and nothing is reported when every state reaches the goal."""
    outcome = search(Graph({0: [("a", 1), ("b", 2)], 1: [("c", 9)], 2: [("d", 1), ("A", 0)]}))
    assert (outcome.states, outcome.transitions, outcome.complete, outcome.finding) == (4, 5, True, None)


def test_a_search_that_is_cut_off_says_so() -> None:
    """A limit must never look like a proof."""
    outcome = search(Graph({n: [("a", n + 1)] for n in range(100)}), limit=10)
    assert not outcome.complete
