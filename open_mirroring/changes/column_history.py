"""Finds which columns of a table were dropped, came back, or may have been renamed.

The source sends no event for DDL (C-75), so the fate of a column is inferred from rows. A *whole* row provably has
every column that the table had at that time. If a whole row lacks a column of earlier rows, the column was dropped or
renamed. "Earlier" means by the positions of the rows, not by their arrival (G-60). A rename looks like a drop and an
addition in one step (F-88).

A *place* in this module is the position of a change over all streams of its table, as a string that sorts in the order
of the changes (:attr:`~open_mirroring.changes.log_position.LogPosition.order`). A stream is one enabling of streaming
or one Qlik full load.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import NamedTuple

from open_mirroring.changes.places_seen import PlacesSeen

BEHIND = "+"
"""Suffix of a place: something was seen after it, by a reading that found no newer change."""
EVERYWHERE = "~"
"""Sorts above every place."""


BELOW_CHANGES = PlacesSeen("", "")
"""The place of rows from an initial load: below every change."""


class Column(NamedTuple):
    """One column in a column list: SQL type at the source, type at the target (*lands*), and ordinal (*place*).

    *sql_type* is empty and *place* is None if the source does not report them. If `types` in the mirror file sets the
    type at the target, *own* is the target type that the column would have without this setting.
    """

    sql_type: str
    lands: str
    place: int | None = None
    own: str = ""

    def may_be(self, other: Column) -> bool:
        """Whether the types of both columns allow that *other* is this column under a new name.

        The target types that both columns have without the setting `types` must be equal. If this target type is
        string, the source types without their length must be equal, too, unless one of them is unknown.
        """
        kinds = {kind for one in (self, other) if (kind := one.sql_type.partition("(")[0].strip())}
        mine, theirs = self.own or self.lands, other.own or other.lands
        return mine == theirs and (mine != "string" or len(kinds) < 2)


class ListOfColumns(NamedTuple):
    """A set of columns that some rows of a table had, and the positions of these rows.

    *whole* is True if one of the rows proved that these were all columns of the table at that time.
    """

    columns: Mapping[str, Column]
    seen: PlacesSeen
    whole: bool = True


class Structure(NamedTuple):
    """All columns of a table as its source announced them at one time: type and ordinal by column name."""

    types: Mapping[str, str]
    places: Mapping[str, int]


class Word(NamedTuple):
    """An operator's decision that a column was renamed to *now*, or dropped (*now* is None).

    Newer rows lack the column. The decision applies to changes up to the position *up_to*.
    """

    column: str
    up_to: str
    now: str | None = None


class Gone(NamedTuple):
    """A column that newer complete rows lack, and the columns that may be its new name.

    *after* is the position of the last row with the column; empty if only rows of an initial load have the column.
    *since* is the first known position of a complete row without the column, or of an operator's decision on the
    column.
    """

    after: str
    since: str
    renamed_to: tuple[str, ...] = ()


class Back(NamedTuple):
    """A column that is in rows again after complete rows lacked it, even if it was dropped again later.

    Values up to the position *gone_at* belong to a former column of the same name. *since* is the first known position
    of a row that has the column again.
    """

    gone_at: str
    since: str


class FormerColumn(NamedTuple):
    """A column that rows up to *up_to* have, but that the table no longer has under this name (G-66, G-67).

    *up_to* is a position. *now* is the column's new name. If *now* is None, the column was dropped, and a present
    column of the same name is a different column.
    """

    column: str
    up_to: str
    now: str | None


class ColumnHistory(NamedTuple):
    """The columns of a table that were dropped (*gone*) or came back (*back*), by name.

    A column that is in neither mapping was never dropped.
    """

    gone: Mapping[str, Gone] = MappingProxyType({})
    back: Mapping[str, Back] = MappingProxyType({})


def column_history(
    lists: Sequence[ListOfColumns],
    decided: Collection[Word] = (),
    *,
    loaded: Sequence[ListOfColumns] = (),
    carried: Collection[str] = (),
    renames: bool = True,
) -> ColumnHistory:
    """Infer from column lists which columns were dropped, came back, or may have been renamed.

    Args:
        lists: the column lists of changes.
        decided: operators' decisions on columns that newer rows lack.
        loaded: the column lists of initial loads, whose rows count as older than every change.
        carried: columns of *loaded* that changes contain as long as the source has them.
        renames: whether the source can rename a column while its changes are read.
    """
    gone: dict[str, Gone] = {}
    back: dict[str, Back] = {}
    for column in sorted({name for one in (*loaded, *lists) for name in one.columns}):
        carrying = [one.seen for one in lists if column in one.columns]
        first = min((seen.first for seen in carrying), default="")
        last = max((seen.last for seen in carrying), default="")
        without = _proofs_without(column, lists)
        words = [one.up_to for one in decided if one.column == column]
        said = max((at for at in words if at > last), default="")
        if said or ((carrying or column in carried) and max(without, default="") > last):
            gone[column] = Gone(last, min(filter(None, [*(at for at in without if at > last), said])))
        # If rows before and after have the name, only a DDL statement shows that it was dropped (T-88).
        if between := [at for at in (*without, *words) if first < at < last]:
            gone_at = max(between)
            since = min(place for seen in carrying for place in (seen.first, seen.last) if place > gone_at)
            back[column] = Back(gone_at, since)
    for column, found in gone.items():
        if not any(one.column == column and one.up_to > found.after for one in decided):
            known_lists = lists if found.after else [*loaded, *lists]
            gone[column] = found._replace(renamed_to=tuple(_new_names(column, found, known_lists, renames)))
    return ColumnHistory(gone, back)


def names_by_structures(column: str, structures: Sequence[ListOfColumns]) -> set[str] | None:
    """The new names that a column may have got, from structures of its table that the source announced, oldest first.

    A new name is a column of a matching type that first appears in the structure in which *column* is missing. Returns
    None if no structure lacks *column* after one that has it.
    """
    found, is_shown = set[str](), False
    for before, after in pairwise(structures):
        if column in before.columns and column not in after.columns:
            is_shown = True
            new = after.columns.keys() - before.columns.keys()
            found |= {name for name in new if _may_be(column, before, name, after, in_full=True)}
    return found if is_shown else None


def moved_behind(before: Sequence[str], after: Sequence[str]) -> list[str]:
    """Return the columns that were dropped and added again between the column orders *before* and *after* of a table.

    SQL Server puts an added column last. So a column of *before* that is behind its former neighbours in *after* was
    added again.
    """
    places = {name: at for at, name in enumerate(before)}
    known = [name for name in after if name in places]
    for at, (one, other) in enumerate(pairwise(known)):
        if places[one] > places[other]:
            return known[at + 1 :]
    return []


def renamed_columns(lists: Sequence[ListOfColumns], history: ColumnHistory, said: Sequence[Word]) -> list[FormerColumn]:
    """The renames that operators decided on and that the column lists do not contradict, oldest first.

    A column may also have been dropped before its rename: a complete row lacks the column, or an operator decided so.
    Then the newest such drop is added to the result, before the rename.
    """
    found = []
    for column, up_to, now in sorted(said, key=lambda one: one.up_to):
        gone, back = history.gone.get(column), history.back.get(column)
        holds = (gone is not None and up_to > gone.after) or (back is not None and up_to <= back.gone_at)
        both = any({column, now} <= one.columns.keys() and one.seen.first <= up_to for one in lists)
        if now is not None and holds and not both:
            came = min((one.seen.first for one in lists if now in one.columns), default="")
            first = min(one.seen.first for one in lists if column in one.columns)
            drops = [one.up_to for one in said if (one.column, one.now) == (column, None) and first < one.up_to < up_to]
            without = [*(at for at in _proofs_without(column, lists) if first < at < came), *drops]
            if without:
                found.append(FormerColumn(column, max(without), None))
            found.append(FormerColumn(column, up_to, now))
    return found


def other_columns(history: ColumnHistory) -> list[FormerColumn]:
    """For each column that came back: a drop, because earlier values under this name belong to a different column."""
    return [FormerColumn(column, back.gone_at, None) for column, back in sorted(history.back.items())]


def names_before_return(column: str, back: Back, lists: Sequence[ListOfColumns], renames: bool) -> dict[str, str]:
    """The names that a column may have had while it was gone, each with its first known position.

    The column may have been renamed several times, and have got its old name back at last. So a name counts if three
    conditions are met. Its column has a matching type, first appears while *column* was gone, and was in no row
    together with *column* before *column* came back.
    """
    having = [one for one in lists if column in one.columns]
    first = min(one.seen.first for one in having)
    found: dict[str, str] = {}
    for other in sorted({name for one in lists for name in one.columns} - {column}):
        theirs = [one for one in lists if other in one.columns]
        since = min(one.seen.first for one in theirs)
        together = any(column in one.columns and one.seen.first <= back.gone_at for one in theirs)
        if not first < since <= back.gone_at or together:
            continue
        alone = [one for one in theirs if column not in one.columns]
        if not any(_may_be(column, before, other, after) for before in having for after in alone):
            continue
        if renames or since.partition(":")[0] != first.partition(":")[0]:
            found[other] = since
    return found


def gone_again(former: FormerColumn, lists: Sequence[ListOfColumns]) -> str:
    """The last position where a complete row lacks a dropped column, between rows that have the column.

    The result is empty if there is no such row.
    """
    having = [one.seen for one in lists if former.column in one.columns]
    around = max((seen.last for seen in having if seen.first <= former.up_to < seen.last), default="")
    return max((at for at in _proofs_without(former.column, lists) if former.up_to < at < around), default="")


def spelled_otherwise(
    lists: Sequence[ListOfColumns], spelled: Mapping[str, str], keys: Collection[str]
) -> list[FormerColumn]:
    """The columns whose names differ only in case from an earlier spelling (G-67).

    The earlier spelling is the one in the table's published files, or else in the first column list with the name.
    *spelled* maps the lower-case name to the spelling in the files. Both spellings mean the same column, unless one
    column list has both: then they are two columns. The columns *keys* are left out.
    """
    names, found = dict(spelled), list[FormerColumn]()
    for name in dict.fromkeys(name for one in lists for name in one.columns):
        first = names.setdefault(name.casefold(), name)
        if first != name and name not in keys and not any({first, name} <= one.columns.keys() for one in lists):
            found.append(FormerColumn(name, EVERYWHERE, first))
    return found


def lists_as_now(lists: Sequence[ListOfColumns], former: Sequence[FormerColumn]) -> list[ListOfColumns]:
    """Return the column lists with each column under its present name.

    A column list whose rows are on both sides of a rename is split into two lists.
    """
    found = [*lists]
    for one in former:
        found = [piece for part in found for piece in _pieces(part, one)]
    return found


def _pieces(part: ListOfColumns, former: FormerColumn) -> list[ListOfColumns]:
    if former.column not in part.columns or former.now in part.columns:
        return [part]
    now = {former.now if name == former.column else name: column for name, column in part.columns.items()}
    kept = {name: column for name, column in now.items() if name is not None}
    low, high = divided(part.seen, former.up_to)
    return [*([part._replace(columns=kept, seen=low)] if low else []), *([part._replace(seen=high)] if high else [])]


def divided(seen: PlacesSeen, place: str) -> tuple[PlacesSeen | None, PlacesSeen | None]:
    """Split the known positions of some rows into those up to *place* and those above; None for an empty side."""
    low = None if seen.first > place else clipped(seen, place)
    if seen.last <= place:
        return low, None
    whole = [at for at in (seen.whole_first, seen.whole_last) if at > place]
    first = seen.first if seen.first > place else seen.last
    return low, PlacesSeen(first, seen.last, min(whole, default=""), max(whole, default=""))


def clipped(place: PlacesSeen, up_to: str) -> PlacesSeen:
    """Limit the known positions of some rows, *place*, to those up to *up_to*.

    The first position must be at or below *up_to*.
    """
    last = place.last if place.last <= up_to else place.first
    if not place.whole_first or place.whole_first > up_to:
        return PlacesSeen(place.first, last)
    whole_last = place.whole_last if place.whole_last <= up_to else place.whole_first
    return PlacesSeen(place.first, last, place.whole_first, whole_last)


def place_text(order: str) -> str:
    """Format a position for people, as ``ordinal of the stream:position in the stream``."""
    ordinal, _, text = order.partition(":")
    return f"{int(ordinal)}:{text.rstrip(BEHIND)}"


_ORDINAL = re.compile(r"\d{6}:")
_LSN = re.compile(r"([0-9A-F]{8})([0-9A-F]{8})([0-9A-F]{4})~?")  # a correction sorts after its commit
_TIME = re.compile(r"(20\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)\d\d")


def commit_text(place: str) -> str:
    """Format a position for people as its commit: an LSN in SQL Server's spelling, or a time.

    Any other position is shown behind the word *position*.
    """
    for part in place.rstrip(BEHIND).split(":"):
        if found := _LSN.fullmatch(part):
            return f"LSN {':'.join(found.groups())}"
        if found := _TIME.fullmatch(part):
            return "{}-{}-{} {}:{}:{}".format(*found.groups())
    return f"position {place_text(place) if _ORDINAL.match(place) else place}"


def _proofs_without(column: str, lists: Sequence[ListOfColumns]) -> list[str]:
    """Places of complete rows that lack a column."""
    proofs = [one.seen for one in lists if column not in one.columns and one.seen.whole_last]
    return [at for seen in proofs for at in (seen.whole_first, seen.whole_last)]


def _new_names(column: str, gone: Gone, lists: Sequence[ListOfColumns], renames: bool) -> list[str]:
    """The columns that may be the new name of a missing one.

    They have its type and ordinal, first appear after it, and no complete row in between lacks both. If the stream
    changed in between, any source may have renamed it. Names that look the same are more likely two spellings of one.
    """
    newest = max((one for one in lists if column in one.columns), key=lambda one: one.seen.last)
    found: list[str] = []
    for other in sorted({name for one in lists for name in one.columns} - newest.columns.keys()):
        oldest = min((one for one in lists if other in one.columns), key=lambda one: one.seen.first)
        first = oldest.seen.first
        if (gone.after and first <= gone.after) or not _may_be(column, newest, other, oldest):
            continue
        lacking = [one for one in lists if column not in one.columns]
        if any(gone.after < at < first for at in _proofs_without(other, lacking)):
            continue
        is_other_stream = bool(gone.after) and first.partition(":")[0] != gone.after.partition(":")[0]
        if renames or is_other_stream or _seen_name(other) == _seen_name(column):
            found.append(other)
    return found


def _may_be(old: str, before: ListOfColumns, new: str, after: ListOfColumns, *, in_full: bool = False) -> bool:
    """Whether a column may be an earlier one under a new name: a rename keeps its type and its place.

    Where a list *in_full* leaves numbers out, its source keeps them, and the number has to be the same.
    """
    at, now = before.columns[old].place, after.columns[new].place
    if not before.columns[old].may_be(after.columns[new]):
        return False
    if at is None or now is None:
        return True
    places, numbers = _places(before), _places(after)
    both = places.keys() & numbers.keys()
    if sum(places[one] < at for one in both) != sum(numbers[one] < now for one in both):
        return False
    return not in_full or at == now or max(numbers.values()) - min(numbers.values()) + 1 == len(numbers)


def _places(one: ListOfColumns) -> dict[str, int]:
    return {name: column.place for name, column in one.columns.items() if column.place is not None}


def _seen_name(name: str) -> str:
    """A name as people see it: without blanks around it, signs without width and differences of normal form."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", name) if unicodedata.category(sign) != "Cf").strip()
