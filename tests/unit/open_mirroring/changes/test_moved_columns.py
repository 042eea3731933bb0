"""G-07: the order of columns tells which of them was dropped and added again."""

from __future__ import annotations

import pytest

from open_mirroring.changes.column_history import moved_behind


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ("abc", "abc", ""),
        ("abc", "acb", "b"),
        ("abc", "bca", "a"),
        ("abcd", "adbc", "bc"),
        ("abc", "abcd", ""),
        ("abc", "ac", ""),
        ("abc", "acdb", "b"),
        ("bc", "abc", ""),
        ("", "abc", ""),
        ("abc", "cab", "ab"),
    ],
)
def test_what_stands_behind_others_that_stood_behind_it_was_added_again_g07(
    before: str, after: str, moved: str
) -> None:
    assert moved_behind(before, after) == list(moved)
