"""The plan of a table: what a worker must know to decide which changes are published next, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.column_history import FormerColumn
from open_mirroring.changes.horizon import TableHorizon
from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.plan.loaded_columns import LoadedColumn

Identity = tuple[str, str, str | None]
"""Epoch, position text and key of a change."""


@dataclass(frozen=True)
class PlanColumns:
    """The columns of the table's files, and how columns of logged rows are read.

    Attributes:
        landing: the columns of the files.
        types: source type of every known column.
        former: columns of earlier rows that have another name today, or that the table no longer has.
        gone: columns that the source has dropped, each with the place of the last row that carries it.
        unread: columns that `columns` of the mirror file leaves out, or left out when rows were read.
        completing: updates may carry only what changed, so earlier changes complete them (G-04).
        of_reading: rows have the columns of the time when they were read.
        null_text: the text that stands for NULL in the table's files; None for Parquet.
    """

    landing: tuple[LandingColumn, ...]
    types: Mapping[str, str]
    former: tuple[FormerColumn, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    completing: bool = False
    of_reading: bool = False
    null_text: str | None = None

    @property
    def with_transaction(self) -> bool:
        """Whether the files have each change's commit time or transaction (G-118)."""
        return any(column.tells in ("commit_time", "transaction") for column in self.landing)

    def required_at(self, order: str) -> set[str]:
        """The columns that a row at a place needs: dropped ones only up to their last row."""
        return {column for column in self.types if column not in self.gone or order <= self.gone[column]}


@dataclass(frozen=True)
class Beginning:
    """What the table's present generation began with; changes that are older do not count.

    Attributes:
        generation: rows that the load of another generation left in the log do not count.
        stream_from: positions of the stream *stream_epoch* below this text are in the initial load.
        newest_load: the source's own full load in the log with which the table began (G-125).
        loaded: the table began with an initial load that is not in the log.
        loaded_keys: the key columns of that load.
    """

    generation: int = 1
    stream_from: str | None = None
    stream_epoch: int = 0
    newest_load: NewestLoad | None = None
    loaded: bool = False
    loaded_keys: Mapping[str, LoadedColumn] = field(default_factory=dict)


class Cut(NamedTuple):
    """Where a publication begins and ends, where transactions wait until they are complete (I4, C-88).

    Attributes:
        position_from: the order up to which the target has the batches published before.
        position_to: the order up to which changes are published; None: all of them.
        batches: the new batches that hold such changes; others may be in the same files and are passed over.
    """

    position_from: str
    position_to: str | None
    batches: tuple[int, ...]

    def rows(self, batch_from: int) -> pc.Expression:
        """The condition on ``batch`` of what may be published; batches published before may hold what waited."""
        batch = pc.field("batch")
        return (batch <= batch_from) | batch.isin(list(self.batches))


@dataclass(frozen=True)
class TablePlan:
    """What a worker must know to plan one table, or some key buckets of it.

    Attributes:
        batch_from: the batch that the target has; changes of later batches are new.
        epochs: the ordinal of every known stream incarnation.
        columns: the columns of its files and of its logged rows.
        new_files: log files of the new batches.
        history_files: earlier log files that may have changes as new as the oldest new one; where earlier changes
            complete rows, all files of the table.
        highest: highest position up to *batch_from*; None when nothing is published.
        begins: what the table began with.
        cut: which positions are published where transactions are held back; None: all.
        horizon: the log may lack changes of this transaction and of earlier ones.
        rejected: changes that are dead letters, and so decide nothing.
        buckets: the range of key buckets that is planned.
    """

    source: str
    keys: tuple[str, ...]
    batch_from: int
    epochs: Mapping[str, int]
    columns: PlanColumns
    new_files: tuple[str, ...] = ()
    history_files: tuple[str, ...] = ()
    highest: LogPosition | None = None
    begins: Beginning = Beginning()
    cut: Cut | None = None
    horizon: TableHorizon | None = None
    rejected: frozenset[Identity] = frozenset()
    buckets: tuple[int, int] = (-1, 64)

    @property
    def incomplete_up_to(self) -> str | None:
        """The order up to which the log may lack rows of the table; None: it has all of them."""
        if self.horizon is not None:
            # A semicolon sorts behind the colon that follows the transaction: its own changes are below it.
            return f"{self.horizon.ordinal:06d}:{self.horizon.major};"
        return "" if self.begins.loaded else None


class PlannedRows(NamedTuple):
    """What a plan publishes, typed, and what became of every new change.

    *counts* add up: changes + released + renewed = published + compacted + duplicates + superseded + in_load + rejected
    + waiting (I1); *waiting* changes are released by a later plan. *rejected* are the dead letters found here, as the
    ledger records them. From the place *unverified* on, only a before image shows that keys have no row (G-115).
    """

    rows: pa.Table
    positions: tuple[str, str]
    counts: dict[str, int]
    rejected: list[dict[str, Any]]
    unverified: str | None = None


class PlanStop(Exception):
    """The table cannot be published as it is: a stable code, and what was found.

    *at* is the place from which that is so; None where no place divides what can be published from the rest.
    """

    def __init__(self, code: str, what: str, at: str | None = None) -> None:
        super().__init__(code, what)
        self.code, self.what, self.at = code, what, at
