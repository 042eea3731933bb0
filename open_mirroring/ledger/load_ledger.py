"""The load plan of a table: the parts of its initial load, bound before the first of them is read.

Confirming an intent moves its chunks to ``done``, so a load resumes where it stopped.
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
    """What a load reads, and how far it is; the id of a chunk is its place in *chunks*.

    *settings* is what the mirror file said when it began. Chunks *together* share one intent: their keys are proved
    unique only over all. Changes of batches after *hand_over_batch* are published over the load (G-08). *shortest* has
    the bytes of the shortest value of columns that the source may fill up (G-86); *extra* are of no source (G-118).
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
        """The landing columns."""
        return TableSchema((*(column.landing for column in self.columns), *self.extra))

    @property
    def remaining(self) -> tuple[int, ...]:
        """Ids of the chunks that are not published yet, in order."""
        return tuple(chunk for chunk in range(len(self.chunks)) if chunk not in self.done)

    @property
    def is_done(self) -> bool:
        """Whether every chunk is published."""
        return len(self.done) == len(self.chunks)

    def having(self, shortest: Mapping[str, int], done: Iterable[int] = ()) -> LoadPlan:
        """The plan with the shortest values of some more chunks (G-86), and those of them that are *done*."""
        least = {name: min(length, self.shortest.get(name, length)) for name, length in shortest.items()}
        return replace(self, shortest={**self.shortest, **least}, done=self.done.union(done))

    def to_json(self) -> str:
        """The ledger's document."""
        return msgspec.json.encode(self, order="deterministic").decode()

    @classmethod
    def from_json(cls, text: str) -> LoadPlan:
        """The plan that :meth:`to_json` wrote."""
        return msgspec.json.decode(text, type=cls)


def chunk_text(chunks: Iterable[int]) -> str:
    """The chunks of one intent as its work names them."""
    return json.dumps(list(chunks))


def chunks_of(text: str) -> tuple[int, ...]:
    """The chunk ids that :func:`chunk_text` wrote."""
    return tuple(json.loads(text))


class HandOver(NamedTuple):
    """What the log has of a table when its load begins.

    *batch* is the newest committed one; *log_from* that up to which the log cannot be used for this generation, or was
    dropped. *highest* is the table's highest position in the newest stream, None before its first change;
    *highest_before* that up to *log_from*, of any table where the table was not mirrored for a time, and *own_before*
    the same of the table alone. *begins_stream*: all of the newest stream comes over the load (G-128).
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
        """A text above the newest transaction that was logged, to which changes compare; None in a first generation.

        It was committed before the source is read again: all its changes are in the load.
        """
        return None if self.generation == 1 else above(self.highest)


class LoadLedger:
    """The ledger as the initial load of a mirror's tables sees it."""

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine = engine
        self._mirror = mirror

    def hand_over(self, table_id: str) -> HandOver:
        """What the log has of a table now: to be read before the source is (G-08; ``CHANGED_MEANWHILE``)."""
        c, b = t.mirrored_table.c, t.batch_table.c
        with self._engine.connect() as db:
            dropped = db.scalar(sa.select(newest_dropped(self._mirror))) or 0
            committed = db.scalar(sa.select(t.mirror.c.committed).where(t.mirror.c.name == self._mirror)) or 0
            row = db.execute(sa.select(t.mirrored_table).where(c.id == table_id)).one()
            if row.log_from > committed:
                what = f"batch {row.log_from}, bound before the reset of {row.source!r}, is not in the log yet"
                way_out = "let the reading finish it (`open-mirroring tick`), then go on"
                raise TransientError("CHANGED_MEANWHILE", what, where=f"mirror {self._mirror}", way_out=way_out)
            epochs = [epoch for epoch, ordinal in EPOCHS.of(db, table_id).items() if ordinal == row.stream_epoch]
            in_stream = sa.select(sa.func.max(b.max_pos)).where(b.mirror == self._mirror, b.epoch.in_(epochs))
            own, lost = b.source == row.source, max(row.log_from, dropped)
            highest = db.scalar(in_stream.where(own, b.batch <= committed))
            highest_before = db.scalar(in_stream.where((b.batch <= row.log_from) | ((b.batch <= dropped) & own)))
            own_before = db.scalar(in_stream.where(own, b.batch <= lost))
        begins_stream = row.stream_from == BEGINS_EMPTY
        return HandOver(row.generation, committed, lost, highest, highest_before, begins_stream, own_before)

    def ignored_up_to(self, name: str) -> str:
        """The highest position of messages that were ignored of a table by its name at the source; empty: unknown."""
        with self._engine.connect() as db:
            found = FOREIGN_TABLES.one(db, self._mirror, name)
        return "" if found is None else found.highest

    def note_refused(self, table_id: str, why: str | None) -> None:
        """Note why the load of a table cannot begin, or go on; None once it can."""
        c = t.mirrored_table.c
        with self._engine.begin() as db:
            db.execute(t.mirrored_table.update().where(c.id == table_id).values(load_refused=why))

    def finish(self, table_id: str, plan: LoadPlan) -> bool:
        """All chunks of a load are in the change log: its changes may be published; False when that was so before."""
        c = t.mirrored_table.c
        done = replace(plan, done=frozenset(range(len(plan.chunks))))
        values = {"load_plan": done.to_json(), "load_state": "loaded", "published_batch": plan.hand_over_batch}
        with self._engine.begin() as db:
            return t.change_tables(db, (c.id == table_id) & (c.load_state == "pending"), **values) == 1

    def bind(self, table_id: str, plan: LoadPlan, stream_from: str | None, doubt: str = "") -> bool:
        """Bind a plan and the stream position that continues it; False when the table has a plan already.

        Column lists that only changes below the hand-over carry are forgotten. Changes below *stream_from* are in the
        load; None: all are published. *doubt* is why the load may lack logged changes; empty: it does not.
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
