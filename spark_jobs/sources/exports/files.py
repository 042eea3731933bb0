"""Reads exports of a table: lists their files, splits the files into pieces, and types their rows.

The full load that a Qlik task writes to a file target is read as an export, too:
``<table>/LOAD*.csv|json|parquet[.gz]``, each file with its ``.dfm`` metadata file (T-40, T-41). Public source: Qlik
help, *File target: data files, metadata files*.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.load_columns import LoadColumn, columns_of_both
from open_mirroring.source_places.source_folders import files_below, is_in_hidden
from open_mirroring.storage.object_path import ObjectPath, ObjectStatus, Place
from open_mirroring.storage.object_store import ObjectReplaced
from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.exports.columns import land_rows, landing_column
from spark_jobs.sources.exports.csv import csv_header, read_csv, readable, why_malformed
from spark_jobs.sources.qlik.data_files import is_said_empty, read_texts
from spark_jobs.sources.qlik.dfm import DATA_SUFFIXES, SUFFIX, Dfm, check_file, metadata_file, read_dfm, stem
from spark_jobs.sources.qlik.types import key_type, log_type
from spark_jobs.sources.sql_server.chosen_types import chosen_digits
from spark_jobs.sources.sql_server.typed_rows import Failure
from spark_jobs.sources.transports.source_files import list_source_files

_ROWS_AT_ONCE = 65_536
_INDEX = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
_NULLS = {"", "NULL", "\\N", "(NULL)", "<NULL>", "NONE", "NAN", "N/A", "NA"}
_BEGINNING = "LOAD"
"""The prefix of the files of a full load by Qlik."""


class Export(NamedTuple):
    """The location and format of an export; *encoding* applies to the text files of a Qlik full load (T-46)."""

    root: Place
    format: Literal["parquet", "csv", "qlik-full-load"]
    encoding: str = "utf-8"

    @property
    def is_described(self) -> bool:
        """Whether each data file has a metadata file that contains key and types, as in a Qlik full load."""
        return self.format == "qlik-full-load"

    def path(self, file: str) -> Place:
        """The path of *file*, a name relative to the export's root; the root itself if the export is one file."""
        return self.root / file if file else self.root


class Piece(NamedTuple):
    """A part of an export that one task reads: row groups of a Parquet file, or a complete file.

    The row groups are ``[first, last)``. *size* (bytes), *changed* (time in ns) and *version* (in object storage)
    belong to the file; they show later whether the file was rewritten. *rows* is 0 if unknown. *above* is the number of
    the file's rows before the piece. *weight* is the size of the piece in bytes, uncompressed for row groups.
    """

    file: str
    size: int
    changed: int
    first: int
    last: int
    rows: int
    above: int
    weight: int
    version: str = ""


def export_files(export: Export) -> list[str]:
    """Lists the files of an export, in order, relative to the export's root; "" if the export is one file.

    Raises ``LOAD_INVALID`` if the folder has other files that may contain rows, such as compressed or hidden files.
    """
    if export.is_described:
        return _load_files(export.root)
    if export.root.is_file():
        return [""]
    below = files_below(export.root)
    _refuse_layouts(export.root, below.folders)
    found: list[str] = []
    for file in sorted(below.files):
        name = file.name.rpartition("/")[2]
        is_hidden = name.startswith(("_", ".")) or is_in_hidden(file.name)
        folded = name.casefold()
        # A compressed or unfinished file may contain rows, a mark or a checksum does not.
        if is_hidden and (f".{export.format}" not in folded or folded.endswith(".crc")):
            continue
        if file.unread:
            what, next_step = f"is {file.unread}, and may stand for rows", "put the file or folder itself in its place"
        elif is_hidden:
            what = "is hidden by its name or that of a folder, and may hold rows"
            next_step = "give file and folder a plain name if they belong to the export"
        elif name.endswith(f".{export.format}"):
            found.append(file.name)
            continue
        elif not file.size:
            continue  # some services keep an empty folder as such an object
        else:
            what = f"does not end with .{export.format}"
            next_step = "an export is a folder of its own: rename the file"
        raise _error(export.root, "LOAD_INVALID", f"the file {file.name!r} {what}", f"{next_step}, or take it out")
    if not found:
        next_step = "put the export there (a table without rows has one file too), or fix `path`"
        raise _error(export.root, "PLACE_MISSING", f"there is no .{export.format} file", next_step)
    return sorted(found)


def _refuse_layouts(root: Place, folders: Sequence[str]) -> None:
    """Refuse layouts that are more than files: reading all of them would add deleted rows, or lose columns."""
    names = [folder.rpartition("/")[2] for folder in sorted(folders)]
    if "_delta_log" in names:
        what, next_step = "the folder is a Delta table", "export its rows into a folder of plain files"
    elif partitions := [name for name in names if "=" in name]:
        what = f"the folder {partitions[0]!r} names a column that the files in it do not have"
        next_step = "export without partitioning"
    else:
        return
    raise _error(root, "LOAD_INVALID", what, next_step)


def cut_file(export: Export, file: str, max_rows: int, max_bytes: int) -> list[Piece]:
    """Splits a Parquet file between row groups into pieces; any other file is one piece.

    A piece has at most *max_rows* rows and *max_bytes* uncompressed bytes, unless a single row group has more.
    """
    path = export.path(file)
    with reading(path):
        status = path.stat()
        version = status.version if isinstance(status, ObjectStatus) else ""
        whole = Piece(file, status.st_size, status.st_mtime_ns, 0, 0, 0, 0, status.st_size, version)
        if export.format != "parquet":
            return [whole]
        with readable(path) as opened:
            metadata = pq.read_metadata(opened)
    pieces: list[Piece] = []
    piece = whole._replace(weight=0)
    for group in range(metadata.num_row_groups):
        rows, weight = metadata.row_group(group).num_rows, metadata.row_group(group).total_byte_size
        if piece.rows and (piece.rows + rows > max_rows or piece.weight + weight > max_bytes):
            pieces.append(piece)
            above = piece.above + piece.rows
            piece = piece._replace(first=group, last=group, rows=0, weight=0, above=above)
        piece = piece._replace(last=group + 1, rows=piece.rows + rows, weight=piece.weight + weight)
    return [*pieces, piece]


def export_columns(
    export: Export, files: Sequence[str], chosen: ColumnChoice, types: dict[str, str], gone: Collection[str] = ()
) -> tuple[LoadColumn, ...]:
    """The mirrored columns of all *files* with their types, in the first file's order.

    *types* are the SQL types under `types` of `initial_load` in the mirror file. Columns in *gone* may be missing.
    Raises ``LOAD_INVALID`` for missing columns, for columns of a CSV file that *types* does not name, and for files
    with different columns.
    """
    columns = _columns_of(export, files[0], chosen, types, gone)
    for file in files[1:]:
        others = _columns_of(export, file, chosen, types, gone)
        both = columns_of_both(columns, others)
        if both is None:
            what, first = (", ".join(f"{one.name!r} {one.type}" for one in each) for each in (others, columns))
            next_step = "export the entire table again, all files by the same columns and types"
            raise _error(export.path(file), "LOAD_INVALID", f"the file has {what}, the first one {first}", next_step)
        columns = both
    return columns


def _columns_of(
    export: Export, file: str, chosen: ColumnChoice, types: dict[str, str], gone: Collection[str]
) -> tuple[LoadColumn, ...]:
    path = export.path(file)
    with reading(path):
        if export.is_described:
            dfm = dfm_of(path)
            types = {**types, **_load_types(path, dfm, chosen, types)}
            kinds = [(name, pa.string()) for name in dfm.names]
        elif export.format == "csv":
            if reason := why_malformed(path):
                raise invalid(path, reason)
            kinds = [(name, pa.string()) for name in csv_header(path)]
        else:
            with readable(path) as opened:
                parquet = pq.ParquetFile(opened)
                # Old INT96 times are in UTC, which Arrow does not report.
                old = {column.path for column in parquet.schema if column.physical_type == "INT96"}
                kinds = [(f.name, pa.timestamp("ns", "UTC") if f.name in old else f.type) for f in parquet.schema_arrow]
    names = _spelled([name for name, _ in kinds], types)
    kinds = [(name, kind) for name, (_, kind) in zip(names, kinds, strict=True)]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _error(path, "COLUMN_NAME_INVALID", f"the file has the columns {twice} more than once", "rename them")
    # Every column in `types` must exist, too: a misspelled one would silently lose its column.
    missing = chosen.absent([*names, *gone]) if chosen.listed else [name for name in types if name not in names]
    if missing:
        what = f"the file has no columns {missing}; it has {names}"
        raise _error(path, "LOAD_INVALID", what, "correct the export, or `types` and `columns` in the mirror file")
    wanted = {*chosen.of(names)}
    if index := [name for name in names if name in wanted and name not in types and _INDEX.fullmatch(name)]:
        what = f"column {index[0]!r} is not a column of the table: it looks like the index of a data frame"
        raise _error(
            path, "LOAD_INVALID", what, "export without it (pandas: `index=False`), or exclude it in `columns`"
        )
    untyped = [name for name in names if name in wanted and export.format == "csv" and name not in types]
    if untyped:
        raise _error(path, "LOAD_INVALID", f"`types` does not name {untyped}", "name their SQL types")
    return tuple(
        landing_column(name, kind, types.get(name), chosen.type_of(name)) for name, kind in kinds if name in wanted
    )


def _spelled(names: Sequence[str], wanted: Iterable[str]) -> list[str]:
    """Names in the spelling of *wanted*: a name matches its column in any case (G-12)."""
    wanted = [*wanted]
    folded = {name.casefold(): name for name in wanted if name not in names}
    alone = Counter(name.casefold() for name in names)
    return [folded.get(name.casefold(), name) if alone[name.casefold()] == 1 else name for name in names]


class ExportRows:
    """The typed rows of some pieces of an export, in order; can be iterated once."""

    def __init__(self, export: Export, pieces: Sequence[Piece], columns: Sequence[LoadColumn], schema: pa.Schema):
        self._export, self._pieces, self._columns, self._schema = export, pieces, columns, schema
        self._starts: list[int] = []
        self._read = 0

    def __iter__(self) -> Iterator[pa.Table]:
        """Yields Arrow tables. Raises an error for a row that cannot be loaded, and for a file that has changed."""
        names = [column.name for column in self._columns]
        for piece in self._pieces:
            path = self._export.path(piece.file)
            self._starts.append(self._read)
            with reading(path):
                path = _as_bound(path, piece)
                for batch in self._batches(path, piece, names):
                    yield self._typed(batch)
                    self._read += batch.num_rows
                # Check again: the file may have been rewritten while it was read.
                _as_bound(path, piece)

    def place(self, row: int) -> str:
        """The file and the row number of a row, for messages.

        *row* counts all rows of the pieces from 0; the row number in the result counts the file's rows from 1.
        """
        at = bisect_right(self._starts, row) - 1
        piece = self._pieces[at]
        return f"{self._export.path(piece.file)}, row {piece.above + row - self._starts[at] + 1}"

    def _batches(self, path: Place, piece: Piece, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._export.format == "csv":
            if reason := why_malformed(path):
                raise invalid(path, reason)
            found = _spelled(names, csv_header(path))
            for batch in read_csv(path, found):
                yield batch.rename_columns(names)
            return
        if self._export.is_described:
            try:
                for batch in read_texts(path, dfm_of(path), encoding=self._export.encoding):
                    yield batch.select(names)
            except Refusal as refusal:
                raise _unlike(path, refusal) from refusal
            return
        with readable(path) as opened, pq.ParquetFile(opened) as file:
            groups, found = range(piece.first, piece.last), _spelled(names, file.schema_arrow.names)
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=found, use_threads=False):
                yield batch.select(found).rename_columns([*names])

    def _typed(self, batch: pa.RecordBatch) -> pa.Table:
        table, first = land_rows(batch, self._columns, self._schema)
        if first is not None:
            if self._export.format == "csv":
                texts = [values[first.index].as_py() for values in batch.columns]
                if any(f"{text!r} " in first.reason for text in texts if text is not None and text.upper() in _NULLS):
                    why = "; NULL is an empty field without quotes in a CSV export: export it so"
                    first = replace(first, reason=first.reason + why)
            raise refused(first, self.place(self._read + first.index))
        return table


def refused(failure: Failure, where: str) -> TerminalError:
    """The error for a row of an export whose value does not fit: then no row of the initial load is published."""
    return TerminalError(
        failure.code,
        failure.reason,
        where=where,
        next_step="correct the value in the export, or the column's type, and load again",
    )


def invalid(path: Place, what: str) -> TerminalError:
    """The error for a file that cannot be read as the format of its name; *what* says why."""
    return _error(
        path, "LOAD_INVALID", f"the file cannot be read: {what}", "correct the file, or export the table again"
    )


@contextmanager
def reading(path: Place) -> Iterator[None]:
    """Converts errors while the file *path* is read to ``LOAD_CHANGED``, ``LOAD_INVALID`` or ``UNREACHABLE``."""
    try:
        yield
    except ObjectReplaced:
        raise _changed(path, "another object is there now") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise invalid(path, str(error)) from error
    except OSError as error:
        # Arrow reports damaged pages as an OSError without errno; errors of the system have one.
        if error.errno is None:
            raise invalid(path, str(error)) from error
        raise TransientError(
            "UNREACHABLE",
            f"the file cannot be read: {error.strerror}",
            where=str(path),
            next_step="put the export back as it was, or check its disk; the load goes on",
        ) from error


def _as_bound(path: Place, piece: Piece) -> Place:
    """The file, if it is the bound version; an object is read in that version or not at all."""
    if isinstance(path, ObjectPath):
        held = path.look()
        size, is_same = held.stat.size, held.stat.version == piece.version
        path = path.holding(held)
    else:
        status = path.stat()
        size, is_same = status.st_size, (status.st_size, status.st_mtime_ns) == (piece.size, piece.changed)
    if not is_same:
        what = f"the file had {piece.size} bytes when the load began and is another one now ({size} bytes)"
        raise _changed(path, what)
    return path


def _changed(path: Place, what: str) -> TerminalError:
    next_step = "put the export back as it was and go on, or reset the table and load the new one"
    return _error(path, "LOAD_CHANGED", what, next_step)


def _load_files(root: Place) -> list[str]:
    """The data files of a full load in order, relative to *root*, each with a metadata file."""
    there = isinstance(root, ObjectPath) or root.is_dir()
    listed = list_source_files(root, (*DATA_SUFFIXES, SUFFIX), was_read=True) if there else None
    if listed is None or not any((listed.files, listed.waiting, listed.unknown, listed.unfinished, listed.unread)):
        raise _error(root, "PLACE_MISSING", "there is no full load here", "let the task write it, or fix `path`")
    names = [file.name for file in listed.files]
    empty = [name for name in listed.waiting if is_said_empty(root / name)]
    names += empty
    data = [name for name in sorted(names) if not name.endswith(SUFFIX)]
    foreign = [name for name in names if not PurePosixPath(name).name.upper().startswith(_BEGINNING)]
    foreign += [file.name for file in listed.unknown]
    if foreign:
        what = f"the file {foreign[0]!r} is none of a full load: their names begin with {_BEGINNING}, and end as data"
        raise _error(root, "LOAD_INVALID", what, "name the folder of one table, not that of its changes")
    described = {stem(name) for name in names if name.endswith(SUFFIX)}
    odd = sorted({*listed.waiting} - {*empty})
    odd += [*listed.unfinished, *listed.unread, *sorted(described ^ {stem(name) for name in data})]
    if odd:
        what = f"{odd[0]!r} is empty, unfinished or hidden, or has no file that describes it, or that it describes"
        raise _error(root, "LOAD_INVALID", what, "wait until the full load is complete, or copy all of its files")
    return data


def keys_as_streamed(
    columns: Iterable[LoadColumn], keys: Collection[str], chosen: ColumnChoice
) -> tuple[LoadColumn, ...]:
    """Columns of a Qlik full load, where the columns in *keys* get the types that the Qlik task's changes have.

    If full load and changes spelled a key differently, the target would have the key's row twice.
    """
    return tuple(
        c._replace(sql_type=key_type(c.sql_type, chosen.type_of(c.name)))
        if c.sql_type is not None and c.name in keys
        else c
        for c in columns
    )


def _load_types(path: Place, dfm: Dfm, chosen: ColumnChoice, given: Mapping[str, str]) -> dict[str, str]:
    found, mirrored = {}, {*chosen.of(dfm.names)}
    for column in (column for column in dfm.columns if column.name in mirrored):
        chosen_type = given.get(column.name)
        if chosen_type is None and column.precision < 1:
            chosen_type = chosen_digits(column.type, chosen.type_of(column.name))
        try:
            found[column.name] = chosen_type or log_type(column.type, column.length, column.precision, column.scale)
        except TerminalError as error:
            raise _error(path, error.code, f"column {column.name!r}: {error.what}", error.next_step) from error
    return found


def dfm_of(path: Place) -> Dfm:
    """Reads the ``.dfm`` metadata file of the data file *path* of a Qlik full load.

    Raises ``LOAD_INVALID`` if the metadata file is missing, is not valid, or describes another data file than *path*.
    """
    described = metadata_file(path)
    try:
        dfm = read_dfm(described.read_bytes())
        check_file(dfm, path.name)
    except FileNotFoundError:
        what, next_step = f"the metadata file {described.name!r} is missing", "put it back next to its data file"
        raise _error(path.parent, "LOAD_INVALID", what, next_step) from None
    except Refusal as refusal:
        raise _unlike(path, refusal) from refusal
    return dfm


def _unlike(path: Place, refusal: Refusal) -> TerminalError:
    what = f"the file is not as a full load is: {refusal.code}: {refusal.reason}"
    return _error(path, "LOAD_INVALID", what, "reload the table with the Qlik task")


def _error(where: Place | str, code: str, what: str, next_step: str) -> TerminalError:
    return TerminalError(code, what, where=str(where), next_step=next_step)
