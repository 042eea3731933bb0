"""What a history of DDL says became of a column (T-84)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from open_mirroring.changes.ddl_statements import ColumnFate, ColumnStep, Statement, given_again, what_became_of
from open_mirroring.codes import RESET
from open_mirroring.ledger.decisions import accept_statements
from spark_jobs.sources.qlik.change_table.control_tables import statements_of
from spark_jobs.sources.qlik.positions import qlik_position
from tests.hand_made_mirror import HandMadeMirror
from tests.qlik_change_rows import sequence

Steps = dict[str, tuple[str, str | None]]
DROP, GONE = ("DROP", None), (None, "5")


def altered(place: str, kind: str = "ALTER_TABLE", **columns: tuple[str, str | None]) -> Statement:
    return Statement(place, kind, {name: ColumnStep(*step) for name, step in columns.items()})


@pytest.mark.parametrize(
    ("statements", "story"),
    [
        ([altered("5", a=DROP)], GONE),
        ([altered("5", a=DROP, b=("ADD", None))], GONE),
        ([altered("5", a=("ALTER", "b"))], ("b", "5")),
        ([altered("5", a=("ALTER", "b")), altered("7", b=("ALTER", "c"))], ("c", "5")),
        ([altered("7", b=DROP), altered("5", a=("ALTER", "b"))], GONE),
        ([altered("5", a=("ALTER", None)), altered("6", a=("ALTER", "b"))], ("b", "6")),
        ([altered("5", a=("ALTER", "b"), b=("ALTER", "a"))], ("b", "5")),
        ([altered("5", "TRUNCATE_TABLE"), altered("6", a=("ALTER", "B"))], ("B", "6")),
        ([altered("5", a=("ALTER", "A"))], None),
        ([altered("3", a=DROP)], None),
        ([altered("5", b=DROP)], None),
        ([altered("5", a=("ADD", None)), altered("6", a=DROP)], None),
        ([altered("5", b=("ALTER", "a")), altered("6", a=DROP)], None),
        ([altered("5", a=("RENAME", "b"))], None),
        ([altered("5", a=("DROP", "b"))], None),
        ([altered("5", "CREATE_TABLE"), altered("6", a=DROP)], None),
        ([altered("5", "DROP_TABLE"), altered("6", a=DROP)], None),
        ([Statement("5", "ALTER_TABLE", None), altered("6", a=DROP)], None),
    ],
)
def test_a_word_counts_only_without_doubt_t84(statements: list[Statement], story: ColumnFate | None) -> None:
    assert what_became_of("a", "4", statements) == story


@pytest.mark.parametrize(
    ("statements", "story"),
    [
        ([altered("5", a=DROP), altered("6", a=("ADD", None))], {"5": GONE}),
        ([altered("5", a=("ALTER", "b")), altered("6", a=("ADD", None))], {"5": ("b", "5")}),
        ([altered("5", a=("ALTER", "b"), c=("ALTER", "A"))], {"5": ("b", "5")}),
        ([altered("5", a=DROP)], {}),
        ([altered("3", a=DROP), altered("5", a=("ADD", None))], {}),
        ([altered("8", a=DROP), altered("8", a=("ADD", None))], {}),
        ([altered("5", a=("ALTER", "b")), altered("6", b=("ALTER", "a"))], {}),
        ([altered("5", a=DROP), Statement("6", "ALTER_TABLE", None)], {}),
    ],
)
def test_a_name_that_was_given_again_was_another_columns_t88(
    statements: list[Statement], story: dict[str, ColumnFate]
) -> None:
    """Where no statement gives it again, the rows behind contradict, and nothing is believed."""
    assert given_again("a", "4", "8", statements) == story


def history(*rows: tuple[int, Any], kind: str = "ALTER_TABLE") -> list[tuple[str, Any, Any, Any, Any]]:
    return [("t", sequence(at), "2024-01-01", kind, story if isinstance(story, str) else json.dumps(story))
            for at, story in rows]  # fmt: skip


def test_what_a_task_shows_of_table_and_change_table_is_one_word_t84() -> None:
    """And of what contradicts itself, or cannot be read, nothing is believed; a table may have a new name."""
    dropped, renamed = (
        {"columns": {"A": {"action": "DROP"}}},
        {"columns": {"a": {"action": "alter", "columnNewName": "b"}}},
    )
    (one,) = statements_of(history((5, dropped), (5, dropped)))["t"]
    assert one.columns == {"a": ColumnStep("DROP")} and one.place == qlik_position(sequence(5), 0)
    (one,) = statements_of(history((5, dropped), (5, renamed)))["t"]
    assert what_became_of("a", "", [one]) is None
    (one,) = statements_of(history((5, renamed)))["t"]
    assert what_became_of("a", "", [one]) == ("b", one.place)
    twice = '{"columns": {"a": {"action": "DROP"}, "A": {"action": "ALTER"}}}'
    for text in ("{", "[]", '{"columns": [1]}', '{"columns": {"a": 1}}', twice, "[" * 100_000):
        (one,) = statements_of(history((5, text)))["t"]
        assert one.columns is None, text
    (one,) = statements_of(history((5, {"table": "t", "tableNewName": "u"})))["t"]
    assert one.renamed_to == "u"
    (one,) = statements_of(history((5, {"table": "t", "tableNewName": "t"})))["t"]
    assert one.renamed_to is None
    assert statements_of([*history((5, dropped)), ("t", "odd", "", "ALTER_TABLE", "{}")]) == {}


def made_with(folder: Path, *lists: tuple[int, str, bool]) -> HandMadeMirror:
    """A mirror of which one table had these columns, by letters, at these places."""
    made = HandMadeMirror(folder)
    made.accept("dbo.orders", "load", 0)
    for at, letters, whole in lists:
        cols = [[letter, "int", place] for place, letter in enumerate(letters)]
        made.list_columns("dbo.orders", cols, qlik_position(sequence(at), 1), whole=whole, epoch="load")
    return made


def story(made: HandMadeMirror, *rows: tuple[int, Any], load: str = "load") -> dict[str, str]:
    found = accept_statements(made.ledger, "shop", "dbo.orders", load, statements_of(history(*rows))["t"])
    return {column: what.split(" at ")[0] for column, what in found.items()}


def step(name: str, action: str, to: str | None = None) -> dict[str, Any]:
    return {"columns": {name: {"action": action, "columnNewName": to}}}


def test_the_word_of_a_history_is_taken_as_an_operators_t84(tmp_path: Path) -> None:
    """It lifts the question, is in the audit, and is taken once; one that somebody gave stays."""
    made = made_with(tmp_path, (3, "ia", True), (9, "iB", True))
    made.stop("dbo.orders", "RENAME_POSSIBLE", "a is gone")
    assert story(made, (9, step("A", "ALTER", "b"))) == {"a": "renamed to 'B'"}
    (records,) = made.reader.column_records([made.table("dbo.orders")]).values()
    assert [(one.column, one.now) for one in records.decided] == [("a", "B")]
    assert made.table("dbo.orders").stop_code is None
    (_, event, detail) = made.audit()[-1]
    assert (event, detail["who"], detail["cleared"]["code"]) == ("SCHEMA_ACCEPTED", "the source", "RENAME_POSSIBLE")
    assert story(made, (9, step("a", "DROP"))) == {}


def test_a_word_that_rows_do_not_bear_out_waits_t84(tmp_path: Path) -> None:
    """Nor is one taken of another load, of a place that rows passed, or where one row has both columns."""
    made = made_with(tmp_path, (3, "ia", True), (9, "ib", False))
    made.stop("dbo.orders", "KEY_INVALID", "other")
    assert story(made, (5, step("a", "DROP"))) == {}, "no whole row lacks it"
    made = made_with(tmp_path / "2", (3, "ia", True), (9, "ib", True))
    assert story(made, (2, step("a", "DROP"))) == {}, "a row behind it has the column"
    assert story(made, (5, step("a", "ALTER", "c"))) == {}, "no row has the new name yet"
    assert story(made, (5, step("a", "DROP")), load="new") == {}
    made = made_with(tmp_path / "3", (3, "iab", True), (9, "ib", True))
    assert story(made, (5, step("a", "ALTER", "b"))) == {}
    assert story(made, (5, step("a", "DROP"))) == {"a": "dropped"}


def test_a_stop_of_another_cause_stays_t84(tmp_path: Path) -> None:
    made = made_with(tmp_path, (3, "ia", True), (9, "ib", True))
    made.stop("dbo.orders", "KEY_UNKNOWN", RESET)
    assert story(made, (5, step("a", "DROP"))) == {"a": "dropped"}
    assert made.table("dbo.orders").stop_code == "KEY_UNKNOWN"


def test_the_word_on_a_name_that_was_given_again_counts_up_to_that_place_t88(tmp_path: Path) -> None:
    """Not where one row had both names by then; taken once."""
    made = made_with(tmp_path, (3, "ia", True), (9, "iba", True))
    again = (5, step("a", "ALTER", "b")), (6, step("a", "ADD"))
    assert story(made, *again) == {"a": "renamed to 'b'"}
    (records,) = made.reader.column_records([made.table("dbo.orders")]).values()
    assert [(one.up_to, one.now) for one in records.decided] == [(f"000000:{qlik_position(sequence(5), 0)}", "b")]
    assert story(made, *again) == {}
    made = made_with(tmp_path / "2", (3, "iab", True), (9, "iba", True))
    assert story(made, *again) == {}
    assert story(made, *again, load="new") == {}
