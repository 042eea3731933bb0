"""Reads one data file, Parquet or delimited text, into typed rows and markers, or reports why the table fails.

Rules: F-30 formats and compressions, F-38 and F-40 invalid files, F-50 marker column, F-57 files without marker, F-80
to F-82 types (Microsoft Learn). Mixed and null markers and null keys are undocumented (assumed: they fail).
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fabric_emulator.delimited_text import read_delimited_text
from fabric_emulator.failures import bad_file, needs_rebuild
from fabric_emulator.settings import Settings
from fabric_emulator.table_metadata import TableMetadata
from open_mirroring.landing_zone.layout import ROW_MARKER

INSERT, UPDATE, DELETE, UPSERT = 0, 1, 2, 4
_COMPRESSIONS = {"UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"}


class ChangeFile(NamedTuple):
    """The rows of one file in order, without the marker column.

    *markers* (int8, never null, as long as *rows*) is None when every row is an insert because the file has no marker;
    *incremental* means that the file had a marker column (F-58). *evolves* means that its columns may differ from those
    of earlier files, as far as F-83 to F-88 allow (F-90: never those of delimited text).
    """

    rows: pa.Table
    markers: pa.Array | None
    incremental: bool
    evolves: bool = True


def read_change_file(content: bytes, name: str, metadata: TableMetadata, settings: Settings) -> ChangeFile:
    """Read and check the bytes of one data file; *name* is for messages.

    Raises:
        TableFailure: ``InvalidParquetFile`` (zero bytes, corrupt, compression), ``InvalidTextFile``,
            ``InvalidRowMarker``, ``NullKey``, ``KeyColumnMissing``, ``UpdateWithoutKey`` (F-12), ``UnsupportedType``.
    """
    text = metadata.text
    table = _decode(content, name) if text is None else read_delimited_text(content, name, text)
    marked = [field.name for field in table.schema if field.name.casefold() == ROW_MARKER.casefold()]
    markers: pa.Array | None = None
    if marked:
        markers = _markers(table, name, metadata, settings)
        table = table.drop_columns([ROW_MARKER])
    elif metadata.upsert_by_default:
        markers = pa.repeat(pa.scalar(UPSERT, pa.int8()), table.num_rows)
    if table.num_columns == 0:
        raise bad_file("InvalidParquetFile", f"{name} has no data columns.")
    rows = pa.table(
        [_plain(column, field, name) for column, field in zip(table.columns, table.schema, strict=True)],
        schema=pa.schema([pa.field(f.name, _plain_type(f, name), f.nullable) for f in table.schema]),
    )
    _check_keys(rows, markers, name, metadata)
    return ChangeFile(rows, markers, incremental=bool(marked), evolves=text is None)


def _decode(content: bytes, name: str) -> pa.Table:
    if not content:
        raise bad_file("InvalidParquetFile", f"{name} has zero bytes.")
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        codecs = {
            file.metadata.row_group(group).column(column).compression
            for group in range(file.metadata.num_row_groups)
            for column in range(file.metadata.num_columns)
        }
        table = file.read()
        table.validate(full=True)
    except (pa.ArrowException, OSError) as error:  # a broken page is an OSError in Arrow; the bytes are in memory
        raise bad_file("InvalidParquetFile", f"{name} is no readable Parquet file: {error}.") from error
    if codecs - _COMPRESSIONS:
        raise bad_file("InvalidParquetFile", f"{name} is compressed by {', '.join(sorted(codecs - _COMPRESSIONS))}.")
    names = [column.casefold() for column in table.column_names]
    twins = sorted({column for column in table.column_names if names.count(column.casefold()) > 1})
    if twins:
        raise bad_file("InvalidParquetFile", f"{name} has columns that differ in case at most: {', '.join(twins)}.")
    return table


def _markers(table: pa.Table, name: str, metadata: TableMetadata, settings: Settings) -> pa.Array:
    names = table.column_names
    if ROW_MARKER not in names:
        raise bad_file("InvalidRowMarker", f"{name} spells the column {ROW_MARKER} in another case.")
    if settings.marker_must_be_last and names[-1] != ROW_MARKER:
        raise bad_file("InvalidRowMarker", f"{name}: {ROW_MARKER} is not the last column but before {names[-1]!r}.")
    column = table.column(ROW_MARKER)
    if not pa.types.is_integer(column.type):
        raise bad_file("InvalidRowMarker", f"{name}: {ROW_MARKER} is of type {column.type}, not an integer.")
    if column.null_count:
        if settings.null_marker == "fail":
            raise bad_file("InvalidRowMarker", f"{name}: {column.null_count} rows have a null {ROW_MARKER}.")
        default = UPSERT if metadata.upsert_by_default else INSERT
        column = pc.fill_null(column, pa.scalar(default, column.type))
    allowed = pa.array([INSERT, UPDATE, DELETE, UPSERT], column.type)
    unknown = pc.unique(pc.filter(column, pc.invert(pc.is_in(column, value_set=allowed))))
    if len(unknown):
        raise bad_file("InvalidRowMarker", f"{name}: {ROW_MARKER} has the unknown value {unknown[0].as_py()}.")
    return column.cast(pa.int8()).combine_chunks()


def _check_keys(rows: pa.Table, markers: pa.Array | None, name: str, metadata: TableMetadata) -> None:
    for key in metadata.keys:
        if key not in rows.column_names:
            raise bad_file("KeyColumnMissing", f"{name} lacks the key column {key!r}.")
        if rows.column(key).null_count:
            raise bad_file("NullKey", f"{name}: the key column {key!r} is null in some row.")
    if not metadata.keys and markers is not None and pc.any(pc.not_equal(markers, INSERT)).as_py():
        raise bad_file("UpdateWithoutKey", f"{name} has updates or deletes, but the table has no keyColumns (F-12).")


def _plain_type(field: pa.Field, name: str) -> pa.DataType:
    """The one type under which a Parquet type is stored; undocumented ones are refused (assumed)."""
    kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
    if kind in _AS_THEY_ARE or pa.types.is_decimal128(kind):
        return kind
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_timestamp(kind) and kind.unit in ("us", "ms"):
        # Milliseconds are common among writers (field); times without zone are read as UTC.
        return pa.timestamp("us", tz="UTC")
    raise needs_rebuild("UnsupportedType", f"{name}: column {field.name!r} is of type {field.type} (F-80 to F-82).")


def _plain(column: pa.ChunkedArray, field: pa.Field, name: str) -> pa.ChunkedArray:
    return column.cast(_plain_type(field, name))


_AS_THEY_ARE = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
}
