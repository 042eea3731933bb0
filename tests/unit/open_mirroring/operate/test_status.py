"""The status says the four marks apart, what is behind, what is at risk, and what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from open_mirroring.changes.column_notes import ColumnNote, NoteKind
from open_mirroring.changes.complete_position import advance
from open_mirroring.changes.horizon import MirrorHorizon, TableHorizon
from open_mirroring.changes.manifest import LoadChunk, OpenFragment
from open_mirroring.config import load_mirror
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.columns import put_notes
from open_mirroring.ledger.declaring import TableDeclaration
from open_mirroring.ledger.documents import FRAGMENTS
from open_mirroring.ledger.horizon import move_horizon
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.reset_ledger import ResetLedger
from open_mirroring.operate.mirror_view import BoundOffsets, Marks, MirrorView, TableView
from open_mirroring.operate.viewing import RECENT_BATCHES, view_mirror
from open_mirroring.operate.words import age, pace, shown
from open_mirroring.protocols.verdicts import Backlog, Finding, Verdict
from spark_jobs.cli.command_line import main
from spark_jobs.cli.reporting import WIDTH, columns
from spark_jobs.cli.status_text import status_text
from tests.hand_made_mirror import GUID, OTHER_GUID, HandMadeMirror

NOW = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)
LOW, HIGH = "0000000A:01:1", "0000000B:02:1"


def finding(verdict: Verdict = Verdict.PASS, code: str = "OK", **more: Any) -> Finding:
    return Finding(verdict, code, "what was found", {}, applied=0, **{"backlog": Backlog(), **more})


def status_of(made: HandMadeMirror, findings: dict[str, Finding] | None = None, failed: str = "") -> MirrorView:
    if findings is None:
        findings = {"dbo.orders": finding(), "dbo.customers": finding()}
    return view_mirror(made.mirror, made.ledger, NOW, findings=findings, not_inspected=failed, closely=None)


def marks_of(made: HandMadeMirror) -> Marks:
    marks = orders(status_of(made)).marks
    assert marks is not None
    return marks


def orders(status: MirrorView) -> TableView:
    return next(table for table in status.tables if table.source == "dbo.orders")


def test_the_four_marks_are_distinguished(made: HandMadeMirror) -> None:
    """C-34, C-88: where transactions are not held back, no position is called complete."""
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (3, LOW)})
    made.commit(2, {"dbo.orders": (4, HIGH), "dbo.customers": (1, LOW)})
    made.insert(t.bound_range, mirror="shop", name="a.jsonl", bound_to=700, batch=1)
    made.insert(t.bound_range, mirror="shop", name="b.jsonl", bound_to=300, batch=2)
    made.set_table("dbo.orders", published_batch=1, confirmed=5)
    status = status_of(made)
    marks = marks_of(made)
    assert BoundOffsets.of(status.bound_offsets) == (2, 1000)
    of_topics = BoundOffsets.of(
        {"cdc/0": 5, "cdc/1": 0, "cdc#some-id": 0, "dbo.orders__ct": 20240101120000_00 * 10**19}
    )
    assert of_topics == BoundOffsets(3, 5), "a topic's id and a change sequence are no lengths"
    assert marks.highest_position == f"0:{HIGH}"
    assert marks.complete_position == "none: this source has none"
    assert marks.published_batch == 1
    assert orders(status).state.row.confirmed == 5
    assert orders(status).waiting[:2] == (1, 4)
    assert status.bound_offsets == {"a.jsonl": 700, "b.jsonl": 300}


def test_the_complete_position_says_what_it_waits_for_c_34(made: HandMadeMirror) -> None:
    """C-34, C-88: a partition that showed nothing yet is why there is none; what waits is counted."""
    text = made.file.read_text(encoding="utf-8")
    source = "path: source, partition_key_scheme: table, partition_count: 2}"
    made.file.write_text(text.replace("path: source}", source) + "consistency: transaction\n", encoding="utf-8")
    made.mirror = load_mirror(made.file)
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (3, LOW)})
    assert marks_of(made).complete_position == "none yet: 0 of 2 partitions have shown a commit"
    known = advance(None, {"cdc/0": {GUID: "0000000B"}}, 2, [])
    made.set_completeness(1, known)
    assert marks_of(made).complete_position == "none yet: 1 of 2 partitions have shown a commit"
    made.set_completeness(1, known._replace(reads={"path": ["former"]}))
    said = "none yet: 0 of 2 partitions have shown a commit"
    assert marks_of(made).complete_position == said, "G-142: those of a former place do not count"
    made.set_completeness(1, advance(known, {"cdc/1": {GUID: "0000000A"}}, 2, []))
    made.set_table("dbo.orders", published_batch=1, published_position=f"000000:{'0' * 8}", waiting_rows=3)
    table = orders(status_of(made))
    assert marks_of(made).complete_position == "below 0:0000000A"
    assert table.waiting[:2] == (0, 3)


def test_rows_that_are_unverified_are_reported_as_a_note_and_no_column_g142(made: HandMadeMirror) -> None:
    """G-142, G-07: whoever reads the columns of the document gets names of columns."""
    noted = [(NoteKind.CHANGED, "city", LOW), (NoteKind.ROWS, "`source` no longer names topics 'a'", "")]
    with made.ledger.begin() as db:
        put_notes(db, made.ids["dbo.orders"], [ColumnNote(1, *one, 1, datetime.now(UTC)) for one in noted])
    table = orders(status_of(made, {}))
    assert table.unverified_columns == (("city", LOW),)
    assert "rows unverified up to batch 1: `source` no longer names topics 'a'" in " ".join(table.notes)


def test_the_highest_position_is_that_of_the_newest_accepted_stream_g_01(made: HandMadeMirror) -> None:
    """G-01: a later stream is above an earlier one whatever its positions say; an unknown one has no place yet."""
    made.accept("dbo.orders", GUID, 0)
    made.accept("dbo.orders", OTHER_GUID, 1)
    made.commit(1, {"dbo.orders": (1, HIGH)})
    made.commit(2, {"dbo.orders": (1, LOW)}, epoch=OTHER_GUID)
    made.commit(3, {"dbo.orders": (1, HIGH)}, epoch="00000000-0000-0000-0000-000000000000")
    assert marks_of(made).highest_position == f"1:{LOW}"


def test_a_table_without_changes_has_no_highest_position(made: HandMadeMirror) -> None:
    assert marks_of(made).highest_position is None
    assert status_of(made).last_commit is None


def test_a_stop_in_the_ledger_goes_before_a_passing_inspection(made: HandMadeMirror) -> None:
    made.stop("dbo.orders", "PARTIAL_ROWS", "updates carry 2 of 3 columns")
    status = status_of(made, {"dbo.orders": finding(), "dbo.customers": finding()})
    table = orders(status)
    assert (table.verdict, table.code, table.what) == (Verdict.STOP, "PARTIAL_ROWS", "updates carry 2 of 3 columns")
    assert table.since == datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
    assert status.stopped == ("dbo.orders",)


def test_a_hold_shows_its_backlog(made: HandMadeMirror) -> None:
    backlog = Backlog(7, 2_500_000, NOW - timedelta(hours=3))
    held = finding(Verdict.HOLD, "BACKLOG", backlog=backlog, notes=("a note",))
    status = status_of(made, {"dbo.orders": held, "dbo.customers": finding()})
    table = orders(status)
    assert table.backlog == backlog
    assert status.stopped == (), "a hold passes by itself"
    text = status_text(status, wide=True)
    headings, line = (line for line in text.split("\n") if "verdict" in line or line.startswith("dbo.orders "))
    assert "7 (2.5 MB)" in line
    assert line[headings.index("oldest at the target") :].startswith("3 h 0 min"), "how old the backlog is"
    assert line[headings.index("batches in the log") :].split()[0] == "0"
    assert "  Waiting: BACKLOG\n    dbo.orders: what was found\n    Fix: " in text
    assert "a note" in text


def test_stale_keys_fragments_and_without_table_dead_letters_are_counted(made: HandMadeMirror) -> None:
    """open split events and dead letters are figures of the status."""
    common = {"table_id": made.ids["dbo.orders"], "epoch": GUID, "batch": 1, "code": "VALUE_INVALID"}
    for place, key in enumerate(["[1]", "[1]", "[2]"]):
        details = {"pos": f"0A:{place}:1", "key_digest": str(place), "key": key}
        made.insert(t.rejected_change, **common, **details, reason="no", origin="f", place=place)
    made.keep(FRAGMENTS, "shop", x=OpenFragment("x", GUID, LOW, 1, NOW, ()))
    made.letter(10)
    made.letter(-1, letters=4)
    made.letter(11, "dbo.orders", code="ROW_INVALID", key="[2]")
    made.letter(12, "dbo.dropped")
    status = status_of(made)
    assert orders(status).dead_letters.keys == 2
    assert orders(status).dead_letters.by_code == {"ROW_INVALID": 1, "VALUE_INVALID": 3}
    assert status.report.letters.foreign == 1, "of no concern to any mirrored table"
    assert (len(status.fragments), status.report.letters.without_table.count, status.at_risk) == (1, 5, True)
    assert "AT RISK" in status_text(status, wide=True)


def test_a_mirror_without_without_table_dead_letters_is_not_at_risk(made: HandMadeMirror) -> None:
    assert not status_of(made).at_risk
    assert "AT RISK" not in status_text(status_of(made), wide=True)


def test_messages_are_counted_over_the_newest_batches_only(made: HandMadeMirror) -> None:
    """counts by disposition, and the age of the last commit."""
    for number in range(1, RECENT_BATCHES + 3):
        made.commit(number, {}, counts={"messages": 2, "rejected": 1}, at=NOW - timedelta(minutes=5))
    status = status_of(made)
    assert (len(status.batches), status.recent["rejected"]) == (RECENT_BATCHES, RECENT_BATCHES)
    assert status.last_commit == NOW - timedelta(minutes=5)


def test_what_runs_left_unfinished_is_named(made: HandMadeMirror) -> None:
    intent = {"first_number": 4, "batch_from": 1, "work": {"kind": "changes", "batch_to": 2, "chunk": ""}}
    made.set_table("dbo.orders", intent=json.dumps({**intent, "manifest": None}))
    made.set_mirror(open_number=3, open_ranges="[]")
    status = status_of(made)
    assert orders(status).open_intent == "changes from number 4, up to batch 2, not sealed"
    assert status.state.open_batch == 3
    assert "batch 3 is open" in status_text(status, wide=True)
    assert "dbo.orders: unfinished, the next run finishes it" in status_text(status, wide=True)
    made.stop("dbo.orders", "PARTIAL_ROWS")
    text = status_text(status_of(made, {"dbo.orders": finding(Verdict.STOP, "PARTIAL_ROWS")}), wide=True)
    assert "the next run finishes it: changes" not in text and "goes on once the stop is lifted" in text


def test_the_rest_of_long_work_is_estimated_by_its_pace() -> None:
    assert pace(3, 12, 60) == ", about 3 min left"
    assert [pace(*known) for known in ((0, 5, 9), (5, 5, 9), (0, 0, 9))] == ["", "", ""]


def test_a_load_under_way_shows_its_chunks(made: HandMadeMirror) -> None:
    made.set_table(
        "dbo.orders", load_state="pending", load_plan=LoadPlan("", (), (0, 1, 2), done=frozenset({1})).to_json()
    )
    status = status_of(made)
    assert (orders(status).state.start.load_state, orders(status).load_chunks) == ("pending", (1, 3))
    assert "1 of 3" in status_text(status, wide=True)


def test_a_load_through_the_log_shows_the_chunks_that_are_in_it(made: HandMadeMirror) -> None:
    """G-08: a chunk of the batch that is open counts when the batch is committed."""
    made.commit(1, {})
    made.set_table("dbo.orders", load_state="pending", load_plan=LoadPlan("", (), (0, 1, 2)).to_json())
    for chunk, batch in ((0, 1), (1, 2)):
        made.insert(t.bound_range, mirror="shop", name=LoadChunk("dbo.orders", 1, chunk).name, bound_to=1, batch=batch)
    assert orders(status_of(made)).load_chunks == (1, 3)


def test_without_inspection_the_ledger_speaks_and_the_reason_is_shown(made: HandMadeMirror) -> None:
    made.stop("dbo.customers", "FILE_MISSING")
    status = status_of(made, {}, failed="TABLE_REDECLARED: the key changed")
    assert (orders(status).verdict, orders(status).code) == (None, "NOT_INSPECTED")
    assert status.stopped == ("dbo.customers",)
    assert "TABLE_REDECLARED: the key changed" in status_text(status, wide=True)


def test_a_stopped_mirror_is_first_among_the_stopped(made: HandMadeMirror) -> None:
    made.set_mirror(stop_code="LOG_CONFLICT", stop_what="other files")
    made.stop("dbo.orders", "FILE_MISSING")
    status = status_of(made)
    assert status.stopped == ("shop", "dbo.orders")
    assert "Needs attention\n  Stopped: LOG_CONFLICT\n    reading: other files\n    Fix: " in status_text(
        status, wide=True
    )


def test_the_document_is_plain_json(made: HandMadeMirror) -> None:
    made.commit(1, {"dbo.orders": (1, LOW)})
    made.set_mirror(stop_code="LOG_CONFLICT", stop_what="other files")
    document = json.loads(json.dumps(status_of(made).document()))
    assert (document["last_commit"], document["verdict"]) == ("2026-01-05T10:00:00+00:00", "STOP")
    assert document["taken_at"] == "2026-01-05T12:00:00+00:00"
    assert document["stop"] == {"source": None, "code": "LOG_CONFLICT", "what": "other files", "since": None}
    table = json.loads(json.dumps(orders(status_of(made)).document()))
    assert table["marks"]["complete_position"] == "none: this source has none"


def test_foreign_text_cannot_play_with_the_terminal(made: HandMadeMirror) -> None:
    made.stop("dbo.orders", "FOREIGN_ITEM", "a\x1b[2Jb\u202ec\nd")
    text = status_text(status_of(made), wide=True)
    assert "\x1b" not in text and "\u202e" not in text
    assert "a\\x1b[2Jb\\u202ec\\nd" in text


def test_columns_are_aligned_numbers_to_the_right() -> None:
    assert columns(("name", "n"), [("a", 5), ("long", 123)]).splitlines() == ["name    n", "a       5", "long  123"]
    assert shown("ä\t") == "ä\\t"


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (None, "never"),
        (timedelta(seconds=-1), "0 s"),
        (timedelta(seconds=59), "59 s"),
        (timedelta(minutes=60), "1 h 0 min"),
        (timedelta(days=3, hours=4, minutes=5), "3 d 4 h"),
    ],
)
def test_ages_have_the_two_parts_that_matter(length: timedelta | None, text: str) -> None:
    assert age(length) == text


def test_horizon_reset_and_waiting_changes_are_reported(made: HandMadeMirror) -> None:
    """G-05, C-88, D13: beside the four marks, of which loads that go through the log are none."""
    made.accept("dbo.orders", GUID, 0)
    made.commit(1, {"dbo.orders": (3, LOW)})
    made.insert(t.bound_range, mirror="shop", name="a.jsonl", bound_to=700, batch=1)
    made.insert(t.bound_range, mirror="shop", name=LoadChunk("dbo.orders", 1, 0).name, bound_to=1, batch=1)
    status = status_of(made)
    assert (status.horizon, orders(status).horizon) == (None, None)
    assert "horizon" not in status_text(status, wide=True)
    at = NOW - timedelta(days=30)
    h = TableHorizon(0, "0000000A")
    assert move_horizon(made.ledger, "shop", 1, MirrorHorizon(1, at, 99), [(made.ids["dbo.orders"], 1, h)])
    made.set_table("dbo.orders", published_batch=1, published_position="000000:0000000A", waiting_rows=3)
    keyed = TableDeclaration("dbo.customers", "dbo.schema/customers", ("customer_id",), True)
    assert ResetLedger(made.ledger, "shop").request_reload(keyed, Reason("Ada", "its key changed"))
    status = status_of(made)
    assert (status.horizon, orders(status).horizon) == (MirrorHorizon(1, at, 99), "0:0000000A")
    assert status.bound_offsets == {"a.jsonl": 700}
    text = status_text(status, wide=True)
    assert "horizon           2025-12-06 12:00 UTC; batches up to 99 are dropped from the log" in text
    assert "dbo.orders: 3 changes wait for the end of their transactions" in text
    assert "dbo.customers: in a reset: reload asked for by Ada" in text
    plain = status.document()
    assert (plain["horizon"], plain["dropped_batch"]) == (at.isoformat(), 99)
    assert {"reset", "horizon", "waiting", "marks"} <= orders(status).document().keys()


def test_one_dead_letter_is_singular_and_its_fix_names_the_mirror_file(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str]
) -> None:
    made.letter(10)
    main(["status", str(made.file)])
    text = capsys.readouterr().out
    assert "1 dead letter names no table: any table may lack a change" in text
    assert f"run `open-mirroring dead-letters {made.file}`" in text


def test_the_command_of_a_fix_can_be_copied(made: HandMadeMirror, capsys: pytest.CaptureFixture[str]) -> None:
    file = made.file.rename(made.file.with_name("the shop.yaml"))
    made.stop("dbo.orders", "DEAD_LETTERS_UNNAMED")
    main(["status", str(file)])
    assert f"`open-mirroring dead-letters '{file}' --raw NEWFILE`" in capsys.readouterr().out


def test_a_terminal_wraps_every_sentence_of_the_status(
    made: HandMadeMirror, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = {"ignored": 1_000_000, "rejected": 1_000_000, "fragments": 1_000_000, "metadata": 1_000_000}
    view = status_of(made)
    view = replace(view, mirror="a_long_name " * 10, batches=[(1, {"messages": 1, **batch}, NOW)])
    assert len(status_text(view, wide=True).splitlines()[0]) > WIDTH, "a pipe keeps it one line"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    sentences = status_text(view, wide=True).partition("\n\n")[0]
    assert max(map(len, sentences.splitlines())) <= WIDTH
