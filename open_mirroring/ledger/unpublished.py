"""What the log holds of a table that its target does not have: from which set of changes to which it goes next.

The target has the changes of the batches up to one and, where transactions are held back, the positions up to one. The
next set holds it and ends at the newest batch and the complete position
(:mod:`open_mirroring.changes.complete_position`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from open_mirroring.changes.horizon import BatchContents
from open_mirroring.changes.log_position import not_below, position_order
from open_mirroring.ledger.reading import LedgerReader, TableState
from open_mirroring.protocols.publishing import Work

NOTHING = ""
"""Below every position."""
LOADED = position_order(0, "")
"""Below every change, and above the rows of a load: these are complete whatever the partitions have shown."""


class Unpublished(NamedTuple):
    """What lies between two sets, told from the ledger before any file is opened.

    Attributes:
        arrived: contents of new batches that hold something to publish.
        released: contents of published batches that waited for the end of their transactions and are whole now.
        waiting: contents of new batches of which everything waits.
    """

    arrived: Sequence[BatchContents]
    released: Sequence[BatchContents] = ()
    waiting: Sequence[BatchContents] = ()


def next_changes(
    reader: LedgerReader, tables: Mapping[str, TableState], committed: int, *, whole_transactions: bool
) -> dict[str, Work]:
    """The next work of every table that has some, by source; a few queries for all tables together."""
    contents = reader.contents({source: state.row.published_batch for source, state in tables.items()}, committed)
    cut = [s for s in tables.values() if whole_transactions or s.row.published_position is not None]
    epochs = reader.epochs(state.id for state in cut) if cut else {}
    complete = reader.completeness(committed) if whole_transactions else None
    found = {source: Work("changes", committed) for source in contents}
    for state in cut:
        found.pop(state.source, None)
        ordinals = epochs.get(state.id, {})
        start = published_position(reader, state, ordinals)
        end = (complete.position(ordinals) if complete else None) or LOADED if whole_transactions else None
        if end is not None and end < start:
            continue  # the target was ahead before transactions were held back: it waits until they catch up
        work = Work("changes", committed, position_from=start, position_to=end)
        there = unpublished(reader, state, work, contents.get(state.source, ()), ordinals)
        if there.arrived or there.released:
            found[state.source] = work
    return found


def published_position(reader: LedgerReader, state: TableState, ordinals: Mapping[str, int]) -> str:
    """The position up to which the target has its batches: where none was kept, the highest that is in them."""
    if state.row.published_position is not None:
        return state.row.published_position
    highest = reader.highest(state.source, state.row.published_batch) if state.row.published_batch else {}
    return max((position_order(ordinals[e], text) for e, text in highest.items() if e in ordinals), default=NOTHING)


def unpublished(
    reader: LedgerReader,
    state: TableState,
    work: Work,
    contents: Sequence[BatchContents],
    ordinals: Mapping[str, int],
) -> Unpublished:
    """What *work* publishes of a table, *contents* being what its batches above the published one hold."""
    start, end = work.position_from, work.position_to

    def begins_within(part: BatchContents) -> bool:
        # A stream without a place in the order is for the plan to refuse.
        ordinal = ordinals.get(part.epoch)
        return end is None or ordinal is None or position_order(ordinal, part.lowest) <= end

    # Contents of one batch may share their files: it is opened as a whole or not at all.
    opened = {part.batch for part in contents if begins_within(part)}
    released: list[BatchContents] = []
    if start and (end is None or end > start):
        for part in reader.history(state.source, state.row.published_batch, not_below(start, ordinals)):
            if position_order(ordinals[part.epoch], part.highest) > start and begins_within(part):
                released.append(part)
    return Unpublished(
        [part for part in contents if part.batch in opened],
        released,
        [part for part in contents if part.batch not in opened],
    )
