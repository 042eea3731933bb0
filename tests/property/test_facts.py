"""Facts: neither the order nor the grouping of tasks matters, and what is known is the fold of the batches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from open_mirroring.changes.manifest import Facts, Manifest
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.facts import column_lists, full_loads, read_places
from open_mirroring.facts.column_lists import COLUMN_LISTS, ColumnList
from open_mirroring.facts.foreign_tables import FOREIGN, Ignored
from open_mirroring.facts.full_loads import FULL_LOADS, SHORTEST_VALUES, LoadPlaces
from open_mirroring.facts.kind import Kind, NewFacts, merged
from open_mirroring.facts.read_places import READ_PLACES, SHOWN, UNCOUNTED, Run, joined
from open_mirroring.facts.senders import SENDERS
from open_mirroring.facts.unreadable import KEYLESS, READING_STOPS, WITHOUT_TABLE, KeylessReject

NUMBERS, TEXTS = st.integers(0, 9), st.sampled_from("abc")
OPTIONAL = st.none() | NUMBERS
RUNS = st.lists(st.tuples(NUMBERS, st.integers(0, 3)).map(lambda at: Run(at[0], sum(at))), min_size=1, max_size=3)


@st.composite
def places(draw: st.DrawFn) -> PlacesSeen:
    at = sorted(draw(st.lists(TEXTS, min_size=4, max_size=4)))
    return PlacesSeen(at[0], at[3], at[1], at[2]) if draw(st.booleans()) else PlacesSeen(at[0], at[3])


LISTS = st.dictionaries(TEXTS, places(), min_size=1)
VALUES: dict[Kind[Any], st.SearchStrategy[Any]] = {
    COLUMN_LISTS: LISTS,
    FOREIGN: st.builds(Ignored, NUMBERS, TEXTS),
    FULL_LOADS: st.builds(LoadPlaces, OPTIONAL, OPTIONAL),
    KEYLESS: st.builds(KeylessReject, st.sampled_from(["KEY_INVALID", "FILE_DAMAGED"]), TEXTS, TEXTS, NUMBERS),
    READING_STOPS: st.tuples(TEXTS, TEXTS),
    READ_PLACES: RUNS.map(joined),
    SENDERS: st.just(True),
    SHORTEST_VALUES: NUMBERS,
    SHOWN: st.dictionaries(TEXTS, TEXTS),
    UNCOUNTED: TEXTS,
    WITHOUT_TABLE: NUMBERS,
}


@st.composite
def facts(draw: st.DrawFn) -> NewFacts:
    found: NewFacts = {}
    for kind in draw(st.lists(st.sampled_from(list(VALUES)), max_size=4)):
        kind.add(found, draw(VALUES[kind]), table=draw(st.sampled_from(["", "dbo.a"])), name=draw(TEXTS))
    return found


@given(st.lists(facts(), max_size=5), st.randoms(use_true_random=False), st.integers(0, 5))
def test_tasks_merge_in_any_order_and_grouping(tasks: list[Facts], random: Any, cut: int) -> None:
    shuffled = random.sample(tasks, len(tasks))
    assert merged(shuffled) == merged(tasks) == merged([merged(tasks[:cut]), merged(tasks[cut:])])


@given(facts())
def test_a_manifest_keeps_them(found: Facts) -> None:
    kept = Manifest.from_json(Manifest([], {}, found).to_json()).facts
    assert json.loads(json.dumps(found)) == kept
    assert {kind.name: kind.of(kept) for kind in VALUES} == {kind.name: kind.of(found) for kind in VALUES}


def _known(batches: Sequence[dict[str, Any]]) -> dict[str, ColumnList]:
    def fold(known: dict[str, ColumnList], found: dict[str, Any]) -> dict[str, ColumnList]:
        return known | column_lists.fold(known, found, of_reading=False)[0]

    return reduce(fold, batches, {})


@given(st.lists(st.dictionaries(TEXTS, LISTS, max_size=2), max_size=4), st.randoms(use_true_random=False))
def test_column_lists_do_not_depend_on_the_order_of_batches(batches: list[dict[str, Any]], random: Any) -> None:
    """G-60: a late row tells of its own time, whenever it comes."""
    assert _known(random.sample(batches, len(batches))) == _known(batches)


def test_a_list_of_the_time_of_reading_counts_behind_all_others() -> None:
    """G-60: a row that is read late has the columns of now."""
    at = {"s": PlacesSeen("2", "2", "2", "2")}
    known = _known([{"new": {"s": PlacesSeen("5", "7", "5", "7")}}])
    late, _ = column_lists.fold(known, {"old": at}, of_reading=True)
    assert late["old"].seen == {"s": PlacesSeen(*["7+"] * 4)} and late["old"].first_pos == "2"


@given(st.lists(RUNS, max_size=5), st.randoms(use_true_random=False))
def test_places_read_do_not_depend_on_the_order_of_batches(batches: list[list[Run]], random: Any) -> None:
    def known(order: list[list[Run]]) -> dict[str, list[Run]]:
        return reduce(lambda known, runs: known | read_places.fold(known, {"p": runs}), order, {})

    assert known(random.sample(batches, len(batches))) == known(batches)


def test_a_row_of_a_load_behind_changes_is_a_reload() -> None:
    """K-18: in a partition without changes only up to where it was read to its end."""
    starts = full_loads.fold({}, {"p": LoadPlaces(3, 5)}, {}, {"q": 8})
    assert starts == ({"p": 5, "q": 8}, None)
    assert full_loads.fold(starts[0], {"q": LoadPlaces(9, None)}, {}, {})[1] is not None
    assert full_loads.fold({}, {"p": LoadPlaces(None, 5)}, {"p": 6}, {})[0] == {}, "from before the newest load"
