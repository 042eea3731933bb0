"""The ledger keeps which places were read, and who accepted that others are lost (G-113)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from open_mirroring.changes.column_notes import ColumnNote
from open_mirroring.facts.read_places import READ_PLACES, Run
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.columns import verify_columns
from open_mirroring.ledger.declaring import TableDeclaration, declare
from open_mirroring.ledger.documents import PLACES
from open_mirroring.ledger.read_places import accept_gaps, record_places
from tests.hand_made_mirror import HandMadeMirror
from tests.noted_facts import facts_about


def record(made: HandMadeMirror, places: dict[str, Sequence[Sequence[int]]], batch: int = 1) -> dict[str, list[Run]]:
    with made.ledger.begin() as db:
        record_places(db, "shop", batch, facts_about(READ_PLACES, {"": places}))
        return PLACES.of(db, "shop")


def test_accepted_gaps_are_closed_once_with_an_entry_of_the_audit_g_113(made: HandMadeMirror) -> None:
    """G-113, G-30: who asks again by the same request gets the same answer, and closes nothing new."""
    record(made, {"cdc/0": [(0, 4), (7, 9)], "cdc/1": [(0, 3)]})
    reason = Reason("Ada", "the disk was full")
    assert accept_gaps(made.ledger, "shop", reason, request="run 1") == 2
    assert record(made, {"cdc/1": [(5, 5)]}) == {"cdc/0": [(0, 9)], "cdc/1": [(0, 3), (5, 5)]}
    assert accept_gaps(made.ledger, "shop", reason, request="run 1") == 2
    assert record(made, {})["cdc/1"] == [(0, 3), (5, 5)]
    with made.ledger.connect() as db:
        entries: list[Any] = list(db.scalars(sa.select(t.audit.c.detail).where(t.audit.c.event == "OFFSETS_ACCEPTED")))
    [entry] = [json.loads(entry) if isinstance(entry, str) else entry for entry in entries]
    assert (entry["why"], entry["offsets"]) == ("the disk was full", {"cdc/0": [[5, 6]]})
    assert accept_gaps(made.ledger, "shop", reason) == 1
    assert accept_gaps(made.ledger, "shop", reason) == 0


@pytest.mark.parametrize("gaps", [{"offset_gaps": ["expected"]}, {}])
def test_gaps_that_files_were_expected_to_have_are_none_of_the_topic_that_is_read_then_g_113(
    made: HandMadeMirror, gaps: dict[str, list[str]]
) -> None:
    """G-113: what is missing between the files and the topic still is."""
    names = [TableDeclaration(source, made.table(source).folder, made.table(source).keys, False) for source in made.ids]
    declare(made.ledger, "shop", names, {"transport": ["files"], "path": ["source"], **gaps})
    record(made, {"cdc/0": [(0, 4), (7, 9)]})
    declare(made.ledger, "shop", names, {"transport": ["kafka"], "topics": ["cdc"]})
    before = [(0, 9)] if gaps else [(0, 4), (7, 9)]
    assert record(made, {"cdc/0": [(12, 13)]}, 2) == {"cdc/0": [*before, (12, 13)]}


def noted(made: HandMadeMirror, source: str) -> list[ColumnNote]:
    tables = made.reader.tables()
    return made.reader.unverified_columns(tables.values()).get(tables[source].id, [])


def story(made: HandMadeMirror, source: str) -> list[str]:
    """What is noted of a table's rows."""
    return [one.text(repr(one.column)) for one in noted(made, source)]


def test_a_partition_that_comes_up_late_leaves_loaded_tables_unverified_g143(made: HandMadeMirror) -> None:
    """G-143: its first messages may be behind the load. Not at the first read, nor of one read from its beginning."""
    made.set_table("dbo.orders", load_state="loaded")
    record(made, {"cdc/0": [(700, 800)]})
    record(made, {"cdc/1": [(0, 5)], "cdc/0": [(801, 802)]}, 2)
    assert story(made, "dbo.orders") == []
    record(made, {"cdc/2": [(5, 7)]}, 3)
    (note,) = story(made, "dbo.orders")
    assert "rows unverified up to batch 3" in note and "'cdc/2' from 5 on" in note
    assert story(made, "dbo.customers") == [], "reports tell BEGUN_LATE of it"
    assert (
        verify_columns(made.ledger, made.ids["dbo.orders"], noted(made, "dbo.orders")) == 1
        and story(made, "dbo.orders") == []
    )


def test_a_partition_that_had_nothing_at_the_first_look_is_known_g143(made: HandMadeMirror) -> None:
    """G-143, G-113: it does not come up late with its next message; what is missing before that is a gap."""
    made.set_table("dbo.orders", load_state="loaded")
    assert record(made, {"cdc/0": [(0, 4)], "cdc/1": [(500, 499)]})["cdc/1"] == [(500, 499)]
    assert record(made, {"cdc/1": [(500, 501)], "cdc/0": [(7, 6)]}, 2) == {
        "cdc/0": [(0, 4), (7, 6)],
        "cdc/1": [(500, 501)],
    }
    assert story(made, "dbo.orders") == []
    assert accept_gaps(made.ledger, "shop", Reason("Ada", "expired")) == 2
    assert record(made, {"cdc/0": [(7, 9)]}) == {"cdc/0": [(0, 9)], "cdc/1": [(500, 501)]}


def test_capture_files_of_another_layout_are_reported_and_no_partitions_g143(made: HandMadeMirror) -> None:
    """G-143: one that is missing is not seen, so a proof holds until more of them are read."""
    for batch in (1, 2):
        assert record(made, {f"ns/hub/2026/{batch}/0.avro": [(5 * batch, 5 * batch)]}, batch) == {}
    for source in made.ids:
        (note,) = story(made, source)
        assert "up to batch 2" in note and "a missing file is not seen" in note
        assert verify_columns(made.ledger, made.ids[source], noted(made, source)) == 1
    record(made, {"ns/hub/2026/3/0.avro": [(15, 15)]}, 3)
    assert len(story(made, "dbo.orders")) == 1


def test_a_proof_verifies_nothing_that_is_noted_while_it_compares_g142_g143(made: HandMadeMirror) -> None:
    """G-142, G-143: what it compared may lack what came meanwhile, also where the same was noted before."""
    nameless = {"ns/hub/2026/1/0.avro": [(5, 5)]}
    asked: list[str] = []
    sa.event.listen(made.ledger, "before_cursor_execute", lambda *call: asked.append(call[2]))
    record(made, nameless)
    assert sum("INSERT INTO document" in one for one in asked) == 1, "for all tables at once"
    compared = noted(made, "dbo.orders")
    record(made, nameless, 2)
    assert verify_columns(made.ledger, made.ids["dbo.orders"], compared) == 0
    (note,) = story(made, "dbo.orders")
    assert "up to batch 2" in note
