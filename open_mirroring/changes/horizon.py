"""Decides which old batches of the change log can be dropped, by the *horizon* of each table.

The horizon of a table is a transaction. All changes up to the horizon are published and final: a new change that still
arrives there stops the table (G-05). So publishing needs only changes above the horizon. A block of batches can be
dropped from the change log once all its changes are published and at or below the horizons of their tables. A table
whose rows are completed from earlier changes (G-04) keeps all its changes in the change log. The horizon stays below
open dead letters and incomplete messages, because their changes may still arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from open_mirroring.changes.log_position import transaction_at

Transaction = tuple[int, str]
"""The ordinal of a stream in its table, and the commit (``major`` of a position) in it."""


class MirrorHorizon(NamedTuple):
    """The horizon of a mirror: in batches above *batch*, every change is above the horizon of its table.

    *at* is when *batch* was bound; a backfill cannot read the source again from before *at*. The change log may lack
    the batches up to *dropped*.
    """

    batch: int
    at: datetime
    dropped: int


class TableHorizon(NamedTuple):
    """The newest final transaction of a table, as stream ordinal and commit.

    A new change at or below this transaction stops the table (G-05).
    """

    ordinal: int
    major: str


class BatchContents(NamedTuple):
    """What a committed batch contains of one table and stream: number of rows, lowest and highest position, and files.

    The paths in *files* are relative to the folder of the change log.
    """

    batch: int
    epoch: str
    rows: int
    lowest: str
    highest: str
    files: tuple[str, ...]


class LoggedBatch(NamedTuple):
    """A committed batch: when it was bound, and when it was first seen in the change log."""

    number: int
    bound_at: datetime
    committed_at: datetime


@dataclass(frozen=True)
class LoggedTable:
    """The facts that decide how far the horizon of one table may move.

    *epochs* has the ordinal of each stream (one enabling of streaming or one Qlik full load). *waiting* has stream and
    position of each change that may still arrive or be decoded. Changes from *reread_from* on may be read again in
    normal operation (T-18). Changes above *published_position* are not published yet, even if their batches are (C-88).
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
    """The next horizon of the mirror (None: there is none yet), and of each table whose horizon moved."""

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
    """Move the horizons of a mirror and its tables as far as possible; a horizon never moves back.

    Only batches that were committed before the time *before* may go below a horizon. *held_from* is the first batch
    with an open dead letter or an incomplete message; this batch and all later ones stay above every horizon. The
    change log is dropped in blocks of *batches_per_block* batches.
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
