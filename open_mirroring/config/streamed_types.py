"""The SQL types that change event streaming leaves out (C-77): such a column is loaded, and no change ever carries it.

Public source: Microsoft Learn, *Configure change event streaming*, limitations.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from open_mirroring.config.source import AnySource, ChangeEvents
from open_mirroring.errors import TerminalError

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
    """Whether events carry columns of a SQL type; also true for unknown types, such as those that users define."""
    match = _NAME.match(sql_type)
    return match is None or match[1].lower() not in NOT_STREAMED


def refuse_unstreamed(source: AnySource, columns: Iterable[tuple[str, str | None]], where: str) -> None:
    """Refuse a load of columns that no event would carry: the first change of a row would make them NULL.

    Args:
        source: the mirror's; another one than change event streaming leaves no type out.
        columns: names with SQL types, None where it is not known.
        where: the table or the setting.

    Raises:
        TerminalError: ``COLUMN_NOT_STREAMED``.
    """
    found = [f"{name!r} ({sql_type})" for name, sql_type in columns if sql_type and not is_streamed(sql_type)]
    if found and isinstance(source, ChangeEvents):
        raise TerminalError(
            "COLUMN_NOT_STREAMED",
            f"change event streaming leaves out columns of these types, so that loaded values would become NULL with "
            f"the first change of their row: {', '.join(found[:5])}",
            where=where,
            way_out="list `columns` without them in the mirror file",
        )
