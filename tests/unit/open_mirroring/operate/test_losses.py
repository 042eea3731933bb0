"""What is a loss and what a note: dead letters, and tables that changes come of and that nobody mirrors."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import duckdb
import pytest

from open_mirroring.changes.manifest import LetterPlace, Manifest, SeenLetter, bounded_letters
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.config import load_mirror
from open_mirroring.facts.foreign_tables import NAMES_KEPT, ForeignTable
from open_mirroring.facts.read_places import Run
from open_mirroring.ledger import open_ledger
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.dead_letters import (
    LetterCounts,
    OpenLetters,
    accept_letters,
    is_counted,
    letter_counts,
    settled_letters,
)
from open_mirroring.ledger.declaring import ResetRecord, TableDeclaration, declare
from open_mirroring.ledger.documents import FOREIGN_TABLES
from open_mirroring.ledger.extract_ledger import ExtractLedger
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.operate.exit_codes import Exit, exit_of_report
from open_mirroring.protocols.resetting import ResetStage
from open_mirroring.protocols.table_losses import ANY_TABLE
from open_mirroring.protocols.verdicts import Verdict, gate
from open_mirroring.reconciliation.inspection import declare_tables, inspect_mirror
from open_mirroring.reconciliation.losses import SeenTable, judge, look
from spark_jobs.changelog.schema import REJECTED, LogRow
from spark_jobs.cli.status_text import status_text
from spark_jobs.dead_letters import open_letters
from spark_jobs.dead_letters.healing import settle_outdated_letters
from spark_jobs.dead_letters.open_letters import ensure_counted
from spark_jobs.extract.read_task import RowSummary
from spark_jobs.sources.ces.format import CesFormat
from spark_jobs.sources.contract.decoded import MirroredTable
from tests.hand_made_mirror import GUID, HandMadeMirror
from tests.noted_facts import record_foreign
from tests.unit.open_mirroring.operate.test_status import status_of

AT = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
NONE = LetterCounts(True, {}, OpenLetters())


def foreign(name: str, first_batch: int = 5, messages: int = 4) -> ForeignTable:
    return ForeignTable(name, messages, first_batch, AT, first_batch + 1, AT)


def orders(**known: Any) -> SeenTable:
    return SeenTable("dbo.orders", **{"last_batch": 4, "has_files": True, **known})


def codes(*tables: SeenTable, others: list[ForeignTable], **more: Any) -> dict[str, str]:
    """By table the code of its loss, or that of its note in lower case."""
    story = judge(tables, more.pop("letters", NONE), others, **more)
    notes = {source: texts[0].split()[0].rstrip(":").lower() for source, texts in story.notes.items()}
    return {**notes, **{source: losses[0].code for source, losses in story.losses.items()}}


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("dbo.orders_v2", "TABLE_RENAMED"),
        ("dbo.Orders2", "TABLE_RENAMED"),
        ("dbo.old_orders", "TABLE_RENAMED"),
        ("sales.orders", "TABLE_RENAMED"),
        ("dbo.reorders", "not_seen"),
        ("dbo.ordersarchive", "not_seen"),
        ("dbo.invoices", "not_seen"),
        ("sales.orders_v2", "not_seen"),
    ],
)
def test_a_table_that_fell_silent_when_another_name_came_up_g_24(name: str, code: str) -> None:
    """G-24: a name that says so is a loss, any other a note; what came up before the last change is neither."""
    assert codes(orders(), others=[foreign(name)]) == {"dbo.orders": code}
    assert codes(orders(), others=[foreign(name, first_batch=4)]) == {}
    assert codes(orders(), others=[foreign(name)], ignore=[name]) == {}, "acknowledged"


def test_a_table_of_which_nothing_was_ever_seen_g_24() -> None:
    """G-24: it may be empty, so it is a note, unless one with nearly its name streams."""
    never: dict[str, Any] = {"last_batch": 0, "has_files": False}
    assert codes(orders(**never), others=[]) == {"dbo.orders": "not_seen"}
    assert codes(orders(**never), others=[], has_read=False) == {}, "nothing was read at all"
    assert codes(orders(**never, loaded=True), others=[]) == {}
    assert codes(orders(**never), others=[foreign("dbo.order")]) == {"dbo.orders": "TABLE_RENAMED"}
    several = SeenTable("dbo.part_1")
    assert codes(several, others=[foreign("dbo.part_2")]) == {"dbo.part_1": "not_seen"}
    letters = LetterCounts(True, {"dbo.orders": OpenLetters({"ROW_INVALID": 1})}, OpenLetters())
    assert codes(orders(**never), others=[], letters=letters) == {"dbo.orders": "DEAD_LETTERS_OPEN"}


def test_a_load_that_is_named_when_a_table_has_begun_without_one_g_130(made: HandMadeMirror) -> None:
    """G-130: a loss until a reset makes it; none in a reset, or where it begins with what its source told."""
    load = "initial_load: {format: parquet, path: export, stream_from: beginning}"
    made.commit(1, {"dbo.orders": (1, "0001")})
    text = made.file.read_text()
    made.file.write_text(text.replace("key: [order_id]}", f"key: [order_id], {load}}}"))
    mirror = load_mirror(made.file)
    declare_tables(mirror, made.ledger)
    assert look(made.mirror, made.ledger).lost == {}
    assert look(mirror, made.ledger).lost.keys() == {"dbo.orders"}
    assert "LOAD_NOT_MADE" in look(mirror, made.ledger).lost["dbo.orders"]
    load = NewestLoad("e", {}, "", None).to_json()
    reset = ResetRecord(ResetStage.REQUESTED, False, False, (), False, "Ada", "x", "2026-01-05").to_json()
    for answered in ({"newest_load": load}, {"reset": reset}, {"load_state": "loaded"}):
        made.set_table("dbo.orders", **{"newest_load": None, "reset": None, **answered})
        assert look(mirror, made.ledger).lost == {}, answered


def test_changes_that_were_ignored_before_their_table_was_mirrored_g_24() -> None:
    """G-24: without a load its rows in them are missing; the loss ends with one, or when somebody says so."""
    assert codes(orders(), others=[foreign("dbo.orders", 1)]) == {"dbo.orders": "CHANGES_IGNORED"}
    assert codes(orders(loaded=True), others=[foreign("dbo.orders", 1)]) == {}
    assert codes(orders(), others=[foreign("dbo.orders", 1)], ignore=["[dbo].orders"]) == {}


def test_changes_that_an_export_does_not_hold_were_ignored_before_it_g140() -> None:
    """G-140: a loss from its place in the stream on; a note where the format tells no place; none of a database."""

    def story(highest: str, **known: Any) -> dict[str, str]:
        other = foreign("dbo.orders", 1)._replace(highest=highest)
        return codes(orders(loaded=True, **known), others=[other])

    assert story("0C:1:0", exported="0C") == story("0C:1:0", exported="") == {"dbo.orders": "CHANGES_IGNORED"}
    assert story("0C:1:0", exported="0C~") == story("0C:1:0", exported="0D") == story("0C:1:0") == {}
    assert story("", exported="0D") == {"dbo.orders": "changes_ignored"}


@pytest.mark.parametrize(
    ("name", "databases", "code"),
    [
        ("shop.dbo.orders", ["shop"], "CHANGES_IGNORED"),
        ("shop.dbo.orders", [None], "CHANGES_IGNORED"),
        ("shop.dbo.orders", ["other"], "TABLE_RENAMED"),
        ("shop.dbo.orders", [], "TABLE_RENAMED"),
        ("shop.dbo.cars", ["shop"], "not_seen"),
    ],
)
def test_what_another_database_setting_ignored_is_a_loss_once_it_is_read_g142(
    name: str, databases: list[str | None], code: str
) -> None:
    """G-142, G-24: `database` was another one meanwhile."""
    assert codes(orders(), others=[foreign(name)], databases=databases)["dbo.orders"] == code


def test_a_hold_and_a_stop_go_before_losses_which_are_reported_as_well_g_20(made: HandMadeMirror) -> None:
    """G-20: STOP, HOLD, LOSSES, PASS; a table with losses is published."""
    made.letter(1, "dbo.orders")
    made.letter(2, "dbo.customers")
    made.set_table("dbo.customers", load_state="pending")
    found = inspect_mirror(made.mirror, made.ledger)
    assert {s: f.verdict for s, f in found.items()} == {"dbo.orders": Verdict.LOSSES, "dbo.customers": Verdict.HOLD}
    assert found["dbo.customers"].losses and "DEAD_LETTERS_OPEN" in str(found["dbo.customers"].evidence["also"])
    assert "dead-letters" in found["dbo.orders"].next_step
    assert gate(found).passing == ("dbo.orders",)
    assert "dbo.customers: LOSSES DEAD_LETTERS_OPEN: 1 dead letter is open" in status_text(status_of(made, found))
    made.stop("dbo.orders", "KEY_UNKNOWN")
    assert inspect_mirror(made.mirror, made.ledger)["dbo.orders"].verdict is Verdict.STOP
    assert [exit_of_report(*both) for both in ((1, 1), (0, 1), (1, 0), (0, 0))] == [
        Exit.TABLES_STOPPED,
        Exit.DONE_WITH_LOSSES,
        Exit.TABLES_STOPPED,
        Exit.DONE,
    ]


def test_ignored_tables_are_counted_over_batches_and_shown_g_24(made: HandMadeMirror) -> None:
    """G-24: so many names are kept, the others are counted together."""
    with made.ledger.begin() as db:
        record_foreign(db, "shop", 1, AT, {"dbo.x": 3}, {"dbo.x": "0B:1:0"})
        record_foreign(db, "shop", 2, AT, {"dbo.x": 1, "dbo.y": 1}, {"dbo.x": "0A:9:0"})
        record_foreign(db, "shop", 3, AT, {f"many.t{n:04d}": 1 for n in range(NAMES_KEPT)})
        record_foreign(db, "shop", 4, AT, {"many.more": 5})
    with made.ledger.connect() as db:
        found = FOREIGN_TABLES.of(db, "shop")
    assert len(found) == NAMES_KEPT + 1
    assert (found["dbo.x"].highest, found["dbo.y"].highest) == ("0B:1:0", ""), "G-140"
    assert found["dbo.x"][1:4] == (4, 1, AT) and found["dbo.x"].last_batch == 2
    assert (found[""].messages, found[""].first_batch) == (7, 3)
    made.commit(4, {"dbo.orders": (1, "0A:1:1")})
    text = " ".join(status_text(status_of(made)).split())
    assert "not mirrored: (others) 7 messages (since 2026-01-05 09:00 UTC), dbo.x 4 messages" in text
    assert "and 991 other tables" in text
    assert "dbo.customers: NOT_SEEN" in status_text(status_of(made, inspect_mirror(made.mirror, made.ledger)))


def sealed(made: HandMadeMirror, manifest: Manifest) -> None:
    """A batch carried through the ledger by the real transactions."""
    from open_mirroring.protocols.extracting import Batch, Owned

    ledger = ExtractLedger(made.ledger, "shop")
    owned = ledger.acquire()
    number = owned.row.committed + 1
    owned = ledger.bind(owned.row.version, Batch(number, "[]"), ())  # type: ignore[assignment]
    assert isinstance(owned, Owned)
    owned = ledger.seal(owned.row.version, manifest.to_json())  # type: ignore[assignment]
    assert isinstance(ledger.complete(owned.row.version), Owned)


def test_letters_are_entered_with_their_batch_and_leave_when_they_are_settled_g_23(made: HandMadeMirror) -> None:
    """G-23: many of one batch are one entry, which is counted anew from the log when one of them is settled."""
    seen = [SeenLetter("t/0", 9, "dbo.orders", "ROW_INVALID", "x", '["1"]', GUID, "0A:1:1")]
    seen += [SeenLetter("t/0", place, None, "MESSAGE_INVALID", "cut") for place in range(5)]
    bounded = bounded_letters(seen, 3)
    assert [letter.letters for letter in bounded] == [3, 1, 1, 1]
    assert bounded_letters(bounded, 3) == bounded, "also of what is bounded already"
    sealed(made, Manifest([], {"messages": 6, "rejected": 6}, letters=bounded))
    counts = letter_counts(made.ledger, "shop")
    assert (counts.without_table.count, counts.tables["dbo.orders"].by_code) == (5, {"ROW_INVALID": 1})
    assert counts.without_table.example is not None and counts.without_table.example[:3] == (1, "t/0", 0)
    why = Reason("Ada", "a test")
    accept_letters(made.ledger, "shop", {LetterPlace(1, "t/0", 0): 1, LetterPlace(1, "t/0", 9): 0}, why)
    left = letter_counts(made.ledger, "shop")
    assert (left.tables, left.without_table.by_code, left.known) == ({}, {"MESSAGE_INVALID": 4}, True)
    assert is_counted(made.ledger, "shop")
    accept_letters(made.ledger, "shop", {LetterPlace(1, "t/0", 4): 1}, why)
    assert not is_counted(made.ledger, "shop"), "which of those it was is not known: the log tells"
    assert not look(made.mirror, made.ledger).letters.known


def test_a_message_with_several_rows_is_one_letter_that_no_single_row_heals_g_22_g_23() -> None:
    """G-22, G-23: each row may leave another key out of date; one of another table is none without a table."""
    notes = RowSummary({"dbo.orders": MirroredTable("dbo.orders", ("id",))}, CesFormat())
    row = LogRow(REJECTED, "t/0", 1, tbl="dbo.orders", key='["1"]', code="ROW_INVALID", reason="x" * 999)
    notes.take([row, row._replace(key='["2"]'), row._replace(place=2), row._replace(place=3, tbl="dbo.x", key=None)])
    letters = notes.letters
    assert [(x.place, x.source, x.key) for x in letters] == [
        (1, "dbo.orders", None),
        (2, "dbo.orders", '["1"]'),
        (3, "dbo.x", None),
    ]
    assert len(letters[0].reason) == 300
    assert notes.facts == {}


def test_a_log_that_cannot_be_read_leaves_the_letters_uncounted_g_23(
    made: HandMadeMirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G-23: unknown is not none: it is a loss until somebody could count."""
    made.set_mirror(letters_counted=None)

    def fail(*_: object) -> list[open_letters.OpenLetter]:
        raise duckdb.IOException("no such file")

    with monkeypatch.context() as patch:
        patch.setattr(open_letters, "read_open_letters", fail)
        ensure_counted(made.mirror, made.ledger)
    assert list(look(made.mirror, made.ledger).lost) == [ANY_TABLE]
    ensure_counted(made.mirror, made.ledger)
    assert look(made.mirror, made.ledger).lost == {}


def test_letters_are_counted_alike_in_every_kind_of_ledger_g_23(ledger_url: str) -> None:
    """G-23: unreadable and untyped ones, without those that are settled; two rows of one message are one letter."""
    ledger = open_ledger(ledger_url)
    ids = declare(ledger, "m", [TableDeclaration("dbo.orders", "dbo/orders", ("id",), False)])
    letter = {"mirror": "m", "batch": 1, "origin": "f", "code": "ROW_INVALID", "reason": "x", "looked_to": 0}
    change = {"table_id": ids["dbo.orders"], "epoch": GUID, "batch": 1, "origin": "f", "reason": "no"}
    settled = {"mirror": "m", "batch": 1, "origin": "f", "outcome": "accepted", "settled_at": AT}
    with ledger.begin() as db:
        db.execute(t.mirror.insert().values(name="m", committed=1))
        db.execute(t.open_letter.insert().values(**letter, place=1, source="dbo.orders", key="[1]", letters=1))
        db.execute(t.open_letter.insert().values(**letter, place=-1, source=None, letters=7))
        for place, key in ((2, "[1]"), (2, "[2]"), (3, "[3]")):
            row = {**change, "pos": f"0A:{place}:1", "key_digest": key, "key": key, "code": "VALUE_INVALID"}
            db.execute(t.rejected_change.insert().values(**row, place=place))
        db.execute(t.settled_letter.insert().values(**settled, place=3))
        record_foreign(db, "m", 1, AT, {"dbo.x": 3})
        record_foreign(db, "m", 2, AT, {"dbo.x": 2})
    counts = letter_counts(ledger, "m")
    assert counts.tables["dbo.orders"].by_code == {"ROW_INVALID": 1, "VALUE_INVALID": 1}
    assert (counts.tables["dbo.orders"].keys, counts.without_table.count, counts.without_table.example) == (1, 7, None)
    assert counts.tables["dbo.orders"].example is not None
    with ledger.connect() as db:
        assert FOREIGN_TABLES.of(db, "m")["dbo.x"].messages == 5


def test_what_a_load_holds_is_settled_as_reloaded_g_22(made: HandMadeMirror) -> None:
    """G-22: by the batch that the load was handed over at, or by the place from which the stream goes on."""
    made.accept("dbo.orders", GUID, 0)
    plan = LoadPlan("", (), (), hand_over_batch=3).to_json()
    made.set_table("dbo.orders", load_state="loaded", load_plan=plan, stream_from="0000000B", published_batch=9)
    for place, (batch, pos) in enumerate([(3, None), (4, "0000000A:01:1"), (4, "0000000B:01:1"), (4, None)]):
        made.letter(place, "dbo.orders", batch=batch, epoch=GUID, pos=pos)
    made.letter(9, batch=1)
    assert settle_outdated_letters(made.mirror, made.ledger) == 2
    assert [at.place for at, outcome in settled_letters(made.ledger, "shop").items() if outcome == "reloaded"] == [0, 1]
    assert settle_outdated_letters(made.mirror, made.ledger) == 0
    counts = letter_counts(made.ledger, "shop")
    assert (counts.tables["dbo.orders"].count, counts.without_table.count) == (2, 1)


def test_places_that_nobody_read_g_113() -> None:
    """G-113: a gap is a loss of all, unless gaps mean nothing; a late beginning is noted of tables without a load."""
    places = {"cdc/0": [Run(0, 4), Run(7, 9), Run(11, 11)], "cdc/1": [Run(3, 5)]}
    story = judge([orders(), SeenTable("dbo.loaded", 3, loaded=True)], NONE, [], places=places)
    [loss] = story.losses[ANY_TABLE]
    assert str(loss) == (
        "OFFSETS_MISSING: 3 offsets between messages that were read never came: 'cdc/0':5 to 6, "
        "'cdc/0':10 to 10; any table may lack a change"
    )
    assert list(story.notes) == ["dbo.orders"] and "'cdc/1' from 3 on" in story.notes["dbo.orders"][0]
    assert codes(orders(), others=[], places=places, gaps_are_losses=False) == {"dbo.orders": "begun_late"}
    assert codes(orders(), others=[], places={"cdc/0": [Run(0, 4)]}) == {}
