"""A snapshot of the source as files, for an initial load.

``<folder>/<schema.table>/part-NNNNN.<format>`` and, written last, ``<folder>/export.json``: for each table its rows,
files, columns and key, and ``stream_from``, the first commit LSN whose changes are not all in the export. Events must
be applied from that LSN on.

A Qlik file target has no such manifest: its full load is the folders of :mod:`~workload_generator.qlik_file_target`.

Parquet has the Arrow types of :func:`~workload_generator.sql_values.arrow_type`. CSV is UTF-8 with a header line and
carries the source's own texts; every value is quoted, a quote inside is doubled, an empty field without quotes is NULL.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from workload_generator.qlik_file_target import full_load_files
from workload_generator.source import Source, SourceError
from workload_generator.sql_values import arrow_type, typed
from workload_generator.tables import Row, TableDef
from workload_generator.transports import write_files

MANIFEST = "export.json"
_ROWS_PER_FILE = 100


def export(source: Source, folder: Path, file_format: Literal["parquet", "csv"]) -> dict[str, Any]:
    """Write the snapshot; returns the content of ``export.json``.

    Raises:
        SourceError: when *folder* holds something already.
    """
    _check_is_empty(folder)
    stream_from, tables = source.snapshot()
    content = csv_content if file_format == "csv" else parquet_content
    described = {}
    for table, rows in tables:
        # A table without rows has one file, too, for the columns.
        parts = [rows[start : start + _ROWS_PER_FILE] for start in range(0, max(len(rows), 1), _ROWS_PER_FILE)]
        files = [
            (f"{table.full_name}/part-{number:05d}.{file_format}", content(table, part))
            for number, part in enumerate(parts)
        ]
        write_files(folder, files)
        described[table.full_name] = {
            "rows": len(rows),
            "files": [path for path, _ in files],
            "columns": [{"name": one.name, "sql_type": one.sql_type} for one in table.columns],
            "key": list(table.key),
        }
    manifest = {"format": file_format, "stream_from": stream_from, "tables": described}
    write_files(folder, [(MANIFEST, (json.dumps(manifest, indent=2) + "\n").encode())])
    return manifest


def export_full_load(source: Source, folder: Path) -> dict[str, Any]:
    """Write the snapshot like the full load of a Qlik task with a file target, before any change.

    Returns:
        For each table its rows and files.

    Raises:
        SourceError: when *folder* holds something already.
    """
    _check_is_empty(folder)
    described = {}
    for table, rows in source.snapshot()[1]:
        files = [*full_load_files(table, rows, rows_per_file=_ROWS_PER_FILE)]
        write_files(folder, files)
        described[table.full_name] = {"rows": len(rows), "files": [path for path, _ in files]}
    return {"format": "qlik-full-load", "tables": described}


def _check_is_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise SourceError(f"{folder} is not empty; an export needs a folder of its own")


def parquet_content(table: TableDef, rows: Sequence[Row]) -> bytes:
    """The rows as a Parquet file, typed."""
    fields = [pa.field(one.name, arrow_type(one.sql_type), one.nullable) for one in table.columns]
    arrays = [
        pa.array([typed(one.sql_type, row[one.name]) for row in rows], arrow_type(one.sql_type))
        for one in table.columns
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), buffer)
    return buffer.getvalue()


def csv_content(table: TableDef, rows: Sequence[Row]) -> bytes:
    """The rows as a CSV file, as text."""

    def line(values: Sequence[str | None]) -> str:
        return ",".join("" if one is None else '"' + one.replace('"', '""') + '"' for one in values) + "\n"

    header = line([one.name for one in table.columns])
    return (header + "".join(line([row[one.name] for one in table.columns]) for row in rows)).encode()
