"""Writes files of the change log in a worker: converts rows to sorted Parquet files with statistics."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from open_mirroring.changes.manifest import Facts, LoggedFile
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.errors import TransientError
from open_mirroring.facts.column_lists import COLUMN_LISTS
from open_mirroring.facts.kind import NewFacts
from open_mirroring.storage.object_path import ObjectPath, Place
from spark_jobs.changelog.arrow_schema import HELD_SCHEMA, LOG_SCHEMA
from spark_jobs.changelog.schema import CHANGE, CODED, FRAGMENT, INSERT, UPDATE, LogRow, bucket_ranges, file_path

ROWS_PER_FILE = 200_000
BYTES_PER_FILE = 256 * 2**20
"""A worker collects at most about so many rows or bytes before it writes a file, so memory stays limited."""
# Small row groups: publishing reads one table or a few key buckets of a file that is sorted by them.
_ROW_GROUP = 4_096
_CHANGE_COLUMNS = ["tbl", "epoch", "pos", "op", "cols", "whole"]
_PIECE_COLUMNS = ["fragment_of", "epoch", "pos"]
_LONG = ("cols", "row", "before", "reason", "raw")
_FILE_OPTIONS: dict[str, Any] = {
    "compression": "zstd",
    "store_schema": False,  # without the Arrow schema: dictionary encoding concerns only this writer
    # For columns with rarely repeated values, trying a dictionary costs time; nothing uses the bounds of long texts.
    "use_dictionary": list(CODED),
    "write_statistics": [name for name in LOG_SCHEMA.names if name not in _LONG],
}


class WaitingPieces(NamedTuple):
    """Logged messages that wait for the same other message, and the files of the change log that contain them.

    If the messages are pieces of a split message, *epoch* and *pos* are the position of the split message. If the
    messages wait for the structure of a table, *epoch* and *pos* are empty, because the messages have no common
    position.
    """

    epoch: str
    pos: str
    files: Sequence[str]

    def with_others(self, other: WaitingPieces | None) -> WaitingPieces:
        """Merge with *other*, which waits for the same message and was found elsewhere."""
        if other is None:
            return self
        place = self[:2] if self[:2] == other[:2] else ("", "")
        return WaitingPieces(*place, [*other.files, *(file for file in self.files if file not in other.files)])

    @property
    def halves(self) -> tuple[str, str]:
        """The two positions that rows of the split change can have, the lower position first.

        A key change is logged as two rows, one at each position; any other change is one row.
        """
        return f"{self.pos[:-2]}:0", f"{self.pos[:-2]}:1"


@dataclass(frozen=True)
class Written:
    """The result of a writer: its files, facts about the rows in the files, and the messages that wait for others."""

    files: Sequence[LoggedFile] = ()
    facts: Facts = field(default_factory=dict)
    fragments: Mapping[str, WaitingPieces] = field(default_factory=dict)


class LogWriter:
    """Collects the rows of one task, and writes them as files of the change log, each under a name never used again."""

    def __init__(self, root: Place, batch: int, attempt: str, task: int) -> None:
        self._root, self._batch, self._attempt, self._task = root, batch, attempt, task
        # A task that Spark repeats after losing a worker finds the files of the first try.
        self._try = uuid4().hex[:8]
        self._rows: list[LogRow] = []
        self._tables: list[pa.Table] = []
        self._held_rows = self._held_bytes = 0
        self._files: list[LoggedFile] = []
        self._facts: NewFacts = {}
        self._fragments: dict[str, WaitingPieces] = {}

    def add(self, rows: Iterable[LogRow]) -> None:
        """Add rows; a file is written whenever enough rows are collected."""
        before = len(self._rows)
        self._rows.extend(rows)
        added = self._rows[before:]
        self._took(len(added), sum(len(row.raw or row.row or "") for row in added))

    def add_table(self, table: pa.Table) -> None:
        """Add rows as an Arrow table with columns of :data:`HELD_SCHEMA`; a missing column is NULL."""
        self._tables.append(table)
        self._took(table.num_rows, table.nbytes)

    def finish(self) -> Written:
        """Write the remaining rows and return the result."""
        if self._held_rows:
            self._flush()
        return Written(self._files, self._facts, self._fragments)

    def _took(self, rows: int, size: int) -> None:
        self._held_rows += rows
        self._held_bytes += size
        if self._held_rows >= ROWS_PER_FILE or self._held_bytes >= BYTES_PER_FILE:
            self._flush()

    def _flush(self) -> None:
        table = pa.concat_tables([_held(self._rows), *self._tables], promote_options="default").unify_dictionaries()
        self._rows, self._tables, self._held_rows, self._held_bytes = [], [], 0, 0
        # Two digits per task are enough for 20 million rows; the task number keeps names distinct.
        relative = file_path(self._batch, self._attempt, self._task * 100 + len(self._files), self._try)
        size, etag = write_durably(self._root / relative, table, self._batch)
        changes = table.select(_CHANGE_COLUMNS).filter(pc.equal(table["kind"], CHANGE))
        self._note_columns(changes)
        self._note_fragments(table.select(_PIECE_COLUMNS).filter(pc.equal(table["kind"], FRAGMENT)), relative)
        file: LoggedFile = {
            "path": relative,
            "rows": table.num_rows,
            "size": size,
            "tables": position_bounds(changes),
        }
        self._files.append(file if etag is None else {**file, "etag": etag})

    def _note_columns(self, changes: pa.Table) -> None:
        rows = changes.filter(pc.is_in(changes["op"], pa.array([INSERT, UPDATE])))
        for chosen, name in ((rows, "seen"), (rows.filter(rows["whole"]), "whole")):
            places = chosen.group_by(["tbl", "cols", "epoch"]).aggregate([("pos", "min"), ("pos", "max")])
            for line in places.to_pylist():
                lowest, highest = line["pos_min"], line["pos_max"]
                found = PlacesSeen(lowest, highest, *((lowest, highest) if name == "whole" else ()))
                COLUMN_LISTS.add(self._facts, {line["epoch"]: found}, table=line["tbl"], name=line["cols"])

    def _note_fragments(self, rows: pa.Table, file: str) -> None:
        for line in rows.group_by(["fragment_of", "epoch", "pos"]).aggregate([]).to_pylist():
            pieces, identity = WaitingPieces(line["epoch"] or "", line["pos"] or "", [file]), line["fragment_of"]
            self._fragments[identity] = pieces.with_others(self._fragments.get(identity))


def log_table(rows: Sequence[LogRow], batch: int) -> pa.Table:
    """Convert rows to one Arrow table, sorted in the order in which publishing reads: by table, then key bucket."""
    held = _held(rows)
    return _with_batch(held.take(pa.array(_reading_order(held))), batch).cast(LOG_SCHEMA)


def _held(rows: Sequence[LogRow]) -> pa.Table:
    by_field = zip(*rows, strict=True) if rows else ([] for _ in LogRow._fields)
    arrays = {
        name: pa.array(values, LOG_SCHEMA.field(name).type)
        for name, values in zip(LogRow._fields, by_field, strict=True)
    }
    arrays |= {name: arrays[name].dictionary_encode() for name in CODED}
    return pa.Table.from_arrays([arrays[name] for name in HELD_SCHEMA.names], schema=HELD_SCHEMA)


def _reading_order(held: pa.Table) -> npt.NDArray[np.int64]:
    """The indexes that sort rows by table, then key bucket; dead letters without a table come last."""
    tables = held["tbl"].combine_chunks()
    ranks = pc.rank(tables.dictionary, sort_keys="ascending").to_numpy() if len(tables.dictionary) else np.zeros(0)
    rank = np.append(ranks, len(ranks) + 1)[tables.indices.fill_null(len(ranks)).to_numpy()]
    return np.lexsort((held["bucket"].to_numpy(), rank))


def _row_groups(held: pa.Table) -> Iterator[npt.NDArray[np.int64]]:
    """Split the rows into row groups, as index arrays, so that publishing reads few rows that it does not need.

    A large table has row groups of its own, cut at the key buckets at which publishing may split it.
    """
    order = _reading_order(held)
    tables = held["tbl"].combine_chunks().indices.fill_null(-1).to_numpy()[order]
    buckets = held["bucket"].to_numpy()[order]
    start = 0
    for border in [*(np.flatnonzero(np.diff(tables)) + 1).tolist(), len(order)]:
        if border - start >= _ROW_GROUP // 2 or border == len(order):
            lows = [low for low, _ in bucket_ranges(border - start, _ROW_GROUP)[1:]]
            is_one = tables[start] == tables[border - 1]
            cuts: list[int] = np.searchsorted(buckets[start:border], lows).tolist() if is_one else []
            yield from (rows for rows in np.split(order[start:border], cuts) if len(rows))
            start = border


def _with_batch(held: pa.Table, batch: int) -> pa.Table:
    return held.add_column(0, LOG_SCHEMA.field("batch"), pa.repeat(pa.scalar(batch, pa.int64()), held.num_rows))


def position_bounds(changes: pa.Table) -> dict[str, dict[str, tuple[int, str, str]]]:
    """By table and epoch (the name of a stream): the number of rows, and their lowest and highest position."""
    bounds: dict[str, dict[str, tuple[int, str, str]]] = {}
    grouped = changes.group_by(["tbl", "epoch"]).aggregate([("pos", "count"), ("pos", "min"), ("pos", "max")])
    for line in grouped.to_pylist():
        bounds.setdefault(line["tbl"], {})[line["epoch"]] = (line["pos_count"], line["pos_min"], line["pos_max"])
    return bounds


def write_durably(path: Place, held: pa.Table, batch: int) -> tuple[int, str | None]:
    """Write rows as a file of the change log; return its size in bytes, and in object storage its ETag.

    A local file is flushed to disk. An object in object storage is created in one step, when it is complete (S-09).
    """
    if not isinstance(path, Path):
        memory = io.BytesIO()
        _write(memory, held, batch)
        return memory.tell(), _created(path, memory.getvalue())
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as sink:
            _write(sink, held, batch)
            sink.flush()
            os.fsync(sink.fileno())
    except OSError as error:
        error.filename = path  # a full disk is reported without a path
        raise
    return path.stat().st_size, None


def _write(sink: IO[bytes], held: pa.Table, batch: int) -> None:
    table = _with_batch(held, batch).combine_chunks()
    with pq.ParquetWriter(sink, table.schema, **_FILE_OPTIONS) as writer:
        for rows in _row_groups(held):
            writer.write_table(table.take(pa.array(rows)))


def _created(path: ObjectPath, content: bytes) -> str:
    try:
        return path.create(content)
    except FileExistsError:
        # The name is unique: the answer to this creation was lost, and it was retried.
        found = path.look(0, len(content) + 1)
        if found.content != content:
            raise TransientError(
                "CHANGED_MEANWHILE", "another log file has the name already", where=str(path), next_step="run again"
            ) from None
        return found.stat.etag
