"""Defines the two sides of a proof, source and target, and reads the source side.

The source side is a database or an export. Spark's workers read each side and return only what a function computes from
its rows, never the rows themselves. Small sides are read in the job's own process.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime
from functools import partial
from itertools import chain, groupby
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import pyarrow as pa

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import BEGINNING, split_source_name
from open_mirroring.config.storage import place_of
from open_mirroring.config.tables import JdbcLoad, ProofExport
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.salt import Salt
from open_mirroring.operate.exit_codes import UsageError
from spark_jobs.load.planning import CHUNK_BYTES, pace_of
from spark_jobs.proof.rows import OfKeys, OfRanges, Part, Tables, Work
from spark_jobs.runtime.tasks import THREADS, run_job
from spark_jobs.sources.exports.files import Export, ExportRows, Piece, cut_file, export_columns, export_files
from spark_jobs.sources.jdbc.dialects import Keys, Range
from spark_jobs.sources.jdbc.tables import Cut, JdbcRows, JdbcTable, KeyColumns, Pace, SplitColumn
from spark_jobs.sources.sql_server.chosen_types import spelled_as_streamed
from spark_jobs.sources.sql_server.row_filters import matching, refuse_undecided
from spark_jobs.sources.sql_server.target_columns import hashed_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Answer = TypeVar("Answer")
_LIMITED: defaultdict[str, Lock] = defaultdict(Lock)
_RANGES_OF_CHUNK = 8
_MOST_RANGES = 256
_ROWS_PER_PIECE = 1_000_000


class Split(NamedTuple):
    """The column by which a source is divided into ranges, and the values between the ranges, typed and as strings."""

    column: str
    borders: tuple[Any, ...]
    texts: tuple[str, ...]
    kind: str

    def typed(self, texts: Sequence[str]) -> list[Any]:
        """Convert other values of this column from strings to its type."""
        return [_border(self.kind, text) for text in texts]


class Side(Protocol):
    """The rows of one side; *size* is their approximate number of bytes."""

    size: int

    def lines(self, work: Work, part: Part | None = None) -> Iterator[pa.RecordBatch]:
        """Read all rows, or at least those of a *part*, in threads of this process; return what *work* computes."""
        ...

    def frame(self, work: Work, schema: str, part: Part | None = None) -> DataFrame:
        """A DataFrame of what *work* computes from all rows, or at least those of a *part*; evaluated later."""
        ...

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        """Call *ask*, which evaluates a DataFrame; errors of Spark are converted to ours if their cause is known."""
        return ask()


class Source(Side, Protocol):
    """The source's side: its description for messages, its columns in order, and how it is divided into ranges.

    *since* is the commit from which on an export may lack changes; None if the source can lack no change. Rows get the
    *changes* that published rows get: a filter (G-193), and hashed columns (G-121).
    """

    text: str
    columns: tuple[LoadColumn, ...]
    split: Split | None
    since: str | None
    changes: tuple[Callable[[pa.Table], pa.Table], ...] = ()


class JdbcSource(Source):
    """A table of the source database, read in ranges or by key.

    The mirror file limits how fast the table is read, in the setting ``prove`` or else ``initial_load``.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        load: JdbcLoad,
        gone: Collection[str] = (),
        streamed: Mapping[str, str] = MappingProxyType({}),
        borders: Sequence[str] | None = None,
    ) -> None:
        name = load.table or table.source
        self._table = JdbcTable(spark, load.connection, split_source_name(name), table.row_filter)
        self.text = f"{name} over the connection {load.connection}"
        self.since: str | None = None
        self.columns = spelled_as_streamed(self._table.columns(table.chosen, gone), streamed)
        self._keys, self._pace, self._chunks = table.key, pace_of(load), load.chunks
        self._connection = load.connection
        self.size = self._table.size()
        self._cut: tuple[SplitColumn, list[Range]] | None = None
        self.split: Split | None = None
        if load.split_column is not None:
            column = self._table.columns(ColumnChoice((load.split_column,)))[0]
            ranges = min(_MOST_RANGES, load.chunks * _RANGES_OF_CHUNK)
            self._cut = self._table.split(column.name, column.sql_type or "", ranges, borders)
            # Only a key column keeps a row in its range; and decimals are not cut into ranges.
            if self._cut is not None and column.name in table.key and not column.type.startswith("decimal"):
                kind = self._cut[0].kind
                texts = tuple(part.low for part in self._cut[1] if part.low is not None)
                self.split = Split(column.name, tuple(_border(kind, text) for text in texts), texts, kind)

    def lines(self, work: Work, part: Part | None = None) -> Iterator[pa.RecordBatch]:
        each = self._on_rows(work)
        with self._turn():
            found = self._table.read(self.columns, *self._parts(part), lambda _, rows: list(each(rows)), self._pace)
        return chain.from_iterable(found)

    def frame(self, work: Work, schema: str, part: Part | None = None) -> DataFrame:
        return self._table.frame(self.columns, *self._parts(part), self._on_rows(work), schema, self._pace)

    def _parts(self, part: Part | None) -> tuple[Cut, Sequence[Range | Keys]]:
        """How the table is divided, and the parts of it to read; neighbouring ranges are merged."""
        if isinstance(part, OfKeys):
            return KeyColumns(part.shape.keys), part.at_once(self._table.keys_at_once)
        split, ranges = self._cut or (None, [Range(None, None, True)])
        most = -(-len(ranges) // self._chunks)
        runs = _runs(sorted(part.ranges) if isinstance(part, OfRanges) else range(len(ranges)), most)
        return split, [Range(ranges[a].low, ranges[b].high, ranges[a].nulls) for a, b in runs]

    def _on_rows(self, work: Work) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
        columns, where, schema, changes = self.columns, self.text, _typed_schema(self.columns, self._keys), self.changes
        return lambda batches: work(_changed(JdbcRows(batches, columns, schema, where), changes))

    def asked(self, ask: Callable[[], Answer]) -> Answer:
        with self._turn():
            return self._table.asked("reading its rows", ask)

    def _turn(self) -> AbstractContextManager[Any]:
        """Let tables with a limit wait for each other: two at once would read at twice the limit."""
        return nullcontext() if self._pace == Pace() else _LIMITED[self._connection]


class ExportSource(Source):
    """An export of the source table: its rows stay the same while the target table changes."""

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        export: Export,
        types: dict[str, str],
        since: str | None,
        gone: Collection[str] = (),
    ) -> None:
        self._spark, self._keys, self._export = spark, table.key, export
        files = export_files(export)
        self.columns = export_columns(export, files, table.chosen, types, gone)
        self._pieces: Sequence[Piece] = [p for f in files for p in cut_file(export, f, _ROWS_PER_PIECE, CHUNK_BYTES)]
        self.size = sum(piece.weight for piece in self._pieces)
        self.text = f"the {export.format} export {export.root}"
        self.split: Split | None = None
        self.since = since

    def lines(self, work: Work, part: Part | None = None) -> Iterator[pa.RecordBatch]:
        each = self._on_rows(work)
        tasks = run_job(self._spark, self.text, lambda piece: list(each(piece)), self._pieces, self.size, THREADS)
        return chain.from_iterable(tasks)

    def frame(self, work: Work, schema: str, part: Part | None = None) -> DataFrame:
        """A DataFrame of what *work* computes from all rows, whatever *part* is, because an export has no ranges."""
        from spark_jobs.runtime.worker_tasks import sealed_frame

        return sealed_frame(self._spark, self._on_rows(work), self._pieces, schema)

    def _on_rows(self, work: Work) -> Callable[[Piece], Iterator[pa.RecordBatch]]:
        export, columns, changes = self._export, self.columns, self.changes
        schema = _typed_schema(columns, self._keys)
        return lambda piece: work(_changed(ExportRows(export, [piece], columns, schema), changes))


def proof_source(table: Table, export: ProofExport | None) -> ProofExport | JdbcLoad | None:
    """Where a proof reads the source's rows of a table: *export* if given, else as the mirror file says."""
    return export or table.prove or (table.initial_load if isinstance(table.initial_load, JdbcLoad) else None)


def source_unnamed(tables: Sequence[str]) -> UsageError:
    """The error if the mirror file does not say where the source's rows of these tables can be read."""
    return UsageError(
        f"the mirror file does not say where the source's rows of {', '.join(tables)} can be read",
        "set `prove` of the table to a connection or an export, or name one with --export",
        code="CONFIG_INVALID",
    )


def source_side(
    spark: SparkSession,
    mirror: Mirror,
    table: Table,
    export: ProofExport | None,
    gone: Collection[str] = (),
    streamed: Mapping[str, str] = MappingProxyType({}),
    borders: Sequence[str] | None = None,
) -> Source:
    """Open the source's side of a table.

    Raises ``CONFIG_INVALID`` if the mirror file does not say where the source's rows can be read, and the errors of the
    source.

    Columns in *gone* were dropped and may be missing. *streamed* are the columns' types in changes, which show how many
    digits a value has (G-114). *borders* divide the ranges; None to choose them by the source's rows.
    """
    chosen = proof_source(table, export)
    if chosen is None:
        raise source_unnamed([table.source])
    source: Source
    if isinstance(chosen, JdbcLoad):
        source = JdbcSource(spark, table, chosen, gone, streamed, borders)
    else:
        since = None if chosen.since is None else ("" if chosen.since == BEGINNING else chosen.since.replace(":", ""))
        place = place_of(mirror, chosen.path, chosen.connection)
        export_of_rows = Export(place, chosen.format, mirror.source.text_encoding)
        source = ExportSource(spark, table, export_of_rows, chosen.types, since, gone)
    if table.row_filter is None:
        return source
    where = table.row_filter
    refuse_undecided(where, [column.name for column in source.columns])
    source.changes = (lambda rows: rows.filter(matching(rows, where)),)
    return source


def hashed_source(source: Source, columns: Sequence[str], salt: Salt) -> Source:
    """Have *columns* of a source hashed as in the files for the target table (G-121)."""
    source.changes += (partial(hashed_rows, columns=columns, salt=salt),)
    return source


def lines_here(side: Side, work: Work, schema: pa.Schema, part: Part | None = None) -> pa.Table:
    """The lines that *work* computes from a side's rows in this process; raises the error that a line contains."""
    lines = pa.Table.from_batches(side.lines(work, part), schema)
    errors = lines["error"].drop_null()
    if len(errors):
        raise pickle.loads(errors[0].as_py())
    return lines


def kept(side: Side, frame: DataFrame) -> DataFrame:
    """Evaluate a DataFrame now, and keep its rows on disk until ``unpersist``, so that the side is read only once.

    Raises a worker's error, which the worker returns as a row, because Spark would hide a raised error in a stack
    trace.
    """
    from pyspark import StorageLevel
    from pyspark.sql import functions as F

    def keep() -> bytes | None:
        (line,) = frame.persist(StorageLevel.DISK_ONLY).agg(F.max("error").alias("error")).collect()
        return None if line["error"] is None else bytes(line["error"])

    error = side.asked(keep)
    if error is not None:
        frame.unpersist()
        raise pickle.loads(error)
    return frame


def _changed(rows: Tables, changes: Sequence[Callable[[pa.Table], pa.Table]]) -> Tables:
    for change in changes:
        rows = map(change, rows)
    return rows


def _runs(places: Sequence[int], most: int) -> list[tuple[int, int]]:
    """First and last of each run of consecutive numbers; no run is longer than *most*."""
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
    return file_schema([column.landing for column in columns], keys, marker=False)
