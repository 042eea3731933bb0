"""However a split event's pieces are cut, ordered and repeated, they are the event, or they wait (C-51 to C-55)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from spark_jobs.changelog.schema import LogRow, RawMessage
from spark_jobs.sources.ces.changes import Outcome
from spark_jobs.sources.ces.decoder import join
from spark_jobs.sources.contract.decoded import Waiting
from tests.ces_messages import decode, decoder, event, split

COLS = [("id", "int"), ("name", "nvarchar(max)")]
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


def fragment_rows(messages: list[bytes]) -> list[LogRow]:
    """Each piece decoded on its own, as from a partition and a run of its own."""
    return [
        decoder().decode([RawMessage(f"p/{place % 3}", place, body)]).rows[0] for place, body in enumerate(messages)
    ]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data(), NAMES, st.sampled_from("ac"), st.sampled_from([0, 1]))
def test_pieces_in_any_order_and_number_join(data: st.DataObject, name: str, generation: str, base: int) -> None:
    whole = event("INS", {"id": "7", "name": name}, cols=COLS, generation=generation)
    cuts = sorted(data.draw(st.sets(st.integers(1, 300), min_size=1, max_size=6)))
    rows = fragment_rows(split(whole, cuts, base))
    assert {row.kind for row in rows} == {"fragment"}
    delivered = data.draw(st.permutations(rows + data.draw(st.lists(st.sampled_from(rows), max_size=4))))
    joined = join(delivered, decoder())
    assert isinstance(joined, Outcome)
    assert joined == join(rows, decoder())
    assert [row._replace(origin="", place=0) for row in joined.rows] == [
        row._replace(origin="", place=0) for row in decode(whole).rows
    ]


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data(), st.sampled_from("ac"), st.sampled_from([0, 1]))
def test_a_proper_part_of_the_pieces_always_waits(data: st.DataObject, generation: str, base: int) -> None:
    whole = event("INS", {"id": "7", "name": "x"}, cols=COLS, generation=generation)
    cuts = sorted(data.draw(st.sets(st.integers(1, 300), min_size=1, max_size=6)))
    rows = fragment_rows(split(whole, cuts, base))
    part = data.draw(st.lists(st.sampled_from(rows), min_size=1, max_size=10))
    if {row.piece for row in part} == {row.piece for row in rows}:
        part = [row for row in part if row.piece != rows[-1].piece]
    if part:
        assert isinstance(join(part, decoder()), Waiting)
