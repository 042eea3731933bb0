"""Which columns `columns` of the mirror file stands for (G-12, G-67)."""

from __future__ import annotations

import pytest

from open_mirroring.changes.listed_columns import listed_columns


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        (None, ["id", "Name", "NAME", "Straße"]),
        (["id", "Name"], ["id", "Name"]),
        (["ID", "name"], ["id", "Name", "NAME"]),
        (["STRASSE"], ["Straße"]),
        (["nome"], []),
    ],
)
def test_a_name_means_its_column_in_any_case_and_its_own_spelling_first(
    columns: list[str] | None, found: list[str]
) -> None:
    assert listed_columns(["id", "Name", "NAME", "Straße"], columns) == found
