"""The versions of a row: which change began each version, and which one ended it (G-195).

The plan rule gives the state of a key after each of its changes, computed from all changes up to there. A version lasts
as long as that state stays the same. So a version that no change ended is the current row of the table.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import Logged, RowUnknown, standing
from open_mirroring.changes.plan_rule import distinct, is_new


class Version(NamedTuple):
    """A row from the change that *began* it until the change that *ended* it.

    *ended* is None for the current row.
    """

    began: Logged
    ended: Logged | None = None


class VersionsPlan(NamedTuple):
    """The versions of one key to publish, and the outcomes of its new changes.

    *conflict*, *duplicates* and *compacted* are those of :class:`~open_mirroring.changes.plan_rule.KeyPlan`. *renewed*
    is the number of published versions that an old change began.
    """

    publish: Sequence[Version] = ()
    conflict: tuple[Logged, Logged] | None = None
    duplicates: int = 0
    compacted: int = 0
    renewed: int = 0


def plan_versions(
    changes: Sequence[Logged],
    published_batch: int,
    untypable: Collection[LogPosition] = frozenset(),
    published_position: str | None = None,
) -> VersionsPlan:
    """Decide which versions of a key are published: those that the target lacks, or has with a different ending change.

    The parameters and the error :class:`RowUnknown` are explained at
    :func:`~open_mirroring.changes.plan_rule.plan_key`. A change that only ends a version counts as compacted.
    """
    unique, repetitions, conflict = distinct(changes)
    if conflict:
        return VersionsPlan(conflict=conflict)
    new = {one.position for one in unique if is_new(one, published_batch, published_position)}
    try:
        held = versions([one for one in unique if one.position not in new], untypable)
    except RowUnknown:
        held = []
    ends = {one.began.position: _end(one) for one in held}
    found = versions(unique, untypable)
    publish = [one for one in found if ends.get(one.began.position, "") != _end(one)]
    renewed = sum(one.began.position not in new for one in publish)
    fresh = len(new.difference(untypable))
    duplicates = sum(is_new(one, published_batch, published_position) for one in repetitions)
    return VersionsPlan(publish, None, duplicates, fresh - (len(publish) - renewed), renewed)


def versions(changes: Sequence[Logged], untypable: Collection[LogPosition]) -> list[Version]:
    """Return the versions of a key, the oldest first; *changes* are newest first, one per position."""
    found: list[Version] = []
    state: Logged | None = None
    for at in range(len(changes) - 1, -1, -1):
        change = changes[at]
        sets_row = change.after is not None and change.position not in untypable
        now = change if sets_row else standing(changes[at:], untypable)
        if now is state:
            continue
        if state is not None and state.after is not None:
            found[-1] = found[-1]._replace(ended=change)
        if now is not None and now.after is not None:
            found.append(Version(now))
        state = now
    return found


def _end(version: Version) -> LogPosition | None:
    return None if version.ended is None else version.ended.position
