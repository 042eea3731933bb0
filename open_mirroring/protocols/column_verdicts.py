"""Judges what becomes of the columns of a table, from facts about its column lists; no row is read.

Each column stays the same, is added, needs a wider type at the target, or its table has to be reloaded. A table with a
verdict of the last two kinds stops at the place of the verdict: what lies before it is published first (G-61).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import pairwise, permutations
from typing import NamedTuple

from open_mirroring.changes.column_history import (
    ColumnHistory,
    FormerColumn,
    Gone,
    ListOfColumns,
    Word,
    commit_text,
    gone_again,
    moved_behind,
    names_before_return,
    names_by_structures,
)
from open_mirroring.protocols.table_stops import COLUMN_NOT_STREAMED, PARTIAL_ROWS


class Fate(Enum):
    """What becomes of a column."""

    SAME = "same"
    ADD = "add"
    WIDEN = "widen"
    RELOAD = "reload"


class ColumnVerdict(NamedTuple):
    """What becomes of a column, or of some that are judged together, from a place on.

    *code* and *what* are those of the stop, of a column that is wider or has to be reloaded. Of a column that stays or
    is added, rows that have not changed since *at* may differ from the source. *at* is None where no place divides what
    can be published from what cannot.
    """

    fate: Fate
    columns: tuple[str, ...]
    at: str | None
    code: str = ""
    what: str = ""


class SourceColumns(NamedTuple):
    """What a source and its mirror file say of the columns of one table.

    Attributes:
        renames: whether the source can rename a column while its changes are read.
        asks: whether an operator is asked for columns that may have been renamed; else they count as dropped.
        leaves_out: whether `columns` leaves names out, of which nothing is logged.
        structures: looks up the structures that the source announced, in the order in which they held, with names in
            folded case.
    """

    renames: bool = True
    asks: bool = True
    leaves_out: bool = False
    structures: Callable[[], Sequence[ListOfColumns]] = tuple


def judge_lives(
    lists: Sequence[ListOfColumns],
    history: ColumnHistory,
    said: Sequence[Word],
    source: SourceColumns,
) -> Iterator[ColumnVerdict]:
    """Judge the columns that rows lack from some place on: renamed, perhaps renamed, or back (G-60).

    *said* are the words of operators in the order of their places.
    """
    questions: dict[str, tuple[Gone, Sequence[str]]] = {}
    for column, found in history.gone.items():
        words = [one.now for one in said if one.column == column and one.up_to > found.after]
        if words and words[-1] is not None:
            what = (
                f"{column!r} is {words[-1]!r} from {commit_text(found.since)} on. Rows that have not changed "
                "since have their values under the old name."
            )
            at = first_place([words[-1]], lists, found.since)
            yield ColumnVerdict(Fate.RELOAD, (column,), at, "COLUMN_RENAMED", what)
        elif not words and (names := _possible_names(column, found, lists, source)) is not None:
            questions[column] = found, names
    if questions:
        since = min(found.since for found, _ in questions.values())
        new = sorted({name for _, names in questions.values() for name in names})
        which = "dropped, or renamed"
        if new:
            which = f"have {named_columns(new)}, which they did not have before: {which}"
        else:
            which = f"have no new one: {which} to a name that `columns` leaves out, and that so was not logged"
        what = f"from {commit_text(since)} on, rows lack {named_columns(questions)} and {which}"
        yield ColumnVerdict(Fate.RELOAD, (*questions,), first_place(new, lists, since), "RENAME_POSSIBLE", what)
    for column, back in history.back.items():
        what = (
            f"{column!r} is there again from {commit_text(back.since)} on. Rows lacked it up to "
            f"{commit_text(back.gone_at)}, so rows that have not changed since have values of another column."
        )
        # Which of the rows behind it have the column is not known.
        yield ColumnVerdict(Fate.RELOAD, (column,), f"{back.gone_at}~", "SCHEMA_CHANGED", what)


def judge_returns(
    lists: Sequence[ListOfColumns],
    history: ColumnHistory,
    said: Sequence[Word],
    source: SourceColumns,
    former: Sequence[FormerColumn],
    *,
    is_noted: bool,
) -> Iterator[ColumnVerdict]:
    """Judge columns whose earlier values are left out: one may have been renamed before another took its name (G-66).

    The table stops as a whole: values that were published once would stand in the way of the other column. *lists* and
    *history* are as rows were logged, *former* is how they are read; where that *is_noted*, something is published.
    """
    for column, back in history.back.items() if source.asks else ():
        if is_noted and column not in history.gone:
            continue  # it stops the table anyhow, until all is read from scratch
        known = max((one.up_to for one in said if one.column == column), default="")
        names = names_before_return(column, back, lists, source.renames)
        shown = names_by_structures(column.casefold(), source.structures()) if names else None
        possible = [name for name in names if shown is None or name.casefold() in shown]
        if open_ones := [name for name in possible if names[name] > known]:
            what = (
                f"up to {commit_text(back.gone_at)} rows lacked {column!r} for a time and have "
                f"{named_columns(open_ones)}, which they did not have before: dropped, or renamed"
            )
            yield ColumnVerdict(Fate.RELOAD, (column,), None, "RENAME_POSSIBLE", what)
    for one in former:
        if one.now is None and (again := gone_again(one, lists)):
            what = (
                f"{one.column!r} was gone up to {commit_text(again)}, behind {commit_text(one.up_to)}, up to which its "
                "values were left out: which rows between have values of the dropped column is unknown"
            )
            yield ColumnVerdict(Fate.RELOAD, (one.column,), None, "SCHEMA_CHANGED", what)


def _possible_names(
    column: str, gone: Gone, lists: Sequence[ListOfColumns], source: SourceColumns
) -> Sequence[str] | None:
    """The names that a column may have now, empty where it may be one that `columns` leaves out; None: it is gone.

    As for columns that are mirrored, any source may have renamed it between two stream incarnations (G-12).
    """
    is_other_stream = bool(gone.after) and gone.since.partition(":")[0] != gone.after.partition(":")[0]
    is_hidden = source.leaves_out and (source.renames or is_other_stream)
    is_loaded_only = not gone.after and source.renames
    if not source.asks or not (gone.renamed_to or is_hidden or is_loaded_only):
        return None
    structures = source.structures()
    shown = names_by_structures(column.casefold(), structures)
    if shown is None or column.casefold() in structures[-1].columns:
        return gone.renamed_to if gone.renamed_to or is_hidden else None
    mirrored = {name for one in lists for name in one.columns}
    # The types of a load may be others than those that are announced.
    names = [name for name in (mirrored if is_loaded_only else gone.renamed_to) if name.casefold() in shown]
    return sorted(names) if names or shown - {name.casefold() for name in mirrored} else None


def judge_spelling(lists: Sequence[ListOfColumns], spelled: Sequence[FormerColumn]) -> Iterator[ColumnVerdict]:
    """Judge columns whose newest rows spell the name in another case than the table's files (G-67).

    *lists* are the column lists as they were logged. *spelled* are the columns with two spellings.
    """
    newest: dict[str, tuple[str, str]] = {}
    for one in lists:
        for name in one.columns:
            newest[name.casefold()] = max(newest.get(name.casefold(), ("", "")), (one.seen.last, name))
    for former in spelled:
        if newest.get(former.column.casefold(), ("", ""))[1] == former.column:
            since = first_place([former.column], lists)
            what = f"{former.now!r} is spelled {former.column!r} from {commit_text(since)} on"
            yield ColumnVerdict(Fate.RELOAD, (former.now or former.column,), since, "COLUMN_RENAMED", what)


def judge_parts(
    lists: Sequence[ListOfColumns],
    history: ColumnHistory,
    known: Sequence[str],
    former: Sequence[FormerColumn],
    *,
    is_all: bool,
) -> Iterator[ColumnVerdict]:
    """Judge updates that may carry only what changed (C-44, C-70): a full row is needed (F-55).

    A list is whole if a row proved it. Without proof it must lack no *known* column, nor (where *is_all*: `columns`
    leaves nothing out) a place in the table. A column that is gone no longer counts behind its last row, nor does a
    *former* one before its place.
    """
    for one in lists:
        gone = {name for name, found in history.gone.items() if one.seen.first > found.after}
        gone |= {name for f in former if one.seen.first <= f.up_to for name in (f.column, f.now) if name}
        absent = [name for name in known if name not in one.columns and name not in gone]
        places = sorted(column.place or 0 for column in one.columns.values())
        has_gap = is_all and not gone and places != list(range(len(places)))
        if (absent or has_gap) and not one.whole:
            lacking = f"without {absent[:5]}" if absent else "with gaps between their places in the table"
            what = (
                f"updates carry {len(one.columns)} of {max(len(known), len(one.columns))} known columns, {lacking}; "
                "set @include_all_columns = 1 at the source, or `full_rows: true` if these updates do carry complete "
                "rows"
            )
            yield ColumnVerdict(Fate.RELOAD, tuple(absent), None, PARTIAL_ROWS, what)


def judge_unstreamed(
    lists: Sequence[ListOfColumns], history: ColumnHistory, loaded: Iterable[str]
) -> Iterator[ColumnVerdict]:
    """Judge *loaded* columns that no change carries: changed rows would lose their values (C-77)."""
    never = {*loaded} - {*history.gone, *(name for one in lists for name in one.columns)}
    proofs = [one.seen.whole_first for one in lists if one.seen.whole_first]
    if never and proofs:
        what = (
            f"the initial load contains {named_columns(never)}, but changes do not: changed rows would lose the "
            "loaded values"
        )
        yield ColumnVerdict(Fate.RELOAD, tuple(sorted(never)), min(proofs), COLUMN_NOT_STREAMED, what)


def added(lists: Sequence[ListOfColumns], loaded: Collection[str], *, completes: bool) -> dict[str, ColumnVerdict]:
    """The columns that came behind some row, each with the first place that has it (G-07).

    A list that may be only a part of its row does not show what the row lacks. Where rows are completed, that is
    every list that no row proved to be whole.
    """
    known, has_rows, found = set(loaded), bool(loaded), dict[str, ColumnVerdict]()
    for one in lists:
        if has_rows and one.seen.first:
            new = sorted(one.columns.keys() - known)
            found |= {name: ColumnVerdict(Fate.ADD, (name,), one.seen.first) for name in new}
        known |= one.columns.keys()
        has_rows = has_rows or one.whole or not completes
    return found


def moved(lists: Sequence[ListOfColumns], keys: Collection[str]) -> dict[str, ColumnVerdict]:
    """The columns that were dropped and added again between two rows, as their places show (G-07).

    Rows that did not change since lost what they had, and no change shows it. Lists that alternate show nothing.
    """
    found = dict[str, ColumnVerdict]()
    for one, other in pairwise(sorted((one for one in lists if one.whole), key=lambda one: one.seen.first)):
        if one.seen.last < other.seen.first:
            names = moved_behind(_in_order(one), _in_order(other))
            found |= {name: ColumnVerdict(Fate.SAME, (name,), other.seen.first) for name in names if name not in keys}
    return found


def _in_order(one: ListOfColumns) -> list[str]:
    return sorted(one.columns, key=lambda name: one.columns[name].place or 0)


class TypeOfChanges(NamedTuple):
    """A type by which changes carry a column: its landing type, and the first and the last place of a row with it."""

    lands: str
    first: str
    last: str


def types_of_changes(lists: Iterable[ListOfColumns]) -> dict[str, dict[str, TypeOfChanges]]:
    """By column the types at the source by which changes carry it."""
    found: dict[str, dict[str, TypeOfChanges]] = {}
    for one in lists:
        for name, column in one.columns.items():
            types = found.setdefault(name, {})
            _, first, last = types.get(column.sql_type, ("", one.seen.first, one.seen.last))
            seen = min(first, one.seen.first), max(last, one.seen.last)
            types[column.sql_type] = TypeOfChanges(column.lands, *seen)
    return found


def judge_types(
    types: Mapping[str, Mapping[str, TypeOfChanges]], keys: Collection[str], keeps: Callable[[str, str, str], bool]
) -> Iterator[ColumnVerdict]:
    """Judge columns whose type changed at the source, which may have changed the values of all rows (G-65).

    *keeps* says of a column, its old and its new type whether all values are the same in both. Where they may differ, a
    key, or a column that lands as another type, has to be reloaded.
    """
    for name, of_column in types.items():
        for (old, before), (new, after) in permutations(of_column.items(), 2):
            # Late rows have the old type, too: it changed where rows with it come first.
            if before.first < after.last and not keeps(name, old, new):
                since = max(before.first, after.first)
                if before.lands == after.lands and name not in keys:
                    yield ColumnVerdict(Fate.SAME, (name,), since)
                    continue
                what = (
                    f"column {name!r} changed its type from {old} to {new} at {commit_text(since)}, which may "
                    "have changed the values of rows that no change reports"
                )
                yield ColumnVerdict(Fate.RELOAD, (name,), since, "SCHEMA_CHANGED", what)


def first_place(columns: Iterable[str], lists: Iterable[ListOfColumns], *places: str) -> str:
    """The first place of a row with one of the columns, or of *places*."""
    wanted = {*columns}
    return min([*places, *(one.seen.first for one in lists if wanted & one.columns.keys())])


def named_columns(names: Iterable[str]) -> str:
    """``'a', 'b'``, in the order of their names; of many the first ten."""
    found = sorted(names)
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ", ".join(map(repr, found[:10])) + more
