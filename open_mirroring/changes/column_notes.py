"""Notes on the columns of a table: decisions of operators, which columns are gone, and which are unverified.

`ALTER TABLE … ADD … NOT NULL DEFAULT` gives every row a value, but the source sends no change for these rows (G-07). So
rows that were published before the statement may differ from the source. A new column, or a column whose values changed
with its type, stays unverified until a proof compares it with the source, or a reset loads the table again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from open_mirroring.changes.column_history import FormerColumn, Word, commit_text, place_text


class NoteKind(StrEnum):
    """The kinds of notes on a column: what is known or was decided about the column."""

    DECIDED = "decided"
    """An operator decided that a column that rows lack was dropped or renamed (F-88). It survives a reset of the table.
    """
    FORMER = "former"
    """Rows contain it under an earlier name (G-66). Noted before the first files after a reset."""
    GONE = "gone"
    """The source dropped it: rows written since have NULL there (G-60)."""
    CHANGED = "changed"
    """Rows that have not changed since may differ (G-07)."""
    TAKEN = "taken"
    """The setting `columns` includes it, or the columns of a pattern, only since then (G-141)."""
    ROWS = "rows"
    """Any column of any row may lack changes (G-142). *column* has the reason."""
    LOAD = "load"
    """Any row may be wrong, because the newest initial load is doubtful (T-30). *column* has reason and next step."""
    CONTRADICTED = "contradicted"
    """Any row may be wrong, because the deep check found changes that contradict earlier ones (G-190)."""


OF_ROWS = (NoteKind.ROWS, NoteKind.LOAD, NoteKind.CONTRADICTED)
UNVERIFIED = (NoteKind.CHANGED, NoteKind.TAKEN, *OF_ROWS)


class ColumnNote(NamedTuple):
    """A note on one or more columns of a table.

    *generation* counts the resets of the table; a note with generation 0 survives every reset. *column* is a name or a
    pattern; in a note on all columns of all rows, *column* has the reason. *since* is the place (position) from which
    the note applies. In notes of the kinds DECIDED and FORMER, *since* is the place up to which the note applies.
    *batch* is the newest batch of the change log whose rows are meant. In notes of the kind FORMER, *batch* is the rank
    in which these notes are applied.
    """

    generation: int
    kind: NoteKind
    column: str
    since: str
    batch: int
    at: datetime
    now: str | None = None
    verified: bool = False

    @property
    def place(self) -> str:
        """The position since which the note applies, formatted for people."""
        return place_text(self.since)

    @property
    def is_of_rows(self) -> bool:
        """Whether the note is about all columns of all rows."""
        return self.kind in OF_ROWS

    @property
    def is_of_many(self) -> bool:
        """Whether the note is about more than one column."""
        return self.is_of_rows or "*" in self.column

    def text(self, names: str) -> str:
        """The note as a sentence for people.

        *names* is the beginning of the sentence, such as ``columns 'a', 'b' unverified since LSN …``.
        """
        if self.kind is NoteKind.GONE:
            return f"{names}: rows written since then have NULL there"
        if self.kind is NoteKind.LOAD:
            return f"rows unverified up to batch {self.batch}: {self.column}"
        if self.is_of_rows:
            is_contradicted = self.kind is NoteKind.CONTRADICTED
            why = "changes contradict those before them, so some are missing: " if is_contradicted else ""
            return (
                f"rows unverified up to batch {self.batch}: {why}{self.column}. What they lack compared with the "
                "source is unknown: run `open-mirroring prove` to check, or reset the table with an initial load"
            )
        if self.kind is NoteKind.TAKEN:
            which = f"columns like {self.column!r} unverified" if "*" in self.column else names
            return (
                f"{which} since `columns` includes it: rows that were read before have NULL there until they "
                "change; a reset with an initial load loads what the source has"
            )
        return (
            f"{names}: rows that have not changed since then may differ from the source. The source sends no change "
            "if a new column has a default, a new type alters values, or two equal rows exchange their keys. "
            "Run `open-mirroring prove` to compare the rows, or reset the table with an initial load"
        )


def decided(notes: Iterable[ColumnNote]) -> list[Word]:
    """Extract operators' decisions on columns that newer rows lack: was the column dropped or renamed?"""
    return [Word(one.column, one.since, one.now) for one in notes if one.kind is NoteKind.DECIDED]


def former_columns(notes: Iterable[ColumnNote]) -> list[FormerColumn]:
    """Extract the former names of columns from notes, in the order in which the renames have to be applied."""
    former = (one for one in notes if one.kind is NoteKind.FORMER)
    return [FormerColumn(one.column, one.since, one.now) for one in former]


def texts(notes: Iterable[ColumnNote]) -> list[str]:
    """Sentences for people on which columns are gone and which are unverified; equal sentences are merged."""
    alike: dict[tuple[NoteKind, str], list[ColumnNote]] = {}
    for one in notes:
        if one.kind is NoteKind.GONE or (one.kind in UNVERIFIED and not one.verified):
            alike.setdefault((one.kind, one.column if one.is_of_many else ""), []).append(one)
    groups = sorted(alike.values(), key=lambda group: group[0].kind is not NoteKind.GONE)
    return [group[0].text(_since(group)) for group in groups]


def _since(notes: Sequence[ColumnNote]) -> str:
    """``columns 'a', 'b' gone since LSN …``, ``columns 'a' (since LSN …), 'b' (since LSN …) gone``."""
    is_gone = notes[0].kind is NoteKind.GONE
    of_places: dict[str, list[str]] = {}
    for one in notes:
        of_places.setdefault(one.since, []).append(repr(one.column))
    is_one = len(of_places) == 1
    names = [", ".join(of) + ("" if is_one else f" (since {commit_text(at)})") for at, of in of_places.items()]
    since = f" since {commit_text(place)}" if is_one and (place := next(iter(of_places))) else ""
    return f"column{'s' if len(notes) > 1 else ''} {', '.join(names)} {'gone' if is_gone else 'unverified'}{since}"
