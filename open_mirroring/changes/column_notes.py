"""Notes on the columns of a table: what operators said of them, which are gone, and which are not verified.

`ALTER TABLE … ADD … NOT NULL DEFAULT` gives every row a value and sends no change (G-07). So a new column, or one whose
type changed its values, is unverified until it was compared with the source, or loaded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from open_mirroring.changes.column_history import FormerColumn, Word, commit_text, place_text


class NoteKind(StrEnum):
    """What a note on a column says."""

    DECIDED = "decided"
    """An operator said of a column that rows lack: it was dropped, or renamed (F-88). Counts in every generation."""
    FORMER = "former"
    """Rows carry it under an earlier name. Noted before the first files of a generation (G-66)."""
    GONE = "gone"
    """The source dropped it: rows written since have NULL there (G-60)."""
    CHANGED = "changed"
    """Rows that have not changed since may differ (G-07)."""
    TAKEN = "taken"
    """`columns` includes it, or what fits the pattern, only since then (G-141)."""
    ROWS = "rows"
    """All columns of all rows may lack changes: stands for no column, but says why (G-142)."""
    LOAD = "load"
    """The same where only the load of this generation is doubtful; says the next step, too (T-30)."""
    CONTRADICTED = "contradicted"
    """The same where the deep check found changes that contradict those before them (G-190)."""


OF_ROWS = (NoteKind.ROWS, NoteKind.LOAD, NoteKind.CONTRADICTED)
UNVERIFIED = (NoteKind.CHANGED, NoteKind.TAKEN, *OF_ROWS)


class ColumnNote(NamedTuple):
    """A note on a table's columns.

    *generation* 0 counts for all. *column* may be a pattern, or the reason where all rows are meant. *since* is the
    place since which it holds; of a decision and a former column, that up to which it does. *batch* is what was
    published by then; of a former column it is its step, as one is read after the other.
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
        """The place since which a column is gone, for people."""
        return place_text(self.since)

    @property
    def is_of_rows(self) -> bool:
        """Whether all columns of all rows are meant."""
        return self.kind in OF_ROWS

    @property
    def is_of_many(self) -> bool:
        """Whether *column* names no single column."""
        return self.is_of_rows or "*" in self.column

    @property
    def is_unverified(self) -> bool:
        """Whether it says that rows may differ, and they were not compared since."""
        return self.kind in UNVERIFIED and not self.verified

    def text(self, names: str) -> str:
        """What it means, for people; *names* says which columns, and since when."""
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
            f"{names}: rows that have not changed since then may differ from the source: by a default, a new type, or "
            "for a key by a swap with an equal row; run `open-mirroring prove` to check, or reload the table"
        )


def decided(notes: Iterable[ColumnNote]) -> list[Word]:
    """What operators said of columns that rows lack, in the order of the places."""
    return [Word(one.column, one.since, one.now) for one in notes if one.kind is NoteKind.DECIDED]


def former_columns(notes: Iterable[ColumnNote]) -> list[FormerColumn]:
    """How columns of earlier rows are read, one after the other."""
    former = (one for one in notes if one.kind is NoteKind.FORMER)
    return [FormerColumn(one.column, one.since, one.now) for one in former]


def texts(notes: Iterable[ColumnNote]) -> list[str]:
    """What notes say, for people: which columns are gone, and what is not verified. What is alike is one text."""
    alike: dict[tuple[NoteKind, str], list[ColumnNote]] = {}
    for one in notes:
        if one.kind is NoteKind.GONE or one.is_unverified:
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
