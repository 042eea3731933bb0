"""Lists the SQL types whose columns change event streaming leaves out."""

from __future__ import annotations

import re

NOT_STREAMED = frozenset(
    {
        "geography",
        "geometry",
        "image",
        "json",
        "ntext",
        "rowversion",
        "sql_variant",
        "text",
        "timestamp",
        "vector",
        "xml",
    }
)
_NAME = re.compile(r"\s*(?:\[?sys\]?\s*\.\s*)?\[?([A-Za-z_][A-Za-z0-9_]*)\]?")


def is_streamed(sql_type: str) -> bool:
    """Whether change events contain columns of a SQL type; true for unknown types, such as user-defined types."""
    match = _NAME.match(sql_type)
    return match is None or match[1].lower() not in NOT_STREAMED
