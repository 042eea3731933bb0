"""Keeps notes on the columns of a table: what operators said of them, which are gone, and which are not verified.

`ALTER TABLE … ADD … NOT NULL DEFAULT` gives every row a value and sends no change (G-07). At the target these rows have
NULL until they change. A nullable column without default is equal at once, but the stream cannot distinguish the two.
So a new column is reported as unverified until source and target were compared, or the table was loaded again. So is
one whose type changed in a way that may have changed its values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_history import FormerColumn, Word, place_text
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.tables import upsert

_KEYS = ("table_id", "generation", "kind", "column", "place")


class NoteKind(StrEnum):
    """What a note on a column says.

    The *place* of a decision and of a former column is that up to which it counts, of others that since which.
    """

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


_OF_ROWS = (NoteKind.ROWS, NoteKind.LOAD, NoteKind.CONTRADICTED)
UNVERIFIED = (NoteKind.CHANGED, NoteKind.TAKEN, *_OF_ROWS)


class ColumnNote(NamedTuple):
    """A note of a table's present generation: the place since which it holds, and what was published by then.

    *column* is a name; of a taken column it may be a pattern, and where all rows are meant it says why.
    """

    kind: NoteKind
    column: str
    since: str
    batch: int
    at: datetime

    @property
    def place(self) -> str:
        """The place since which a column is gone, for people."""
        return place_text(self.since)

    @property
    def is_of_rows(self) -> bool:
        """Whether all columns of all rows are meant."""
        return self.kind in _OF_ROWS

    @property
    def is_of_many(self) -> bool:
        """Whether *column* names no single column."""
        return self.is_of_rows or "*" in self.column

    def text(self, names: str) -> str:
        """What it means, for people; *names* says of this column, and of others like it, since when it is so."""
        if self.kind is NoteKind.GONE:
            return f"{names}: rows written since then have NULL there"
        if self.kind is NoteKind.LOAD:
            return f"rows unverified up to batch {self.batch}: {self.column}"
        if self.is_of_rows:
            is_contradicted = self.kind is NoteKind.CONTRADICTED
            why = "changes contradict those before them, so some are missing: " if is_contradicted else ""
            return (
                f"rows unverified up to batch {self.batch}: {why}{self.column}; what they lack of the "
                "source, no message tells: a proof does, and a reset with an initial load brings it"
            )
        if self.kind is NoteKind.TAKEN:
            which = f"columns like {self.column!r} unverified" if "*" in self.column else names
            return (
                f"{which} since `columns` takes it: rows that were read before have NULL there until they "
                "change; a reset with an initial load loads what the source has"
            )
        return (
            f"{names}: rows that have not changed since then may differ from the source, by a default, a new type, or "
            "for a key by a swap with an equal row; run `open-mirroring prove` to check, or reload the table"
        )


def note_decision(db: Connection, table_id: str, said: Word) -> None:
    """Keep what became of a column, for changes up to a place; a later word on these replaces an earlier one."""
    row = _row(table_id, 0, NoteKind.DECIDED, said.column, said.up_to, now=said.now)
    upsert(db, t.column_note, [row], keys=_KEYS, update=["now", "at"])


def column_decisions(db: Connection, table_ids: Iterable[str]) -> dict[str, list[Word]]:
    """By table id what operators said of columns that rows lack, in the order of the places."""
    c = t.column_note.c
    query = sa.select(c.table_id, c.column, c.place, c.now).order_by(c.place, c.column)
    rows = db.execute(query.where(c.table_id.in_(list(table_ids)), c.kind == NoteKind.DECIDED.value)).tuples()
    return t.grouped((id_, Word(*said)) for id_, *said in rows)


def note_former(ledger: Engine, table_id: str, generation: int, columns: Sequence[FormerColumn]) -> None:
    """Note how a generation reads columns of earlier rows, before its first files; what was noted before is replaced.

    Files that were never published may have been read otherwise: they are written again.
    """
    rows = [_row(table_id, generation, NoteKind.FORMER, one.column, one.up_to, now=one.now) for one in columns]
    with ledger.begin() as db:
        db.execute(t.column_note.delete().where(_of(table_id, generation, NoteKind.FORMER)))
        upsert(db, t.column_note, rows, keys=_KEYS, update=[])


def former_columns(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[FormerColumn]]:
    """By table id how its present generation reads columns of earlier rows, one after the other."""
    c = t.column_note.c
    query = sa.select(c.table_id, c.generation, c.column, c.place, c.now).where(c.kind == NoteKind.FORMER.value)
    rows = t.rows(ledger, query.order_by(c.place, c.column))
    return t.grouped((id_, FormerColumn(*one)) for id_, generation, *one in rows if generations.get(id_) == generation)


def note_gone(ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int) -> None:
    """Note the columns that are gone, each with the first place without it; others of the table are not gone."""
    rows = [_row(table_id, generation, NoteKind.GONE, column, place, batch) for column, place in since.items()]
    with ledger.begin() as db:
        db.execute(t.column_note.delete().where(_of(table_id, generation, NoteKind.GONE)))
        upsert(db, t.column_note, rows, keys=_KEYS, update=[])


def note_columns(
    ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int, *, again: bool = False
) -> None:
    """Note columns by the position since which they are there; one that is known, verified or not, stays as it is.

    With *again* they are no longer verified, for what no one can verify from changes has happened again.
    """
    if not since:
        return
    c, here = t.column_note.c, _of(table_id, generation, NoteKind.CHANGED)
    with ledger.begin() as db:
        known = {*db.scalars(sa.select(c.column).where(here, c.column.in_(list(since))))}
        new = sorted((column, place) for column, place in since.items() if column not in known)
        rows = [_row(table_id, generation, NoteKind.CHANGED, column, place, batch) for column, place in new]
        upsert(db, t.column_note, rows, keys=_KEYS, update=[])
        if again:
            values = {"verified": False, "batch": batch, "at": datetime.now(UTC)}
            db.execute(t.column_note.update().where(here, c.column.in_(known)).values(values))


def note_again(
    db: Connection, table_id: str, generation: int, noted: Iterable[tuple[str, str, str]], batch: int
) -> None:
    """Note what a lost ledger had: kind, column and place of each note."""
    rows = [_row(table_id, generation, NoteKind(kind), column, place, batch) for kind, column, place in noted]
    upsert(db, t.column_note, rows, keys=_KEYS, update=[])


def note_from_now(db: Connection, rows: Iterable[Any], kind: NoteKind, columns: Sequence[str], batch: int) -> None:
    """Note of the tables of a ledger's *rows* what rows up to a batch may lack: columns, patterns, or why (G-141).

    What is noted already is noted up to this batch: a proof or a load that holds less does not end it.
    """
    noted = [_row(row.id, row.generation, kind, name[:300], "", batch) for row in rows for name in columns]
    upsert(db, t.column_note, noted, keys=_KEYS, update=["verified", "batch", "at"])


def note_contradicted(ledger: Engine, table_id: str, generation: int, why: str | None, batch: int) -> None:
    """Replace the unverified notes of contradictions in a table's log; None: there are none (G-190)."""
    here = _of(table_id, generation, NoteKind.CONTRADICTED)
    with ledger.begin() as db:
        db.execute(t.column_note.delete().where(here, t.column_note.c.verified.is_(False)))
        if why is not None:
            row = _row(table_id, generation, NoteKind.CONTRADICTED, why[:300], "", batch)
            upsert(db, t.column_note, [row], keys=_KEYS, update=["batch", "at", "verified"])


def contradicted_up_to(ledger: Engine, table_id: str, generation: int) -> int:
    """The batch up to which contradictions were noted and verified since; 0: none were."""
    c = t.column_note.c
    here = _of(table_id, generation, NoteKind.CONTRADICTED)
    return t.first(ledger, sa.select(sa.func.max(c.batch)).where(here, c.verified)) or 0


def keep_taken(db: Connection, table_id: str, generation: int) -> None:
    """Carry the notes on what rows may lack into the next generation, which has rows of the log, too.

    Verified ones stay verified, and still say which columns rows may lack: to verify one, published rows are compared.
    Those on the load stay behind with it: otherwise nothing that they say to do would end them.
    """
    kinds = (NoteKind.TAKEN, NoteKind.ROWS, NoteKind.CONTRADICTED)
    noted = db.execute(sa.select(t.column_note).where(_of(table_id, generation, *kinds))).mappings()
    again = [{**one, "generation": generation + 1} for one in noted]
    upsert(db, t.column_note, again, keys=_KEYS, update=[])


def forget_taken(db: Connection, table_id: str, below: int) -> None:
    """Drop the notes on what rows of batches *below* one may lack: a load replaces all of these rows (G-141)."""
    c, is_taken = t.column_note.c, _is_of(NoteKind.TAKEN, *_OF_ROWS)
    db.execute(t.column_note.delete().where(c.table_id == table_id, is_taken, c.batch < below))


def verify_columns(ledger: Engine, table_id: str, notes: Iterable[ColumnNote]) -> int:
    """Mark what these notes of a table say as verified; returns how many were not before, and still say the same.

    For a caller that read the notes, and then compared every row of the table with the source: what was noted since,
    also again, may concern what came behind the comparison.
    """
    c = t.column_note.c
    here = (c.table_id == table_id) & c.verified.is_(False)
    with ledger.begin() as db:
        return sum(
            db.execute(
                t.column_note.update()
                .where(here, c.kind == one.kind.value, c.column == one.column, c.batch == one.batch, c.at == one.at)
                .values(verified=True)
            ).rowcount
            for one in notes
        )


def column_notes(
    ledger: Engine, generations: Mapping[str, int], *kinds: NoteKind, is_open: bool = False
) -> dict[str, list[ColumnNote]]:
    """By table id what is noted of its present generation, in its order; only what is not verified, if *is_open*."""
    c = t.column_note.c
    query = sa.select(c.table_id, c.generation, c.kind, c.column, c.place, c.batch, c.at).where(_is_of(*kinds))
    query = query.where(c.verified.is_(False)) if is_open else query
    rows = t.rows(ledger, query.order_by(c.batch, c.place, c.column))
    of_now = ((id_, kind, known) for id_, generation, kind, *known in rows if generations.get(id_) == generation)
    return t.grouped((id_, ColumnNote(NoteKind(kind), *known)) for id_, kind, known in of_now)


def column_texts(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[str]]:
    """By table id what is noted of its columns in its present generation, for people: gone, or not verified."""
    found: dict[str, list[str]] = {}
    for table, gone in column_notes(ledger, generations, NoteKind.GONE).items():
        found[table] = [gone[0].text(_since("gone", [(one.column, one.place) for one in gone]))]
    for table, unverified in column_notes(ledger, generations, *UNVERIFIED, is_open=True).items():
        alike = t.grouped(((one.kind, one.column if one.is_of_many else ""), one) for one in unverified)
        for group in alike.values():
            names = _since("unverified", [(one.column, one.since) for one in group])
            found.setdefault(table, []).append(group[0].text(names))
    return found


def _since(what: str, columns: Sequence[tuple[str, str]]) -> str:
    """``columns 'a', 'b' gone since position 1``, ``columns 'a' (since position 1), 'b' (since position 2) gone``."""
    of_places = t.grouped((place, repr(name)) for name, place in columns)
    is_one = len(of_places) == 1
    names = [", ".join(of) + ("" if is_one else f" (since position {at})") for at, of in of_places.items()]
    since = f" since position {columns[0][1]}" if is_one and columns[0][1] else ""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(names)} {what}{since}"


def _row(
    table_id: str, generation: int, kind: NoteKind, column: str, place: str, batch: int = 0, now: str | None = None
) -> dict[str, Any]:
    said = {"column": column, "place": place, "batch": batch, "now": now, "at": datetime.now(UTC), "verified": False}
    return {"table_id": table_id, "generation": generation, "kind": kind.value, **said}


def _of(table_id: str, generation: int, *kinds: NoteKind) -> sa.ColumnElement[bool]:
    c = t.column_note.c
    return (c.table_id == table_id) & (c.generation == generation) & _is_of(*kinds)


def _is_of(*kinds: NoteKind) -> sa.ColumnElement[bool]:
    return t.column_note.c.kind.in_([kind.value for kind in kinds])
