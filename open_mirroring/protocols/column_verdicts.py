"""Decides what happens to the columns of a table when its column lists change: keep, add, widen, or reload.

The decision needs no rows, only the lists of columns that rows had, each with the positions of its first and last row.
If a column must be widened or reloaded, the table stops at the position of the change, and all changes before this
position are published first (G-61). A *place* in this module is such a position.
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
    """What has to be done about a column at the target."""

    SAME = "same"
    ADD = "add"
    WIDEN = "widen"
    RELOAD = "reload"


class ColumnVerdict(NamedTuple):
    """What has to be done about one column, or about several columns that are judged together.

    *at* is the position from which the verdict holds; None if it concerns the complete table. *code* and *what* are the
    code and text of the stop, if the verdict is WIDEN or RELOAD. If the verdict is SAME or ADD, rows that have not
    changed since *at* may differ from the source.
    """

    fate: Fate
    columns: tuple[str, ...]
    at: str | None
    code: str = ""
    what: str = ""


class SourceColumns(NamedTuple):
    """What the source format and the mirror file determine about the columns of one table.

    Attributes:
        renames: whether a column can be renamed at the source while its changes are read.
        asks: whether an operator is asked about a column that may have been renamed; if not, the column counts as
            dropped.
        leaves_out: whether `columns` in the mirror file leaves columns out, so that their values are not logged.
        structures: returns the column lists that the source announced, oldest first, with names in folded case.
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
    """Judge columns that are missing in newer rows, or that are back after a gap (G-60).

    A missing column was renamed or dropped. If rows do not show which, an operator has to decide. *said* are the
    decisions of operators, ordered by position.
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
    """Judge columns that were missing for a time and came back (G-66).

    Such a column may have been renamed meanwhile, and a different column may have got its former name. If an operator
    has to decide this, the complete table stops: values would be under the wrong name. The table also stops if a late
    row contradicts the drop of a column in *former*.

    *lists* and *history* are as the rows were logged. *former* are renamed and dropped columns, by which earlier rows
    are read now. *is_noted* is True if *former* comes from the ledger.
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
                f"{one.column!r} was gone up to {commit_text(again)}, after {commit_text(one.up_to)}, up to which its "
                "values were left out: it is unknown which rows in between have values of the dropped column"
            )
            yield ColumnVerdict(Fate.RELOAD, (one.column,), None, "SCHEMA_CHANGED", what)


def _possible_names(
    column: str, gone: Gone, lists: Sequence[ListOfColumns], source: SourceColumns
) -> Sequence[str] | None:
    """The new names that a missing column may have; None if it was dropped.

    An empty list means that its new name may be one that `columns` leaves out. Between two epochs of the stream, any
    source may have renamed a mirrored column (G-12).
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
    """Judge columns whose newest rows spell the name in another case than the table's published files (G-67).

    *lists* are the column lists as logged; *spelled* are the columns with two spellings.
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
    """Find updates that may lack unchanged columns; the target needs complete rows (C-44, C-70, F-55).

    A column list is complete if a row proved this. Without such a proof, a column list is incomplete if it lacks a
    *known* column. If *is_all* (`columns` leaves no column out), a gap in the ordinals of the columns also shows that
    the list is incomplete. A dropped column is not expected after its last row. A column in *former* is not expected,
    under its old or new name, in lists from before its rename or drop.
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
    """Find columns that the initial load contains but no change does: a changed row would lose their values (C-77)."""
    never = {*loaded} - {*history.gone, *(name for one in lists for name in one.columns)}
    proofs = [one.seen.whole_first for one in lists if one.seen.whole_first]
    if never and proofs:
        what = (
            f"the initial load contains {named_columns(never)}, but changes do not: changed rows would lose the "
            "loaded values"
        )
        yield ColumnVerdict(Fate.RELOAD, tuple(sorted(never)), min(proofs), COLUMN_NOT_STREAMED, what)


def added(lists: Sequence[ListOfColumns], loaded: Collection[str], *, completes: bool) -> dict[str, ColumnVerdict]:
    """Find columns added after a table's first rows, each with the position of its first row (G-07).

    A column list that may be incomplete does not show that a column was missing before. *completes* means that the
    format sends partial rows, which are completed later. Then every column list may be incomplete unless a row proved
    the opposite.
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
    """Find columns that were dropped and added again between two rows, as the column order shows (G-07).

    Rows that have not changed since then have lost the column's values at the source, and no change shows this loss. If
    two column orders alternate, no conclusion is possible.
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
    """A column's type in changes: its type at the target, and the positions of the first and last row with it."""

    lands: str
    first: str
    last: str


def types_of_changes(lists: Iterable[ListOfColumns]) -> dict[str, dict[str, TypeOfChanges]]:
    """For each column, its source types in changes, each with the positions at which the type was used."""
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

    *keeps* takes a column, its old and its new type, and returns whether all values stay the same. If values may have
    changed, the verdict is RELOAD for a key column, and for a column whose type at the target also changes. For any
    other column the verdict is SAME.
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
    """The lowest of *places* (positions) and of the positions of the first rows that have one of the columns."""
    wanted = {*columns}
    return min([*places, *(one.seen.first for one in lists if wanted & one.columns.keys())])


def named_columns(names: Iterable[str]) -> str:
    """The names, sorted, as ``'a', 'b'``; after ten names, only the number of the remaining ones."""
    found = sorted(names)
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ", ".join(map(repr, found[:10])) + more
