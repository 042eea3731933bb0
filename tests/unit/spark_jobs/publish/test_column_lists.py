"""What the column lists of a table say: which rows are whole, which columns are new, gone or of another type."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

import pytest

from open_mirroring.changes.column_history import FormerColumn
from open_mirroring.changes.manifest import Manifest
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.config import Table
from open_mirroring.facts.column_lists import COLUMN_LISTS
from open_mirroring.ledger.batch_contents import record_contents
from open_mirroring.protocols.publishing import Intent, Work
from spark_jobs.plan.table_plan import PlanStop
from spark_jobs.publish.publication import Preparation, Prepared
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.sql_server.type_text import landing_type
from tests.books.types import TYPE_CHANGES, Consequence, consequence
from tests.hand_made_mirror import GUID, OTHER_GUID, HandMadeMirror
from tests.noted_facts import facts_about

ALL = [["order_id", "int", 0], ["name", "nvarchar(50)", 1], ["price", "decimal(8,2)", 2]]
LOW = "0000000A:01:1"
NOW = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)


def prepared(
    made: HandMadeMirror,
    *lists: tuple[list[list[Any]], bool],
    renames: bool = True,
    below: str | None = None,
    streams: tuple[str, ...] | None = None,
    **settings: Any,
) -> Prepared | PlanStop:
    """What publishing says of a table whose events announced these column lists, each with what rows proved of it.

    With *below* only what stands there is published; *streams* are the stream incarnations in which rows with them are.
    """
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (len(lists), LOW)})
    for place, (cols, whole) in enumerate(lists):
        stream = GUID if streams is None else streams[place]
        made.list_columns("dbo.orders", cols, f"{place:08d}:1:1", whole=whole, epoch=stream)
    declared = Table(source="dbo.orders", target="dbo/orders", key=("order_id",), **settings)
    work = Work("changes", 1, position_from=None if below is None else "", position_to=below)
    intent = Intent(first_number=1, batch_from=0, work=work)
    state = made.table("dbo.orders")
    with patch.object(CesFormat, "renames_columns", renames):
        preparation = Preparation(made.with_tables(declared), made.reader)
    return preparation.prepare([(state, intent)])[state.id]


def columns_of(found: Prepared | PlanStop) -> list[str]:
    assert isinstance(found, Prepared), found
    return [column.name for column in found.schema.columns]


def test_events_that_may_carry_only_what_changed_are_refused_with_the_setting_to_change_c44_c70_g04(
    made: HandMadeMirror,
) -> None:
    """F-55: the target needs whole rows."""
    found = prepared(made, (ALL, True), ([ALL[0], ALL[2]], False))
    assert isinstance(found, PlanStop)
    assert found.code == "PARTIAL_ROWS"
    assert "['name']" in found.what and "@include_all_columns = 1" in found.what


def test_the_first_events_of_a_table_cannot_pass_for_complete_rows_c44_g04(made: HandMadeMirror) -> None:
    """Nothing else is known yet, but the places in the table have a gap."""
    assert getattr(prepared(made, ([ALL[0], ALL[2]], False)), "code", "") == "PARTIAL_ROWS"


@pytest.mark.parametrize(("whole", "settings"), [(False, {"full_rows": True}), (True, {})])
def test_complete_rows_that_lack_a_column_say_that_it_was_dropped_c75_g07(
    made: HandMadeMirror, whole: bool, settings: dict[str, Any]
) -> None:
    """G-60: DDL sends no event; whether a row is whole is reported by the mirror file, or proved by a row."""
    found = prepared(made, (ALL, True), (ALL[:2], whole), **settings)
    assert columns_of(found) == ["order_id", "name", "price"]
    assert isinstance(found, Prepared)
    assert found.gone == {"price": "000000:00000001:1:1"}


@pytest.mark.parametrize("below", [None, "000000:00000002:1"])
def test_a_row_behind_a_stop_proves_what_rows_before_it_lack_g60_g61(made: HandMadeMirror, below: str | None) -> None:
    """Two changes of structure, and an insert behind both: what stands between them is published before the stop."""
    retyped = [ALL[0], ["name", "int", 1]]
    found = prepared(made, (ALL, True), (ALL[:2], False), (retyped, True), below=below)
    if below is None:
        assert isinstance(found, PlanStop)
        assert (found.code, found.at) == ("SCHEMA_CHANGED", "000000:00000002:1:1")
    else:
        assert columns_of(found) == ["order_id", "name", "price"]


def test_a_column_that_came_back_as_another_is_asked_for_before_anything_of_it_is_published_g66(
    made: HandMadeMirror,
) -> None:
    """Its earlier values, published up to the question, would be of another type than the column of now."""
    other, back = ["cost", "decimal(8,2)", 2], ["price", "datetime2(3)", 3]
    found = prepared(made, (ALL, True), (ALL[:2], True), ([*ALL[:2], other], True), ([*ALL[:2], other, back], True))
    assert isinstance(found, PlanStop)
    assert (found.code, found.at) == ("RENAME_POSSIBLE", None) and "'cost'" in found.what


def test_the_values_of_a_column_that_went_twice_are_those_of_the_second_one_g66(made: HandMadeMirror) -> None:
    back = ["price", "int", 2]
    found = prepared(made, (ALL, True), (ALL[:2], True), ([*ALL[:2], back], True), (ALL[:1], True), renames=False)
    assert isinstance(found, Prepared)
    assert [column.type for column in found.schema.columns] == ["int32", "string", "int32"]


def test_an_older_list_that_comes_late_is_no_drop_c75(made: HandMadeMirror) -> None:
    assert columns_of(prepared(made, (ALL[:2], True), (ALL, True))) == ["order_id", "name", "price"]


def test_absent_columns_are_completed_where_the_mirror_file_says_so_c44_c70_g04(made: HandMadeMirror) -> None:
    found = prepared(made, (ALL, True), ([ALL[0], ALL[2]], False), complete_rows=True)
    assert columns_of(found) == ["order_id", "name", "price"]
    assert isinstance(found, Prepared)
    assert all(plan.columns.completing for plan, _ in found.plans)


def test_a_new_column_is_learned_from_the_next_change_c75_g07(made: HandMadeMirror) -> None:
    added = [*ALL, ["note", "nvarchar(max)", 3]]
    assert columns_of(prepared(made, (ALL, True), (added, False))) == ["order_id", "name", "price", "note"]


def test_a_column_whose_type_is_never_streamed_is_a_gap_and_no_partial_row_c77(made: HandMadeMirror) -> None:
    """An xml column in the middle of the table is in no event; any insert proves that the rest is the whole row."""
    assert columns_of(prepared(made, ([ALL[0], ALL[2]], True))) == ["order_id", "price"]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ([["price", "nvarchar(20)", 2]], "SCHEMA_CHANGED"),
        ([["price", "bit", 2]], "SCHEMA_CHANGED"),
        ([["price", "decimal(9,1)", 2]], "SCHEMA_CHANGED"),
        ([ALL[2], ["PRICE", "decimal(8,2)", 3]], "COLUMN_NAME_INVALID"),
    ],
)
def test_a_column_that_changed_its_type_stops_the_table_g07(made: HandMadeMirror, changed: Any, code: str) -> None:
    """G-65: a type that does not hold all values of both, or of which the source rounded those of other rows."""
    assert getattr(prepared(made, (ALL, True), ([*ALL[:2], *changed], True)), "code", "") == code


@pytest.mark.parametrize("published", [False, True])
@pytest.mark.parametrize(
    ("kind", "landing"),
    [("decimal(9,2)", "decimal(9,2)"), ("decimal(9,3)", "decimal(9,3)"), ("decimal(6,2)", "decimal(8,2)")],
)
def test_a_wider_type_is_that_of_the_first_files_and_stops_behind_them_g65(
    made: HandMadeMirror, kind: str, landing: str, published: bool
) -> None:
    """F-87: a narrower type goes on in the wider one."""
    if published:
        columns = [["order_id", "int32"], ["name", "string"], ["price", "decimal(8,2)"]]
        made.set_table("dbo.orders", columns=json.dumps(columns), published_batch=1)
    found = prepared(made, (ALL, True), ([*ALL[:2], ["price", kind, 2]], True))
    if published and landing != "decimal(8,2)":
        assert (getattr(found, "code", ""), getattr(found, "at", "")) == ("SCHEMA_CHANGED", "000000:00000001:1:1")
    else:
        assert isinstance(found, Prepared) and found.schema.columns[2].type == landing


@pytest.mark.parametrize(("old", "new"), TYPE_CHANGES)
def test_what_the_table_of_types_says_is_what_becomes_of_a_table_g65(made: HandMadeMirror, old: str, new: str) -> None:
    """Published with the old type; whether the log alone tells it is asked with nothing published."""
    lists = [([*ALL[:2], ["price", kind, 2]], True) for kind in (old, new)]
    columns = [["order_id", "int32"], ["name", "string"], ["price", landing_type(old)]]
    made.set_table("dbo.orders", columns=json.dumps(columns), published_batch=1)
    found, said = prepared(made, *lists), consequence(old, new)
    assert isinstance(found, Prepared) == (said in (Consequence.GOES_ON, Consequence.UNVERIFIED))
    if isinstance(found, Prepared):
        assert bool(found.unverified) == (said is Consequence.UNVERIFIED)
        return
    declared = Table(source="dbo.orders", target="dbo/orders", key=("order_id",))
    with patch.object(CesFormat, "renames_columns", True):
        preparation = Preparation(made.with_tables(declared), made.reader)
    try:
        preparation.schema_from_log(made.table("dbo.orders"))
    except PlanStop:
        assert said is Consequence.STOPS
    else:
        assert said is Consequence.REBUILT


def test_a_type_that_lands_alike_may_have_changed_values_and_is_reported_g65(made: HandMadeMirror) -> None:
    moments = [[*ALL[:2], ["at", kind, 2]] for kind in ("datetimeoffset(3)", "datetime2(3)")]
    found = prepared(made, (moments[0], True), (moments[1], True))
    assert isinstance(found, Prepared) and found.unverified == {"at": "00000001:1:1"}


@pytest.mark.parametrize(("old", "new", "goes_on"), [("int", "bigint", True), ("time(3)", "time(7)", False)])
def test_a_key_has_to_keep_its_spelling_g02_g65(made: HandMadeMirror, old: str, new: str, goes_on: bool) -> None:
    found = prepared(made, *(([["order_id", kind, 0], ALL[1]], True) for kind in (old, new)))
    assert isinstance(found, Prepared) == goes_on and getattr(found, "code", "SCHEMA_CHANGED") == "SCHEMA_CHANGED"


def test_a_column_that_differs_in_case_only_is_the_same_one_g67(made: HandMadeMirror) -> None:
    found = prepared(made, (ALL, True), ([*ALL[:2], ["PRICE", "decimal(8,2)", 2]], True))
    assert columns_of(found) == ["order_id", "name", "PRICE"], "the newest spelling, where nothing is published"
    assert isinstance(found, Prepared)
    assert (found.gone, found.unverified) == ({}, {})


def test_another_spelling_than_that_of_the_files_has_the_table_built_again_g67(made: HandMadeMirror) -> None:
    columns = [["order_id", "int32"], ["name", "string"], ["price", "decimal(8,2)"]]
    made.set_table("dbo.orders", columns=json.dumps(columns), published_batch=1)
    found = prepared(made, (ALL, True), ([*ALL[:2], ["PRICE", "decimal(8,2)", 2]], True))
    assert isinstance(found, PlanStop)
    assert (found.code, found.at) == ("COLUMN_RENAMED", "000000:00000001:1:1")


SWAPPED = [ALL[0], ["price", "decimal(8,2)", 1], ["name", "nvarchar(50)", 2]]


@pytest.mark.parametrize(("orders", "moved"), [((ALL, SWAPPED), ["name"]), ((ALL, SWAPPED, ALL), [])])
def test_a_column_that_moved_behind_others_was_added_again_g07(
    made: HandMadeMirror, orders: tuple[list[list[Any]], ...], moved: list[str]
) -> None:
    """Lists that alternate show nothing."""
    found = prepared(made, *((one, True) for one in orders))
    assert isinstance(found, Prepared) and list(found.unverified) == moved


def test_a_column_that_lands_as_the_mirror_file_says_may_have_been_renamed_g60_g110(made: HandMadeMirror) -> None:
    """Its new name lands as the source's type, which is the same as before."""
    found = prepared(made, (ALL, True), ([*ALL[:2], ["cost", "decimal(8,2)", 2]], True), types={"price": "string"})
    assert isinstance(found, PlanStop)
    assert found.code == "RENAME_POSSIBLE" and "'cost'" in found.what


def test_a_table_that_begins_with_a_part_of_its_rows_notes_how_all_are_read_g66_g67(made: HandMadeMirror) -> None:
    """Once it has begun, a column that came back and another spelling would stop it, whenever it is rebuilt."""
    named, back = ["Name", "nvarchar(50)", 1], ["price", "datetime2(3)", 2]
    found = prepared(made, (ALL, True), (ALL[:2], True), ([ALL[0], named, back], True), below="000000:00000001:1")
    assert isinstance(found, Prepared)
    assert columns_of(found) == ["order_id", "Name"]
    assert found.former == (FormerColumn("price", "000000:00000001:1:1", None),)


@pytest.mark.parametrize(("columns", "asks"), [(("order_id", "name", "price"), True), (None, False)])
def test_a_column_that_is_gone_since_the_stream_began_again_may_have_a_name_that_is_left_out_g60(
    made: HandMadeMirror, columns: tuple[str, ...] | None, asks: bool
) -> None:
    """C-74: while it streams the source renames nothing, between two incarnations it may have."""
    made.accept("dbo.orders", OTHER_GUID, 1)
    streams = (GUID, OTHER_GUID)
    found = prepared(made, (ALL, True), (ALL[:2], True), streams=streams, columns=columns, renames=False)
    assert getattr(found, "code", "") == ("RENAME_POSSIBLE" if asks else "")


def test_types_of_one_landing_type_are_no_change_g07(made: HandMadeMirror) -> None:
    """A longer text, or another kind of it, lands as it did."""
    widened = [ALL[0], ["name", "nvarchar(max)", 1], ALL[2]]
    assert columns_of(prepared(made, (ALL, True), (widened, True))) == ["order_id", "name", "price"]


def test_a_list_is_as_old_as_its_oldest_row_however_late_that_comes_g07(made: HandMadeMirror) -> None:
    """Rows of a newer structure that leave the new column out spell the older list, and may be read before it."""
    older, newer = json.dumps(ALL[:2]), json.dumps(ALL)
    at = {number: f"0000000{number}:1:1" for number in (1, 5, 6)}
    batches = [
        {newer: {GUID: PlacesSeen(*[at[5]] * 4)}, older: {GUID: PlacesSeen(at[6], at[6])}},
        {older: {GUID: PlacesSeen(*[at[1]] * 4)}},
    ]
    with made.ledger.begin() as db:
        for number, lists in enumerate(batches, 1):
            record_contents(db, "shop", number, NOW, Manifest((), {}, facts_about(COLUMN_LISTS, {"dbo.orders": lists})))
    found = made.reader.column_lists([made.ids["dbo.orders"]])[made.ids["dbo.orders"]]
    assert [(one.cols, one.whole) for one in found] == [(older, True), (newer, True)]
    assert columns_of(prepared(made)) == ["order_id", "name", "price"]


@pytest.mark.parametrize(
    ("lists", "is_known"),
    [
        ([([ALL[0], ALL[2]], False)], False),
        ([(ALL[:2], False), ([ALL[0], ALL[2]], False)], False),
        ([(ALL[:2], False), (ALL, True)], True),
        ([], True),
    ],
)
def test_rows_are_completed_once_a_row_proved_which_columns_there_are_g04(
    made: HandMadeMirror, lists: list[tuple[list[list[Any]], bool]], is_known: bool
) -> None:
    """A column that every update so far leaves out is no column that is NULL."""
    found = prepared(made, *lists, complete_rows=True)
    assert isinstance(found, PlanStop) is not is_known
    assert is_known or found.code == "ROW_INCOMPLETE"  # type: ignore[union-attr]
