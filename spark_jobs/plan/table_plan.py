"""The input and the result of planning one table in a worker."""

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
"""Epoch, position and key of a change."""


@dataclass(frozen=True)
class PlanColumns:
    """The columns of the table's files (*landing*), all source types, and how columns of logged rows are read.

    *former* columns were renamed or dropped; *gone* maps each dropped column to the position of the last row that has
    it; *unread* columns are, or were, left out by the mirror file. *completing* is whether partial updates are
    completed from earlier changes (G-04), *of_reading* whether logged rows have the columns that the table had when the
    rows were read. *null_text* is the string that stands for NULL in delimited text files. Only rows that fulfil the
    condition *where* are published (G-193).
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
        """Whether the table's files have the commit time or transaction of each change (G-118)."""
        return any(column.content in OF_TRANSACTIONS for column in self.landing)

    @property
    def keeping(self) -> bool:
        """Whether the target table keeps deleted rows, with their last values from earlier changes (G-192)."""
        return any(column.content == DELETED_AT for column in self.landing)

    def required_at(self, order: str) -> set[str]:
        """The columns that a row at position *order* must have; a dropped column only up to its last row."""
        return {column for column in self.types if column not in self.gone or order <= self.gone[column]}


@dataclass(frozen=True)
class Beginning:
    """What the table's present generation (its life since the last reset) began with; older changes do not count.

    Changes of epoch number *stream_epoch* below the position *stream_from* are in the initial load. *newest_load* is
    the newest Qlik full load in the change log (G-125). *loaded* is whether the generation began with an initial load
    that is not in the change log; the key columns of that initial load are *loaded_keys*.
    """

    generation: int = 1
    stream_from: str | None = None
    stream_epoch: int = 0
    newest_load: NewestLoad | None = None
    loaded: bool = False
    loaded_keys: Mapping[str, LoadedColumn] = field(default_factory=dict)


class Cut(NamedTuple):
    """The positions between which a run publishes changes, if changes wait for complete transactions (I4, C-88).

    Changes of earlier batches are already published up to *position_from*; this run publishes changes up to
    *position_to* (None: all). *batches* are the new batches with such changes; their files may contain other batches.
    """

    position_from: str
    position_to: str | None
    batches: tuple[int, ...]

    def rows(self, batch_from: int) -> pc.Expression:
        """A filter on ``batch`` for the rows that this run may publish.

        The filter includes batches that were published before, because they may contain changes that waited for the end
        of their transactions.
        """
        batch = pc.field("batch")
        return (batch <= batch_from) | batch.isin(list(self.batches))


@dataclass(frozen=True)
class TablePlan:
    """What a worker needs to plan one table, or some of its key *buckets*.

    Changes of batches above *batch_from* are new, and in *new_files*. *history_files* contain the earlier changes that
    may be as new as the oldest new change, or all earlier changes if rows are completed. *highest* is the highest
    position up to *batch_from*. Below *horizon* the change log may lack changes. *rejected* are changes whose values do
    not fit their types; these changes are ignored. *lacks_rows* is whether the change log may lack the last values of a
    row (G-192). *keys_of_rows* are the key columns of the table whose history this is; None if the table is no history
    (G-194).
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
        """Whether the table is a history of versions, each with the time of its end (G-195)."""
        return self.keys_of_rows is not None and bool(self.keys)

    @property
    def incomplete_up_to(self) -> str | None:
        """The position up to which the change log may lack rows of the table; None if the change log has all rows."""
        if self.horizon is not None:
            # A semicolon sorts behind the colon that follows the transaction: its own changes are below it.
            return f"{self.horizon.ordinal:06d}:{self.horizon.major};"
        return "" if self.begins.loaded else None


class PlannedRows(NamedTuple):
    """The rows to publish, and the number of new changes by outcome.

    *counts* add up: changes + released + renewed = published + compacted + duplicates + superseded + in_load + rejected
    + waiting + filtered (I1). *positions* are the lowest and highest published position. *rejected* are the dead
    letters that planning found. From position *unverified* on, only a before image proves that a delete removed the
    right row (G-115).
    """

    rows: pa.Table
    positions: tuple[str, str]
    counts: dict[str, int]
    rejected: list[dict[str, Any]]
    unverified: str | None = None


class PlanStop(Exception):
    """Raised when a table must stop instead of being published, with a code and message.

    *at* is the position from which on changes cannot be published; None if none of the table's changes can.
    """

    def __init__(self, code: str, what: str, at: str | None = None) -> None:
        super().__init__(code, what)
        self.code, self.what, self.at = code, what, at
