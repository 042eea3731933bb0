"""One logged change, and the rule which change of a key stands. Planning and completing rows share both.

Public source of the two halves of a key change: C-33, K-05 and T-10 in the rules book. G-02 and G-03 follow from them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from open_mirroring.changes.log_position import LogPosition

INSERT, UPDATE, DELETE, KEY_LEFT = "I", "U", "D", "K"

Row = Mapping[str, str | None]

Meaning = Callable[[str, str], Hashable]
"""What the text of a column stands for: the same for two spellings of one value."""


class Left(NamedTuple):
    """The key that a row had before a key change: its changes before that one, newest first, one for each position.

    *before* is the row as the half that leaves the key tells it, *position* the place of that half; *later* are the
    changes after it that tell of a row at the key.
    """

    position: LogPosition
    before: Row | None
    changes: Sequence[Logged]
    later: Sequence[Logged] = ()


class Logged(NamedTuple):
    """One logged change of a key.

    *after* is the row it leaves (None for a delete), or, unless *whole*, what the source told of it; *before* the row
    it removes, where the source told. *handle* is the caller's own reference to the logged row, *types* how the texts
    of *after* are to be read, column by column, where a row may be put together from several changes. *left* is the key
    that the row had before, where this change gave it another one and rows are completed; *loaded* says that the row,
    or what completed it, is one of an initial load.
    """

    batch: int
    position: LogPosition
    operation: str
    after: Row | None
    before: Row | None
    handle: int = -1
    whole: bool = True
    types: Mapping[str, str] | None = None
    left: Left | None = None
    meaning: Meaning | None = None
    loaded: bool = False


def first_of_each(changes: Sequence[Logged]) -> list[Logged]:
    """Changes newest first, of those at one position the one of the earliest batch."""
    unique: dict[LogPosition, Logged] = {}
    for change in sorted(changes, key=lambda change: change.batch, reverse=True):
        unique[change.position] = change
    return sorted(unique.values(), key=lambda change: change.position, reverse=True)


def newest_effective(changes: Sequence[Logged]) -> Logged | None:
    """The change that decides the key's state; *changes* newest first, one per position.

    The DELETE half of a key change removes a row written in the same transaction only if its before image is that
    row (G-03): when two rows swap their keys, the half that leaves a key comes after the row that took it.
    """
    if not changes:
        return None
    newest, rest = changes[0], changes[1:]
    if newest.operation != KEY_LEFT:
        return newest
    earlier = newest_effective(rest)
    if earlier is None or earlier.position.transaction != newest.position.transaction:
        return newest
    if earlier.after is None or (is_row(newest.before, earlier) and not stands_on_another(earlier, rest)):
        return newest
    # The half removed another row than the one that stands there: it decides nothing.
    return earlier


def standing(changes: Sequence[Logged], untypable: Collection[LogPosition]) -> Logged | None:
    """The newest effective change that could be typed; *changes* newest first, one per position."""
    while (newest := newest_effective(changes)) is not None and newest.position in untypable:
        changes = [change for change in changes if change is not newest]
    return newest


def stands_on_another(change: Logged, changes: Sequence[Logged]) -> bool:
    """Whether a row took a key at which another one stands; known only where rows are completed.

    No key ever has two rows, so the other one leaves it by the same statement: the next half that leaves is its own,
    even if the old image tells nothing but the key. *changes* are newest first and end before that half.
    """
    if change.left is None:
        return False
    at = next(index for index, other in enumerate(changes) if other.position == change.position)
    if any(later.operation == KEY_LEFT for later in changes[:at]):
        return False  # it has left
    below = newest_effective(changes[at + 1 :])
    return below is not None and below.after is not None


def is_row(before: Row | None, change: Logged) -> bool:
    """Whether an old image tells nothing that differs from the row that a change left."""
    after = change.after
    if before is None or after is None:
        return False
    return all(_equal(change, name, before[name], after[name]) for name in before.keys() & after.keys())


def same_content(one: Logged, other: Logged) -> bool:
    """Whether two changes of one identity say the same: their values, however they are spelled (G-02).

    A row read again after a column was added may have a NULL more (T-33): it is the same row.
    """
    if (one.operation == KEY_LEFT) != (other.operation == KEY_LEFT):
        return False
    if one.after is None or other.after is None:
        return one.after is other.after and one.operation == other.operation
    told, again = _told(one.after), _told(other.after)
    return told.keys() == again.keys() and all(_equal(one, name, told[name], again[name]) for name in told)


def _equal(change: Logged, name: str, one: str | None, other: str | None) -> bool:
    if one == other or one is None or other is None or change.meaning is None:
        return one == other
    return change.meaning(name, one) == change.meaning(name, other)


def _told(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}
