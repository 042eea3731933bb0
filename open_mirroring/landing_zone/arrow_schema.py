"""Builds the Arrow schema of a landing zone file.

These functions have a module of their own, because importing Arrow is slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from open_mirroring.landing_zone.layout import ROW_MARKER
from open_mirroring.landing_zone.schema import LandingColumn, check_type, landed

MARKER_FIELD = pa.field(ROW_MARKER, pa.int32(), nullable=False)
"""Always the last column: int32, never null (F-50)."""

_SIMPLE: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    # UTC-adjusted microseconds: some readers of the target fail on timestamps without a zone. A wall clock counts as
    # UTC.
    "timestamp": pa.timestamp("us", tz="UTC"),
}


def arrow_type(landing_type: str) -> pa.DataType:
    """Return the Arrow type for a landing type such as ``int64``.

    Raises ``TYPE_UNSUPPORTED`` for an unknown landing type.
    """
    decimal = check_type(landing_type)
    return _SIMPLE[landing_type] if decimal is None else pa.decimal128(*decimal)


def landing_columns(schema: pa.Schema) -> tuple[LandingColumn, ...]:
    """Return the columns of one of our data files, without the row marker, from the file's Arrow schema.

    Raises ``TYPE_UNSUPPORTED`` if a column has a type that is not allowed in landing zone files.
    """
    names = {arrow: name for name, arrow in _SIMPLE.items()}
    found = []
    for field in schema:
        if field.name != ROW_MARKER:
            kind = field.type
            decimal = f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else str(kind)
            found.append(LandingColumn(field.name, names.get(kind, decimal)))
            check_type(found[-1].type)
    return tuple(found)


def file_schema(columns: Sequence[LandingColumn], keys: Sequence[str], *, marker: bool) -> pa.Schema:
    """Return the Arrow schema of a data file: the columns in order, then, with *marker*, the row marker.

    Columns in *keys* are not nullable. All other columns are nullable, so that a later file may leave them out (F-84,
    F-86).
    """
    fields = [pa.field(c.name, arrow_type(c.type), nullable=c.name not in keys) for c in columns]
    return pa.schema([*fields, MARKER_FIELD] if marker else fields)


def landed_file_schema(columns: Iterable[LandingColumn], keys: Iterable[str], *, marker: bool) -> pa.Schema:
    """Return the Arrow schema of a data file, with *columns* and *keys* under their names at the target.

    The row marker is the last column if *marker* is set.
    """
    return file_schema(*landed(columns, keys), marker=marker)
