"""The load plan of a table: which parts its initial load has, bound once, before the first of them is read.

The plan lives in the table's ledger row; the confirmation of an intent moves its chunks to ``done``
(:mod:`~open_mirroring.ledger.publish_ledger`), so that a load resumes where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.ledger import tables as t


class LoadColumn(NamedTuple):
    """A column of the load: its landing type, and its SQL type where one is known."""

    name: str
    type: str
    sql_type: str | None = None


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
    """

    settings: str
    columns: tuple[LoadColumn, ...]
    chunks: tuple[Any, ...]
    together: bool = False
    done: frozenset[int] = frozenset()
    hand_over_batch: int = 0

    @property
    def schema(self) -> TableSchema:
        """The landing columns."""
        return TableSchema(tuple(LandingColumn(column.name, column.type) for column in self.columns))

    @property
    def remaining(self) -> tuple[int, ...]:
        """Ids of the chunks that are not published yet, in order."""
        return tuple(chunk for chunk in range(len(self.chunks)) if chunk not in self.done)

    def to_json(self) -> str:
        """The ledger's document."""
        return json.dumps(
            {
                "settings": self.settings,
                "columns": self.columns,
                "reads": self.chunks,
                "together": self.together,
                "chunks": list(range(len(self.chunks))),
                "done": sorted(self.done),
                "hand_over_batch": self.hand_over_batch,
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> LoadPlan:
        """The plan that :meth:`to_json` wrote, as the ledger's reader returns it."""
        return cls(
            settings=document["settings"],
            columns=tuple(LoadColumn(*column) for column in document["columns"]),
            chunks=tuple(document["reads"]),
            together=document["together"],
            done=frozenset(document["done"]),
            hand_over_batch=document["hand_over_batch"],
        )


def chunk_text(chunks: Iterable[int]) -> str:
    """The chunks of one intent as its work names them."""
    return json.dumps(list(chunks))


def chunks_of(text: str) -> tuple[int, ...]:
    """The chunk ids that :func:`chunk_text` wrote."""
    return tuple(json.loads(text))


class LoadLedger:
    """The ledger as the initial load of a mirror's tables sees it."""

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine = engine
        self._mirror = mirror

    def committed(self) -> int:
        """The newest batch in the log: what a hand-over read now may name. 0 before the first extraction."""
        with self._engine.connect() as db:
            return db.scalar(sa.select(t.mirror.c.committed).where(t.mirror.c.name == self._mirror)) or 0

    def finish(self, table_id: str, plan: LoadPlan) -> bool:
        """All chunks of a load are in the change log: its changes may be published; False when that was so before."""
        c = t.mirrored_table.c
        done = replace(plan, done=frozenset(range(len(plan.chunks))))
        statement = (
            t.mirrored_table.update()
            .where(c.id == table_id, c.load_state == "pending")
            .values(version=c.version + 1, load_plan=done.to_json(), load_state="loaded")
        )
        with self._engine.begin() as db:
            return db.execute(statement).rowcount == 1

    def bind(self, table_id: str, plan: LoadPlan, stream_from: str | None) -> bool:
        """Bind a plan and the stream position that continues it; False when the table has a plan already.

        Args:
            table_id: the table.
            plan: what to read; its hand-over was read before anything of the source was.
            stream_from: changes below this ``major`` of a log position are in the load; None: all are published.
        """
        c = t.mirrored_table.c
        statement = (
            t.mirrored_table.update()
            .where(c.id == table_id, c.load_state == "pending", c.load_plan.is_(None))
            .values(version=c.version + 1, load_plan=plan.to_json(), stream_from=stream_from)
        )
        with self._engine.begin() as db:
            return db.execute(statement).rowcount == 1
