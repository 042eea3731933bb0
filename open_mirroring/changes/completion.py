"""Completes changes that contain only the changed columns, from earlier changes of the same row (G-04).

The missing columns are taken from the row's earlier changes, back to a change with the complete row. Changes from
before the row changed its key count, too (G-03), and so do rows of an initial load (G-08). Without completion, columns
that the change does not contain would become NULL.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from open_mirroring.changes.log_position import LogPosition
from open_mirroring.changes.logged_change import (
    INSERT,
    UPDATE,
    Left,
    Logged,
    is_on_another,
    is_row,
    standing,
)


def deciding(
    changes: Sequence[Logged],
    untypable: Collection[LogPosition],
    is_held: Callable[[Logged], bool],
    *,
    keeps: bool = False,
) -> Logged | None:
    """The newest change of a key that counts, its row completed from earlier changes; None if there is no change.

    *untypable* are the positions of changes whose values do not fit their types; these changes are skipped. *is_held*
    selects the changes that may be used to complete a row. If *keeps*, a delete gets the last row of its key (G-192).
    """
    if any(change.after is not None and not change.whole for change in changes):
        changes = _with_rows(changes, untypable, _rows_that_left(changes, is_held), is_held)
    newest = standing(changes, untypable)
    if newest is None or newest.after is not None or not keeps:
        return newest
    rows = (one for one in changes if one.after is not None and one.position not in untypable)
    last = next((row for row in rows if row.position < newest.position), None)
    return newest if last is None else _completed(newest, last)


def _with_rows(
    changes: Sequence[Logged],
    untypable: Collection[LogPosition],
    rows_that_left: Mapping[int, Logged | None],
    is_held: Callable[[Logged], bool],
) -> Sequence[Logged]:
    """The changes, each with its resulting row, completed as far as earlier changes allow.

    A row that had another key is completed from that key's changes (*rows_that_left*, by the identity of its
    :class:`Left`), not from the previous row at its new key, unless a load shows that both are the same row.
    """
    older: deque[Logged] = deque()
    for change in reversed(changes):
        if change.after is not None and not change.whole:
            if change.left is None:
                row = standing(list(older), untypable)
            else:
                row = _moved_row(change, change.left, rows_that_left[id(change.left)], older, changes, is_held)
            change = change if row is None or row.after is None else _completed(change, row)
        older.appendleft(change)
    return list(older)


def _moved_row(
    change: Logged,
    left: Left,
    row: Logged | None,
    older: Sequence[Logged],
    changes: Sequence[Logged],
    is_held: Callable[[Logged], bool],
) -> Logged | None:
    """The row that a key change moved, if the table was loaded at any time since the stream began (G-08).

    The load may show the source before or after the move: the *row* under its old key, or the same row under the new
    key. Usually it is clear which, because no key ever has two rows; else only a before image with all columns decides.
    """
    loaded = older[-1] if older and older[-1].loaded and older[-1].operation == INSERT else None
    if loaded is None:
        return row
    transaction = change.position.transaction
    changed_places = any(other.after is None and other.position.transaction == transaction for other in changes)
    if len(older) == 1 and not changed_places:
        return loaded  # no row left the key before this one arrived: the load saw it there
    if row is None:
        return None
    if row.loaded:
        is_doubtful = changed_places or row.left is not None or any(is_held(other) for other in left.later)
    else:
        # The row came to the old key in this transaction: the load may show the key's previous row at its new key only.
        is_doubtful = row.left is not None and row.position.transaction == transaction
    image, after = left.before or {}, row.after or {}
    return row if not is_doubtful or (after.keys() <= image.keys() and is_row(left.before, row)) else None


def _completed(change: Logged, earlier: Logged) -> Logged:
    after = {**(earlier.after or {}), **(change.after or {})}
    types = {**(earlier.types or {}), **(change.types or {})}
    return change._replace(after=after, whole=earlier.whole, types=types, loaded=earlier.loaded)


def _rows_that_left(changes: Sequence[Logged], is_held: Callable[[Logged], bool]) -> Mapping[int, Logged | None]:
    """The row that each key change moved, by the identity of its :class:`Left`; *is_held* selects changes.

    Each move is resolved once, oldest first: following every path through n moves would take up to 2ⁿ steps.
    """
    found: dict[int, Left] = {}
    frontier = list(changes)
    while frontier:
        left = frontier.pop().left
        if left is not None and id(left) not in found:
            found[id(left)] = left
            frontier += left.changes
    rows: dict[int, Logged | None] = {}
    for left in sorted(found.values(), key=lambda left: left.position):
        rows[id(left)] = _row_that_left(left, is_held, rows)
    return rows


def _row_that_left(
    left: Left, is_held: Callable[[Logged], bool], earlier: Mapping[int, Logged | None]
) -> Logged | None:
    """The row that left its key in a key change, with *earlier* ones known; None if several are possible (G-03)."""
    known = _with_rows([change for change in left.changes if is_held(change)], (), earlier, is_held)
    newest = standing(known, ())
    if newest is None or newest.position.transaction != left.position.transaction:
        rows = [newest]
    else:
        at = next(index for index, change in enumerate(known) if change.position == newest.position)
        below = standing(known[at + 1 :], ())
        if known[at].operation == UPDATE:
            rows = [below if is_on_another(known[at], known) else newest]
        else:
            rows = [row for row in (newest, below) if row is not None and is_row(left.before, row)]
    found = [row for row in rows if row is not None and row.after is not None]
    return found[0] if len(found) == 1 or (found and all(row.after == found[0].after for row in found)) else None
