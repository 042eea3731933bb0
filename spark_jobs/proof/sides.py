"""The two sides of a proof: rows of the source (a database or an export), and rows of the mirrored Delta table.

Spark's workers read each side and return only what a function computes of its typed rows, never the rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, date, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import BEGINNING, split_source_name
from open_mirroring.config.tables import JdbcLoad, ProofExport
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone.layout import DEFAULT_SCHEMA, split_table_folder
from open_mirroring.landing_zone.onelake_address import OneLakeZone
from open_mirroring.landing_zone.schema import LandingColumn, file_schema
from open_mirroring.ledger.load_ledger import LoadColumn
from open_mirroring.reconciliation.inspection import zone_address
from spark_jobs.load.planning import CHUNK_BYTES, pace_of
from spark_jobs.proof.onelake_tables import copied_table
from spark_jobs.proof.rows import Shape, Work
from spark_jobs.sources.exports.files import Export, ExportRows, Piece, cut_file, export_columns, export_files
from spark_jobs.sources.jdbc.dialects import Range
from spark_jobs.sources.jdbc.tables import JdbcRows, JdbcTable, SplitColumn

_RANGES_OF_CHUNK = 8
_MOST_RANGES = 256
_ROWS_PER_PIECE = 1_000_000


class Split(NamedTuple):
    """The column that cuts a source into ranges, and the typed values between them."""

    column: str
    borders: tuple[Any, ...]


class Side(Protocol):
    """The rows of one side."""

    def frame(self, shape: Shape, work: Work, schema: str, ranges: Collection[int] | None = None) -> DataFrame:
        """What *work* makes of the rows, of some *ranges* of the shape only if given; kept until it is unpersisted."""
        ...


class Source(Side, Protocol):
    """The source's side.

    Attributes:
        text: what it is, for people.
        columns: what it has, in its order.
        split: how it is cut; None: it is read as a whole.
        since: an export: the commit from which on changes may be missing in it; None: nothing is missing.
    """

    text: str
    columns: tuple[LoadColumn, ...]
    split: Split | None
    since: str | None


class JdbcSource:
    """A table of the source database, read in ranges, sparing it as an initial load does."""

    def __init__(self, spark: SparkSession, table: Table, load: JdbcLoad) -> None:
        name = load.table or table.source
        self._table = JdbcTable(spark, load.connection, split_source_name(name))
        self.text = f"{name} over the connection {load.connection}"
        self.since: str | None = None
        self.columns = self._table.columns(table.columns)
        self._keys, self._pace, self._chunks = table.key, pace_of(load), load.chunks
        self._cut: tuple[SplitColumn, list[Range]] | None = None
        self.split: Split | None = None
        if load.split_column is not None:
            column = self._table.columns([load.split_column])[0]
            ranges = min(_MOST_RANGES, load.chunks * _RANGES_OF_CHUNK)
            self._cut = self._table.split(column.name, column.sql_type or "", ranges)
            # Only what a key says of itself tells its range at any time; and a number with digits is not cut by it.
            if self._cut is not None and column.name in table.key and not column.type.startswith("decimal"):
                kind = self._cut[0].kind
                borders = tuple(_border(kind, part.low) for part in self._cut[1] if part.low is not None)
                self.split = Split(column.name, borders)

    def frame(self, shape: Shape, work: Work, schema: str, ranges: Collection[int] | None = None) -> DataFrame:
        """As :class:`Side`."""
        split, all_ranges = self._cut or (None, [Range(None, None, True)])
        chosen = list(range(len(all_ranges)))
        if ranges is not None and shape.split is not None:
            chosen = sorted(ranges)
        most = -(-len(all_ranges) // self._chunks)
        parts = [Range(all_ranges[a].low, all_ranges[b].high, all_ranges[a].nulls) for a, b in _runs(chosen, most)]
        columns, schema_of_rows, where = self.columns, _typed_schema(self.columns, self._keys), self.text

        def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work(JdbcRows(batches, columns, schema_of_rows, where))

        frame = self._table.frame(self.columns, split, parts, _anew(each), schema, self._pace)
        return self._table.asked("reading its rows", lambda: _kept(frame))


class ExportSource:
    """An export of a known position: it stays as it is while the target moves on."""

    def __init__(self, spark: SparkSession, table: Table, export: Export, types: dict[str, str], since: str | None):
        self._spark, self._keys, self._export = spark, table.key, export
        files = export_files(export)
        self.columns = export_columns(export, files[0], table.columns, types)
        for file in files[1:]:
            if sorted(export_columns(export, file, table.columns, types)) != sorted(self.columns):
                raise TerminalError(
                    "EXPORT_SCHEMA_DIFFERS",
                    "its files have different columns or types",
                    where=str(export.path(file)),
                    way_out="export the whole table anew, all files by the same columns and types",
                )
        self._pieces: Sequence[Piece] = [p for f in files for p in cut_file(export, f, _ROWS_PER_PIECE, CHUNK_BYTES)]
        self.text = f"the {export.format} export {export.root}"
        self.split: Split | None = None
        self.since = since

    def frame(self, shape: Shape, work: Work, schema: str, ranges: Collection[int] | None = None) -> DataFrame:
        """As :class:`Side`; an export has no ranges."""
        export, pieces, columns = self._export, self._pieces, self.columns
        schema_of_rows = _typed_schema(self.columns, self._keys)

        def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                chosen = [pieces[at] for at in batch.column(0).to_pylist()]
                yield from work(ExportRows(export, chosen, columns, schema_of_rows))

        places = self._spark.range(0, len(pieces), 1, len(pieces))
        return _kept(places.mapInArrow(_anew(each), schema))


class Target:
    """A mirrored table at one version; *version* is None where there is no Delta table.

    *changed* is when that version came to be.
    """

    def __init__(self, spark: SparkSession, path: Path | None) -> None:
        self._spark, self._path = spark, path
        self.version: int | None = None
        self.changed: datetime | None = None
        self.columns: tuple[LandingColumn, ...] = ()
        try:
            if path is not None and DeltaTable.is_deltatable(str(path)):
                table = DeltaTable(path)
                self.version = table.version()
                self.changed = datetime.fromtimestamp(table.history(1)[0]["timestamp"] / 1000, UTC)
                self.columns = tuple(_landing(field) for field in pa.schema(table.schema().to_arrow()))
        except (DeltaError, OSError) as error:
            raise TransientError(
                "TARGET_UNREADABLE",
                f"the mirrored table cannot be read: {type(error).__name__}",
                where=str(self._path),
                way_out="look at the table's Delta log; then prove again",
            ) from error

    def frame(self, shape: Shape, work: Work, schema: str, ranges: Collection[int] | None = None) -> DataFrame:
        """As :class:`Side`; *ranges* are left to *work*, which looks at the cells."""
        if self.version is None:
            return self._spark.createDataFrame([], schema)
        rows = self._spark.read.format("delta").option("versionAsOf", self.version).load(str(self._path))

        def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return work(pa.Table.from_batches([batch]) for batch in batches)

        names = ["`" + column.name.replace("`", "``") + "`" for column in self.columns]
        try:
            return _kept(rows.select(*names).mapInArrow(_anew(each), schema))
        except (PySparkException, Py4JError) as error:
            what = str(error).splitlines()[0][:300]
        raise TransientError(
            "TARGET_UNREADABLE",
            f"version {self.version} of the mirrored table cannot be read: {what}",
            where=str(self._path),
            way_out="look whether its files are there; then prove again",
        )


def source_side(spark: SparkSession, mirror: Mirror, table: Table, export: ProofExport | None) -> Source:
    """The source's rows of a table: an export that the caller names, or what the mirror file says.

    Raises:
        TerminalError: ``SOURCE_UNNAMED`` where nothing says what to compare with; the source is not as it is said to
            be: the code says how.
        TransientError: the source does not answer.
    """
    chosen = export or table.prove or (table.initial_load if isinstance(table.initial_load, JdbcLoad) else None)
    if chosen is None:
        raise TerminalError(
            "SOURCE_UNNAMED",
            "nothing says where the source's rows can be read",
            where=f"table {table.source}",
            way_out="set `prove` of the table to a connection or an export, or name one with --export",
        )
    if isinstance(chosen, JdbcLoad):
        return JdbcSource(spark, table, chosen)
    since = None if chosen.since is None else ("" if chosen.since == BEGINNING else chosen.since.replace(":", ""))
    return ExportSource(spark, table, Export(mirror.resolve(chosen.path), chosen.format), chosen.types, since)


class TargetTables:
    """Where a mirror's tables are: a folder, or OneLake, whose tables are copied to be compared.

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
        self._root = None if tables is None else mirror.resolve(tables)
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
        return _place_of(self._root, folder)


def check_errors(frame: DataFrame) -> None:
    """Raise what a worker met: an error comes back as a line, for Spark would bury it in a stack of its own."""
    for line in frame.where("error IS NOT NULL").select("error").limit(1).collect():
        raise pickle.loads(bytes(line["error"]))


def _anew(each: Work) -> Work:
    """The same function as another one: Spark takes two equal plans for one, and would give what it kept of the first.

    A look at the source must never be an earlier one.
    """
    token = uuid4().hex

    def again(batches: Any) -> Iterator[pa.RecordBatch]:
        return each(batches) if token else iter(())

    return again


def _kept(frame: DataFrame) -> DataFrame:
    kept = frame.persist(StorageLevel.DISK_ONLY)
    kept.count()
    return kept


def _runs(places: Sequence[int], most: int) -> list[tuple[int, int]]:
    """First and last of each run of neighbours, none longer than *most*."""
    runs: list[tuple[int, int]] = []
    for _, group in groupby(enumerate(places), key=lambda item: item[1] - item[0]):
        run = [place for _, place in group]
        runs += [(run[at], run[min(at + most, len(run)) - 1]) for at in range(0, len(run), most)]
    return runs


def _border(kind: str, text: str) -> Any:
    if kind == "integer":
        return int(text)
    return date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text).replace(tzinfo=UTC)


def _typed_schema(columns: Sequence[LoadColumn], keys: Sequence[str]) -> pa.Schema:
    return file_schema([LandingColumn(column.name, column.type) for column in columns], keys, marker=False)


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
