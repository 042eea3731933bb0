"""Writes Parquet data files with a footer that describes the file, and checks each file before it is published.

The footer contains the mirror, the table, the range of log batches and the digest of the rows. Fabric keeps the last
file in the table's folder (F-35), so a lost ledger can be rebuilt from the footer of this file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.arrow_schema import MARKER_FIELD
from open_mirroring.landing_zone.digest import EMPTY, combine, digest_of
from open_mirroring.landing_zone.layout import DEFAULT_COMPRESSION, ROW_MARKER, Compression, RowMarker

FOOTER_KEY = b"open_mirroring"
"""The key of the Parquet metadata entry that contains our footer as one JSON object."""

ROW_GROUP_ROWS = 262_144
ROW_GROUP_BYTES = 64 << 20
"""Rows are collected until either limit is reached, so wide rows need no more memory than narrow ones."""
LARGEST_ROW_GROUP_ROWS = 1_048_576
"""A batch of rows larger than this is split."""

# Columns with few values are dictionary-encoded. A small limit abandons the dictionary early where the values are many.
_ENCODING: dict[str, Any] = {"dictionary_pagesize_limit": 32 << 10}
_MAGIC = b"PAR1"
_KEYED_MARKERS = [int(RowMarker.DELETE), int(RowMarker.UPSERT)]
_KEYLESS_MARKERS = [int(RowMarker.INSERT)]


FileKind = Literal["changes", "load"]


@dataclass(frozen=True, slots=True)
class Footer:
    """The description of a data file, stored in the metadata of the Parquet file.

    *generation* grows with each reset of the table. *first_number* is the first file number of the publication: files
    of one publication are staged in parallel, before each file has its own number. *batch_from* (exclusive) and
    *batch_to* (inclusive) are the range of change log batches in the publication. *first_position* and *last_position*
    are the range of positions of the file's changes; both are empty for an initial load and for a file without rows.
    *standing* is the state of the table as JSON (:class:`~open_mirroring.landing_zone.standing.Standing`), from which
    a lost ledger is rebuilt; it is empty for an initial load. :func:`write_data_file` fills in *rows* and *digest*.
    """

    mirror: str
    table_id: str
    generation: int
    first_number: int
    batch_from: int
    batch_to: int
    kind: FileKind
    first_position: str = ""
    last_position: str = ""
    rows: int = 0
    digest: str = EMPTY
    standing: str = ""


class WrittenFile(NamedTuple):
    """A data file that was just written: number of rows, size in bytes, digest of the rows."""

    rows: int
    size: int
    digest: str


def write_data_file(
    path: Path,
    tables: pa.Table | Iterable[pa.Table],
    schema: pa.Schema,
    footer: Footer,
    compression: Compression = DEFAULT_COMPRESSION,
) -> WrittenFile:
    """Write one data file. If *tables* is an iterator, only about one row group is in memory.

    The tables must have exactly the columns of *schema*, in the schema's order and types, and no NULL in a column that
    is not nullable. Without any table the file is valid and has no rows (F-41). An existing file is replaced, because
    *path* is local scratch.

    Raises:
        TerminalError: ``FILE_UNFIT`` when a table does not match the schema; ``TYPE_UNSUPPORTED`` when a type of the
            schema is not allowed in files. The part of the file that was already written is not a valid Parquet file.
    """
    rows, digests = 0, [digest_of(schema.empty_table())]
    # Without the Arrow schema in the file, we read back exactly the Parquet types that every other reader sees.
    with pq.ParquetWriter(path, schema, store_schema=False, compression=compression, **_ENCODING) as writer:
        for group in _row_groups([tables] if isinstance(tables, pa.Table) else tables, schema, path):
            writer.write_table(group, row_group_size=LARGEST_ROW_GROUP_ROWS)
            rows += group.num_rows
            digests.append(digest_of(group))
        finished = replace(footer, rows=rows, digest=combine(digests))
        writer.add_key_value_metadata({FOOTER_KEY: json.dumps(asdict(finished), ensure_ascii=False)})
    return WrittenFile(rows, path.stat().st_size, finished.digest)


def _row_groups(tables: Iterable[pa.Table], schema: pa.Schema, path: Path) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        waiting.append(fitted(table, schema, path))
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting, rows, size = [], 0, 0
    if rows:
        yield pa.concat_tables(waiting)


def fitted(table: pa.Table, schema: pa.Schema, path: Path) -> pa.Table:
    """Return *table* with the schema of the file, after a check that names, types and order match and no key is NULL.

    Raises:
        TerminalError: ``FILE_UNFIT`` when a check fails. The error names *path*, the file in which the rows are to be
            written.
    """
    if table.schema.names != schema.names or table.schema.types != schema.types:
        raise invalid_file(path, f"rows have the columns {_described(table.schema)}, the file {_described(schema)}")
    for field, column in zip(schema, table.columns, strict=True):
        if not field.nullable and column.null_count:
            raise invalid_file(path, f"column {field.name!r} must not be NULL and is, {column.null_count} times")
    return pa.Table.from_arrays(table.columns, schema=schema)


def read_footer(path: Path) -> Footer | None:
    """Return our footer of a Parquet file; None when the file is valid but was not written by us.

    Raises:
        TerminalError: ``FILE_UNFIT`` when the file is not Parquet, or when our footer in it cannot be parsed.
        TransientError: ``CHANGED_MEANWHILE`` when the file was moved away before or while it was read.
    """
    with _reading(path):
        return _footer(path, pq.read_metadata(path))


def _footer(path: Path, metadata: pq.FileMetaData) -> Footer | None:
    entry = (metadata.metadata or {}).get(FOOTER_KEY)
    if entry is None:
        return None
    try:
        content = json.loads(entry)
        wanted = {field.name: int if field.type == "int" else str for field in fields(Footer)}
        if {name: type(value) for name, value in content.items()} != wanted:
            raise ValueError(f"its members are not {', '.join(wanted)}")
        if content["kind"] not in get_args(FileKind):
            raise ValueError(f"the kind {content['kind']!r} is none of {', '.join(get_args(FileKind))}")
    except (ValueError, AttributeError, TypeError) as error:
        raise invalid_file(path, f"our footer cannot be read: {error}") from error
    return Footer(**content)


def rows_digest(path: Path) -> str:
    """Compute the digest of a data file's rows from the rows themselves, one row group at a time.

    Raises:
        TerminalError: ``FILE_UNFIT`` when the file cannot be read to its end.
        TransientError: ``CHANGED_MEANWHILE`` when the file was moved away before or while it was read.
    """
    with _reading(path), pq.ParquetFile(path) as file:
        return combine(digest_of(file.read_row_group(group)) for group in range(file.num_row_groups))


def check_data_file(path: Path, expected_schema: pa.Schema, keys: Sequence[str]) -> None:
    """Check that a data file can be published (F-38, F-50, I11, I26).

    The check covers magic bytes, length, the row count in the footer, and the exact schema. Keys and row marker must
    not be NULL, and the row marker must be the last column. In a table with *keys* every row marker is upsert or
    delete; without keys it is insert. Statistics of the Parquet file are used where they suffice. The digest is not
    checked here: :func:`rows_digest` computes it, and reads all rows for that.

    Raises:
        TerminalError: ``FILE_UNFIT`` when the file cannot be published; the error names the first defect.
        TransientError: ``CHANGED_MEANWHILE`` when the file was moved away before or while it was read.
    """
    with _reading(path):
        _check_ends(path)
        with pq.ParquetFile(path) as file:
            footer = _footer(path, file.metadata)
            if footer is None:
                raise invalid_file(path, "it carries no footer of ours")
            if footer.rows != file.metadata.num_rows:
                raise invalid_file(path, f"its footer counts {footer.rows} rows, the file {file.metadata.num_rows}")
            found = file.schema_arrow
            if not found.equals(expected_schema):
                raise invalid_file(path, f"its columns are {_described(found)}, expected {_described(expected_schema)}")
            for name in [*keys, *([ROW_MARKER] if ROW_MARKER in found.names else [])]:
                if name not in found.names:
                    raise invalid_file(path, f"key column {name!r} is missing")
                if nulls := _null_count(file, name):
                    raise invalid_file(path, f"column {name!r} must not be NULL and is, {nulls} times")
            if ROW_MARKER in found.names:
                _check_marker(path, file, keys)


def _check_ends(path: Path) -> None:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if size < 12:
            raise invalid_file(path, f"it has {size} bytes and can be no Parquet file")
        file.seek(0)
        head = file.read(4)
        file.seek(-4, 2)
        if head != _MAGIC or file.read(4) != _MAGIC:
            raise invalid_file(path, "it does not begin and end as a Parquet file does")


def _check_marker(path: Path, file: pq.ParquetFile, keys: Sequence[str]) -> None:
    if not file.schema_arrow.field(-1).equals(MARKER_FIELD):
        raise invalid_file(path, f"{ROW_MARKER} is not the last column, or no int32 that is never NULL")
    allowed = _KEYED_MARKERS if keys else _KEYLESS_MARKERS
    unknown = set(pc.unique(file.read([ROW_MARKER]).column(0)).to_pylist()) - set(allowed)
    if unknown:
        having = "with keys" if keys else "without keys"
        raise invalid_file(path, f"a table {having} has markers {allowed}, the file has {sorted(unknown)}")


def _null_count(file: pq.ParquetFile, name: str) -> int:
    place = file.schema_arrow.names.index(name)
    total = 0
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(place).statistics
        if statistics is None or not statistics.has_null_count:
            return int(file.read([name]).column(0).null_count)
        total += statistics.null_count
    return total


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise TransientError(
            "CHANGED_MEANWHILE",
            "the file was moved away while it was to be read",
            where=str(path),
            next_step="run again: Fabric moves files that it has applied",
        ) from error
    except OSError as error:
        # Arrow reports damaged pages as an OSError without errno; errors of the system have one.
        if error.errno is None:
            raise invalid_file(path, f"it cannot be read: {error}") from error
        raise TransientError(
            "UNREACHABLE",
            error.strerror or str(error),
            where=str(path),
            next_step="the call is tried again; check the disk",
        ) from error
    except pa.ArrowException as error:
        raise invalid_file(path, f"it cannot be read: {error}") from error


def _described(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name!r} {field.type}{'' if field.nullable else ' not null'}" for field in schema)


def invalid_file(path: Path, what: str) -> TerminalError:
    """Build the error for a data file that must not be published; *what* is the defect."""
    return TerminalError(
        "FILE_UNFIT",
        f"the data file does not fit its table: {what}",
        where=str(path),
        next_step="nothing of this file was published: run again, and report a defect if the error comes back",
    )
