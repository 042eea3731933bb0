"""Finds what became of a table's columns: which are gone, came back, or may have been renamed.

The source sends no event for DDL (C-75), so only the column lists of the rows can show it. A row that is proved to be
whole and lacks a column that earlier changes carried shows that the column is gone. Everything is judged by the
positions of rows, never by their arrival. So late rows and rows that are read again change no judgement; they only
narrow down at which position a column went or came (G-60).

A rename is a drop and an addition in one step (F-88). No change says whether it was one. It is possible only where no
row carries both names, no whole row between them lacks both, and the new column has the type and the place of the old.
Structures that the source announced may show more steps than rows do.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

BEHIND = "+"
"""Behind a position: what was seen at a reading that brought nothing newer than it."""


class Seen(NamedTuple):
    """Where in the order rows with one column list lie: the lowest and the highest, also of rows proved to be whole.

    All four are positions over all stream incarnations. The last two are empty where no row is proved to be whole.
    """

    first: str
    last: str
    whole_first: str = ""
    whole_last: str = ""


class ListOfColumns(NamedTuple):
    """A column list: each column with its type and its place in the table, and where the list was *seen*.

    A type is that of the target, for texts followed by a blank and the source's, where that is known.
    """

    types: Mapping[str, str]
    seen: Seen
    places: Mapping[str, int] = MappingProxyType({})


class Structure(NamedTuple):
    """All columns of a table as its source announced them at one time, each with its type and its place."""

    types: Mapping[str, str]
    places: Mapping[str, int]


class Dropped(NamedTuple):
    """A statement that a column was dropped at the source, or renamed; it counts for changes up to *at*."""

    column: str
    at: str


class Gone(NamedTuple):
    """A column that newer whole rows lack.

    Attributes:
        after: the place of the last row that carries it; empty where only loaded rows do.
        since: the first known place of a whole row without it.
        renamed_to: columns that may be it under a new name.
    """

    after: str
    since: str
    renamed_to: tuple[str, ...] = ()


class Back(NamedTuple):
    """A column that came back after whole rows lacked it.

    Values before *gone_at* belong to another column. *since* is the first known position of a row that carries it
    again.
    """

    gone_at: str
    since: str


class FormerColumn(NamedTuple):
    """A column that rows up to a position carry, and that the table no longer has under this name.

    *now* is its name since then. None says that it was dropped, so a column of this name today is another one. A table
    that is built from the log alone is built as if those rows had never had the column, or had it under its new name
    (G-66).
    """

    column: str
    up_to: str
    now: str | None


class ColumnHistory(NamedTuple):
    """What became of a table's columns. A column that is listed nowhere here is as it always was.

    *returned* are those of the gone columns that had been gone before, and came back in between.
    """

    gone: Mapping[str, Gone]
    back: Mapping[str, Back]
    returned: Mapping[str, Back] = MappingProxyType({})

    def lacks(self, column: str, order: str) -> bool:
        """Whether a row at this position has no value for a column because the source had dropped it by then."""
        found = self.gone.get(column)
        return found is not None and order > found.after


def column_history(
    lists: Sequence[ListOfColumns],
    decided: Collection[Dropped] = (),
    *,
    loaded: Sequence[ListOfColumns] = (),
    carried: Collection[str] = (),
    renames: bool = True,
) -> ColumnHistory:
    """What became of the columns that changes carried, and of those that only loaded rows have.

    Args:
        lists: the column lists of the table's changes, in any order.
        decided: what operators said.
        loaded: the columns of loaded rows, below every change.
        carried: those of *loaded* that changes carry as long as the source has them. What became of others that no
            change carries only an operator can say.
        renames: whether the source can rename a column while its changes are read.
    """
    gone: dict[str, Gone] = {}
    back: dict[str, Back] = {}
    returned: dict[str, Back] = {}
    for column in sorted({name for one in (*loaded, *lists) for name in one.types}):
        carrying = [one.seen for one in lists if column in one.types]
        first = min((seen.first for seen in carrying), default="")
        last = max((seen.last for seen in carrying), default="")
        proofs = [one.seen for one in lists if column not in one.types and one.seen.whole_last]
        without = max((seen.whole_last for seen in proofs), default="")
        words = [one.at for one in decided if one.column == column]
        said = max((at for at in words if at > last), default="")
        # That it was dropped where rows before and behind have the name, only a statement tells (T-88).
        between = [at for at in words if first < at < last]
        if said or ((carrying or column in carried) and without > last):
            known = [place for seen in proofs for place in (seen.whole_first, seen.whole_last) if place > last]
            gone[column] = Gone(last, min(filter(None, [*known, said])))
            lacking = [at for seen in proofs for at in (seen.whole_first, seen.whole_last) if first < at < last]
            if lacking or between:
                returned[column] = _back(max([*lacking, *between]), carrying)
        elif carrying and (gone_at := max([without, *between])) > first:
            back[column] = _back(gone_at, carrying)
    doubtful = {c for c, found in gone.items() if not any(one.column == c and one.at > found.after for one in decided)}
    for column in doubtful:
        known_lists = lists if gone[column].after else [*loaded, *lists]
        names = tuple(_new_names(column, gone[column], known_lists, renames))
        gone[column] = gone[column]._replace(renamed_to=names)
    return ColumnHistory(gone, back, returned)


def names_by_structures(column: str, structures: Sequence[Structure]) -> set[str] | None:
    """The names that a column may have got, as announced structures show it; None where they do not show it go.

    Args:
        column: the column that is or was gone.
        structures: those of the table in the order in which they held, each with all of its columns.
    """
    found, is_shown = set[str](), False
    for before, after in pairwise(structures):
        if column in before.types and column not in after.types:
            is_shown = True
            new = [name for name in after.types if name not in before.types]
            found |= {name for name in new if _may_be(column, before, name, after, in_full=True)}
    return found if is_shown else None


def moved_behind(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """The columns that must have been dropped and added again between two orders of a table's columns.

    A column keeps its place among the others as long as it lives, and a new one stands behind them all.
    """
    places = {name: at for at, name in enumerate(before)}
    known = [name for name in after if name in places]
    for at, (one, other) in enumerate(pairwise(known)):
        if places[one] > places[other]:
            return known[at + 1 :]
    return []


def renamed_columns(
    lists: Sequence[ListOfColumns], history: ColumnHistory, said: Sequence[FormerColumn]
) -> list[FormerColumn]:
    """The renames that were stated (*said*) and the lists do not contradict, in the order of their positions.

    Each renamed column was there until its new name came. A column of the old name before a whole row without it, or
    before a statement that it was dropped, was another column; for that one the result says that it was dropped.
    """
    found = []
    for word in sorted((one for one in said if one.now is not None), key=lambda one: one.up_to):
        gone = history.gone.get(word.column)
        back = history.back.get(word.column) or history.returned.get(word.column)
        holds = (gone is not None and word.up_to > gone.after) or (back is not None and word.up_to <= back.gone_at)
        # Rows that have both names are of two columns, whatever was said.
        both = any({word.column, word.now} <= one.types.keys() and one.seen.first <= word.up_to for one in lists)
        if holds and not both:
            came = min((one.seen.first for one in lists if word.now in one.types), default="")
            first = min(one.seen.first for one in lists if word.column in one.types)
            proofs = [one.seen for one in lists if word.column not in one.types and one.seen.whole_last]
            without = [at for seen in proofs for at in (seen.whole_first, seen.whole_last) if first < at < came]
            drops = [one.up_to for one in said if (one.column, one.now) == (word.column, None)]
            without += [at for at in drops if first < at < word.up_to]
            if without:
                found.append(FormerColumn(word.column, max(without), None))
            found.append(word)
    return found


def names_before_return(column: str, back: Back, lists: Sequence[ListOfColumns], renames: bool) -> dict[str, str]:
    """The names that a column may have had before it came back, each with the first position of that name.

    The column may have been gone more than once, and the lists do not show how often. So every column is named that
    came after it and before its return, has a type and a place that it had, and was not carried with it until then.
    """
    having = [one for one in lists if column in one.types]
    first = min(one.seen.first for one in having)
    found: dict[str, str] = {}
    for other in sorted({name for one in lists for name in one.types} - {column}):
        theirs = [one for one in lists if other in one.types]
        since = min(one.seen.first for one in theirs)
        together = any(column in one.types and one.seen.first <= back.gone_at for one in theirs)
        if not first < since <= back.gone_at or together:
            continue
        alone = [one for one in theirs if column not in one.types]
        if not any(_may_be(column, before, other, after) for before in having for after in alone):
            continue
        if renames or since.partition(":")[0] != first.partition(":")[0]:
            found[other] = since
    return found


def other_columns(history: ColumnHistory) -> list[FormerColumn]:
    """The columns that came back; before that, their name belonged to another column."""
    again = {**history.back, **history.returned}
    return [FormerColumn(column, back.gone_at, None) for column, back in sorted(again.items())]


def _back(gone_at: str, carrying: Sequence[Seen]) -> Back:
    return Back(gone_at, min(place for seen in carrying for place in (seen.first, seen.last) if place > gone_at))


def divided(seen: Seen, place: str) -> tuple[Seen | None, Seen | None]:
    """Split what is known of some rows at a position: those up to it, and those after it.

    Of rows on both sides only the lowest and the highest position are known, so each part may be known less exactly.
    """
    low = None if seen.first > place else clipped(seen, place)
    if seen.last <= place:
        return low, None
    whole = [at for at in (seen.whole_first, seen.whole_last) if at > place]
    first = seen.first if seen.first > place else seen.last
    return low, Seen(first, seen.last, min(whole, default=""), max(whole, default=""))


def clipped(place: Seen, up_to: str) -> Seen:
    """What is known of the rows up to *up_to*, for rows that begin there or before."""
    last = place.last if place.last <= up_to else place.first
    if not place.whole_first or place.whole_first > up_to:
        return Seen(place.first, last)
    whole_last = place.whole_last if place.whole_last <= up_to else place.whole_first
    return Seen(place.first, last, place.whole_first, whole_last)


def _new_names(column: str, gone: Gone, lists: Sequence[ListOfColumns], renames: bool) -> list[str]:
    """The columns that may be a gone one: of its type and place, first carried behind it.

    No whole row between them lacks both. Between two stream incarnations any source may have renamed it: nothing was
    read of it then. A name that looks the same is likelier another spelling by whoever sent it than another column,
    also where the source renames nothing.
    """
    newest = max((one for one in lists if column in one.types), key=lambda one: one.seen.last)
    found: list[str] = []
    for other in sorted({name for one in lists for name in one.types} - newest.types.keys()):
        oldest = min((one for one in lists if other in one.types), key=lambda one: one.seen.first)
        first = oldest.seen.first
        if (gone.after and first <= gone.after) or not _may_be(column, newest, other, oldest):
            continue
        neither = [one.seen for one in lists if not {column, other} & one.types.keys() and one.seen.whole_last]
        if any(gone.after < place < first for seen in neither for place in (seen.whole_first, seen.whole_last)):
            continue
        is_other_stream = bool(gone.after) and first.partition(":")[0] != gone.after.partition(":")[0]
        if renames or is_other_stream or _seen_name(other) == _seen_name(column):
            found.append(other)
    return found


def _may_be(
    old: str, before: ListOfColumns | Structure, new: str, after: ListOfColumns | Structure, *, in_full: bool = False
) -> bool:
    """Whether a column may be an earlier one under a new name: a rename keeps its type and its place.

    Its place is compared among the columns of both times, as a column that is dropped may move all behind it. Where a
    list *in_full* leaves numbers out, its source keeps them, and the number has to be the same.
    """
    (old_type, _, old_kind), (new_type, _, new_kind) = (
        kind.partition(" ") for kind in (before.types[old], after.types[new])
    )
    if old_type != new_type or (old_kind and new_kind and old_kind != new_kind):
        return False
    if old not in before.places or new not in after.places:
        return True
    at, now = before.places[old], after.places[new]
    both = before.places.keys() & after.places.keys()
    if sum(before.places[one] < at for one in both) != sum(after.places[one] < now for one in both):
        return False
    numbers = after.places.values()
    return not in_full or at == now or max(numbers) - min(numbers) + 1 == len(numbers)


def _seen_name(name: str) -> str:
    """A name as people see it: without blanks around it, signs without width, and differences of normal form."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf").strip()


def place_text(order: str) -> str:
    """A place for people: the ordinal of the stream incarnation, and the position in it."""
    ordinal, _, text = order.partition(":")
    return f"{int(ordinal)}:{text.rstrip(BEHIND)}"
