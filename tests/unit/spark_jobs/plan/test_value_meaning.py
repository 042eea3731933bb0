"""Two spellings of one value mean the same, two values never do (G-02)."""

from __future__ import annotations

import json

import pytest

from open_mirroring.changes.logged_change import Unreadable
from spark_jobs.plan.logged_lines import meaning_of


def means(sql_type: str, text: str) -> object:
    return meaning_of(json.dumps([["c", sql_type, 0]]))("c", text)


@pytest.mark.parametrize(
    ("sql_type", "one", "other"),
    [
        ("decimal(9,2)", "1.5", "01.50"),
        ("decimal(9,2)", "-0.00", "0"),
        ("float", "1e5", "100000.0"),
        ("real", "0.1", "0.100000001"),
        ("bit", "true", "1"),
        ("uniqueidentifier", "6f9619ff-8b86-d011-b42d-00c04fc964ff", "6F9619FF-8B86-D011-B42D-00C04FC964FF"),
        ("varbinary(4)", "0xab", "AB"),
        ("time(7)", "10:00:00.5", "10:00:00.5000000"),
        ("datetime2(7)", "2026-01-01T10:00:00", "2026-01-01 10:00:00.0000000"),
        ("datetimeoffset(7)", "2026-01-01 10:00:00.1234567 +02:00", "2026-01-01T08:00:00.1234567Z"),
    ],
)
def test_spellings_of_one_value_g02(sql_type: str, one: str, other: str) -> None:
    assert means(sql_type, one) == means(sql_type, other)


@pytest.mark.parametrize(
    ("sql_type", "one", "other"),
    [
        ("nvarchar(10)", "a", "A"),
        ("nvarchar(10)", "a", "a "),
        ("varbinary(4)", "", "00"),
        ("time(7)", "10:00:00.1234567", "10:00:00.1234568"),
        ("datetime2(7)", "2026-01-01 10:00:00.1234567", "2026-01-01 10:00:00.1234568"),
        ("int", "1", "one"),
        ("no_such_type", "1", "1.0"),
    ],
)
def test_two_values_g02(sql_type: str, one: str, other: str) -> None:
    assert means(sql_type, one) != means(sql_type, other)


def test_a_text_without_column_or_type_that_reads_it_stands_for_itself_g06() -> None:
    assert meaning_of('[["c","int",0]]')("d", "x") == Unreadable("x")
    assert means("int", "one") == Unreadable("one")
