"""What a worker does for extraction: read bound ranges, decode, write log files; join split messages.

Both tasks return plain dictionaries, parts of the batch's manifest: only paths and counts cross back to the driver.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.dataset as ds

from open_mirroring.ledger.extract_ledger import BoundRange
from spark_jobs.change_log_schema import FRAGMENT, LOG_SCHEMA, REJECTED, LogRow, RawMessage
from spark_jobs.log_writing import LogWriter
from spark_jobs.sources.ces import CesDecoder
from spark_jobs.sources.ces_fragments import Refused, Waiting, join
from spark_jobs.sources.ces_ordinary import OrdinaryCes
from spark_jobs.sources.decoded import Damage, MirroredTable
from spark_jobs.sources.line_blocks import read_blocks
from spark_jobs.sources.transports import SourcePlace, has_blocks, read_range

_MESSAGES_AT_ONCE = 20_000
_WORTH_BLOCKS = 2**18
"""Ranges of fewer bytes are not worth the learning."""


@dataclass(frozen=True)
class LogTarget:
    """Where a task writes: the log's root, the batch, the attempt's unique name and the task's number."""

    root: Path
    batch: int
    attempt: str
    task: int

    def writer(self) -> LogWriter:
        """A writer of this task's log files."""
        return LogWriter(self.root, self.batch, self.attempt, self.task)


@dataclass(frozen=True)
class ReadTask:
    """Some of a batch's bound ranges, to be read and decoded by one worker."""

    source: SourcePlace
    ranges: tuple[BoundRange, ...]
    tables: Mapping[str, MirroredTable]
    target: LogTarget


@dataclass(frozen=True)
class JoinTask:
    """Split messages of which at least one piece is new (or overdue), with the log files that hold their pieces."""

    pieces: Mapping[str, tuple[str, ...]]
    tables: Mapping[str, MirroredTable]
    target: LogTarget


def read(task: ReadTask) -> dict[str, Any]:
    """Decode every message of the ranges: log files, counts by disposition, fragments and rejects seen."""
    if not gc.get_freeze_count():
        gc.freeze()  # what was imported need not be looked through again and again while rows are made
    decoder, writer, counts = CesDecoder(task.tables), task.target.writer(), Counter[str]()
    ordinary = OrdinaryCes(decoder)
    notes = _Rejects(task.tables)
    for bound in task.ranges:
        messages = _take_ordinary(task.source, bound, ordinary, writer, counts)
        while chunk := list(islice(messages, _MESSAGES_AT_ONCE)):
            decoded = decoder.decode(chunk)
            counts.update(decoded.counts._asdict())
            counts.update(decoded.notices._asdict())
            notes.take(decoded.rows)
            writer.add(decoded.rows)
    return {**writer.finish(), "counts": dict(counts), **notes.to_dict()}


def _take_ordinary(
    source: SourcePlace, bound: BoundRange, ordinary: OrdinaryCes, writer: LogWriter, counts: Counter[str]
) -> Iterator[RawMessage | Damage]:
    """Write and count the ordinary messages of a range, if it can be read in blocks; yield all others."""
    if bound.end - bound.start < _WORTH_BLOCKS or not has_blocks(source, bound):
        yield from read_range(source, bound)
        return
    read_to = bound.start
    for block in read_blocks(source.folder, *bound):
        rows, lines = ordinary.take(block)
        if len(rows):
            writer.add_table(rows)
        counts.update(messages=len(lines), changes=len(rows), ignored=len(lines) - len(rows))
        is_left = np.ones(len(block.starts), bool)
        is_left[lines] = False
        yield from block.messages(np.flatnonzero(is_left))
        read_to += len(block.content)
    yield from read_range(source, BoundRange(bound.name, read_to, bound.end))  # what a file cut meanwhile lacks


def join_pieces(task: JoinTask) -> dict[str, Any]:
    """Join the split messages that are complete: ``outcomes`` names what became of each identity."""
    decoder, writer, counts = CesDecoder(task.tables), task.target.writer(), Counter[str]()
    notes = _Rejects(task.tables)
    outcomes: dict[str, str] = {}
    pieces = read_pieces(task.target.root, task.pieces)
    for identity in task.pieces:
        outcome = join(pieces[identity], decoder)
        if isinstance(outcome, Waiting):
            outcomes[identity] = "waiting"
            continue
        rows = [outcome.row] if isinstance(outcome, Refused) else outcome.rows
        refused = any(row.kind == REJECTED for row in rows)
        outcomes[identity] = "refused" if refused else "joined"
        counts.update({outcomes[identity]: len(pieces[identity])})
        notes.take(rows)
        writer.add(rows)
    return {**writer.finish(), "outcomes": outcomes, "counts": dict(counts), **notes.to_dict()}


def read_pieces(root: Path, wanted: Mapping[str, Iterable[str]]) -> dict[str, list[LogRow]]:
    """The fragment rows of split messages, each read back from the log files named for it and from no others.

    Pieces that ended in an earlier batch lie in the log still; delivered again they must not be joined with those.
    """
    files = {str(root / file): file for of_one in wanted.values() for file in of_one}
    dataset = ds.dataset(sorted(files), format="parquet", schema=LOG_SCHEMA)
    chosen = (pc.field("kind") == FRAGMENT) & pc.field("fragment_of").isin(list(wanted))
    found: dict[str, list[LogRow]] = {identity: [] for identity in wanted}
    rows = dataset.to_table(columns=[*LogRow._fields, "__filename"], filter=chosen)
    for line in rows.to_pylist():
        file = files[line.pop("__filename")]
        if file in wanted[line["fragment_of"]]:
            found[line["fragment_of"]].append(LogRow(**line))
    return found


class _Rejects:
    """What the driver must know of dead letters: those without a table, and those that hide a table's key."""

    def __init__(self, tables: Mapping[str, MirroredTable]) -> None:
        self._has_key = {table.source: bool(table.key) for table in tables.values()}
        self._homeless = 0
        self._keyless: dict[str, dict[str, Any]] = {}

    def take(self, rows: Iterable[LogRow]) -> None:
        for row in rows:
            if row.kind != REJECTED:
                continue
            if row.tbl is None:
                self._homeless += 1
            elif row.key is None and self._has_key[row.tbl]:
                at = f"{row.origin}:{row.place}"
                self._keyless.setdefault(row.tbl, {"code": row.code, "reason": row.reason, "at": at})

    def to_dict(self) -> dict[str, Any]:
        return {"homeless_rejects": self._homeless, "keyless_rejects": self._keyless}
