"""The columns of landing zone files: which types a column can have, and which changes of a table need no reset.

A *landing type* is the type of a column in landing zone files, such as ``int64``. Only types that Fabric documents are
written (F-80 to F-82). A nullable column may be added to a table. For any other change of its columns the table must be
rebuilt from scratch (F-83 to F-90).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone.layout import ROW_MARKER

_SIMPLE = frozenset(["bool", "int16", "int32", "int64", "float32", "float64", "string", "binary", "date", "timestamp"])
_DECIMAL = re.compile(r"^decimal\(([0-9]{1,2}),([0-9]{1,2})\)$")
EXTRA_TYPES = {
    "commit_time": "timestamp",
    "log_position": "string",
    "operation": "string",
    "transaction": "string",
    "deleted_at": "timestamp",
    "source_table": "string",
    "valid_from": "timestamp",
    "valid_to": "timestamp",
    "is_current": "bool",
}
"""The properties of a change that `extra_columns` can contain (G-118), each with its landing type."""
_EXTRA = f"{ROW_MARKER}:"
"""The prefix of extra columns' internal names. The target reserves it, so no source column has it."""


class LandingColumn(NamedTuple):
    """A column of a mirrored table: its name at the source and its landing type.

    *renamed* is the column's name at the target if it differs from the source's name (G-120); only files use it.
    *salted* is the check value of the salt if the column is hashed (G-121).
    """

    name: str
    type: str
    renamed: str | None = None
    salted: str | None = None

    @property
    def landed_name(self) -> str:
        """The column's name in landing zone files, which is also its name at the target."""
        return self.renamed or self.name

    @property
    def content(self) -> str | None:
        """The property of a change that an extra column contains (G-118); None for a column of the source."""
        return self.name.removeprefix(_EXTRA) if self.name.startswith(_EXTRA) else None


POSITION_KEY = f"{_EXTRA}log_position"
"""The internal name of the position of a change, which is a key column in a history of versions (G-195)."""

_columns_of = msgspec.json.Decoder(tuple[LandingColumn, ...]).decode


def extra_columns(names: Iterable[tuple[str, str]]) -> tuple[LandingColumn, ...]:
    """Build the columns for `extra_columns` in the mirror file (G-118).

    *names* pairs each property of a change with the name of its column.
    """
    return tuple(LandingColumn(_EXTRA + content, EXTRA_TYPES[content], name) for content, name in names)


def refuse_reserved(name: str) -> None:
    """Raise ``COLUMN_NAME_INVALID`` for a source column if Fabric reserves its name, or the name contains NUL.

    Parquet readers would cut the name at the NUL character.
    """
    what, next_step = f"the source has a column named {name!r}", "rename it at the source or list the other `columns`"
    if name.casefold() == ROW_MARKER.casefold() or name.startswith(_EXTRA):
        raise TerminalError("COLUMN_NAME_INVALID", what, next_step=f"the target reserves this name: {next_step}")
    if "\0" in name:
        what += ", and a reader of Parquet ends the name at its NUL"
        raise TerminalError("COLUMN_NAME_INVALID", what, next_step=next_step)


def check_type(landing_type: str) -> tuple[int, int] | None:
    """Check a landing type. Return precision and scale of a decimal type, None for any other type.

    Valid are ``bool int16 int32 int64 float32 float64 string binary date timestamp`` and ``decimal(p,s)`` with p ≤ 38.
    Raises ``TYPE_UNSUPPORTED`` for any other string.
    """
    if landing_type in _SIMPLE:
        return None
    match = _DECIMAL.match(landing_type)
    if match and 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return int(match[1]), int(match[2])
    raise TerminalError(
        "TYPE_UNSUPPORTED",
        f"{landing_type!r} is not a type of the landing zone",
        next_step="map the column to string, or leave it out with `columns`",
    )


_DIGITS = {"int16": 5, "int32": 10, "int64": 19}


def wider(one: str, other: str) -> str | None:
    """Return the narrowest landing type that represents all values of two types exactly; None if there is none."""
    if one == other:
        return one
    pair = {one, other}
    if pair == {"date", "timestamp"}:
        return "timestamp"
    if pair <= {"bool", *_DIGITS}:
        return max(pair, key=lambda kind: _DIGITS.get(kind, 0))
    if pair & {"float32", "float64"}:
        if pair <= {"bool", "float32", "int16"}:
            return "float32"
        return "float64" if pair <= {"bool", "float32", "float64", "int16", "int32"} else None
    digits = [(1, 0) if kind == "bool" else _exact_digits(kind) for kind in (one, other)]
    if None in digits:
        return None
    whole = max(precision - scale for precision, scale in filter(None, digits))
    scale = max(scale for _, scale in filter(None, digits))
    return f"decimal({whole + scale},{scale})" if whole + scale <= 38 else None


def is_exact_number(kind: str) -> bool:
    """Whether a landing type is an integer or a decimal.

    Equal values of two such types stay equal when both columns are widened to one type.
    """
    return _exact_digits(kind) is not None


def _exact_digits(kind: str) -> tuple[int, int] | None:
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    match = _DECIMAL.match(kind)
    return None if match is None else (int(match[1]), int(match[2]))


def landed(columns: Iterable[LandingColumn], keys: Iterable[str]) -> tuple[tuple[LandingColumn, ...], tuple[str, ...]]:
    """Replace the names at the source by the names at the target, in *columns* and *keys* (G-120)."""
    columns = tuple(columns)
    names = {column.name: column.landed_name for column in columns}
    return tuple(LandingColumn(c.landed_name, c.type) for c in columns), tuple(names.get(key, key) for key in keys)


class TableSchema(NamedTuple):
    """All columns that a table ever had, in the order in which the columns appeared."""

    columns: tuple[LandingColumn, ...]

    @property
    def stored(self) -> list[tuple[str | None, ...]]:
        """The columns as lists for the ledger. Renames and salts are included only if a column has one."""
        return [column if column.salted else column[: 3 if column.renamed else 2] for column in self.columns]

    @property
    def renamed(self) -> dict[str, str]:
        """The names at the target by the names at the source, for all columns (extra ones, too) where they differ."""
        return {column.name: column.renamed for column in self.columns if column.renamed}

    @property
    def salted(self) -> dict[str, str]:
        """The check value of the salt by column name, for hashed columns."""
        return {column.name: column.salted for column in self.columns if column.salted}

    def to_json(self) -> str:
        return json.dumps(self.stored, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> TableSchema:
        return cls(_columns_of(text))

    def extended(self, seen: Iterable[LandingColumn]) -> TableSchema:
        """Return the schema with the columns *seen* in new rows added.

        A column with a new type gets the narrowest type that represents both types exactly. Raises ``SCHEMA_CHANGED``
        if there is no such type (F-87). Raises ``COLUMN_NAME_INVALID`` if the name of a new column is reserved, or
        differs from the name of another column in case only. Names at the target are compared, too.
        """
        columns = list(self.columns)
        by_name = {column.name: column for column in columns}
        by_fold = {column.name.casefold(): column.name for column in columns}
        by_landed = {column.landed_name.casefold(): column.name for column in columns}
        for column in seen:
            known = by_name.get(column.name)
            if known is not None:
                kind = wider(known.type, column.type)
                if kind is None:
                    raise TerminalError(
                        "SCHEMA_CHANGED",
                        f"column {column.name!r} changed its type from {known.type} to {column.type}",
                        next_step="the target cannot change a type in place: reload this table",
                    )
                if kind != known.type:
                    by_name[column.name] = columns[columns.index(known)] = known._replace(type=kind)
                continue
            alike = by_landed.get(column.landed_name.casefold())
            _refuse_name(column, by_fold.get(column.name.casefold()), None if alike is None else by_name[alike])
            check_type(column.type)
            columns.append(column)
            by_name[column.name] = column
            by_fold[column.name.casefold()] = column.name
            by_landed[column.landed_name.casefold()] = column.name
        return TableSchema(tuple(columns))


def _refuse_name(column: LandingColumn, twin: str | None, alike: LandingColumn | None) -> None:
    """Refuse a name that the target cannot hold next to a *twin* in another case or a column that lands *alike*."""
    if column.content not in EXTRA_TYPES:
        refuse_reserved(column.name)
    if twin is not None:
        what, next_step = f"columns {twin!r} and {column.name!r} differ in case only", "rename one or list `columns`"
    elif alike is not None:
        both = "a column of the source and one of `extra_columns`"
        both = both if column.content or alike.content else f"columns {alike.name!r} and {column.name!r}"
        what = f"{both} would both land as {column.landed_name!r}"
        next_step = "give one of them another name by `rename` or under `extra_columns`, or leave it out by `columns`"
    else:
        return
    raise TerminalError("COLUMN_NAME_INVALID", what, next_step=next_step)
