"""The load plan of a table: the parts of its initial load, bound before the first of them is read.

The plan is in the table's ledger row. Confirming an intent moves its chunks to ``done``
(:mod:`~open_mirroring.ledger.publish_ledger`), so a load resumes where it stopped.
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
    """What a load reads, and how far it is.

    Attributes:
        settings: what the mirror file said when the load began, as one text to compare.
        columns: the columns of every file of the load.
        chunks: how each chunk is read, as JSON values that only the reading side understands; a chunk's id is its
            place in this list.
        together: the chunks must share one intent, because keys are proven unique only over all of them.
        done: ids of the chunks that are published.
        hand_over_batch: changes of later log batches are published over the load (G-08).
        shortest: the bytes of the shortest loaded value of columns that the source may fill up (G-86).
        extra: the extra columns of its files, which no source has (G-118).
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
        return _plan_of(text)


_plan_of = msgspec.json.Decoder(LoadPlan).decode


def chunk_text(chunks: Iterable[int]) -> str:
    """The chunks of one intent as its work names them."""
    return json.dumps(list(chunks))


def chunks_of(text: str) -> tuple[int, ...]:
    """The chunk ids that :func:`chunk_text` wrote."""
    return tuple(json.loads(text))


class HandOver(NamedTuple):
    """What the log has of a table when its load begins.

    Attributes:
        generation: the table's life.
        batch: the newest committed batch; whatever is read from the source later contains all its changes.
        log_from: the batch up to which the log cannot be used for this generation's rows, or was dropped; mostly 0.
        highest: the table's highest position in the newest stream incarnation; None before its first change.
        highest_before: the highest position in that stream up to batch *log_from*: of any table, because one that was
            not mirrored for a time lacks its own; of the table alone in batches that were only dropped since.
        begins_stream: the load is the one with which the newest stream began: all of that comes over it (G-128).
        own_before: as *highest_before*, of the table alone.
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
        """What changes compare to: a text above the newest transaction that was logged; None in a first generation.

        What is logged was committed at the source before it is read again, and so was every transaction up to it, as a
        whole: a change of one of them is in the load, however late it arrives.
        """
        return None if self.generation == 1 else above(self.highest)


class LoadLedger:
    """The ledger as the initial load of a mirror's tables sees it."""

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine = engine
        self._mirror = mirror

    def hand_over(self, table_id: str) -> HandOver:
        """What the log has of a table now: to be read before anything of the source is (G-08).

        Raises:
            TransientError: ``CHANGED_MEANWHILE`` when a batch that was bound before the table's reset is not in the log
                yet: what it holds of the table is not known.
        """
        c, b = t.mirrored_table.c, t.batch_table.c
        with self._engine.connect() as db:
            dropped = db.scalar(sa.select(newest_dropped(self._mirror))) or 0
            committed = db.scalar(sa.select(t.mirror.c.committed).where(t.mirror.c.name == self._mirror)) or 0
            row = db.execute(sa.select(t.mirrored_table).where(c.id == table_id)).one()
            if row.log_from > committed:
                raise TransientError(
                    "CHANGED_MEANWHILE",
                    f"batch {row.log_from}, bound before the reset of {row.source!r}, is not in the log yet",
                    where=f"mirror {self._mirror}",
                    way_out="let the reading finish it (`open-mirroring tick`), then go on",
                )
            epochs = [epoch for epoch, ordinal in EPOCHS.of(db, table_id).items() if ordinal == row.stream_epoch]
            in_stream = sa.select(sa.func.max(b.max_pos)).where(b.mirror == self._mirror, b.epoch.in_(epochs))
            own, lost = b.source == row.source, max(row.log_from, dropped)
            highest = db.scalar(in_stream.where(own, b.batch <= committed))
            highest_before = db.scalar(in_stream.where((b.batch <= row.log_from) | ((b.batch <= dropped) & own)))
            own_before = db.scalar(in_stream.where(own, b.batch <= lost))
        return HandOver(
            row.generation,
            committed,
            lost,
            highest,
            highest_before,
            row.stream_from == BEGINS_EMPTY,
            own_before,
        )

    def ignored_up_to(self, name: str) -> str:
        """The highest position of messages that were read and ignored of a table by its name at the source.

        Empty where there are none, or their format does not tell it.
        """
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

        Column lists that only changes below the hand-over carry are forgotten: they say nothing of the rows to come.

        Args:
            table_id: the table.
            plan: what to read; its hand-over was read before anything of the source was.
            stream_from: changes below this text are in the load (:attr:`HandOver.above`, or the ``major`` of a log
                position); None: all are published.
            doubt: why the load may lack logged changes that are not published over it, and what to do; empty: it does
                not.
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
