"""Moves the horizon, up to which all changes of a table are final, so that old batches of the log can be dropped.

H of a table is a transaction. All changes up to it are published; one that arrives later stops the table (G-05). So a
plan takes only changes above H, and a block of batches may go once all its changes are published and at or below H.
This does not hold where rows are completed from earlier changes (G-04): nothing of such a table is dropped. Open dead
letters and incomplete messages keep the horizon below them, so they still arrive above H.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from open_mirroring.changes.log_position import transaction_at

Transaction = tuple[int, str]
"""Ordinal of a stream and major of a position in it."""


class MirrorHorizon(NamedTuple):
    """The horizon of a mirror: every batch above *batch* is above the horizon of each table.

    Sources are not read again from before *at*, when *batch* was bound. The log may lack batches up to *dropped*.
    """

    batch: int
    at: datetime
    dropped: int


class TableHorizon(NamedTuple):
    """H of a table: the newest transaction, as stream ordinal and major, at which a new change stops it (G-05)."""

    ordinal: int
    major: str


class BatchContents(NamedTuple):
    """The content of a committed batch for one table and epoch; *files* are relative to the change log."""

    batch: int
    epoch: str
    rows: int
    lowest: str
    highest: str
    files: tuple[str, ...]


class LoggedBatch(NamedTuple):
    """A committed batch: when it was bound, and when it was first seen in the log."""

    number: int
    bound_at: datetime
    committed_at: datetime


@dataclass(frozen=True)
class LoggedTable:
    """The facts that decide how far the horizon of one table may move.

    *waiting* are changes that may still arrive or be decoded, by epoch and position. Normal reading may repeat changes
    from *reread_from* on (T-18). Changes of published batches above *published_position* wait (C-88).
    """

    published_batch: int
    epochs: Mapping[str, int]
    contents: Sequence[BatchContents]
    waiting: Sequence[tuple[str, str]] = ()
    reread_from: Transaction | None = None
    completes_rows: bool = False
    horizon: TableHorizon | None = None
    published_position: str | None = None
    in_reset: bool = False


class MovedHorizon(NamedTuple):
    """The next horizon: of the mirror (None: none yet), and of the tables whose H moves, by source."""

    mirror: MirrorHorizon | None
    tables: dict[str, TableHorizon]


def advance(
    batches: Iterable[LoggedBatch],
    tables: Mapping[str, LoggedTable],
    known: MirrorHorizon | None,
    *,
    before: datetime,
    held_from: int | None,
    batches_per_block: int,
) -> MovedHorizon:
    """Move the horizon as far as possible; it never moves back.

    Only batches committed before the time *before* may go below it, and none from *held_from* on, the first with an
    open dead letter or a waiting piece.
    """
    old = [b for b in batches if b.committed_at < before and (held_from is None or b.number < held_from)]
    newest = max(old, default=None)
    if newest is None or (known is not None and newest.number < known.batch):
        return MovedHorizon(known, {})
    moved: dict[str, TableHorizon] = {}
    for source, table in tables.items():
        reached = _reached(table, newest.number)
        if reached is not None and (table.horizon is None or reached > table.horizon):
            moved[source] = reached
    horizons = {source: moved.get(source, table.horizon) for source, table in tables.items()}
    kept_from = min(
        (
            part.batch
            for source, table in tables.items()
            for part in table.contents
            if _is_needed(part, table, horizons[source])
        ),
        default=newest.number + 1,
    )
    # The first block begins with batch 0, which does not exist.
    whole = min(kept_from, newest.number + 1) // batches_per_block * batches_per_block - 1
    dropped = max(0, whole, 0 if known is None else known.dropped)
    return MovedHorizon(MirrorHorizon(newest.number, newest.bound_at, dropped), moved)


def _reached(table: LoggedTable, newest: int) -> TableHorizon | None:
    """The newest transaction that ends a batch up to *newest*, below everything that is still undecided."""
    if any(part.epoch not in table.epochs for part in table.contents):
        return None  # a stream without a place in the order may be anywhere
    undecided = [
        _transaction(table, part.epoch, part.lowest)
        for part in table.contents
        if part.batch > min(newest, table.published_batch)
    ]
    undecided += [_transaction(table, epoch, pos) for epoch, pos in table.waiting if epoch in table.epochs]
    undecided += [] if table.reread_from is None else [table.reread_from]
    undecided += [] if table.published_position is None else [transaction_at(table.published_position)]
    limit = min(undecided, default=None)
    ends = (_transaction(table, part.epoch, part.highest) for part in table.contents if part.batch <= newest)
    decided = max((end for end in ends if limit is None or end < limit), default=None)
    return None if decided is None else TableHorizon(*decided)


def _is_needed(part: BatchContents, table: LoggedTable, horizon: TableHorizon | None) -> bool:
    if table.completes_rows or table.in_reset or horizon is None or part.epoch not in table.epochs:
        return True
    return part.batch > table.published_batch or _transaction(table, part.epoch, part.highest) > horizon


def _transaction(table: LoggedTable, epoch: str, position: str) -> Transaction:
    return table.epochs[epoch], position.partition(":")[0]
