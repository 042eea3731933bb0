"""Each column stays the same, is added, or its table has to be reloaded: judged from column lists alone."""

from __future__ import annotations

import pytest

from open_mirroring.changes.column_history import (
    Column,
    ColumnHistory,
    ListOfColumns,
    Word,
    column_history,
    spelled_otherwise,
)
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.protocols.column_verdicts import (
    ColumnVerdict,
    Fate,
    SourceColumns,
    added,
    judge_lives,
    judge_parts,
    judge_spelling,
    judge_unstreamed,
    moved,
)


def at(number: int) -> str:
    return f"000000:{number:04d}:1"


def listed(names: str, first: int, last: int, *, whole: bool = True) -> ListOfColumns:
    """A list of columns that are named by one letter, each at its place."""
    seen = (at(first), at(last))
    columns = {name: Column("int", "int32", place) for place, name in enumerate(names)}
    return ListOfColumns(columns, PlacesSeen(*seen, *(seen if whole else ())), whole)


OLD = listed("iab", 1, 3)


def stop(*lists: ListOfColumns, said: tuple[Word, ...] = (), **source: bool) -> ColumnVerdict | None:
    history = column_history(lists, said, renames=source.get("renames", True))
    return next(judge_lives(lists, history, said, SourceColumns(**source)), None)


@pytest.mark.parametrize("column", ["a", "b"])
def test_a_column_that_is_gone_stays_as_it_is_and_one_that_came_is_added_g07_g60(column: str) -> None:
    new = listed(f"i{column}c", 4, 9)
    assert stop(OLD, new, renames=False) is None
    assert added([OLD, new], (), completes=False) == {"c": ColumnVerdict(Fate.ADD, ("c",), at(4))}


@pytest.mark.parametrize(
    ("said", "code"), [(None, "RENAME_POSSIBLE"), (Word("b", at(9), "c"), "COLUMN_RENAMED"), (Word("b", at(9)), "")]
)
def test_a_column_that_may_have_been_renamed_is_a_question_with_two_answers_g60(said: Word | None, code: str) -> None:
    found = stop(OLD, listed("iac", 4, 9), said=(said,) if said else ())
    assert ((found.code, found.fate, found.at) if found else ("", Fate.RELOAD, at(4))) == (code, Fate.RELOAD, at(4))
    assert stop(OLD, listed("iac", 4, 9), asks=False) is None, "it counts as dropped"


@pytest.mark.parametrize("last", ["iab", "ia"])
def test_a_column_that_came_back_has_to_be_reloaded_g60(last: str) -> None:
    found = stop(OLD, listed("ia", 4, 5), listed("iab", 6, 7), *([listed("ia", 8, 9)] if last == "ia" else []))
    assert found is not None
    assert (found.fate, found.code, found.columns) == (Fate.RELOAD, "SCHEMA_CHANGED", ("b",))


def test_the_newest_spelling_is_that_of_the_files_or_the_table_is_built_again_g67() -> None:
    lists = [OLD, listed("iaB", 4, 9)]
    (found,) = judge_spelling(lists, spelled_otherwise(lists, {"b": "b"}, ["i"]))
    assert (found.code, found.columns, found.at) == ("COLUMN_RENAMED", ("b",), at(4))
    assert [*judge_spelling(lists, spelled_otherwise(lists, {"b": "B"}, ["i"]))] == []


def test_an_update_must_lack_no_column_unless_a_row_proved_its_list_c44() -> None:
    part = listed("ia", 4, 9, whole=False)
    (found,) = judge_parts([OLD, part], ColumnHistory(), ["i", "a", "b"], (), is_all=True)
    assert (found.code, found.columns, found.at) == ("PARTIAL_ROWS", ("b",), None)
    history = column_history([OLD, part], [Word("b", at(9))])
    assert [*judge_parts([OLD, part], history, ["i", "a", "b"], (), is_all=True)] == [], (
        "it is gone behind its last row"
    )


def test_a_loaded_column_that_no_change_carries_has_to_be_reloaded_c77() -> None:
    (found,) = judge_unstreamed([OLD], ColumnHistory(), ["i", "x"])
    assert (found.code, found.columns, found.at) == ("COLUMN_NOT_STREAMED", ("x",), at(1))


def test_a_column_that_moved_behind_others_was_added_again_g07() -> None:
    """Lists that alternate show nothing."""
    assert moved([OLD, listed("iba", 4, 9)], ["i"]) == {"a": ColumnVerdict(Fate.SAME, ("a",), at(4))}
    assert moved([OLD, listed("iba", 2, 9)], ["i"]) == {}
