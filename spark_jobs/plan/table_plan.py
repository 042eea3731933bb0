"""The plan of a table: what a worker must know to decide which changes are published next, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from open_mirroring.changes.column_choice import DELETED_AT, OF_TRANSACTIONS
from open_mirroring.changes.column_history import FormerColumn
from open_mirroring.changes.horizon import TableHorizon
from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.config.row_filter import Condition
from open_mirroring.landing_zone.schema import LandingColumn
from spark_jobs.plan.loaded_columns import LoadedColumn

Identity = tuple[str, str, str | None]
"""Epoch, position text and key of a change."""


@dataclass(frozen=True)
class PlanColumns:
    """The columns of the table's files (*landing*), every source type, and how columns of logged rows are read.

    *former* columns have another name today, or are no longer there; *gone* ones were dropped, by the place of the last
    row that carries them; *unread* ones are, or were, left out by the mirror file. *completing*: earlier changes
    complete updates (G-04). *of_reading*: rows have the columns of the time when they were read. *null_text* is that of
    text files. Rows fulfil *where* (G-193).
    """

    landing: tuple[LandingColumn, ...]
    types: Mapping[str, str]
    former: tuple[FormerColumn, ...] = ()
    gone: Mapping[str, str] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    completing: bool = False
    of_reading: bool = False
    null_text: str | None = None
    where: Condition | None = None

    @property
    def with_transaction(self) -> bool:
        """Whether the files have each change's commit time or transaction (G-118)."""
        return any(column.tells in OF_TRANSACTIONS for column in self.landing)

    @property
    def keeping(self) -> bool:
        """Whether deleted rows stay with their last values, which are in earlier changes (G-192)."""
        return any(column.tells == DELETED_AT for column in self.landing)

    def required_at(self, order: str) -> set[str]:
        """The columns that a row at a place needs: dropped ones only up to their last row."""
        return {column for column in self.types if column not in self.gone or order <= self.gone[column]}


@dataclass(frozen=True)
class Beginning:
    """What the table's present generation began with; older changes do not count.

    Positions of *stream_epoch* below *stream_from* are in the initial load. *newest_load* is the source's own full load
    in the log (G-125). *loaded*: it began with a load that is not in the log, of which *loaded_keys* are the key
    columns.
    """

    generation: int = 1
    stream_from: str | None = None
    stream_epoch: int = 0
    newest_load: NewestLoad | None = None
    loaded: bool = False
    loaded_keys: Mapping[str, LoadedColumn] = field(default_factory=dict)


class Cut(NamedTuple):
    """Where a publication begins and ends, where transactions wait until they are complete (I4, C-88).

    The target has the batches published before up to the order *position_from*; changes up to *position_to* are
    published (None: all). *batches* are the new ones that hold such changes; others may be in the same files.
    """

    position_from: str
    position_to: str | None
    batches: tuple[int, ...]

    def rows(self, batch_from: int) -> pc.Expression:
        """A filter on ``batch`` for the rows that may be published now.

        It includes batches that were published before: they may contain changes of transactions that still waited then.
        """
        batch = pc.field("batch")
        return (batch <= batch_from) | batch.isin(list(self.batches))


@dataclass(frozen=True)
class TablePlan:
    """What a worker must know to plan one table, or some key *buckets* of it.

    Changes of batches above *batch_from* are new, in *new_files*. *history_files* are earlier ones that may have
    changes as new as the oldest new one, or all where earlier changes complete rows. *highest* is the highest position
    up to *batch_from*. Below *horizon* the log may lack changes. *rejected* are dead letters, which decide nothing.
    *lacks_rows*: the last values of a row may be nowhere in the log (G-192). *keys_of_rows* has the key by which the
    changes of a history are logged; None: the table is no history (G-194).
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
    lacks_rows: bool = False
    keys_of_rows: tuple[str, ...] | None = None
    buckets: tuple[int, int] = (-1, 64)

    @property
    def has_versions(self) -> bool:
        """Whether it is a history of versions, each with its own end (G-195)."""
        return self.keys_of_rows is not None and bool(self.keys)

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
    + waiting + filtered (I1). *rejected* are the dead letters found here. From the place *unverified* on, only a before
    image shows that keys have no row (G-115).
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
