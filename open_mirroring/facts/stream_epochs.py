"""Numbers the streams of a table, because positions alone do not show which stream is newer.

A source begins a new stream when streaming is enabled again, or when a Qlik task makes a new full load.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from open_mirroring.changes.log_position import LOAD_ORDINAL, is_load_epoch


def fold(known: Mapping[str, int], found: Collection[str]) -> tuple[dict[str, int], list[str]]:
    """Number the new streams of a batch.

    Returns the numbers by stream, and the streams that only an operator can put in order (G-01). A table's first stream
    gets 0. An initial load gets a number below all streams. Every further stream needs an operator's decision.
    """
    loads = {epoch: LOAD_ORDINAL for epoch in found if is_load_epoch(epoch) and epoch not in known}
    fresh = sorted(epoch for epoch in found if not is_load_epoch(epoch) and epoch not in known)
    if len(fresh) == 1 and all(map(is_load_epoch, known)):
        return {**loads, fresh[0]: 0}, []
    return loads, fresh
