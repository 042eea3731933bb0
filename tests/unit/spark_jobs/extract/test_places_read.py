"""A task notes which places it reads, the same by blocks and message by message (G-113)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.facts.read_places import READ_PLACES, Run, joined
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.extract.read_task import PlacesRead
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.contract.message_blocks import blocks_of

MESSAGES = st.lists(st.tuples(st.sampled_from(["cdc/0", "cdc/1"]), st.integers(0, 30), st.booleans()))


@given(MESSAGES)
def test_blocks_and_messages_note_the_same_places_g_113(found: list[tuple[str, int, bool]]) -> None:
    """G-113: each place once, by partition; a damaged message counts where it claims to stand."""
    messages = [
        Damage("file", 0, "FORMAT_UNSUPPORTED", "", b"", (origin, place))
        if damaged
        else RawMessage(origin, place, b"{}")
        for origin, place, damaged in found
    ]
    expected = {origin: joined(Run(place, place) for o, place, _ in found if o == origin) for origin, _, _ in found}
    one_by_one, by_blocks = PlacesRead(), PlacesRead()
    assert list(one_by_one.noting(messages, "unbroken")) == messages
    for block in blocks_of(messages):
        by_blocks.note(block, "unbroken")
    assert READ_PLACES.of_mirror(one_by_one.facts()) == expected
    assert READ_PLACES.of_mirror(by_blocks.facts()) == expected


def test_what_each_numbering_shows_g_113() -> None:
    """G-113: a bound range is read whole; rising numbers tell their first and last; others nothing."""
    bound = PlacesRead()
    bound.begin(BoundRange("cdc/0", 5, 9), "bound")
    bound.begin(BoundRange("cdc/1", 3, 3), "bound")
    bound.begin(BoundRange("a.jsonl", 0, 100), "unbroken")
    assert READ_PLACES.of_mirror(bound.facts()) == {"cdc/0": [(5, 8)]}
    rising, nothing = PlacesRead(), PlacesRead()
    window = "hub/0/2026/01/05/09/{}/00.avro"
    messages = [RawMessage(window.format(minute), place, b"{}") for minute, place in (("10", 4), ("15", 9), ("05", 2))]
    for places, numbering in ((rising, "rising"), (nothing, "")):
        assert len(list(places.noting(messages, numbering))) == 3  # type: ignore[arg-type]
    assert READ_PLACES.of_mirror(rising.facts()) == {"hub/0": [(2, 9)]}
    assert READ_PLACES.of_mirror(nothing.facts()) == {}
