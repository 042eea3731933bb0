"""The plan rule: which change of a key is published next.

For each key, take its newest change over **all** logged batches. Publish this change unless the target has it already,
that is, unless it was already the newest among the batches up to *published_batch*. This one rule handles duplicates,
late changes, replays and repeated reads. This module defines the rule. A vectorised query may replace the module only
for keys where a Boolean proves that both give the same result.

Why the rule is right: let f(S) be the change that decides a key among the changes S. The target holds f of the batches
up to *published_batch*. If f of all batches is a different change, that change is published, and then the target holds
f of all batches. In most cases the published change arrived after *published_batch*. An earlier change can become the
deciding one only by the rule of key changes (:func:`~open_mirroring.changes.logged_change.newest_effective`): a late
change of the same transaction shows that the late change's row was the one that the key change removed.

*Publishing complete transactions.* If a mirror publishes complete transactions only, sets of changes also end at a
position: the target holds f of the batches up to *published_batch* and the positions up to *published_position*. The
argument above needs only that the new set contains the old set. The new set does, because neither batch nor position
ever falls; read "in the new set, not in the old" for "arrived after". A set that ends at a complete position holds each
transaction completely or not at all, so the target never shows a part of a transaction (I4).

*Completing rows from earlier changes* (G-04). With completion, a *row* decides the key, instead of a change: the row of
the newest change, completed by earlier changes back to one with the complete row. The row is published if it differs
from the one that the target has: a late change may complete the row without being the newest. A row that changed its
key is completed from the changes of its old key, so a late change of the old key may change the row at the new key.

*Keeping deleted rows* (G-192). If deleted rows stay at the target, a delete gets the last row of its key. So a row
decides the key, as with completion.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from open_mirroring.changes.completion import deciding
from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import (
    Logged,
    RowUnknown,
    rests_on_image,
    same_content,
)


class KeyPlan(NamedTuple):
    """What to do with one key.

    *publish* is the change to publish, or None; its row is complete. *incomplete* is the key's newest change, if some
    columns of its row are in no logged change. *conflict* has two changes at one position with different content: the
    table has to stop (G-02).

    *duplicates* is the number of new changes that repeat a change logged before. *superseded* is the number of new
    changes that are older than what the target has. *compacted* is the number of new changes that are older than
    another change that is published now. *renewed* is 1 if an old change is published although the key has no new
    change: a change of the row's former key altered the row.

    *unverified* is True if only a before image shows that no row is left at the key (:func:`rests_on_image`).
    """

    publish: Logged | None
    incomplete: Logged | None = None
    conflict: tuple[Logged, Logged] | None = None
    duplicates: int = 0
    superseded: int = 0
    compacted: int = 0
    renewed: int = 0
    unverified: bool = False


def plan_key(
    changes: Sequence[Logged],
    published_batch: int,
    untypable: Collection[LogPosition] = frozenset(),
    published_position: str | None = None,
    *,
    keeps: bool = False,
) -> KeyPlan:
    """Decide one key from all its logged changes; order and repetition of *changes* do not matter.

    *changes* include dead letters. The target has the changes of the batches up to *published_batch*, but only those up
    to *published_position* (:attr:`LogPosition.order`) if this is not None. All other changes are new. Of several
    changes at one position, the one in the earliest batch counts.

    Every new change is counted once, unless the plan has a conflict or an incomplete row. So the number of new changes
    plus *renewed* is the sum of: 1 if a change is published, *duplicates*, *superseded*, *compacted*, and the number of
    new changes among *untypable*.

    *untypable* are the positions of dead letters whose values do not fit their types. These changes decide nothing, so
    the key keeps its previous state, however the changes are divided into batches (G-09). But a key change may have
    removed the row of such a change (G-03), and a repetition with different content is still a conflict (G-02). *keeps*
    is True if deleted rows stay at the target with their last values (G-192).

    Raises :class:`RowUnknown` if the change log does not show which of two rows left the key last.
    """

    def is_fresh(change: Logged) -> bool:
        return is_new(change, published_batch, published_position)

    unique, repetitions, conflict = distinct(changes)
    if conflict:
        return KeyPlan(None, conflict=conflict)
    duplicates = sum(map(is_fresh, repetitions))
    fresh = sum(is_fresh(change) and change.position not in untypable for change in unique)
    newest = deciding(unique, untypable, lambda _: True, keeps=keeps)
    try:
        held = [c for c in unique if not is_fresh(c)]
        had = deciding(held, untypable, lambda change: not is_fresh(change), keeps=keeps)
    except RowUnknown:
        had = None
    if newest is None or (had is not None and newest == had):
        return KeyPlan(None, duplicates=duplicates, superseded=fresh)
    if not newest.is_complete:
        return KeyPlan(None, incomplete=newest)
    unverified = rests_on_image(unique)
    return KeyPlan(newest, None, None, duplicates, 0, max(0, fresh - 1), int(not fresh), unverified)


def is_new(change: Logged, published_batch: int, published_position: str | None) -> bool:
    """Whether the target lacks a change: the change is in a later batch, or above the published position."""
    above = published_position is not None and change.position.order > published_position
    return above or change.batch > published_batch


class Distinct(NamedTuple):
    """The changes of a key newest first, one for each position; repetitions; and two contradicting changes, if any."""

    unique: list[Logged]
    repetitions: list[Logged]
    conflict: tuple[Logged, Logged] | None = None


def distinct(changes: Sequence[Logged]) -> Distinct:
    """Return the changes of a key, one for each position, with repetitions and a contradiction reported separately."""
    unique: list[Logged] = []
    repetitions: list[Logged] = []
    for change in sorted(changes, key=lambda change: (change.position, change.batch), reverse=True):
        if unique and unique[-1].position == change.position:
            if not same_content(unique[-1], change):
                return Distinct(unique, repetitions, (change, unique[-1]))
            repetitions.append(unique[-1])
            unique[-1] = change  # the earlier batch, because it sorts later
        elif unique and unique[-1].position[:3] == change.position[:3]:
            # No change both sets and removes a row: the halves of a key change are of two keys.
            return Distinct(unique, repetitions, (change, unique[-1]))
        else:
            unique.append(change)
    return Distinct(unique, repetitions)
