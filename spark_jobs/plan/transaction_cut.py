"""Selects the log rows that a publication takes where transactions wait until they are whole (I4, C-88)."""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc


class Cut(NamedTuple):
    """Where a publication begins and ends, beside its batches.

    Attributes:
        position_from: the order up to which the target has the batches published before.
        position_to: the order up to which changes are published; None: all of them.
        batches: the new batches that hold such changes; others may lie in the same files and are passed over.
    """

    position_from: str
    position_to: str | None
    batches: tuple[int, ...]


class CutChanges(NamedTuple):
    """The changes to publish, with how many *released* ones had arrived before, and how many new ones wait."""

    changes: pa.Table
    released: int
    waiting: int


def rows_of(cut: Cut, batch_from: int) -> pc.Expression:
    """The condition on ``batch`` of what may be taken: of batches published before, too."""
    batch = pc.field("batch")
    return (batch <= batch_from) | batch.isin(list(cut.batches))


def take(cut: Cut, batch_from: int, changes: pa.Table) -> CutChanges:
    """Divide the changes of a table, given with their ``order``."""
    order = changes["order"]
    is_new = pc.greater(changes["batch"], batch_from)
    waits = pa.chunked_array([pa.repeat(False, changes.num_rows)])
    if cut.position_to is not None:
        waits = pc.greater(order, cut.position_to)
    published = pc.and_not(pc.less_equal(order, cut.position_from), is_new)
    taken = changes.filter(pc.invert(pc.or_(waits, published)))
    arrived = pc.sum(pc.greater(taken["batch"], batch_from)).as_py() or 0
    return CutChanges(taken, taken.num_rows - arrived, pc.sum(pc.and_(is_new, waits)).as_py() or 0)


def published(cut: Cut, changes: pa.Table) -> pa.Table:
    """Those changes of published batches that the target has."""
    return changes.filter(pc.less_equal(changes["order"], cut.position_from))
