"""The target's side of a proof: the rows of a mirrored Delta table at one version, read directly from its files.

delta-rs lists the files of the version in the driver; workers read the files. Delta's own reader for Spark is not used:
it takes a second longer for a few rows, and keeps the login to the storage in Spark's configuration. Partition columns
are in the Delta log only, and a column missing in a file is NULL. Public source: the Delta protocol, *Column Mapping*,
*Deletion Vectors*.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from open_mirroring.changes.column_choice import DELETED_AT
from open_mirroring.config import Mirror
from open_mirroring.config.connections import resolve
from open_mirroring.config.storage import place_of, storage_place
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.fabric.target import open_target
from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, split_table_folder
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.schema import LandingColumn, extra_columns
from open_mirroring.reconciliation.inspection import zone_address
from open_mirroring.storage.arrow_files import arrow_files, arrow_path
from open_mirroring.storage.object_path import Place, delta_address
from spark_jobs.proof.rows import Part, Work
from spark_jobs.proof.sides import Side
from spark_jobs.proof.table_log import DeletionVector, committed_at, deletion_vectors
from spark_jobs.runtime.tasks import THREADS, run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = TypeVar("Answer")
_READ = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
"""Reader features of Delta that are handled here, or do not change the rows."""
((_DELETED_AT, *_),) = extra_columns([(DELETED_AT, "")])
_OF_FILES = ("path", "size_bytes", "partition")
_PIECE_BYTES = 16 * 2**20
_ROWS_AT_ONCE = 65_536


class _Piece(NamedTuple):
    """A part of a file, by row groups: number *part* of *parts*.

    *size* is its approximate size in bytes; *given* are the partition columns' values.
    """

    path: str
    size: int
    part: int
    parts: int
    given: Mapping[str, Any]
    deleted: DeletionVector | None


class _Names(NamedTuple):
    """Maps columns in files to the source's names, by column id or by name in folded case."""

    by_id: bool
    columns: Mapping[str, str]
    types: Mapping[str, pa.DataType]

    def of(self, schema: pa.Schema) -> dict[str, str]:
        """The source's column name for each column name in a file with this *schema*."""
        in_file = {field.name.casefold(): field.name for field in schema}
        if self.by_id:
            in_file = {(field.metadata or {}).get(b"PARQUET:field_id", b"").decode(): field.name for field in schema}
        return {in_file[key]: name for key, name in self.columns.items() if key in in_file}


class Target(Side):
    """A mirrored table at one version; *version* is None if there is no Delta table.

    *changed* is when the version was committed; *rows* is its number of rows, or 0 if the Delta log does not show the
    number. *renamed* maps column names at the source to names at the target (G-120). Rows also have the added columns
    whose content is in *contents*. Raises ``PROOF_FAILED`` if the Delta table cannot be read, and the errors of the
    storage.
    """

    def __init__(
        self,
        spark: SparkSession,
        place: Place | None,
        renamed: Mapping[str, str] | None = None,
        contents: Collection[str] = (),
    ) -> None:
        self._spark, self._place, self._contents = spark, place, {None, DELETED_AT, *contents}
        self.version: int | None = None
        self.changed: datetime | None = None
        self.columns: tuple[LandingColumn, ...] = ()
        self._pieces: Sequence[_Piece] = ()
        self.size = self.rows = 0
        self._names = _Names(False, {}, {})
        if place is not None:
            with _our_errors(place):
                self._open(place, {name.casefold(): source for source, name in (renamed or {}).items()})

    def _open(self, place: Place, at_source: Mapping[str, str]) -> None:
        uri, options = delta_address(place)
        try:
            table = DeltaTable(uri, storage_options=options)
        except TableNotFoundError:
            return
        self.version = table.version()
        self.changed = committed_at(place, self.version)
        schema = pa.schema(table.schema().to_arrow())
        sources = {field.name: at_source.get(field.name.casefold(), field.name) for field in schema}
        # The source has no columns for what `extra_columns` add (G-118).
        landed = {field: _landing(field, sources[field.name]) for field in schema}
        self.columns = tuple(column for column in landed.values() if not column.content)
        of_source = [field for field, column in landed.items() if column.content in self._contents]
        mode = table.metadata().configuration.get("delta.columnMapping.mode", "none")
        columns = {_described(field, mode): sources[field.name] for field in of_source}
        self._names = _Names(mode == "id", columns, {sources[field.name]: field.type for field in of_source})
        features = set(table.protocol().reader_features or ())
        if unknown := sorted(features - _READ):
            raise _unreadable(f"the mirrored table has features that are not read: {', '.join(unknown)}", str(place))
        files = pa.table(table.get_add_actions())
        vectors = deletion_vectors(place, table.version()) if "deletionVectors" in features else None
        self._pieces = list(_pieces(files, vectors, place, sources))
        deleted = {piece.path: piece.deleted.rows for piece in self._pieces if piece.deleted is not None}
        if "num_records" in files.column_names:
            self.rows = sum(filter(None, files["num_records"].to_pylist())) - sum(deleted.values())
        self.size = sum(piece.size for piece in self._pieces)

    def rows_here(self) -> Iterator[pa.Table]:
        """All rows of the version, in small tables that this process reads one after the other."""
        return iter(()) if self._place is None else _rows(self._place, self._names, self._pieces, None)

    def lines(self, work: Work, part: Part | None = None) -> Iterator[pa.RecordBatch]:
        place, names = self._place, self._names
        if place is None or not self._pieces:
            return work(())

        def read(pieces: Sequence[_Piece]) -> list[pa.RecordBatch]:
            return list(work(_rows(place, names, pieces, part)))

        tasks = list(_shared_out(self._pieces))
        return chain.from_iterable(run_job(self._spark, "read a mirrored table", read, tasks, self.size, THREADS))

    def frame(self, work: Work, schema: str, part: Part | None = None) -> DataFrame:
        from spark_jobs.runtime.worker_tasks import sealed_frame

        place, names = self._place, self._names
        if place is None or not self._pieces:
            return self._spark.createDataFrame([], schema)

        def each(pieces: Sequence[_Piece]) -> Iterator[pa.RecordBatch]:
            return work(_rows(place, names, pieces, part))

        return sealed_frame(self._spark, each, list(_shared_out(self._pieces)), schema)


def tables_place(mirror: Mirror) -> Place:
    """Where the mirrored tables are: the place in the mirror file, else the mirrored database's folder in OneLake.

    Raises ``CONFIG_INVALID`` if the landing zone is not in OneLake and the mirror file does not name the place of the
    tables; ``PLACE_MISSING`` if the named folder does not exist; and the errors of the storage and the Fabric API.
    """
    if mirror.landing_zone.tables is not None:
        root = place_of(mirror, mirror.landing_zone.tables)
        if not root.is_dir():
            raise TerminalError(
                "PLACE_MISSING",
                "the folder of the target's tables is not there",
                where=str(root),
                next_step="fix `landing_zone.tables`, or mount what it names",
            )
        return root
    zone = zone_address(mirror)
    if not isinstance(zone, OneLakeZone):
        raise TerminalError(
            "CONFIG_INVALID",
            "where the mirrored tables can be read is not set",
            where=f"mirror {mirror.name}",
            next_step="set `landing_zone.tables` to the folder of the mirrored tables, as `<schema>/<table>`",
        )
    database = open_target(zone).database()
    # By GUIDs, for a listing of OneLake spells the names of items in its own way.
    address = f"abfss://{database.workspace}@onelake.dfs.fabric.microsoft.com/{database.id}/Tables"
    return storage_place(address, resolve(mirror.landing_zone.connection or ""))


def table_place(root: Place, folder: str) -> Place | None:
    """The place of the Delta table that Fabric makes of a landing zone *folder*; None if there is no Delta table."""
    schema, table = split_table_folder(folder)
    # A table without schema comes into the default one, or is at the top if there are no schemas (F-03).
    places = [root / DEFAULT_SCHEMA / table, root / table] if schema is None else [root / schema / table]
    return next((place for place in places if (place / "_delta_log").is_dir()), None)


def _pieces(
    files: pa.Table, vectors: Mapping[str, DeletionVector | None] | None, place: Place, sources: Mapping[str, str]
) -> Iterator[_Piece]:
    """The pieces of a version's files; *vectors* are by path, None if the table cannot have any."""
    for file in files.select([name for name in _OF_FILES if name in files.column_names]).to_pylist():
        path = unquote(file["path"])
        if any(part in ("", ".", "..") for part in path.split("/")):
            raise _unreadable(f"the table's log names a file outside of it: {path!r}", str(place))
        if vectors is not None and path not in vectors:
            raise _unreadable(f"the table's log does not show which rows of a file are deleted: {path!r}", str(place))
        given = {sources[name]: value for name, value in (file.get("partition") or {}).items()}
        parts = -(-file["size_bytes"] // _PIECE_BYTES) or 1
        size = file["size_bytes"] // parts
        yield from (_Piece(path, size, part, parts, given, (vectors or {}).get(path)) for part in range(parts))


def _shared_out(pieces: Sequence[_Piece]) -> Iterator[Sequence[_Piece]]:
    """The pieces for each task: one piece of a large file, or several small ones."""
    tasks = min(len(pieces), 1 + sum(piece.size for piece in pieces) // _PIECE_BYTES)
    borders = [len(pieces) * at // tasks for at in range(tasks + 1)]
    return (pieces[low:high] for low, high in pairwise(borders))


def _rows(table: Place, names: _Names, pieces: Sequence[_Piece], part: Part | None) -> Iterator[pa.Table]:
    """The rows of these pieces, or at least those of a *part*, with the column names of the source."""
    for piece in pieces:
        try:
            yield from _rows_of(table, piece, names, part)
        except (pa.ArrowException, OSError, ValueError) as error:
            where = str(table / piece.path)
            raise _unreadable(f"a file of the mirrored table cannot be read: {error}", where) from None


def _rows_of(table: Place, piece: _Piece, names: _Names, part: Part | None) -> Iterator[pa.Table]:
    place = table / piece.path
    deleted = None if piece.deleted is None else piece.deleted.positions(table)
    given = {name: pa.scalar(value, names.types[name]) for name, value in piece.given.items()}
    # Of a distant file what is wanted is fetched by few requests.
    how = {"filesystem": arrow_files(place), "pre_buffer": not isinstance(place, Path)}
    with pq.ParquetFile(arrow_path(place), coerce_int96_timestamp_unit="us", **how) as file:
        first, end = (file.num_row_groups * at // piece.parts for at in (piece.part, piece.part + 1))
        begins = [0, *accumulate(file.metadata.row_group(group).num_rows for group in range(end))]
        named = names.of(file.schema_arrow)
        keys = [] if part is None else [stored for stored, name in named.items() if name in part.shape.keys]

        def rows_of(group: int, columns: Sequence[str]) -> Iterator[pa.Table]:
            at = begins[group]
            for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=columns, use_threads=False):
                found = {named[stored]: batch.column(stored) for stored in columns}
                found |= {name: pa.repeat(value, batch.num_rows) for name, value in given.items()}
                rows = pa.table(found)
                if deleted is not None:
                    low, high = np.searchsorted(deleted, (at, at + batch.num_rows))
                    kept = np.ones(batch.num_rows, bool)
                    kept[deleted[low:high] - at] = False
                    rows = rows.filter(pa.array(kept))
                at += batch.num_rows
                if _DELETED_AT in found:
                    # The source has no such row any more: what stays of it is compared with nothing (G-192).
                    rows = rows.filter(pc.field(_DELETED_AT).is_null()).drop_columns([_DELETED_AT])
                yield rows

        for group in range(first, end):
            if part is not None:
                if not may_hold(file.metadata.row_group(group), named, part):
                    continue
                # Changed rows are in new files: of the old ones the keys are enough, to see that none is left there.
                if not any(part.may_be_among(rows) for rows in rows_of(group, keys)):
                    continue
            yield from rows_of(group, [*named])


def may_hold(group: pq.RowGroupMetaData, named: Mapping[str, str], part: Part) -> bool:
    """Whether a row group may have a row of *part*, by its statistics; True without statistics."""
    stored = next((stored for stored, name in named.items() if name == part.column), None)
    columns = (group.column(at) for at in range(group.num_columns))
    known = next((column.statistics for column in columns if column.path_in_schema == stored), None)
    if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
        return True
    try:
        limits = [
            value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
            for value in (known.min, known.max)
        ]
        return part.may_hold(*limits)
    except TypeError:
        return True  # of another type than what it is compared as


@contextmanager
def _our_errors(place: Place) -> Iterator[None]:
    try:
        yield
    except (DeltaError, OSError, ValueError, LookupError, pa.ArrowException, msgspec.MsgspecError) as error:
        if not isinstance(place, Path) and isinstance(error, OSError) and not isinstance(error, FileNotFoundError):
            raise place.store.our_error(error, place.key) from None
        what, where = f"the mirrored table cannot be read: {type(error).__name__}", str(place)
        raise _unreadable(what, where) from (error if isinstance(place, Path) else None)


def _unreadable(what: str, where: str) -> TransientError:
    next_step = "look at the table's Delta log, and whether the files are there; then prove again"
    return TransientError("PROOF_FAILED", what, where=where, next_step=next_step)


def _described(field: pa.Field, mode: str) -> str:
    """How a column is identified in files: by id, physical name or name, depending on the column mapping mode."""
    metadata: Mapping[bytes, bytes] = field.metadata or {}
    match mode:
        case "id":
            return metadata[b"delta.columnMapping.id"].decode()
        case "name":
            return metadata[b"delta.columnMapping.physicalName"].decode().casefold()
        case _:
            # A file may spell a column in another case: Delta compares without it.
            return str(field.name).casefold()


_LANDING: dict[pa.DataType, str] = {
    pa.bool_(): "bool",
    pa.int8(): "int16",
    pa.int16(): "int16",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float32",
    pa.float64(): "float64",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.string_view(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.binary_view(): "binary",
    pa.date32(): "date",
}


def _landing(field: pa.Field, source: str) -> LandingColumn:
    if pa.types.is_timestamp(field.type):
        kind = "timestamp"
    elif pa.types.is_decimal(field.type):
        kind = f"decimal({field.type.precision},{field.type.scale})"
    else:
        # Of a type that no file of the landing zone has, its own name: no type of the source is equal to it.
        kind = _LANDING.get(field.type, str(field.type))
    return LandingColumn(source, kind, None if source == field.name else field.name)
