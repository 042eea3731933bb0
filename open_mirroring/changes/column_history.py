"""Finds what became of a table's columns: which are gone, came back, or may have been renamed.

The source sends no event for DDL (C-75), so only the column lists of the rows can show it. A row that is proved to be
whole and lacks a column that earlier changes carried shows that the column is gone. Everything is judged by the
positions of rows, never by their arrival. So late rows and rows that are read again change no judgement; they only
narrow down at which position a column went or came (G-60).

A rename is a drop and an addition in one step (F-88). No change says whether it was one. It is possible only where no
row carries both names, and no whole row between them lacks both.
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
    """A column list: each column with its type at the target, and where it was *seen*."""

    types: Mapping[str, str]
    seen: Seen


class Dropped(NamedTuple):
    """A statement that a column was dropped at the source, or renamed; it counts for changes up to *at*."""

    column: str
    at: str


class Gone(NamedTuple):
    """A column that newer whole rows lack.

    Attributes:
        after: the place of the last row that carries it.
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
    loaded: Collection[str] = (),
    renames: bool = True,
) -> ColumnHistory:
    """What became of the columns that changes carried, and of those of a load that an operator said are dropped.

    Args:
        lists: the column lists of the table's changes, in any order.
        decided: what operators said.
        loaded: the columns that the initial load brought, below every change.
        renames: whether the source can rename a column while its changes are read.
    """
    gone: dict[str, Gone] = {}
    back: dict[str, Back] = {}
    returned: dict[str, Back] = {}
    for column in sorted({*loaded, *(name for one in lists for name in one.types)}):
        carrying = [one.seen for one in lists if column in one.types]
        first = min((seen.first for seen in carrying), default="")
        last = max((seen.last for seen in carrying), default="")
        proofs = [one.seen for one in lists if column not in one.types and one.seen.whole_last]
        without = max((seen.whole_last for seen in proofs), default="")
        words = [one.at for one in decided if one.column == column]
        said = max((at for at in words if at > last), default="")
        # That it was dropped where rows before and behind have the name, only a statement tells (T-88).
        between = [at for at in words if first < at < last]
        if said or (carrying and without > last):
            known = [place for seen in proofs for place in (seen.whole_first, seen.whole_last) if place > last]
            gone[column] = Gone(last, min(filter(None, [*known, said])))
            lacking = [at for seen in proofs for at in (seen.whole_first, seen.whole_last) if first < at < last]
            if lacking or between:
                returned[column] = _back(max([*lacking, *between]), carrying)
        elif carrying and (gone_at := max([without, *between])) > first:
            back[column] = _back(gone_at, carrying)
    doubtful = {c for c, found in gone.items() if not any(one.column == c and one.at > found.after for one in decided)}
    for column in doubtful:
        names = tuple(_new_names(column, gone[column], lists, renames))
        gone[column] = gone[column]._replace(renamed_to=names)
    return ColumnHistory(gone, back, returned)


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
    came after it and before its return, has a type that it had, and was not carried beside it until then.
    """
    having = [one for one in lists if column in one.types]
    kinds, first = {one.types[column] for one in having}, min(one.seen.first for one in having)
    found: dict[str, str] = {}
    for other in sorted({name for one in lists for name in one.types} - {column}):
        theirs = [one for one in lists if other in one.types]
        since = min(one.seen.first for one in theirs)
        beside = any(column in one.types and one.seen.first <= back.gone_at for one in theirs)
        if not first < since <= back.gone_at or beside or not kinds & {one.types[other] for one in theirs}:
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
    """The columns that may be a gone one: of its type, first carried behind it, with no whole row without both between.

    Between two stream incarnations any source may have renamed it: nothing was read of it then. A name that looks the
    same is likelier another spelling by whoever sent it than another column, also where the source renames nothing.
    """
    carrying = [one for one in lists if column in one.types]
    kind = max(carrying, key=lambda one: one.seen.last).types[column]
    found: list[str] = []
    for other in sorted({name for one in lists for name in one.types} - {column}):
        having = [one for one in lists if other in one.types]
        oldest = min(having, key=lambda one: one.seen.first)
        first = oldest.seen.first
        if first <= gone.after or oldest.types[other] != kind:
            continue
        neither = [one.seen for one in lists if not {column, other} & one.types.keys() and one.seen.whole_last]
        if any(gone.after < place < first for seen in neither for place in (seen.whole_first, seen.whole_last)):
            continue
        if (
            renames
            or first.partition(":")[0] != gone.after.partition(":")[0]
            or _seen_name(other) == _seen_name(column)
        ):
            found.append(other)
    return found


def _seen_name(name: str) -> str:
    """A name as people see it: without blanks around it, signs without width, and differences of normal form."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf").strip()


def place_text(order: str) -> str:
    """A place for people: the ordinal of the stream incarnation, and the position in it."""
    ordinal, _, text = order.partition(":")
    return f"{int(ordinal)}:{text.rstrip(BEHIND)}"
