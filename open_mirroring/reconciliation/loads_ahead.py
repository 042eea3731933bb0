"""Holds tables whose initial load claims to reach beyond everything that was read of the stream (G-84).

Changes below the load's `stream_from` are left out, because the load holds them. If somebody typed that position too
high, every change would be left out without notice. So none is left out before the stream has reached the position.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from open_mirroring.changes.log_position import is_load_epoch
from open_mirroring.ledger.reading import LedgerReader, TableState

_COMMIT = re.compile("[0-9A-F]{20}")
"""A commit as an export names it; what a database's load begins behind was logged, and so is reached."""


def loads_ahead(reader: LedgerReader, tables: Iterable[TableState]) -> dict[str, str]:
    """What is wrong with the loads over which nothing was published yet, by source table, in words.

    A load is ahead if changes of its table wait that it claims to hold, and neither they nor any other table's changes
    of the same stream reach the position from which it says that the stream goes on.
    """
    fresh = {state.source: state for state in tables if _may_be_ahead(state)}
    logged = reader.contents({s: state.row.published_batch for s, state in fresh.items()}, reader.mirror().committed)
    known = reader.epochs([fresh[source].id for source in logged])
    found: dict[str, str] = {}
    for source, parts in logged.items():
        state = fresh[source]
        begin, ordinals = state.stream_from or "", known.get(state.id, {})
        stream = [part for part in parts if not is_load_epoch(part.epoch)]
        same = {part.epoch for part in stream if ordinals.get(part.epoch) == state.stream_epoch}
        rows = sum(part.rows for part in stream if part.highest < begin)
        if not rows or any(part.highest >= begin or part.epoch not in same for part in stream):
            continue
        if (reached := reader.highest_in(same)) < begin:
            said = f"the load holds all changes below {begin}, it says, and the stream has only reached"
            found[source] = f"{said} {reached.partition(':')[0]}: {rows} changes would be left out"
    return found


def _may_be_ahead(state: TableState) -> bool:
    if state.load_state != "loaded" or state.load_plan is None or not _COMMIT.fullmatch(state.stream_from or ""):
        return False
    return bool(state.row.published_batch == state.load_plan["hand_over_batch"])
