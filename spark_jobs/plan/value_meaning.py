"""What the texts of a logged row mean: two spellings of one value count as equal (G-02)."""

from __future__ import annotations

import re
from collections.abc import Hashable
from functools import lru_cache

from open_mirroring.changes.logged_change import Meaning
from open_mirroring.errors import TerminalError
from spark_jobs.plan.partial_rows import types_of
from spark_jobs.sources.sql_server.times import time_text
from spark_jobs.sources.sql_server.type_text import TIMESTAMPS, read_type
from spark_jobs.sources.sql_server.types import converter

_SEVENTH_DIGIT = re.compile(r"\.[0-9]{6}([0-9])")


@lru_cache(maxsize=4096)
def meaning_of(cols: str) -> Meaning:
    """The values of rows with this list of columns; a text that its type cannot read stands for itself (G-06)."""
    types = types_of(cols)

    def meaning(name: str, text: str) -> Hashable:
        try:
            return _value(types[name], text)
        except (KeyError, TerminalError, ValueError):
            return text

    return meaning


def _value(sql_type: str, text: str) -> Hashable:
    """Equal for two spellings of one value, with all digits that the source keeps."""
    parsed = read_type(sql_type)
    value: Hashable = converter(sql_type)(text)
    if parsed.name in TIMESTAMPS:
        # The target has no seventh digit of a second; a row that differs in it is another one all the same.
        seventh = _SEVENTH_DIGIT.search(text)
        return value, "0" if seventh is None else seventh[1]
    return time_text(text, parsed.second_digits) if parsed.name == "time" else value
