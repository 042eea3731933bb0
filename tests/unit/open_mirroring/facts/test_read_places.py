"""Which places of a partition were read, and which are missing (G-113)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from open_mirroring.facts.read_places import RUNS_KEPT, Run, bounded, gaps, joined

PLACES = st.sets(st.integers(0, 60), min_size=1)


@given(st.lists(PLACES, min_size=1))
def test_runs_and_gaps_show_every_place_whatever_was_read_when_g_113(batches: list[set[int]]) -> None:
    """G-113: runs are what was read, gaps what was not, whatever came in whichever batch."""
    known: list[Run] = []
    for read in batches:
        known = joined([*known, *(Run(place, place) for place in read)])
    every = set().union(*batches)
    assert {place for first, last in known for place in range(first, last + 1)} == every
    missing = {place for first, last in gaps(known) for place in range(first, last + 1)}
    assert missing == set(range(min(every), max(every))) - every


def test_beyond_a_bound_runs_are_forgotten_and_no_gap_is_g_113() -> None:
    """G-113: what was read may be told as missing, never the other way round."""
    runs = [Run(3 * n, 3 * n + 1) for n in range(RUNS_KEPT + 5)]
    kept = bounded(runs)
    assert (len(kept), kept[0], kept[-1]) == (RUNS_KEPT, runs[0], runs[-1])
    missing = {place for first, last in gaps(kept) for place in range(first, last + 1)}
    assert missing >= {place for first, last in gaps(runs) for place in range(first, last + 1)}
    assert bounded(runs[:7]) == runs[:7]
