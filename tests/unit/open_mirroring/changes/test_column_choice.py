"""Which columns `columns` of the mirror file stands for (G-12, G-67)."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.config import Table

NAMES = ["id", "Name", "NAME", "Straße", "ssn_1", "a[b]?"]


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (None, NAMES),
        (["id", "Name"], ["id", "Name"]),
        (["id", "name"], ["id", "Name", "NAME"]),
        (["id", "STRASSE"], ["id", "Straße"]),
        (["id", "s*"], ["id"]),
        ({"include": ["id", "s*"]}, ["id", "Straße", "ssn_1"]),
        ({"include": ["*"], "exclude": ["SSN_*"]}, ["id", "Name", "NAME", "Straße", "a[b]?"]),
        ({"exclude": ["name", "A[B]?"]}, ["id", "Straße", "ssn_1"]),
        ({"include": ["id", "ssn_1"], "exclude": ["ssn*"]}, ["id"]),
    ],
)
def test_a_name_means_its_column_in_any_case_and_its_own_spelling_first(columns: Any, found: list[str]) -> None:
    table = Table(source="dbo.t", target="t", key=("id",), columns=columns)
    assert table.chosen.of(NAMES) == found


def test_the_key_cannot_be_left_out_g12() -> None:
    for columns in (["name"], {"exclude": ["ID"]}, {"include": ["n*"]}):
        with pytest.raises(ValidationError, match="the key column 'id' is not among"):
            Table.model_validate({"source": "dbo.t", "target": "t", "key": ["id"], "columns": columns})


def test_only_names_in_full_can_be_missing() -> None:
    choice = ColumnChoice(("id", "prise"), ("x*",), ("secret",))
    assert choice.absent(["ID", "price"]) == ["prise"]
    assert ColumnChoice(excluded=("secret",)).absent([]) == []
    assert not ColumnChoice(excluded=("secret",)).is_all and ColumnChoice().is_all


def test_what_stands_for_no_column_is_known_of_exclusions_too() -> None:
    """A misspelt exclusion lets values through that were to stay at the source."""
    choice = ColumnChoice(("id", "prise"), ("x*", "P*"), ("secrte", "s*"))
    assert choice.unmet(["ID", "price", "secret"]) == ["prise", "x*", "secrte"]


@pytest.mark.parametrize(
    ("before", "now", "gained"),
    [
        (ColumnChoice(("id", "a")), ColumnChoice(("id", "a", "b")), ["b"]),
        (ColumnChoice(("id", "a")), ColumnChoice(("ID", "A")), []),
        (ColumnChoice(("id",), ("a*",)), ColumnChoice(("id", "ab"), ("a*", "c*")), ["c*"]),
        (ColumnChoice(("id", "a")), ColumnChoice(excluded=("s*",)), ["*"]),
        (ColumnChoice(excluded=("s*", "a")), ColumnChoice(excluded=("s*",)), ["a"]),
        (ColumnChoice(excluded=("a*", "b")), ColumnChoice(excluded=("a", "b")), ["a*"]),
        (ColumnChoice(excluded=("ab",)), ColumnChoice(excluded=("a*",)), []),
        (ColumnChoice(), ColumnChoice(("id",), types=(("id", "string"),)), []),
        (ColumnChoice(), ColumnChoice(), []),
    ],
)
def test_what_is_read_only_now_is_known_as_names_and_patterns_g141(
    before: ColumnChoice, now: ColumnChoice, gained: list[str]
) -> None:
    assert now.gained(before.takes) == gained


def test_columns_that_rows_of_one_reading_have_and_of_another_lack_g12_g141() -> None:
    names = ["id", "name", "price", "Note"]
    assert ColumnChoice().unread(names, []) == frozenset()
    assert ColumnChoice(excluded=("NA*",)).unread(names, ["note"]) == {"name", "Note"}
    assert ColumnChoice(("id", "price")).unread(names, ["pr*"]) == {"name", "Note", "price"}
