"""Decides the condition `where` of a table in the mirror file for typed rows, column by column (G-193).

Initial loads, changes and proofs decide by the same typed values. So the decision about a row does not depend on where
the row was read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.codes import next_step_of
from open_mirroring.config.row_filter import Condition, Literal
from open_mirroring.errors import TerminalError
from open_mirroring.protocols.table_stops import FILTER_UNDECIDED

_COMPARE: Mapping[str, Callable[[Any, Any], pa.Array]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def refuse_undecided(where: Condition, names: Collection[str]) -> None:
    """Raises ``FILTER_UNDECIDED`` if *names*, the columns of rows, lack a column of the condition *where*.

    Then it is unknown whether the rows are mirrored.
    """
    there = {name.casefold() for name in names}
    if missing := [name for name in where.columns if name.casefold() not in there]:
        raise _undecided(f"a row does not contain the columns {missing}, which `where` names")


def matching(rows: pa.Table, where: Condition) -> pa.Array:
    """Whether each row fulfils *where*, and so is mirrored; False if SQL's answer would be UNKNOWN.

    Raises ``FILTER_UNDECIDED`` if the rows lack a column of *where*.
    """
    refuse_undecided(where, rows.column_names)
    columns = {name.casefold(): rows[name].combine_chunks() for name in rows.column_names}
    return pc.fill_null(_decided(where, columns), False)


def _decided(where: Condition, columns: Mapping[str, pa.Array]) -> pa.Array:
    if where.operator == "NOT":
        return pc.invert(_decided(where.parts[0], columns))
    if where.parts:
        both = pc.and_kleene if where.operator == "AND" else pc.or_kleene
        return reduce(both, (_decided(part, columns) for part in where.parts))
    values = columns[where.column.casefold()]
    if where.operator == "NULL":
        return values.is_null()
    compare = _COMPARE["=" if where.operator == "IN" else where.operator]
    try:
        return reduce(pc.or_kleene, (compare(*_alike(values, literal)) for literal in where.values))
    except (ValueError, TypeError, pa.ArrowException) as error:
        what = f"`where` compares column {where.column!r}, which lands as {values.type}, with {where.values}"
        raise _undecided(f"{what}: {error}") from None


def _alike(values: pa.Array, literal: Literal) -> tuple[pa.Array, pa.Scalar]:
    """The values and a literal in one type that holds both exactly."""
    kind = values.type
    is_number = isinstance(literal, int | Decimal) and not isinstance(literal, bool)
    if is_number and (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        exact = pa.decimal256(76, max(getattr(kind, "scale", 0), -min(0, int(Decimal(literal).as_tuple().exponent))))
        values = values.cast(pa.decimal128(19)) if pa.types.is_integer(kind) else values
        return values.cast(exact), pa.scalar(Decimal(literal), exact)
    if is_number and pa.types.is_floating(kind):
        return values.cast(pa.float64()), pa.scalar(float(literal), pa.float64())
    if pa.types.is_boolean(kind) and literal in (True, False):
        return values, pa.scalar(bool(literal))
    if isinstance(literal, str):
        if pa.types.is_string(kind):
            return values, pa.scalar(literal)
        if pa.types.is_date(kind):
            return values, pa.scalar(date.fromisoformat(literal), kind)
        if pa.types.is_timestamp(kind):
            at = datetime.fromisoformat(literal)
            return values, pa.scalar(at.replace(tzinfo=UTC) if at.tzinfo is None else at, kind)
    raise ValueError(f"{literal!r} is no such value")


def _undecided(what: str) -> TerminalError:
    return TerminalError(FILTER_UNDECIDED, what, next_step=next_step_of(FILTER_UNDECIDED))
