"""Corrections: reads the current rows of some keys from the source into the change log, as a separate batch.

The keys are those that a recorded proof found to differ. The table's newest position is noted before the rows are read,
so that changes after this position replace the rows. A key that the source does not have becomes a delete.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from sqlalchemy import Engine

from open_mirroring.changes.manifest import BoundRange, CorrectionRange
from open_mirroring.changes.row_key import key_bucket
from open_mirroring.config import Mirror
from open_mirroring.config.storage import log_place
from open_mirroring.errors import MirroringError
from open_mirroring.ledger.proofs import ProofLedger
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.protocols.proving import keys_to_correct, position_above
from spark_jobs.changelog.schema import CHANGE, DELETE, UPDATE, LogRow
from spark_jobs.extract.part import Part
from spark_jobs.extract.read_task import LogTarget
from spark_jobs.proof.rows import OfKeys, Shape, Tables, are_asked_by_key, fitted, key_texts
from spark_jobs.proof.sides import kept, lines_here, source_side
from spark_jobs.runtime.tasks import needs_spark
from spark_jobs.sources.sql_server.chosen_types import type_of_landed
from spark_jobs.sources.sql_server.types import canonical_text, type_of_landed_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)

_ROWS_SCHEMA = "key string, row string, error binary"
_ROWS = pa.schema([pa.field("key", pa.string()), pa.field("row", pa.string()), pa.field("error", pa.binary())])
_PART = pa.schema([pa.field("part", pa.binary())])


def log_corrections(
    mirror: Mirror, ledger: Engine, spark: SparkSession, batch: int, attempt: str, ranges: Sequence[BoundRange]
) -> list[Part]:
    """Log the corrections in *ranges*; returns the manifest's parts, whose ``given_back`` has the failed ones."""
    root = log_place(mirror)
    parts = list[Part]()
    for at, bound in enumerate(ranges):
        wanted = CorrectionRange.of(bound.name)
        if wanted is None:
            raise ValueError(f"{bound.name!r} is not a correction, and bound with some")
        try:
            parts.append(_log_correction(mirror, ledger, spark, wanted, LogTarget(root, batch, attempt, at)))
        except MirroringError as error:
            log.error("%s: %s", bound.name, error)
            parts.append(Part(given_back={bound.name: str(error)}))
    return parts


def _log_correction(
    mirror: Mirror, ledger: Engine, spark: SparkSession, wanted: CorrectionRange, target: LogTarget
) -> Part:
    reader = LedgerReader(ledger, mirror.name)
    state = reader.tables().get(wanted.source)
    table = next((t for t in mirror.tables if t.source == wanted.source), None)
    recorded = ProofLedger(ledger).find(wanted.proof)
    if state is None or table is None or recorded is None or state.row.generation != wanted.generation:
        log.info("%s: the table was reset or dropped since it was bound", wanted.name)
        return Part()
    keys = keys_to_correct(recorded.proof, bool(table.key))
    # Noted before a row is read: what is logged already was committed before, and so is in the rows.
    places = {removes: place_of_correction(reader, state, removes=removes) for removes in (True, False)}
    gone = [column.column for column in reader.gone_columns([state]).get(state.id, [])]
    source = source_side(spark, mirror, table, None, gone, reader.streamed_types(state.id))
    shape = Shape(tuple(column.landing for column in source.columns), tuple(table.key))
    types = {column.name: type_of_landed(column) for column in source.columns}
    write, chosen = CorrectionWrite(wanted, keys, types, places, target), _RowsOfKeys(shape, frozenset(keys))
    part = OfKeys.of(pa.array(keys), shape) if are_asked_by_key(source.columns, table.key, ()) else None
    if not needs_spark(spark, source.size):
        rows = lines_here(source, chosen, _ROWS, part)
        return write.part(dict(zip(rows["key"].to_pylist(), rows["row"].to_pylist(), strict=True)))
    frame = kept(source, source.frame(chosen, _ROWS_SCHEMA, part))
    try:
        return written(spark, frame, write)
    finally:
        frame.unpersist()


@dataclass(frozen=True)
class _RowsOfKeys:
    """Selects the rows of some keys from Arrow tables, with values spelled as in the change log."""

    shape: Shape
    keys: frozenset[str]

    def __call__(self, tables: Tables) -> Iterator[pa.RecordBatch]:
        types = {column.name: type_of_landed_key(column.type) for column in self.shape.columns}
        try:
            for table in tables:
                rows = fitted(table, self.shape)
                texts = key_texts(rows, self.shape).to_pylist()
                places = [at for at, text in enumerate(texts) if text in self.keys]
                if not places:
                    continue
                chosen = rows.take(pa.array(places)).to_pylist()
                spelled = [
                    {n: None if v is None else canonical_text(types[n], v) for n, v in row.items()} for row in chosen
                ]
                lines = [
                    {"key": texts[at], "row": msgspec.json.encode(row).decode(), "error": None}
                    for at, row in zip(places, spelled, strict=True)
                ]
                yield pa.RecordBatch.from_pylist(lines, _ROWS)
        except MirroringError as error:
            yield pa.RecordBatch.from_pylist([{"key": None, "row": None, "error": pickle.dumps(error)}], _ROWS)


@dataclass(frozen=True)
class CorrectionWrite:
    """Writes the rows of a correction into the change log's files, and a delete for each key that the source lacks."""

    wanted: CorrectionRange
    keys: tuple[str, ...]
    types: Mapping[str, str]
    places: dict[bool, tuple[str, str]]
    target: LogTarget

    def part(self, rows: dict[str, str]) -> Part:
        """Log the row image (JSON) that *rows* has for each key, or else a delete; returns the manifest's part."""
        cols = msgspec.json.encode([[name, kind, at] for at, (name, kind) in enumerate(self.types.items())]).decode()
        writer = self.target.writer()
        writer.add(self._line(at, key, rows.get(key), cols) for at, key in enumerate(self.keys))
        return Part(writer.finish(), counts={"corrected": len(self.keys)})

    def _line(self, at: int, key: str, row: str | None, cols: str) -> LogRow:
        epoch, position = self.places[row is None]
        return LogRow(
            CHANGE,
            self.wanted.name,
            at,
            self.wanted.source,
            key_bucket(key),
            epoch,
            position,
            DELETE if row is None else UPDATE,
            key,
            None if row is None else cols,
            None if row is None else True,
            row,
        )


def written(spark: SparkSession, frame: DataFrame, write: CorrectionWrite) -> Part:
    """Have one worker write the few rows of *frame*, so that no row passes through the driver.

    The worker gets *write* encrypted, as an additional row without a key, because a cluster shows plain values in its
    logs (S-11).
    """
    from spark_jobs.runtime.worker_tasks import ParcelKey

    key = ParcelKey()

    def each(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = {line["key"]: line["row"] for batch in batches for line in batch.to_pylist()}
        part = key.unpacked(rows.pop(None)).part(rows)
        yield pa.RecordBatch.from_pylist([{"part": pickle.dumps(part)}], _PART)

    key_row = spark.createDataFrame([(None, key.packed(write), None)], _ROWS_SCHEMA)
    (line,) = frame.union(key_row).repartition(1).mapInArrow(each, "part binary").collect()
    part: Part = pickle.loads(bytes(line["part"]))
    return part


def place_of_correction(reader: LedgerReader, state: TableState, *, removes: bool) -> tuple[str, str]:
    """The newest epoch (stream) of a table, and the position in this epoch that a correction gets."""
    epochs = {e: o for e, o in reader.epochs([state.id]).get(state.id, {}).items() if o >= 0}
    epoch, ordinal = max(epochs.items(), key=lambda one: one[1], default=("", -1))
    highest = reader.highest(state.source, reader.mirror().committed).get(epoch)
    since = state.start.stream_from if ordinal == state.start.stream_epoch else None
    return epoch, position_above(highest, since, removes=removes)
