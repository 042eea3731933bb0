"""Which of the log's earlier files a publication opens, and what it asks of the ledger to know."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa

from open_mirroring.changes.column_notes import NoteKind
from open_mirroring.config import Table
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.columns import keep_taken, note_from_now, verify_columns
from open_mirroring.protocols.publishing import Intent, Work
from spark_jobs.plan.table_plan import TablePlan
from spark_jobs.publish.publication import Preparation, Prepared
from tests.hand_made_mirror import GUID, OTHER_GUID, HandMadeMirror

ORDERS, CUSTOMERS = "dbo.orders", "dbo.customers"


@pytest.fixture
def made(tmp_path: Path) -> HandMadeMirror:
    made = HandMadeMirror(tmp_path)
    for source, key in ((ORDERS, "order_id"), (CUSTOMERS, "customer_id")):
        made.accept(source, GUID, 0)
        made.list_columns(source, [[key, "int", 0]], "0001:01:1")
    return made


def log(made: HandMadeMirror, batch: int, source: str, lowest: str, highest: str, epoch: str = GUID) -> None:
    """A batch's changes of a table, in a file named after both."""
    bounds = {"min_pos": lowest, "max_pos": highest, "files": json.dumps([f"{batch}-{source}"])}
    made.insert(t.batch_table, mirror="shop", source=source, batch=batch, epoch=epoch, rows=2, **bounds)


def plans(made: HandMadeMirror, published: dict[str, int], batch: int) -> dict[str, TablePlan]:
    """The plans of tables whose targets have the batches up to these, for all up to *batch*."""
    states = made.reader.tables()
    declared = [Table(source=s, target=s.replace(".", "/"), key=states[s].keys) for s in published]
    preparation = Preparation(made.with_tables(*declared), made.reader)
    intents = [(states[s], Intent(1, batch_from, Work("changes", batch))) for s, batch_from in published.items()]
    found: dict[str, TablePlan] = {}
    for source, prepared in zip(published, preparation.prepare(intents).values(), strict=True):
        assert isinstance(prepared, Prepared), prepared
        found[source] = prepared.plans[0][0]
    return found


def test_each_table_has_its_own_highest_position_and_history_up_to_its_own_batch(made: HandMadeMirror) -> None:
    log(made, 1, ORDERS, "0001:01:1", "0005:01:1")
    log(made, 1, CUSTOMERS, "0001:01:1", "0006:01:1")
    log(made, 2, ORDERS, "0006:01:1", "0009:01:1")
    log(made, 2, CUSTOMERS, "0007:01:1", "0008:01:1")
    log(made, 3, ORDERS, "0003:01:1", "0004:01:1")
    log(made, 3, CUSTOMERS, "0009:01:1", "0009:02:1")
    found = plans(made, {ORDERS: 1, CUSTOMERS: 2}, 3)
    orders, customers = found[ORDERS], found[CUSTOMERS]
    assert orders.highest is not None and orders.highest.text == "0005:01:1", "of batch 1, the target has no other"
    assert orders.history_files == (f"1-{ORDERS}",), "a late change: what is as new was published"
    assert customers.highest is not None and customers.highest.text == "0008:01:1"
    assert customers.history_files == (), "all is newer than what was published"


def test_a_batch_border_inside_a_transaction_opens_what_holds_its_beginning(made: HandMadeMirror) -> None:
    log(made, 1, ORDERS, "0001:01:1", "0002:01:1")
    log(made, 2, ORDERS, "0003:01:1", "0004:01:1")
    log(made, 3, ORDERS, "0004:02:1", "0005:01:1")
    assert plans(made, {ORDERS: 2}, 3)[ORDERS].history_files == (f"2-{ORDERS}",)


def test_an_earlier_stream_reaches_up_to_no_change_of_a_later_one_g01(made: HandMadeMirror) -> None:
    made.accept(ORDERS, OTHER_GUID, 1)
    log(made, 1, ORDERS, "0001:01:1", "0009:01:1")
    log(made, 2, ORDERS, "0001:01:1", "0002:01:1", epoch=OTHER_GUID)
    found = plans(made, {ORDERS: 1}, 2)[ORDERS]
    assert found.highest is not None and found.highest.order == "000000:0009:01:1"
    assert found.history_files == ()


def test_tables_of_which_nothing_came_late_are_prepared_by_the_same_number_of_queries(made: HandMadeMirror) -> None:
    for batch in (1, 2):
        for source in (ORDERS, CUSTOMERS):
            log(made, batch, source, f"000{batch}:01:1", f"000{batch}:02:1")
    asked: list[str] = []
    sa.event.listen(made.ledger, "before_cursor_execute", lambda *call: asked.append(call[2]))
    plans(made, {ORDERS: 1}, 2)
    for_one = len(asked)
    plans(made, {ORDERS: 1, CUSTOMERS: 1}, 2)
    assert len(asked) == 2 * for_one


def test_column_lists_of_a_quiet_table_are_asked_for_only_where_types_says_something_new_g129(
    made: HandMadeMirror,
) -> None:
    """So a run without changes costs nothing of the tables that did nothing; a refused table is asked for again."""
    published = TableSchema((LandingColumn("order_id", "string"),)).to_json()
    declared = Table(source=ORDERS, target="dbo/orders", key=("order_id",))
    preparation = Preparation(made.with_tables(declared), made.reader)
    asked: list[str] = []
    sa.event.listen(made.ledger, "before_cursor_execute", lambda *call: asked.append(call[2]))
    for noted in (None, '{"order_id": "string"}', "{}"):
        made.set_table(ORDERS, columns=published, types=noted)
        state = made.table(ORDERS)
        asked.clear()
        stopped = preparation.refused([state], busy=[])
        if noted == "{}":
            assert (stopped, asked) == ({}, [])
        else:
            assert stopped[state.id].code == "SCHEMA_CHANGED" and made.table(ORDERS).types == noted


def test_what_types_says_is_noted_before_changes_are_published_by_it_g129(made: HandMadeMirror) -> None:
    """Else a crash behind the publication would leave a text of which nobody knows that `types` made it one."""
    declared = Table.model_validate(
        {"source": ORDERS, "target": "dbo/orders", "key": ["order_id"], "types": {"price": "string"}}
    )
    preparation = Preparation(made.with_tables(declared), made.reader)
    assert preparation.refused([made.table(ORDERS)], busy=[ORDERS]) == {}
    assert made.table(ORDERS).types == '{"price": "string"}'


def test_a_column_that_was_taken_later_is_no_difference_also_once_it_is_verified_g02(made: HandMadeMirror) -> None:
    """G-02, G-141: a proof finds the values equal; what was read before lacks the column ever after, built anew too."""
    made.list_columns(ORDERS, [["price", "int", 0]], "0001:01:1")
    log(made, 1, ORDERS, "0001:01:1", "0005:01:1")
    with made.ledger.begin() as db:
        row = db.execute(sa.select(t.mirrored_table).where(t.mirrored_table.c.source == ORDERS)).one()
        note_from_now(db, [row], NoteKind.TAKEN, ["price"], 1)
        note_from_now(db, [row], NoteKind.ROWS, ["*"], 1)
    (noted,) = made.reader.unverified_columns([made.table(ORDERS)]).values()
    assert verify_columns(made.ledger, made.ids[ORDERS], noted) == 2
    assert plans(made, {ORDERS: 0}, 1)[ORDERS].columns.unread == {"price"}
    with made.ledger.begin() as db:
        keep_taken(db, made.ids[ORDERS], 1)
    made.set_table(ORDERS, generation=2)
    assert plans(made, {ORDERS: 0}, 1)[ORDERS].columns.unread == {"price"}
    assert made.reader.unverified_columns([made.table(ORDERS)]) == {}
