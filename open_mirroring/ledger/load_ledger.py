"""Stores the load plan of a table: the parts (chunks) of its initial load, fixed before the first one is read.

Each published chunk is marked as done, so an initial load that was interrupted continues with the next chunk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.changes.column_notes import NoteKind
from open_mirroring.changes.log_position import BEGINS_EMPTY, above
from open_mirroring.errors import TransientError
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.columns import keep_column_lists, note_from_now
from open_mirroring.ledger.documents import EPOCHS, FOREIGN_TABLES
from open_mirroring.ledger.horizon import newest_dropped


@dataclass(frozen=True)
class LoadPlan:
    """What an initial load reads, and which of its parts (chunks) are done; the id of a chunk is its index in *chunks*.

    *settings* are those of the mirror file when the initial load began. With *together*, all chunks are published at
    once, because duplicate keys can only be found over all of them. Changes of batches after *hand_over_batch* are
    published over the loaded rows (G-08). *shortest* has, for columns whose values the source may pad, the length in
    bytes of the shortest value (G-86). *extra* are the columns of the setting `extra_columns` (G-118).
    """

    settings: str
    columns: tuple[LoadColumn, ...]
    chunks: tuple[Any, ...]
    together: bool = False
    done: frozenset[int] = frozenset()
    hand_over_batch: int = 0
    shortest: Mapping[str, int] = field(default_factory=dict)
    extra: tuple[LandingColumn, ...] = ()

    @property
    def schema(self) -> TableSchema:
        """The columns of the table at the target."""
        return TableSchema((*(column.landing for column in self.columns), *self.extra))

    @property
    def remaining(self) -> tuple[int, ...]:
        """The ids of chunks that are not published yet, in order."""
        return tuple(chunk for chunk in range(len(self.chunks)) if chunk not in self.done)

    def having(self, shortest: Mapping[str, int], done: Iterable[int] = ()) -> LoadPlan:
        """Copy the plan with the chunks *done* marked as published, and with the shortest lengths updated.

        *shortest* has, by column, the length in bytes of the shortest value that was found; of two lengths the smaller
        counts (G-86).
        """
        least = {name: min(length, self.shortest.get(name, length)) for name, length in shortest.items()}
        return replace(self, shortest={**self.shortest, **least}, done=self.done.union(done))

    def to_json(self) -> str:
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def from_json(cls, text: str) -> LoadPlan:
        return msgspec.json.decode(text, type=cls)


def chunk_text(chunks: Iterable[int]) -> str:
    """The ids of chunks that are published together, as JSON."""
    return json.dumps(list(chunks))


def chunks_of(text: str) -> tuple[int, ...]:
    """Parse JSON that :func:`chunk_text` returned."""
    return tuple(json.loads(text))


class HandOver(NamedTuple):
    """What the change log contains of a table when its initial load begins.

    *batch* is the newest committed batch. Batches up to *log_from* were dropped, or cannot be used since the last
    reset. *highest* is the table's highest position in its newest stream (one enabling of streaming or one Qlik full
    load); None before its first change. *highest_before* is the highest position in the batches up to *log_from*: of
    this table, or of all tables if this one was not mirrored for some time. *own_before* is the highest position of
    this table in these batches. If *begins_stream*, all changes of the newest stream are published over the loaded rows
    (G-128).
    """

    generation: int
    batch: int
    log_from: int
    highest: str | None
    highest_before: str | None
    begins_stream: bool = False
    own_before: str | None = None

    @property
    def above(self) -> str | None:
        """A sort key behind the newest logged transaction; None before the first reset.

        Changes above this sort key are published over the rows of the initial load. The newest logged transaction was
        committed before the initial load reads the source, so the loaded rows contain all changes of this transaction.
        """
        return None if self.generation == 1 else above(self.highest)


class LoadLedger:
    """The ledger of one mirror for initial loads."""

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine = engine
        self._mirror = mirror

    def hand_over(self, table_id: str) -> HandOver:
        """What the change log contains of a table now; to be called before the initial load reads the source (G-08).

        Raises ``CHANGED_MEANWHILE`` if a batch that was bound before the table's reset is not in the change log yet.
        """
        c, b = t.mirrored_table.c, t.batch_table.c
        with self._engine.connect() as db:
            dropped = db.scalar(sa.select(newest_dropped(self._mirror))) or 0
            committed = db.scalar(sa.select(t.mirror.c.committed).where(t.mirror.c.name == self._mirror)) or 0
            row = db.execute(sa.select(t.mirrored_table).where(c.id == table_id)).one()
            if row.log_from > committed:
                what = f"batch {row.log_from}, bound before the reset of {row.source!r}, is not in the log yet"
                next_step = "run `open-mirroring tick`: reading then finishes this batch. Then call the command again"
                raise TransientError("CHANGED_MEANWHILE", what, where=f"mirror {self._mirror}", next_step=next_step)
            epochs = [epoch for epoch, ordinal in EPOCHS.of(db, table_id).items() if ordinal == row.stream_epoch]
            in_stream = sa.select(sa.func.max(b.max_pos)).where(b.mirror == self._mirror, b.epoch.in_(epochs))
            own, lost = b.source == row.source, max(row.log_from, dropped)
            highest = db.scalar(in_stream.where(own, b.batch <= committed))
            highest_before = db.scalar(in_stream.where((b.batch <= row.log_from) | ((b.batch <= dropped) & own)))
            own_before = db.scalar(in_stream.where(own, b.batch <= lost))
        begins_stream = row.stream_from == BEGINS_EMPTY
        return HandOver(row.generation, committed, lost, highest, highest_before, begins_stream, own_before)

    def ignored_up_to(self, name: str) -> str:
        """The highest position of messages that were ignored because their table was not mirrored; empty if unknown."""
        with self._engine.connect() as db:
            found = FOREIGN_TABLES.one(db, self._mirror, name)
        return "" if found is None else found.highest

    def note_refused(self, table_id: str, why: str | None) -> None:
        """Store *why* the initial load of a table cannot begin or continue; None if it can."""
        c = t.mirrored_table.c
        with self._engine.begin() as db:
            db.execute(t.mirrored_table.update().where(c.id == table_id).values(load_refused=why))

    def finish(self, table_id: str, plan: LoadPlan) -> bool:
        """Record that all chunks of an initial load are in the change log.

        The loaded rows are published from the change log like changes. Returns False if this was recorded before.
        """
        c = t.mirrored_table.c
        done = replace(plan, done=frozenset(range(len(plan.chunks))))
        values = {"load_plan": done.to_json(), "load_state": "loaded", "published_batch": plan.hand_over_batch}
        with self._engine.begin() as db:
            return t.change_tables(db, (c.id == table_id) & (c.load_state == "pending"), **values) == 1

    def bind(self, table_id: str, plan: LoadPlan, stream_from: str | None, doubt: str = "") -> bool:
        """Store the plan of an initial load, and the position *stream_from*. False if the table has a plan already.

        Changes below *stream_from* are in the loaded rows. If *stream_from* is None, all changes are published over the
        loaded rows. After a reset, the column lists of changes that the loaded rows replace are deleted. *doubt* is the
        reason why the loaded rows may lack logged changes; empty if there is none.
        """
        c = t.mirrored_table.c
        unbound = (c.id == table_id) & (c.load_state == "pending") & c.load_plan.is_(None)
        with self._engine.begin() as db:
            if t.change_tables(db, unbound, load_plan=plan.to_json(), stream_from=stream_from) != 1:
                return False
            row = db.execute(sa.select(t.mirrored_table).where(c.id == table_id)).one()
            if row.generation > 1:
                keep_column_lists(db, row, plan.hand_over_batch)
            if doubt:
                note_from_now(db, [row], NoteKind.LOAD, [doubt], plan.hand_over_batch)
            return True
