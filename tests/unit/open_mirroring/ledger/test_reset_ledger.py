"""The ledger side of a reset: who may ask for it, what it fences, what a new generation begins with (I12, I13, D13)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.changes.horizon import MirrorHorizon
from open_mirroring.changes.log_position import LOAD_ORDINAL, load_epoch
from open_mirroring.changes.manifest import Manifest
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.changes.source_reloads import NewestLoad, ReloadedRows
from open_mirroring.codes import WHY_LOAD
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.target import TablesFolder
from open_mirroring.facts.column_lists import COLUMN_LISTS
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.columns import record_columns
from open_mirroring.ledger.decisions import resume_table
from open_mirroring.ledger.declaring import TableDeclaration, declare
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.horizon import move_horizon
from open_mirroring.ledger.load_ledger import LoadLedger, LoadPlan
from open_mirroring.ledger.publish_ledger import PublishLedger
from open_mirroring.ledger.reading import NOTHING, LedgerReader, published_position
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.protocols.extracting import Batch
from open_mirroring.protocols.publishing import Acquire, Finished, Intent, Lost, State, Work, step
from open_mirroring.protocols.resetting import RESET_OPEN, ResetRow, ResetStage
from open_mirroring.protocols.verdicts import Verdict
from open_mirroring.reconciliation.inspection import declaration, inspect_mirror
from tests.hand_made_mirror import GUID, OTHER_GUID, HandMadeMirror
from tests.noted_facts import facts_about

ORDERS = "dbo.orders"
ASKED = Reason("Ada", "the key changed")
AT = datetime(2026, 1, 5, 10, 0, tzinfo=UTC)
KEYED = TableDeclaration(ORDERS, "dbo.schema/orders", ("order_id",), False)


@pytest.fixture
def resets(made: HandMadeMirror) -> ResetLedger:
    return ResetLedger(made.ledger, "shop")


def advance(resets: ResetLedger, *stages: ResetStage, source: str = ORDERS) -> ResetRow:
    row = resets.acquire(source)
    for stage in stages:
        reply = resets.advance(source, row.version, stage)
        assert isinstance(reply, ResetRow)
        row = reply
    return row


TO_NEW_GENERATION = (ResetStage.FOLDER_DELETED, ResetStage.TABLE_GONE, ResetStage.REBUILDING)


def test_a_request_fences_whoever_publishes_and_the_gate_holds_the_table(
    made: HandMadeMirror, resets: ResetLedger
) -> None:
    """I12: an open intent is abandoned; no writer gets past the row until the new generation begins."""
    publishing, table = PublishLedger(made.ledger, "shop"), made.ids[ORDERS]
    version = publishing.acquire([table])[table].row.version
    publishing.establish({table: (version, "etag")})
    intent = Intent(1, 0, Work("changes", 1))
    assert not isinstance(publishing.intend({table: (version + 1, intent)})[table], Lost)
    assert resets.request_reload(KEYED, ASKED)
    assert isinstance(publishing.seal({table: (version + 2, (), None)})[table], Lost)  # type: ignore[dict-item]
    row = publishing.acquire([table])[table]
    assert row.row.intent is None and row.row.resetting
    assert step(State(Acquire()), row).request == Finished(RESET_OPEN)
    finding = inspect_mirror(made.mirror, made.ledger)
    assert (finding[ORDERS].verdict, finding[ORDERS].code) == (Verdict.HOLD, RESET_OPEN)
    assert "asked for by Ada" in finding[ORDERS].what and finding[ORDERS].next_step
    assert finding["dbo.customers"].verdict is Verdict.PASS
    advance(resets, *TO_NEW_GENERATION)
    row = publishing.acquire([table])[table]
    assert not row.row.resetting and not row.row.established
    assert (row.row.generation, row.row.confirmed, row.row.published_batch) == (2, 0, 0)


def test_every_record_is_written_once_and_audited_with_who_and_why(made: HandMadeMirror, resets: ResetLedger) -> None:
    """D13: a write with an older version is lost."""
    made.stop(ORDERS, "SCHEMA_CHANGED")
    assert resets.request_reload(KEYED, ASKED)
    old = resets.acquire(ORDERS).version
    row = advance(resets, *TO_NEW_GENERATION)
    assert resets.advance(ORDERS, old, ResetStage.FOLDER_DELETED) == resets.advance(ORDERS, old, ResetStage.DROPPED)
    assert advance(resets, ResetStage.TABLE_BACK).stage is None and row.stage is ResetStage.REBUILDING
    assert made.table(ORDERS).reset is None and made.table(ORDERS).stop_code is None
    assert [event for _, event, _ in made.audit()] == [
        "RESET_REQUESTED",
        "FOLDER_DELETED",
        "TABLE_GONE",
        "REBUILDING",
        "TABLE_BACK",
    ]
    assert all((detail["who"], detail["why"]) == ASKED for _, _, detail in made.audit())
    assert made.audit()[0][2]["cleared"]["code"] == "SCHEMA_CHANGED"


def test_a_request_is_made_once_and_begins_again_only_for_a_reason(made: HandMadeMirror, resets: ResetLedger) -> None:
    """F-74: with another target both folders go, the one that it has and the one that it had."""
    assert resets.request_reload(KEYED, ASKED)
    assert not resets.request_reload(KEYED, ASKED)
    advance(resets, *TO_NEW_GENERATION)
    assert not resets.request_reload(KEYED, ASKED), "a retry goes on"
    made.stop(ORDERS, "KEY_INVALID")
    assert resets.request_reload(KEYED, ASKED), "what it published was stopped"
    moved = KEYED._replace(folder="dbo.schema/sales")
    assert resets.request_reload(moved, ASKED)
    assert resets.acquire(ORDERS).folders == ("dbo.schema/orders",), "only what was ours is deleted"
    assert resets.request_reload(moved, ASKED, again=True)
    assert resets.acquire(ORDERS).folders == ("dbo.schema/orders", "dbo.schema/sales")


@pytest.mark.parametrize("code", sorted(WHY_LOAD))
def test_a_log_that_lacks_changes_rebuilds_nothing(code: str, made: HandMadeMirror, resets: ResetLedger) -> None:
    made.stop(ORDERS, code)
    with pytest.raises(TerminalError, match="LOAD_NEEDED"):
        resets.request_reload(KEYED, ASKED)
    assert made.table(ORDERS).reset is None and made.table(ORDERS).stop_code == code
    made.set_mirror(committed=7, open_number=8)
    assert resets.request_reload(KEYED._replace(loads=True), ASKED)
    assert made.table(ORDERS).start.log_from == 8, "nothing that was bound before counts"


@pytest.mark.parametrize("logged", [False, True])
@pytest.mark.parametrize("published", [False, True])
def test_a_key_that_nothing_goes_by_is_fixed_without_a_load(
    logged: bool, published: bool, made: HandMadeMirror, resets: ResetLedger
) -> None:
    """G-69, I13: the new generation waits until what the wrong key rejected is read again."""
    made.commit(1, {ORDERS: (1, "a")} if logged else {"dbo.customers": (1, "a")})
    made.stop(ORDERS, "KEY_UNKNOWN")
    made.set_table(ORDERS, established=True, confirmed=int(published))
    other = KEYED._replace(keys=("number",))
    if logged or published:
        with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*logged by the key"):
            resets.request_reload(other, ASKED)
        assert made.table(ORDERS).stop_code == "KEY_UNKNOWN" and made.table(ORDERS).reset is None
    else:
        assert resets.request_reload(other, ASKED)
        found = made.table(ORDERS)
        assert (found.keys, found.stop_code, found.start.log_from) == (("number",), "KEY_CORRECTED", 0)
        assert not resets.request_reload(other, ASKED), "it is under way"
        made.stop(ORDERS, "CHANGES_MISSING")
        with pytest.raises(TerminalError, match="LOAD_NEEDED"):
            resets.request_reload(other._replace(keys=("id",)), ASKED)


def test_a_loaded_table_is_not_rebuilt_from_the_log(made: HandMadeMirror, resets: ResetLedger) -> None:
    made.set_table(ORDERS, load_state="loaded")
    with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*came from a load"):
        resets.request_reload(KEYED, ASKED)


def test_a_log_of_which_maintenance_dropped_a_part_rebuilds_only_tables_that_lost_nothing(
    made: HandMadeMirror, resets: ResetLedger
) -> None:
    """G-05: what is dropped may hold the newest change of a key; a table that began later has all of its changes."""
    for source in ("dbo.orders", "dbo.customers"):
        made.accept(source, GUID, 0)
    made.commit(1, {ORDERS: (1, "0001:01:1")})
    made.commit(2, {ORDERS: (1, "0002:01:1"), "dbo.customers": (1, "0003:01:1")})
    assert move_horizon(made.ledger, "shop", 2, MirrorHorizon(2, AT, 1), [])
    with pytest.raises(TerminalError, match=r"LOAD_NEEDED.*dropped its changes up to batch 1"):
        resets.request_reload(KEYED, ASKED)
    customers = TableDeclaration("dbo.customers", "dbo.schema/customers", ("customer_id",), False)
    assert resets.request_reload(customers, ASKED)
    assert resets.request_reload(KEYED._replace(loads=True), ASKED)
    advance(resets, *TO_NEW_GENERATION)
    hand_over = LoadLedger(made.ledger, "shop").hand_over(made.ids[ORDERS])
    assert (hand_over.log_from, hand_over.highest_before) == (1, "0001:01:1"), "a load has to hold what is gone"
    assert hand_over.own_before == "0001:01:1"
    assert [part.batch for part in made.reader.history(ORDERS, 2, {GUID: ""})] == [2], "no plan opens what is gone"


def test_maintenance_that_did_not_see_a_request_drops_nothing(made: HandMadeMirror, resets: ResetLedger) -> None:
    """G-05, D13: from the request on the log is what the table may be rebuilt from."""
    made.commit(1, {ORDERS: (1, "0001:01:1")})
    assert resets.request_drop("dbo.customers", ASKED)
    known = [made.ids["dbo.customers"]]
    assert move_horizon(made.ledger, "shop", 1, MirrorHorizon(1, AT, 0), [], known)
    made.accept(ORDERS, GUID, 0)
    assert resets.request_reload(KEYED, ASKED)
    assert not move_horizon(made.ledger, "shop", 1, MirrorHorizon(1, AT, 1), [], known)
    assert made.reader.mirror_horizon() == MirrorHorizon(1, AT, 0)
    assert move_horizon(made.ledger, "shop", 1, MirrorHorizon(1, AT, 0), [], [*known, made.ids[ORDERS]])


def test_a_new_generation_holds_no_transaction_back_yet(made: HandMadeMirror, resets: ResetLedger) -> None:
    """C-88, I12: where the old life was cut, and what waited there, is no mark of the new one."""
    made.accept(ORDERS, GUID, 0)
    made.commit(1, {ORDERS: (5, "0005:01:1")})
    made.set_table(ORDERS, published_batch=1, published_position="000000:0003", waiting_rows=2)
    assert resets.request_reload(KEYED, ASKED)
    advance(resets, *TO_NEW_GENERATION)
    state = made.table(ORDERS)
    assert (state.row.published_batch, state.row.published_position, state.waiting_rows) == (0, None, 0)
    assert published_position(made.reader, state, {GUID: 0}) == NOTHING


def test_loaded_rows_in_the_log_are_no_stream(made: HandMadeMirror, resets: ResetLedger) -> None:
    """G-01, G-08: the first stream is the first, whatever was loaded before it; nobody is asked to accept a load."""
    made.commit(1, {ORDERS: (3, "-:0:1")}, epoch=load_epoch(1))
    loads = KEYED._replace(loads=True)
    assert resets.request_reload(loads, ASKED), "also where its table was dropped when the batch was completed"
    made.accept(ORDERS, load_epoch(1), LOAD_ORDINAL)
    advance(resets, *TO_NEW_GENERATION)
    assert made.table(ORDERS).start.stream_epoch == 0
    made.commit(2, {ORDERS: (1, "0001:01:1")})
    made.stop(ORDERS, "EPOCH_UNKNOWN")
    assert resets.request_reload(loads, ASKED)
    assert made.reader.epochs([made.ids[ORDERS]])[made.ids[ORDERS]] == {load_epoch(1): LOAD_ORDINAL, GUID: 0}


def test_a_load_that_goes_through_the_log_is_over_when_it_is_published(
    made: HandMadeMirror, resets: ResetLedger
) -> None:
    """F-75, G-08: before that the target has no table that could be back; an earlier load's rows are not waited for."""
    assert resets.request_reload(KEYED._replace(loads=True), ASKED)
    advance(resets, *TO_NEW_GENERATION)
    made.commit(1, {ORDERS: (3, "-:0:1")}, epoch=load_epoch(2))
    plan = LoadPlan("{}", (LoadColumn("order_id", "INT32"),), ((),))
    loads = LoadLedger(made.ledger, "shop")
    assert loads.bind(made.ids[ORDERS], plan, None) and loads.finish(made.ids[ORDERS], plan)
    assert not resets.acquire(ORDERS).rebuilt
    made.set_table(ORDERS, published_batch=1)
    made.commit(2, {ORDERS: (3, "-:0:1")}, epoch=load_epoch(1))
    assert resets.acquire(ORDERS).rebuilt


def test_another_tables_folder_is_not_taken(made: HandMadeMirror, resets: ResetLedger) -> None:
    with pytest.raises(TerminalError, match=r"CONFIG_INVALID.*'dbo.customers'"):
        resets.request_reload(KEYED._replace(folder="dbo.schema/customers"), ASKED)


def test_a_stream_that_began_again_is_accepted_with_a_load_and_several_are_not(
    made: HandMadeMirror, resets: ResetLedger
) -> None:
    """G-01: a load made after its beginning covers what lies between; which of two came first nobody knows."""
    loads = KEYED._replace(loads=True)
    made.accept(ORDERS, GUID, 0)
    made.commit(1, {ORDERS: (1, "0005:01:1")})
    made.commit(2, {ORDERS: (1, "0001:01:1")}, epoch=OTHER_GUID)
    made.commit(3, {ORDERS: (1, "0001:01:1")}, epoch="third")
    made.stop(ORDERS, "EPOCH_UNKNOWN")
    with pytest.raises(TerminalError, match="COMMAND_REFUSED"):
        resets.request_reload(loads, ASKED)
    made.accept(ORDERS, OTHER_GUID, 1)
    assert resets.request_reload(loads, ASKED)
    assert made.reader.epochs([made.ids[ORDERS]])[made.ids[ORDERS]] == {GUID: 0, OTHER_GUID: 1, "third": 2}
    advance(resets, *TO_NEW_GENERATION)
    hand_over = LoadLedger(made.ledger, "shop").hand_over(made.ids[ORDERS])
    assert (made.table(ORDERS).start.stream_epoch, hand_over.batch, hand_over.highest) == (2, 3, "0001:01:1")
    assert hand_over.above == "0001~", "above every change of that transaction, below the next one"


def test_a_load_forgets_the_column_lists_of_what_it_holds(made: HandMadeMirror, resets: ResetLedger) -> None:
    """I13: a list that only changes below the hand-over carried would stop the table again."""
    table = made.ids[ORDERS]
    made.accept(ORDERS, GUID, 0)
    for number, cols in ((1, "old"), (2, "both"), (3, "new")):
        made.commit(number, {ORDERS: (1, f"000{number}:01:1")})
        lists = facts_about(COLUMN_LISTS, {ORDERS: {one: {"": PlacesSeen(*["p"] * 4)} for one in (cols, "both")}})
        with made.ledger.begin() as db:
            manifest = Manifest([], {}, lists).to_json()
            db.execute(t.log_batch.update().where(t.log_batch.c.number == number).values(manifest=manifest))
    with made.ledger.begin() as db:
        found = (("old", "1"), ("both", "1"), ("new", "3"))
        known = {cols: {"": PlacesSeen(*[first] * 4)} for cols, first in found}
        record_columns(db, table, known, of_reading=False)
    assert resets.request_reload(KEYED._replace(loads=True), ASKED)
    advance(resets, *TO_NEW_GENERATION)
    plan = LoadPlan("{}", (LoadColumn("order_id", "INT32"),), ((),))
    assert LoadLedger(made.ledger, "shop").bind(table, plan, "0003")
    assert [found.cols for found in made.reader.column_lists([table])[table]] == ["both", "new"]


def test_a_batch_bound_after_a_changed_key_is_not_logged_by_the_old_one(
    made: HandMadeMirror, resets: ResetLedger
) -> None:
    """I13: a run that read the mirror file before the reset may neither bind nor seal a later batch."""
    stale = ExtractLedger(made.ledger, "shop", {ORDERS: ("order_id",)})
    version = stale.acquire().row.version
    assert resets.request_reload(KEYED._replace(keys=("number",), loads=True), ASKED)
    with pytest.raises(TerminalError, match="TABLE_REDECLARED"):
        stale.bind(version, Batch(1, "[]"), ())
    assert made.reader.mirror().open_batch is None
    fresh = ExtractLedger(made.ledger, "shop", {ORDERS: ("number",)})
    version = fresh.acquire().row.version
    bound = fresh.bind(version, Batch(1, "[]"), ())
    with pytest.raises(TerminalError, match="TABLE_REDECLARED"):
        stale.seal(bound.row.version, "{}")  # type: ignore[union-attr]
    assert not isinstance(fresh.seal(bound.row.version, "{}"), Lost)  # type: ignore[union-attr]


def test_a_dropped_table_is_the_same_one_when_it_comes_back_and_needs_a_load(
    made: HandMadeMirror, resets: ResetLedger
) -> None:
    """F-70, F-71: its changes in between were not read; lifting the stop would publish a log with a hole."""
    kept = [declaration(table) for table in made.mirror.tables if table.source != ORDERS]
    with pytest.raises(TerminalError, match=r"TABLE_REDECLARED.*drop-table"):
        declare(made.ledger, "shop", kept)
    assert resets.request_drop(ORDERS, ASKED)
    assert ORDERS in declare(made.ledger, "shop", kept), "not dropped yet, and no mistake any more"
    advance(resets, ResetStage.FOLDER_DELETED, ResetStage.TABLE_GONE, ResetStage.DROPPED)
    assert declare(made.ledger, "shop", kept) == {"dbo.customers": made.ids["dbo.customers"]}
    assert not resets.request_drop(ORDERS, ASKED), "done already"
    made.set_mirror(committed=4)
    assert declare(made.ledger, "shop", [*kept, KEYED])[ORDERS] == made.ids[ORDERS]
    state = made.table(ORDERS)
    assert (state.row.generation, state.start.log_from, state.stop_code) == (2, 4, "LOAD_NEEDED")
    with pytest.raises(TerminalError, match="COMMAND_REFUSED"):
        resume_table(made.ledger, "shop", ORDERS, ASKED)
    with pytest.raises(TerminalError, match="LOAD_NEEDED"):
        resets.request_reload(KEYED, ASKED)
    assert resets.request_reload(KEYED._replace(loads=True), ASKED)


def test_a_target_that_another_table_still_has_is_refused(made: HandMadeMirror, resets: ResetLedger) -> None:
    """F-74: a rename at the source is a drop and an addition; the folder is free once the drop is done."""
    kept = [declaration(table) for table in made.mirror.tables if table.source != ORDERS]
    renamed = KEYED._replace(source="dbo.sales")
    assert resets.request_drop(ORDERS, ASKED)
    with pytest.raises(TerminalError, match=r"CONFIG_INVALID.*'dbo.orders'"):
        declare(made.ledger, "shop", [*kept, renamed])
    advance(resets, ResetStage.FOLDER_DELETED, ResetStage.TABLE_GONE, ResetStage.DROPPED)
    assert declare(made.ledger, "shop", [*kept, renamed])["dbo.sales"] != made.ids[ORDERS]


def test_the_targets_tables_show_what_is_there(tmp_path: Path) -> None:
    """F-03: with and without schema; without the folder of all tables nobody can tell."""
    watch = TablesFolder(tmp_path / "Tables")
    assert watch.sees("shop.schema/orders") is None
    for place in ("shop/orders", "dbo/plain", "bare"):
        (tmp_path / "Tables" / place / "_delta_log").mkdir(parents=True)
    assert [watch.sees(f) for f in ("shop.schema/orders", "plain", "bare")] == [True, True, True]
    assert [watch.sees(f) for f in ("dbo.schema/orders", "orders")] == [False, False]


def logged(made: HandMadeMirror) -> None:
    """A batch of orders in the log."""
    made.commit(1, {ORDERS: (3, "6:0:1")})
    made.accept(ORDERS, GUID, 0)


def came_again(made: HandMadeMirror, **said: Any) -> ReloadedRows:
    up_to = LedgerReader(made.ledger, "shop").mirror().committed
    load = NewestLoad(GUID, {"t/0": 7}, "5:1:1~", "6:0:1", first_batch=1, last_batch=1)
    return ReloadedRows(replace(load, **said), {"t/0": 9}, [], up_to)


def test_a_generation_begins_with_the_newest_load_of_its_source_and_keeps_it_g125(
    made: HandMadeMirror, resets: ResetLedger
) -> None:
    logged(made)
    made.stop(ORDERS, "RELOAD_SEEN")
    found = came_again(made)
    with pytest.raises(TransientError, match="CHANGED_MEANWHILE"):
        resets.request_reload(KEYED, ASKED, reloaded=replace(found, up_to=found.up_to + 1))
    assert resets.request_reload(KEYED, ASKED, reloaded=found, is_carried_on=True)
    advance(resets, *TO_NEW_GENERATION)
    reader = LedgerReader(made.ledger, "shop")
    state = reader.tables()[ORDERS]
    assert (state.start.stream_from, state.start.stream_epoch, state.start.load_state, state.start.log_from) == (
        "5:1:1~",
        0,
        "none",
        0,
    )
    assert state.start.newest_load == found.load and reader.starts(state.id) == {"t/0": 9}
    advance(resets, ResetStage.TABLE_BACK)
    assert resets.request_reload(KEYED, ASKED), "from the log: it begins with the load again"
    advance(resets, *TO_NEW_GENERATION)
    assert reader.tables()[ORDERS].start.newest_load == found.load
    assert resets.request_reload(KEYED._replace(loads=True), ASKED), "with a load of ours that one is no matter"
    assert reader.tables()[ORDERS].start.newest_load is None


@pytest.mark.parametrize("code", ["CHANGES_MISSING", "KEY_UNKNOWN", "LOG_DAMAGED"])
def test_what_the_newest_load_does_not_fix_is_refused_g125(
    made: HandMadeMirror, resets: ResetLedger, code: str
) -> None:
    logged(made)
    made.stop(ORDERS, code)
    with pytest.raises(TerminalError, match="LOAD_NEEDED"):
        resets.request_reload(KEYED, ASKED, reloaded=came_again(made))
    made.stop(ORDERS, "RELOAD_SEEN")
    with pytest.raises(TerminalError, match="LOAD_NEEDED"):
        resets.request_reload(KEYED, ASKED, reloaded=came_again(made, first_batch=0))
