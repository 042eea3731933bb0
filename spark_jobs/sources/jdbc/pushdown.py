"""Writes the condition `where` of a table in the mirror file as SQL, so that a database sends fewer rows (G-193)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from decimal import Decimal

from open_mirroring.config.row_filter import Condition
from open_mirroring.landing_zone.load_columns import LoadColumn
from spark_jobs.sources.jdbc.dialects import Dialect
from spark_jobs.sources.sql_server.type_text import INTEGERS, MONEY, landing_type, read_type

_TEXTS = ("char", "varchar", "nchar", "nvarchar")


def spelled_for(where: Condition, columns: Iterable[LoadColumn], database: Dialect) -> str | None:
    """The part of the condition *where* that the database can check by itself, as SQL; None if there is no such part.

    The database may send rows that are not mirrored; they are left out later by their values. It must never leave out
    a mirrored row. But a database compares texts by collations, by which more texts are equal, and times with more
    digits than the landing zone keeps. So a comparison that could leave out a mirrored row is not part of the SQL.
    """
    found = _spelled(where, {column.name.casefold(): column for column in columns}, database)
    return None if found is None else found[0]


def _spelled(where: Condition, columns: Mapping[str, LoadColumn], database: Dialect) -> tuple[str, bool] | None:
    """The SQL, and whether it is exact; if not, the database may find more rows by it, never fewer."""
    if where.parts:
        known = [part for one in where.parts if (part := _spelled(one, columns, database)) is not None]
        is_whole = len(known) == len(where.parts)
        is_exact = is_whole and all(exact for _, exact in known)
        if where.operator == "NOT":
            return (f"NOT ({known[0][0]})", True) if is_exact else None
        if not known or (where.operator == "OR" and not is_whole):
            return None
        return f" {where.operator} ".join(f"({sql})" for sql, _ in known), is_exact
    column = columns.get(where.column.casefold())
    if column is None or column.sql_type is None:
        return None
    name = database.quote(column.name)
    if where.operator == "NULL":
        return f"{name} IS NULL", True
    literals, kind = _literals(where, column, database), read_type(column.sql_type).name
    if literals is None:
        return None
    name = database.as_text(name, column.sql_type) if kind in _TEXTS and database.copies else name
    right = f"({', '.join(literals)})" if where.operator == "IN" else literals[0]
    return f"{name} {where.operator} {right}", kind not in _TEXTS


def _literals(where: Condition, column: LoadColumn, database: Dialect) -> Sequence[str] | None:
    """The literals as a database reads them; None where it may compare them otherwise than we do."""
    sql_type = column.sql_type or ""
    kind, values = read_type(sql_type).name, where.values
    if kind in INTEGERS or kind in MONEY or kind == "decimal":
        is_number = all(isinstance(one, int | Decimal) and not isinstance(one, bool) for one in values)
        is_same = column.type.startswith(("int", "decimal"))
        return [format(Decimal(one), "f") for one in values] if is_number and is_same else None
    if landing_type(sql_type) != column.type or not all(isinstance(one, str) for one in values):
        return None
    texts = [str(one) for one in values]
    if kind == "date":
        with suppress(ValueError):
            return [database.bound("date", date.fromisoformat(one).isoformat()) for one in texts]
    return [database.text(one) for one in texts] if kind in _TEXTS and where.operator in ("=", "IN") else None
