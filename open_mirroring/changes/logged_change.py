"""A change as the change log contains it, and the rule that decides which change of a key counts (C-33, K-05, T-10)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from open_mirroring.changes.log_position import LogPosition

INSERT, UPDATE, DELETE, KEY_LEFT = "I", "U", "D", "K"

Row = Mapping[str, str | None]

Meaning = Callable[[str, str], Hashable]
"""Converts the text of a column (name, text) to a comparable value: two spellings of one value are equal.

An invalid text gives :class:`Unreadable`."""


class Unreadable(NamedTuple):
    """A string that is not a valid value of its column's type; equal only to itself."""

    text: str


class RowUnknown(Exception):
    """Raised if the change log does not show which of two rows at a key left the key (G-115).

    *half* is the change by which the row left: a delete, or the DELETE half of a key change.
    """

    def __init__(self, half: Logged) -> None:
        super().__init__(half)
        self.half = half


class Left(NamedTuple):
    """The old key of a row that changed its key, with the changes of that old key before the key change.

    *position* and *before* (the before image) belong to the DELETE half of the key change. *changes* are newest first,
    one per position. *later* are changes after the key change that put a row at the old key again. *unsure_to* is the
    position up to which the change log may lack rows; None if it has every row.
    """

    position: LogPosition
    before: Row | None
    changes: Sequence[Logged]
    later: Sequence[Logged] = ()
    unsure_to: str | None = None


class RowColumns(NamedTuple):
    """What is known of a logged row's columns, apart from their values.

    *meaning* converts strings into values for comparison; None means that the strings themselves are compared.
    *always_sent* are the columns outside the key that every before image contains. *dropped* are columns that were
    dropped at the source, or excluded by the mirror file at some time. *of_reading* is True if the row has the columns
    that the table had when the row was read, not when it changed.
    """

    meaning: Meaning | None = None
    always_sent: AbstractSet[str] = frozenset()
    dropped: Collection[str] = ()
    of_reading: bool = False


class Logged(NamedTuple):
    """One change of a key, as the change log contains it.

    *operation* is I, U, D, or K for the DELETE half of a key change. *after* is None for a delete. Unless *whole*,
    *after* has only the columns that the source sent. *handle* is a number for the caller's own use. *types* has the
    SQL type by column, which is needed if several changes complete a row. *left* is set if the row had another key
    before. *loaded* is True for a row from an initial load. *required* are the columns that a row at this position must
    have; None means the columns of a *whole* row (G-60).
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
    loaded: bool = False
    required: Collection[str] | None = None
    columns: RowColumns = RowColumns()

    @property
    def is_complete(self) -> bool:
        """Whether the row has all its columns; true for a delete."""
        if self.after is None or self.whole:
            return True
        return self.required is not None and self.after.keys() >= set(self.required)


def first_of_each(changes: Sequence[Logged]) -> list[Logged]:
    """Return the changes newest first, one for each position: the one in the earliest batch."""
    unique: dict[LogPosition, Logged] = {}
    for change in sorted(changes, key=lambda change: change.batch, reverse=True):
        unique[change.position] = change
    return sorted(unique.values(), key=lambda change: change.position, reverse=True)


def newest_effective(changes: Sequence[Logged]) -> Logged | None:
    """The change that decides the state of a key; *changes* are newest first, one per position.

    The newest change decides, with one exception. If a row came to this key in the same transaction, the departure of
    another row does not remove the row that came (G-03). A row departs by a delete, or by the DELETE half of its key
    change. When two rows swap keys, for example, the old row's DELETE half comes after the new row's arrival. Raises
    :class:`RowUnknown` if the change log does not show which row departed.
    """
    if not changes:
        return None
    newest, rest = changes[0], changes[1:]
    if newest.after is not None:
        return newest
    try:
        earlier = newest_effective(rest)
    except RowUnknown:
        return newest  # one of two rows had left before, and this is the change of the other one
    if earlier is None or earlier.position.transaction != newest.position.transaction:
        return newest
    # The departure of a row other than the current one changes nothing.
    return newest if earlier.after is None or _is_same_row(newest, earlier, rest) else earlier


def rests_on_image(changes: Sequence[Logged]) -> bool:
    """Whether only a before image shows that no row is left at the key.

    True means: one transaction moved a row to the key and removed a row from the key. Only the before image shows that
    both are the same row.
    """
    if not changes or changes[0].after is not None:
        return False
    leaving, rest = changes[0], changes[1:]
    try:
        row = newest_effective(rest)
    except RowUnknown:
        return False
    if row is None or row.left is None or row.position.transaction != leaving.position.transaction:
        return False
    return row.operation != INSERT and not _contradicts(leaving, row) and is_on_another(row, rest) is None


def _is_same_row(leaving: Logged, row: Logged, changes: Sequence[Logged]) -> bool:
    """Whether the departure from a key belongs to the row that came to the key in the same transaction.

    The previous row at the key decides; if the log may lack it, a before image that differs or has every value. A
    contradicting image of a key change always counts, that of a DELETE only if another row may have been there.
    """
    is_denied = _contradicts(leaving, row)
    if leaving.operation == KEY_LEFT and is_denied:
        return False
    if row.operation == INSERT and not is_denied:
        return True
    is_taken = is_on_another(row, changes)
    if is_taken is not None:
        return not is_taken
    if not is_denied and not _has_every_value(leaving, row):
        raise RowUnknown(leaving)
    return not is_denied


def _contradicts(leaving: Logged, row: Logged) -> bool:
    readable = _readable(leaving.before, row)
    return readable is not None and not is_row(readable, row)


def standing(changes: Sequence[Logged], untypable: Collection[LogPosition]) -> Logged | None:
    """The change that decides a key, without the changes at *untypable* positions, whose values do not fit their types.

    *changes* are newest first, one per position.
    """
    while (newest := newest_effective(changes)) is not None and newest.position in untypable:
        changes = [change for change in changes if change is not newest]
    return newest


def is_on_another(change: Logged, changes: Sequence[Logged]) -> bool | None:
    """Whether *change* put a row at a key where another row still is; None if the change log may lack that other row.

    A key never keeps two rows. So when two rows are at a key, the next removal from the key belongs to the row that was
    there first. *changes* are newest first.
    """
    if change.left is None and change.operation != INSERT:
        return False
    at = next(index for index, other in enumerate(changes) if other.position == change.position)
    if any(later.after is None for later in changes[:at]):
        return False  # it has left
    try:
        below = newest_effective(changes[at + 1 :])
    except RowUnknown:
        return None
    unsure_to = None if change.left is None else change.left.unsure_to
    if unsure_to is not None and (below is None or below.position.order <= unsure_to):
        return None
    return below is not None and below.after is not None


def is_row(before: Row | None, change: Logged) -> bool:
    """Whether a before image and the row after a change have equal values in all columns that both contain."""
    after = change.after
    if before is None or after is None:
        return False
    return all(_equal(change, name, before[name], after[name]) for name in before.keys() & after.keys())


def _readable(before: Row | None, change: Logged) -> Row | None:
    """A before image without values that are invalid for their types; they count as missing."""
    meaning = change.columns.meaning
    if before is None or meaning is None:
        return before
    is_read = {name: text is None or not isinstance(meaning(name, text), Unreadable) for name, text in before.items()}
    return {name: text for name, text in before.items() if is_read[name]}


def _has_every_value(half: Logged, row: Logged) -> bool:
    """Whether a before image has every value that distinguishes a row, and there are such values."""
    readable = _readable(half.before, row) or {}
    return bool(row.columns.always_sent) and row.columns.always_sent <= readable.keys()


def same_content(one: Logged, other: Logged) -> bool:
    """Whether two changes at one position have the same values, in any spelling of the values (G-02).

    If their values differ, one of the changes is damaged and the table has to stop. There are two exceptions. If the
    source was read a second time, one change may have an additional NULL of a new column, or lack a dropped or excluded
    column (T-33). If rows have the columns of the time of reading, only columns that both changes contain are compared.
    """
    if (one.operation == KEY_LEFT) != (other.operation == KEY_LEFT):
        return False
    if one.after is None or other.after is None:
        return one.after is other.after and one.operation == other.operation
    values, again = _not_null(one.after), _not_null(other.after)
    both = values.keys() & again.keys()
    columns = one.after.keys() | other.after.keys() if one.columns.of_reading else one.columns.dropped
    dropped = {name for name in columns if name not in one.after or name not in other.after}
    if one.columns.of_reading:  # at the second reading its name may belong to another column (T-88)
        dropped |= {*one.columns.dropped}
    return not (values.keys() ^ again.keys()) - dropped and all(
        _equal(one, name, values[name], again[name]) for name in both - dropped
    )


def _equal(change: Logged, name: str, one: str | None, other: str | None) -> bool:
    meaning = change.columns.meaning
    if one == other or one is None or other is None or meaning is None:
        return one == other
    return meaning(name, one) == meaning(name, other)


def _not_null(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}
