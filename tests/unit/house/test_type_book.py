"""The page of types says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from open_mirroring.errors import TerminalError
from spark_jobs.sources.sql_server.type_text import landing_type
from tests.books.types import type_book

PAGE = Path(__file__).resolve().parents[3] / "docs" / "types.md"


def test_the_committed_page_is_the_codes_own() -> None:
    assert PAGE.read_text(encoding="utf-8") == type_book(), "run `make types`"


def test_types_that_it_says_stop_a_table_are_unknown_to_the_code() -> None:
    """C-77: refused by name, never landed as something near."""
    named = re.search(r"is not on this page \((.*?)\)", type_book(), re.S)
    assert named is not None
    for name in named.group(1).replace("\n", " ").split(", "):
        with pytest.raises(TerminalError, match="TYPE_UNSUPPORTED"):
            landing_type(name)
