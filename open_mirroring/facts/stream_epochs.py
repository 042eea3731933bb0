"""Stream incarnations of a table: their order, which positions alone do not show."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from open_mirroring.changes.log_position import LOAD_ORDINAL, is_load_epoch


def fold(known: Mapping[str, int], found: Collection[str]) -> tuple[dict[str, int], list[str]]:
    """The ordinals of a batch's new incarnations, and those for which only an operator can give one (G-01)."""
    loads = {epoch: LOAD_ORDINAL for epoch in found if is_load_epoch(epoch) and epoch not in known}
    fresh = sorted(epoch for epoch in found if not is_load_epoch(epoch) and epoch not in known)
    if len(fresh) == 1 and all(map(is_load_epoch, known)):
        return {**loads, fresh[0]: 0}, []
    return loads, fresh
