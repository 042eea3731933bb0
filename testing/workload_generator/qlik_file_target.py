"""A Qlik file target: change tables and full loads as files, each data file with its ``.dfm``.

Public source: Qlik help, *File target: data files, change tables, metadata files*.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from workload_generator.qlik_change_tables import BEGINNING, ChangeTableOptions, StoredChange, columns_of, values_of
from workload_generator.sql_values import arrow_type, parse_type, typed
from workload_generator.tables import ColumnDef, Row, TableDef

FileFormat = Literal["csv", "json", "parquet"]

_QLIK_TYPES = {
    **{"tinyint": "UINT1", "smallint": "INT2", "int": "INT4", "bigint": "INT8", "float": "REAL8", "real": "REAL4"},
    **{"bit": "BOOLEAN", "date": "DATE", "time": "TIME", "datetime": "DATETIME", "datetime2": "DATETIME"},
    **{"smalldatetime": "DATETIME", "decimal": "NUMERIC", "numeric": "NUMERIC", "money": "NUMERIC"},
    **{"smallmoney": "NUMERIC", "binary": "BYTES", "varbinary": "BYTES", "nvarchar": "WSTRING"},
}


def change_files(
    changes: Iterable[StoredChange],
    options: ChangeTableOptions,
    file_format: FileFormat = "csv",
    *,
    rows_per_file: int = 100,
    compressed: bool = False,
    first_number: int = 1,
) -> Iterator[tuple[str, bytes]]:
    """The files of a file target: (path, content), each data file before its ``.dfm``; numbered from *first_number*.

    A file ends after this many rows, at a change of the column list, and at the end of a partition.
    """
    waiting: dict[str, list[StoredChange]] = {}
    numbers = count(first_number)
    for change in changes:
        rows = waiting.setdefault(change.table.full_name, [])
        if rows and (len(rows) >= rows_per_file or _place(rows[0]) != _place(change)):
            yield from _change_file(rows, options, file_format, next(numbers), compressed)
            rows.clear()
        rows.append(change)
    for rows in waiting.values():
        if rows:
            yield from _change_file(rows, options, file_format, next(numbers), compressed)


def full_load_files(
    table: TableDef,
    rows: Sequence[Row],
    file_format: FileFormat = "csv",
    *,
    rows_per_file: int = 100,
    compressed: bool = False,
) -> Iterator[tuple[str, bytes]]:
    """The full load of a table: ``<schema>.<table>/LOAD00000001.*`` and so on, each with its ``.dfm``."""
    for number, start in enumerate(range(0, max(len(rows), 1), rows_per_file), 1):
        part = rows[start : start + rows_per_file]
        name = f"LOAD{number:08d}.{file_format}"
        yield from _with_dfm(table, table.full_name, table.name, name, table.columns, part, "data", compressed)


def _place(change: StoredChange) -> tuple[Any, ...]:
    return change.table.columns, change.header.get("partition_name")


def _change_file(
    changes: Sequence[StoredChange], options: ChangeTableOptions, file_format: FileFormat, number: int, compressed: bool
) -> Iterator[tuple[str, bytes]]:
    table, name = changes[0].table, f"{BEGINNING:%Y%m%d}-{number:09d}.{file_format}"
    folder = f"{table.full_name}{options.suffix}"
    if (partition := changes[0].header.get("partition_name")) is not None:
        folder = f"{folder}/{partition}"
    rows = [values_of(change, options) for change in changes]
    target = table.name + options.suffix
    yield from _with_dfm(table, folder, target, name, columns_of(table, options), rows, "changes", compressed)


def _with_dfm(
    table: TableDef,
    folder: str,
    target: str,
    name: str,
    columns: Sequence[ColumnDef],
    rows: Sequence[Row],
    content: str,
    compressed: bool,
) -> Iterator[tuple[str, bytes]]:
    stem, _, file_format = name.partition(".")
    data = {"csv": _csv, "json": _json, "parquet": _parquet}[file_format](columns, rows)
    compressed = compressed and file_format != "parquet"
    yield f"{folder}/{name}{'.gz' * compressed}", gzip.compress(data, mtime=0) if compressed else data
    options = {"fieldDelimiter": ",", "recordDelimiter": "\n", "nullValue": "", "quoteChar": '"', "escapeChar": '"'}
    document = {
        "dfmVersion": "1.1",
        "taskInfo": {"name": "task", "operation": "fullLoadAndCdc"},
        "fileInfo": {
            **{"name": name, "extension": "gz" * compressed, "location": folder, "content": content},
            **{"recordCount": len(rows), "errorCount": 0},
        },
        "formatInfo": {"format": "delimited" if file_format == "csv" else file_format, "options": options},
        "dataInfo": {
            **{"sourceSchema": table.schema, "sourceTable": table.name, "targetSchema": table.schema},
            **{"targetTable": target, "tableVersion": len(table.columns)},
            "columns": [_described(at, column, table.key) for at, column in enumerate(columns, 1)],
        },
    }
    yield f"{folder}/{stem}.dfm", json.dumps(document, indent=4).encode()


def _described(ordinal: int, column: ColumnDef, key: Sequence[str]) -> dict[str, Any]:
    kind = parse_type(column.sql_type)
    qlik = _QLIK_TYPES.get(kind.base, "STRING")
    if kind.size == -1:
        qlik = {"WSTRING": "NCLOB", "STRING": "CLOB", "BYTES": "BLOB"}[qlik]
    digits = (kind.size, kind.scale) if qlik == "NUMERIC" else (0, 0)
    length = max(kind.size, 0) if qlik in ("STRING", "WSTRING", "BYTES") else 0
    place = key.index(column.name) + 1 if column.name in key else 0
    numbers = {"length": length, "precision": digits[0], "scale": digits[1], "primaryKeyPos": place}
    return {"ordinal": ordinal, "name": column.name, "type": qlik, **numbers}


def _csv(columns: Sequence[ColumnDef], rows: Sequence[Row]) -> bytes:
    quoted = {
        c.name for c in columns if _QLIK_TYPES.get(parse_type(c.sql_type).base, "STRING") in ("STRING", "WSTRING")
    }

    def field(name: str, value: str | None) -> str:
        if value is None:
            return ""
        return '"' + value.replace('"', '""') + '"' if name in quoted else value

    lines = [",".join(column.name for column in columns)]
    lines += [",".join(field(column.name, row[column.name]) for column in columns) for row in rows]
    return "".join(line + "\n" for line in lines).encode()


def _json(columns: Sequence[ColumnDef], rows: Sequence[Row]) -> bytes:
    def value(column: ColumnDef, text: str | None) -> str:
        kind = _QLIK_TYPES.get(parse_type(column.sql_type).base, "STRING")
        if text is not None and kind == "BOOLEAN":
            return {"0": "false", "1": "true"}[text]
        is_number = kind.startswith(("INT", "UINT", "REAL"))
        return text if text is not None and is_number else json.dumps(text, ensure_ascii=False)

    lines = [
        ", ".join(f"{json.dumps(c.name, ensure_ascii=False)}: {value(c, row[c.name])}" for c in columns) for row in rows
    ]
    return "".join(f"{{{line}}}\n" for line in lines).encode()


def _parquet(columns: Sequence[ColumnDef], rows: Sequence[Row]) -> bytes:
    arrays = [
        pa.array([typed(column.sql_type, row[column.name]) for row in rows], arrow_type(column.sql_type))
        for column in columns
    ]
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(arrays, names=[column.name for column in columns]), buffer)
    return buffer.getvalue()
