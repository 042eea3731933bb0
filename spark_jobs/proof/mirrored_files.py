"""The target's side of a proof: the rows of a mirrored Delta table at one version.

Delta's own reader for Spark builds a table's state by Spark jobs. That costs a second even for a few rows, and several
seconds in a new session. So where a version is exactly the rows of its Parquet files, workers read these files. Every
other version (deleted rows, mapped columns, partitions) is read by Delta's own reader.

Public source: the Delta protocol: without the features named here a version's rows are all rows of the files that its
log names, and a column that a file lacks is NULL in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from open_mirroring.config import Mirror
from open_mirroring.config.storage import folder_place
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, split_table_folder
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.reconciliation.inspection import zone_address
from open_mirroring.storage.object_path import ObjectPath
from spark_jobs.proof.copied_tables import copied_stored_table, copied_table
from spark_jobs.proof.rows import Shape, Work
from spark_jobs.proof.sides import anew

Answer = TypeVar("Answer")
_PLAIN_FEATURES = {"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
"""Features of a reader that change nothing of a file's rows, if no file has a deletion vector."""
_PIECE_BYTES = 16 * 2**20
_ROWS_AT_ONCE = 65_536


class _Piece(NamedTuple):
    """Row groups ``[first, last)`` of a file; *last* None: all."""

    path: str
    weight: int
    first: int = 0
    last: int | None = None


class Target:
    """A mirrored table at one version; *version* is None where there is no Delta table.

    *changed* is when that version came to be. Its columns have the names of the source, to which *renamed* says those
    of the target (G-120).
    """

    def __init__(self, spark: SparkSession, path: Path | None, renamed: Mapping[str, str] | None = None) -> None:
        self._spark, self._path = spark, path
        self.version: int | None = None
        self.changed: datetime | None = None
        self.columns: tuple[LandingColumn, ...] = ()
        self._at_source = {name.casefold(): source for source, name in (renamed or {}).items()}
        self._pieces: Sequence[_Piece] | None = None
        try:
            if path is not None and DeltaTable.is_deltatable(str(path)):
                table = DeltaTable(path)
                self.version = table.version()
                self.changed = datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, UTC)
                columns = map(self._named, pa.schema(table.schema().to_arrow()))
                # Of what made a row the source's table says nothing (G-118).
                self.columns = tuple(column for column in columns if not column.tells)
                self._pieces = _plain_pieces(table)
        except (DeltaError, OSError, pa.ArrowException) as error:
            raise TransientError(
                "TARGET_UNREADABLE",
                f"the mirrored table cannot be read: {type(error).__name__}",
                where=str(self._path),
                way_out="look at the table's Delta log; then prove again",
            ) from error

    def _named(self, field: pa.Field) -> LandingColumn:
        found, name = _landing(field), self._at_source.get(field.name.casefold())
        return found if name is None else found._replace(name=name, renamed=found.name)

    def frame(self, shape: Shape, work: Work, schema: str, ranges: Collection[int] | None = None) -> DataFrame:
        """As :class:`~spark_jobs.proof.sides.Side`; *ranges* are left to *work*, which looks at the cells."""
        if self.version is None:
            return self._spark.createDataFrame([], schema)
        if self._pieces is None:
            return self._frame_of_delta(work, schema)
        pieces, columns = self._pieces, {column.landed_name: column.name for column in self.columns}

        def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                yield from work(_rows([pieces[at] for at in batch.column(0).to_pylist()], columns))

        tasks = min(len(pieces), 1 + sum(piece.weight for piece in pieces) // _PIECE_BYTES)
        return self._spark.range(0, len(pieces), 1, max(1, tasks)).mapInArrow(anew(each), schema)

    def _frame_of_delta(self, work: Work, schema: str) -> DataFrame:
        def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work(pa.Table.from_batches([batch]) for batch in batches)

        rows = self._spark.read.format("delta").option("versionAsOf", self.version).load(str(self._path))
        named = [F.col("`" + c.landed_name.replace("`", "``") + "`").alias(c.name) for c in self.columns]
        return rows.select(*named).mapInArrow(anew(each), schema)

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """As :class:`~spark_jobs.proof.sides.Side`.

        Raises:
            TransientError: ``TARGET_UNREADABLE``.
        """
        try:
            return ask()
        except (PySparkException, Py4JError) as error:
            what = str(error).splitlines()[0][:300]
        raise _unreadable(f"version {self.version} of the mirrored table cannot be read: {what}", str(self._path))


class TargetTables:
    """Where a mirror's tables are: a folder, or OneLake or an object storage, whose tables are copied to be compared.

    Copies stay until the end, for Spark may read them again: as much room is needed as the tables take.

    Raises:
        TerminalError: ``TABLES_UNNAMED``; ``CONNECTION_MISSING``, ``CONNECTION_INVALID``.
    """

    def __init__(self, mirror: Mirror) -> None:
        tables, is_onelake = mirror.landing_zone.tables, mirror.landing_zone.store == "onelake"
        if tables is None and not is_onelake:
            raise TerminalError(
                "TABLES_UNNAMED",
                "nothing says where the mirrored tables can be read",
                where=f"mirror {mirror.name}",
                way_out="set `landing_zone.tables` to the folder of the mirrored tables, as `<schema>/<table>`",
            )
        self._root = None if tables is None else folder_place(mirror, tables)
        zone = zone_address(mirror) if tables is None else None
        self._zone = zone if isinstance(zone, OneLakeZone) else None
        self._copies = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._copies.close()

    def path(self, folder: str) -> Path | None:
        """Where the table of a landing zone folder can be read now; None when there is none.

        Raises:
            TerminalError: ``TABLES_MISSING``; what the store raises.
            TransientError: ``TABLE_CHANGES``; what the store raises.
        """
        if self._zone is not None:
            return self._copies.enter_context(copied_table(self._zone, folder))
        assert self._root is not None
        if not self._root.is_dir():
            raise TerminalError(
                "TABLES_MISSING",
                "the folder of the target's tables is not there",
                where=str(self._root),
                way_out="mend `landing_zone.tables`, or mount what it names",
            )
        if isinstance(self._root, ObjectPath):
            return self._copies.enter_context(copied_stored_table(self._root, folder))
        return _place_of(self._root, folder)


def _plain_pieces(table: DeltaTable) -> list[_Piece] | None:
    """The files that hold all rows of a version and no others; None where there is more to it."""
    protocol = table.protocol()
    features = set(protocol.reader_features or ())
    if protocol.min_reader_version == 2 or features - _PLAIN_FEATURES or table.metadata().partition_columns:
        return None
    if "deletionVectors" in features and next(iter(table.deletion_vectors()), None) is not None:
        return None
    paths = [Path(uri) for uri in table.file_uris()]
    # A name that the log spells otherwise than the disk does is left to Delta's own reader.
    if not all(path.is_file() for path in paths):
        return None
    return [piece for path in paths for piece in _cut(path)]


def _cut(path: Path) -> Iterator[_Piece]:
    size = path.stat().st_size
    if size <= _PIECE_BYTES:
        yield _Piece(str(path), size)
        return
    with pq.ParquetFile(path) as file:
        groups = file.metadata.num_row_groups
    yield from (_Piece(str(path), size // groups, group, group + 1) for group in range(groups))


def _rows(pieces: Iterable[_Piece], columns: Mapping[str, str]) -> Iterator[pa.Table]:
    """The rows of pieces, with their columns called as *columns* says of the table's names."""
    for piece in pieces:
        try:
            with pq.ParquetFile(piece.path, coerce_int96_timestamp_unit="us") as file:
                # A file may spell a column in another case: Delta compares names without case.
                there = {name.casefold(): name for name in file.schema_arrow.names}
                called = ((name.casefold(), given) for name, given in columns.items())
                named = {there[folded]: given for folded, given in called if folded in there}
                groups = range(piece.first, file.num_row_groups if piece.last is None else piece.last)
                for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=groups, columns=[*named], use_threads=False):
                    yield pa.Table.from_batches([batch]).select([*named]).rename_columns([*named.values()])
        except (pa.ArrowException, OSError) as error:
            raise _unreadable(f"a file of the mirrored table cannot be read: {error}", piece.path) from None


def _unreadable(what: str, where: str) -> TransientError:
    way_out = "look whether its files are there; then prove again"
    return TransientError("TARGET_UNREADABLE", what, where=where, way_out=way_out)


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


def _landing(field: pa.Field) -> LandingColumn:
    if pa.types.is_timestamp(field.type):
        return LandingColumn(field.name, "timestamp")
    if pa.types.is_decimal(field.type):
        return LandingColumn(field.name, f"decimal({field.type.precision},{field.type.scale})")
    # Of a type that no file of the landing zone has, its own name: no type of the source is equal to it.
    return LandingColumn(field.name, _LANDING.get(field.type, str(field.type)))


def _place_of(root: Path, folder: str) -> Path:
    schema, table = split_table_folder(folder)
    # A table without schema comes into the default one, or lies at the top where there are no schemas (F-03).
    places = [root / place / table for place in ([DEFAULT_SCHEMA, "."] if schema is None else [schema])]
    return next((place for place in places if place.is_dir()), places[0])
