"""Columns with one fate are one line, whatever their places."""

from __future__ import annotations

from pathlib import Path

from open_mirroring.changes.column_history import FormerColumn, commit_text
from open_mirroring.changes.column_notes import NoteKind, former_columns
from open_mirroring.ledger.columns import column_notes, column_texts, note_columns, note_former, note_gone
from tests.hand_made_mirror import HandMadeMirror


def test_a_place_is_spelled_as_the_tools_of_its_database_do() -> None:
    assert commit_text("000001:0000002A000001B80003:00000000000000000001:1+") == "LSN 0000002A:000001B8:0003"
    assert commit_text("0000002A000001B80003:00000000000000000001:1") == "LSN 0000002A:000001B8:0003"
    assert commit_text(f"000000:2026010512304599:{7:039d}:1") == "2026-01-05 12:30:45"
    assert commit_text("000002:0C:1:1") == "position 2:0C:1:1"
    assert commit_text("0000002C0000000D0001~:0:1") == "LSN 0000002C:0000000D:0001", "of a correction"
    assert commit_text("0000002C~:0:1") == "position 0000002C~:0:1"


def test_columns_with_one_fate_are_one_line(tmp_path: Path) -> None:
    """G-07, G-60."""
    made = HandMadeMirror(tmp_path)
    table = made.ids["dbo.orders"]
    note_columns(made.ledger, table, 1, dict.fromkeys("abc", "0A"), 7)
    (one,) = column_texts(made.ledger, {table: 1})[table]
    assert one.startswith("columns 'a', 'b', 'c' unverified since position 0A: rows that have not changed")
    note_columns(made.ledger, table, 1, {"d": "0B"}, 8)
    note_gone(made.ledger, table, 1, {"x": "000000:0C"}, 8)
    gone, other = column_texts(made.ledger, {table: 1})[table]
    assert gone.startswith("column 'x' gone since position 0:0C: rows written")
    assert other.startswith("columns 'a', 'b', 'c' (since position 0A), 'd' (since position 0B) unverified: rows that")


def test_how_columns_of_earlier_rows_are_read_is_kept_in_its_order(tmp_path: Path) -> None:
    """G-66: one is read after the other, and a name that came back was dropped before it was renamed."""
    made = HandMadeMirror(tmp_path)
    table = made.ids["dbo.orders"]
    former = [FormerColumn("a", "0C", "b"), FormerColumn("b", "0B", None), FormerColumn("b", "0D", "c")]
    for columns in (former[:1], former, former[::-1]):
        note_former(made.ledger, table, 1, columns)
        with made.ledger.connect() as db:
            assert former_columns(column_notes(db, {table: 1}, NoteKind.FORMER)[table]) == columns
