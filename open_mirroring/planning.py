"""The plan rule: which change of a key is published next.

For each key: take its newest change over **all** logged batches, and publish it unless the target has it: unless it
was the newest already among the batches up to the one that the target has. This one rule decides duplicates, late
events, replays and re-reads. It is the definition; a vectorised query may stand in for it only where a Boolean proves
both equal.

Why it is right: let f(S) be the change that decides a key among the changes S. The target holds f of the batches up
to *published_batch*; publishing f of all batches whenever it is another change makes the target hold that one. A change
that arrived after *published_batch* is always another one; an earlier one can become the deciding change only through
the rule of key changes (:func:`newest_effective`), when a late change of the same transaction turns out to be the row
that it removed.

Where transactions are held back until they are whole, the sets are cut by position as well: the target holds f of the
batches up to *published_batch* and the positions up to *published_position*. Nothing in the argument asks for more than
that the new set holds the old one, which it does as long as neither batch nor position falls: "arrived after" becomes
"in the new set, not in the old". Every set that ends at a complete position holds each transaction as a whole or not
at all, so the target shows no part of one (I4).

Where events carry only what changed (G-04), what decides a key is a *row*: that of its newest change, completed by the
changes before it down to one that tells all. The target has it unless one of these rows differs: a late change may
complete another row without being the newest itself. A row that changed its key is completed from the changes of its
old key, so a late one of these may show the row at its new key in another light.

Where the target is to have every change (:func:`key_history`), not only the newest, what lies between two sets is
published as it stands, which needs the complete position: below it no change is missing that would belong in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from open_mirroring.log_position import LogPosition

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


class KeyPlan(NamedTuple):
    """What the rule says of one key.

    Attributes:
        publish: the change to publish, or None; a completed one holds the whole row.
        incomplete: the key's newest change, when parts of its row are told by no change.
        conflict: two changes of one identity with different content: the table has to stop (G-02).
        duplicates: new changes that repeat an identity already logged.
        superseded: new changes that are older than what the target has.
        compacted: new changes that are older than another one that is published now.
        renewed: 1 if what is published is no new change, but an old one that new changes show in another light.
    """

    publish: Logged | None
    incomplete: Logged | None = None
    conflict: tuple[Logged, Logged] | None = None
    duplicates: int = 0
    superseded: int = 0
    compacted: int = 0
    renewed: int = 0


def plan_key(
    changes: Sequence[Logged],
    published_batch: int,
    untypable: Collection[LogPosition] = frozenset(),
    published_position: str | None = None,
) -> KeyPlan:
    """Decide one key from all its logged changes; order and repetition of *changes* do not matter.

    New is what lies in batches above *published_batch* or above *published_position*; of equal positions the earliest
    batch counts. The new changes are accounted for completely: with renewed they are 1 if published, plus duplicates,
    superseded and compacted, plus the new ones among *untypable*.

    Args:
        changes: all logged changes of the key, dead letters among them.
        published_batch: the batch that the target has.
        untypable: positions of changes known to be dead letters. They decide nothing, so that the key keeps the state
            before them wherever batches were cut (G-09); but they are what a key change may have removed (G-03), and
            a repetition with other content is a conflict all the same (G-02).
        published_position: the position (:attr:`LogPosition.order`) up to which the target has the changes of these
            batches; None where it has all of them.
    """

    def is_new(change: Logged) -> bool:
        above = published_position is not None and change.position.order > published_position
        return above or change.batch > published_batch

    unique, repetitions, conflict = _distinct(changes)
    if conflict:
        return KeyPlan(None, conflict=conflict)
    duplicates = sum(map(is_new, repetitions))
    fresh = sum(is_new(change) and change.position not in untypable for change in unique)
    newest = _deciding(unique, untypable, lambda _: True)
    had = _deciding([change for change in unique if not is_new(change)], untypable, lambda change: not is_new(change))
    if newest is None or (had is not None and newest == had):
        return KeyPlan(None, duplicates=duplicates, superseded=fresh)
    if newest.after is not None and not newest.whole:
        return KeyPlan(None, incomplete=newest)
    return KeyPlan(newest, duplicates=duplicates, compacted=max(0, fresh - 1), renewed=int(not fresh))


class KeyHistory(NamedTuple):
    """What the rule says of one key where every change is published.

    Attributes:
        publish: the changes to publish, oldest first.
        late: a new change whose place is among those that the target has: the table has to stop.
        conflict: two changes of one identity with different content: the table has to stop (G-02).
        duplicates: new changes that repeat an identity already logged.
        superseded: halves of key changes that removed nothing, for another row had taken their key (G-03).
    """

    publish: tuple[Logged, ...] = ()
    late: Logged | None = None
    conflict: tuple[Logged, Logged] | None = None
    duplicates: int = 0
    superseded: int = 0


def key_history(
    changes: Sequence[Logged],
    published_batch: int,
    published_position: str,
    late_up_to: str,
    untypable: Collection[LogPosition] = frozenset(),
) -> KeyHistory:
    """All new changes of one key, for a target that gets each in source order (I14); arguments as :func:`plan_key`.

    Applied one after the other they end in what :func:`plan_key` publishes: every change is published but the half of a
    key change that decides nothing, so that the last one published is the one that decides. Each is published once,
    however often it was logged (I16). A new one at or below *late_up_to* (:attr:`LogPosition.order`) is late: its
    successors are published.
    """

    def is_new(change: Logged) -> bool:
        return change.position.order > published_position or change.batch > published_batch

    unique, repetitions, conflict = _distinct(changes)
    if conflict:
        return KeyHistory(conflict=conflict)
    publish: list[Logged] = []
    superseded = 0
    for at, change in enumerate(unique):
        if not is_new(change):
            continue
        if change.position.order <= late_up_to:
            return KeyHistory(late=change)
        if change.position in untypable:
            continue
        if change.operation == KEY_LEFT and _standing(unique[at:], untypable) is not change:
            superseded += 1
        else:
            publish.append(change)
    return KeyHistory(tuple(reversed(publish)), None, None, sum(map(is_new, repetitions)), superseded)


class _Distinct(NamedTuple):
    """The changes of a key newest first, one per position, the repetitions of these, and what contradicts."""

    unique: list[Logged]
    repetitions: list[Logged]
    conflict: tuple[Logged, Logged] | None = None


def _distinct(changes: Sequence[Logged]) -> _Distinct:
    unique: list[Logged] = []
    repetitions: list[Logged] = []
    for change in sorted(changes, key=lambda change: (change.position, change.batch), reverse=True):
        if unique and unique[-1].position == change.position:
            if not _same_content(unique[-1], change):
                return _Distinct(unique, repetitions, (change, unique[-1]))
            repetitions.append(unique[-1])
            unique[-1] = change  # the earlier batch, for the sort put it after
        else:
            unique.append(change)
    return _Distinct(unique, repetitions)


def _deciding(
    changes: Sequence[Logged], untypable: Collection[LogPosition], is_held: Callable[[Logged], bool]
) -> Logged | None:
    """The typable change that decides the key, its row completed as far as the changes before it tell (G-04)."""
    if any(change.after is not None and not change.whole for change in changes):
        changes = _with_rows(changes, untypable, _rows_that_left(changes, is_held), is_held)
    return _standing(changes, untypable)


def _standing(changes: Sequence[Logged], untypable: Collection[LogPosition]) -> Logged | None:
    while (newest := newest_effective(changes)) is not None and newest.position in untypable:
        changes = [change for change in changes if change is not newest]
    return newest


def _with_rows(
    changes: Sequence[Logged],
    untypable: Collection[LogPosition],
    rows_that_left: Mapping[int, Logged | None],
    is_held: Callable[[Logged], bool],
) -> Sequence[Logged]:
    """The changes with the row that each of them leaves, as far as those before it tell.

    A row that had another key before is completed from the changes of that key (*rows_that_left*, by the identity of
    what tells of them), and never from what stood at its new key, unless that is the very row, as a load shows it.
    """
    told: deque[Logged] = deque()
    for change in reversed(changes):
        if change.after is not None and not change.whole:
            if change.left is None:
                row = _standing(list(told), untypable)
            else:
                row = _moved_row(change, change.left, rows_that_left[id(change.left)], told, changes, is_held)
            change = change if row is None or row.after is None else _completed(change, row)
        told.appendleft(change)
    return list(told)


def _moved_row(
    change: Logged,
    left: Left,
    row: Logged | None,
    told: Sequence[Logged],
    changes: Sequence[Logged],
    is_held: Callable[[Logged], bool],
) -> Logged | None:
    """The row that a key change took along, where the table was loaded at any time since the stream began (G-08).

    The load may show the source before the move or after it: the *row* under its old key, or the row itself under the
    new one, of which *told* is older than the move. No key ever has two rows, and that tells which, but for rows that
    change places by one statement, and for an old key that another row took; then an old image that tells all has to.
    """
    loaded = told[-1] if told and told[-1].loaded and told[-1].operation == INSERT else None
    if loaded is None:
        return row
    transaction = change.position.transaction
    changed_places = any(other.operation == KEY_LEFT and other.position.transaction == transaction for other in changes)
    if len(told) == 1 and not changed_places:
        return loaded  # nobody left the key before this row came: the load saw it there
    if row is None:
        return None
    if row.loaded:
        is_doubtful = changed_places or row.left is not None or any(is_held(other) for other in left.later)
    else:
        # It came to the old key in this transaction: who stood there before may be in the load at the new key alone.
        is_doubtful = row.left is not None and row.position.transaction == transaction
    image, after = left.before or {}, row.after or {}
    return row if not is_doubtful or (after.keys() <= image.keys() and _is_row(left.before, row)) else None


def first_of_each(changes: Sequence[Logged]) -> list[Logged]:
    """Changes newest first, of those at one position the one of the earliest batch."""
    unique: dict[LogPosition, Logged] = {}
    for change in sorted(changes, key=lambda change: change.batch, reverse=True):
        unique[change.position] = change
    return sorted(unique.values(), key=lambda change: change.position, reverse=True)


def _completed(change: Logged, earlier: Logged) -> Logged:
    """A change that tells a part of its row, together with an earlier one of that row."""
    after = {**(earlier.after or {}), **(change.after or {})}
    types = {**(earlier.types or {}), **(change.types or {})}
    return change._replace(after=after, whole=earlier.whole, types=types, loaded=earlier.loaded)


def _rows_that_left(changes: Sequence[Logged], is_held: Callable[[Logged], bool]) -> Mapping[int, Logged | None]:
    """The row that each key change took along, of those that tell what *changes* leave; *is_held*: what counts.

    A row that moved often is told by its earlier moves, and each of these by all before it. So each is found once,
    oldest first: there are as many ways through them as two to the number of moves.
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
    """The row that a key change took along, given all *earlier* ones; None where nobody tells which one it was.

    When rows change places, the one that leaves a key may have stood there before the one that took it in the same
    transaction (G-03): where that one may have taken it so, only the old image tells them apart.
    """
    known = _with_rows([change for change in left.changes if is_held(change)], (), earlier, is_held)
    newest = _standing(known, ())
    if newest is None or newest.position.transaction != left.position.transaction:
        rows = [newest]
    else:
        at = next(index for index, change in enumerate(known) if change.position == newest.position)
        below = _standing(known[at + 1 :], ())
        if known[at].operation == UPDATE:
            rows = [below if _stands_on_another(known[at], known) else newest]
        else:
            rows = [row for row in (newest, below) if row is not None and _is_row(left.before, row)]
    found = [row for row in rows if row is not None and row.after is not None]
    return found[0] if len(found) == 1 or (found and all(row.after == found[0].after for row in found)) else None


def newest_effective(changes: Sequence[Logged]) -> Logged | None:
    """The change that decides the key's state; *changes* newest first, one per position.

    The DELETE half of a key change removes a row written in the same transaction only if its before image is that
    row (G-03): when two rows swap their keys, the half that leaves a key comes after the row that took it.
    """
    for index, change in enumerate(changes):
        if change.operation != KEY_LEFT:
            return change
        rest = changes[index + 1 :]
        earlier = newest_effective(rest)
        if earlier is None or earlier.position.transaction != change.position.transaction:
            return change
        if earlier.after is None or (_is_row(change.before, earlier) and not _stands_on_another(earlier, rest)):
            return change
        # The half removed another row than the one that stands there: it decides nothing.
        return earlier
    return None


def _stands_on_another(change: Logged, changes: Sequence[Logged]) -> bool:
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


def _is_row(before: Row | None, change: Logged) -> bool:
    """Whether an old image tells nothing that differs from the row that a change left."""
    after = change.after
    if before is None or after is None:
        return False
    return all(_equal(change, name, before[name], after[name]) for name in before.keys() & after.keys())


def _same_content(one: Logged, other: Logged) -> bool:
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
