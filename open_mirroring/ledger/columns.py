"""Stores in the ledger the column lists that rows of a table had, and notes on single columns."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_history import FormerColumn, Word
from open_mirroring.changes.column_notes import OF_ROWS, UNVERIFIED, ColumnNote, NoteKind, texts
from open_mirroring.changes.manifest import Manifest
from open_mirroring.changes.places_seen import Places, PlacesSeen
from open_mirroring.facts import column_lists
from open_mirroring.facts.column_lists import COLUMN_LISTS as FOUND_LISTS
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.documents import COLUMN_LISTS, EPOCHS, Documents


def list_digest(cols: str) -> str:
    """The hash by which the ledger identifies a column list."""
    return hashlib.sha256(cols.encode()).hexdigest()


def record_columns(db: Connection, table_id: str, lists: Mapping[str, Places], *, of_reading: bool) -> bool:
    """Add the column lists of a batch to those of a table.

    Returns whether a row of the batch proved that a column list known before has all columns of the table.
    """
    if not lists:
        return False
    known = {one.cols: one for one in COLUMN_LISTS.of(db, table_id).values()}
    changed, proved = column_lists.fold(known, lists, of_reading=of_reading)
    COLUMN_LISTS.put(db, table_id, {list_digest(cols): one for cols, one in changed.items()})
    return proved


def note_types(ledger: Engine, types: Mapping[str, str]) -> None:
    """Store, by table id, the setting `types` with which the table was last published or compared (G-129)."""
    c = t.mirrored_table.c
    with ledger.begin() as db:
        for table_id, said in types.items():
            db.execute(t.mirrored_table.update().where(c.id == table_id).values(types=said))


def keep_column_lists(db: Connection, row: Any, after_batch: int) -> None:
    """Delete the column lists of changes whose rows an initial load has replaced.

    Changes in batches above *after_batch*, at position ``stream_from`` of the ledger *row* or later, are not in the
    loaded rows. The column lists of these changes are kept. If a batch has changes on both sides of ``stream_from``,
    some column lists that are no longer needed may be kept, too.
    """
    b, ordinals = t.batch_table.c, EPOCHS.of(db, row.id)
    above = (b.mirror == row.mirror) & (b.source == row.source) & (b.batch > after_batch)
    found = db.execute(sa.select(b.batch, b.epoch, b.max_pos).where(above)).tuples()
    begin = (row.stream_epoch, row.stream_from or "") if row.stream_from is not None else (0, "")
    # A stream that no one has accepted yet stops the table by itself; its lists are kept.
    live = {batch for batch, epoch, highest in found if (ordinals.get(epoch, row.stream_epoch + 1), highest) >= begin}
    # Rows that were read before a column was taken, and that are published over the load, lack it still (G-141).
    forget_taken(db, row.id, min(live, default=sys.maxsize))
    kept = set[str]()
    before = {digest: one._replace(seen={}) for digest, one in COLUMN_LISTS.of(db, row.id).items()}
    COLUMN_LISTS.replace(db, row.id, before)
    c = t.log_batch.c
    logged = sa.select(c.number, c.manifest).where(c.mirror == row.mirror, c.number > after_batch)
    for batch, text in db.execute(logged.order_by(c.number)).tuples().all():
        if batch in live:
            manifest = Manifest.from_json(text)
            lists = FOUND_LISTS.of_table(manifest.facts, row.source)
            kept |= set(map(list_digest, lists))
            reached = {cols: _above(seen, ordinals, begin, row.stream_epoch + 1) for cols, seen in lists.items()}
            seen_above = {cols: seen for cols, seen in reached.items() if seen}
            record_columns(db, row.id, seen_above, of_reading=manifest.lists_of_reading)
    COLUMN_LISTS.drop(db, row.id, COLUMN_LISTS.of(db, row.id).keys() - kept)


def _above(
    seen: Mapping[str, PlacesSeen], ordinals: Mapping[str, int], begin: tuple[int, str], unknown: int
) -> dict[str, PlacesSeen]:
    """The places from *begin* on. If a range contains *begin*, only its end is known."""
    found: dict[str, PlacesSeen] = {}
    for epoch, places in seen.items():
        at = ordinals.get(epoch, unknown)
        if (at, places.last) < begin:
            continue
        first = places.first if (at, places.first) >= begin else places.last
        whole = places.whole_last if places.whole_last and (at, places.whole_last) >= begin else ""
        whole_first = places.whole_first if whole and (at, places.whole_first) >= begin else whole
        found[epoch] = PlacesSeen(first, places.last, whole_first, whole)
    return found


def columns_of_complete_rows(ledger: Engine, mirror: str, sources: Collection[str]) -> dict[str, set[str]]:
    """By source table, the columns of the target table and of all changes.

    Only tables of which a complete row was read are included.
    """
    m = t.mirrored_table.c
    query = sa.select(m.id, m.source, m.columns).where(m.mirror == mirror, m.source.in_(sources))
    tables = t.rows(ledger, query) if sources else ()
    with ledger.connect() as db:
        lists = COLUMN_LISTS.of_each(db, [table_id for table_id, _, _ in tables])
    found: dict[str, set[str]] = {}
    for table_id, source, columns in tables:
        known = lists.get(table_id, {}).values()
        if any(one.whole for one in known):
            found[source] = {name for name, *_ in json.loads(columns)}.union(*(one.names for one in known))
    return found


_NOTES = Documents[ColumnNote]("column note", ColumnNote)
"""Of a table, by generation, kind and column; of decisions by place, and of former columns by step, too."""


def column_notes(db: Connection, generations: Mapping[str, int], *kinds: NoteKind) -> dict[str, list[ColumnNote]]:
    """The notes of the given *kinds* by table id, sorted by batch and position.

    *generations* has the present generation of each table (a reset begins the next one). Notes of earlier generations
    are left out, except decisions of operators, which survive every reset.
    """
    found: dict[str, list[ColumnNote]] = {}
    for table, notes in _NOTES.of_each(db, generations).items():
        chosen = (one for one in notes.values() if one.generation in (0, generations[table]) and one.kind in kinds)
        if counting := sorted(chosen, key=lambda one: (one.batch, one.since, one.column)):
            found[table] = counting
    return found


def put_notes(db: Connection, table_id: str, notes: Iterable[ColumnNote]) -> None:
    """Store notes of a table; each note replaces the one of the same generation, kind and column.

    Decisions replace each other only if their positions are equal, too.
    """
    _NOTES.put(db, table_id, {_name(one): one for one in notes})


def note_decision(db: Connection, table_id: str, said: Word) -> None:
    """Store an operator's decision on a column, up to a position.

    An earlier decision on the same column up to the same position is replaced.
    """
    put_notes(db, table_id, [_note(0, NoteKind.DECIDED, said.column, said.up_to)._replace(now=said.now)])


def note_former(ledger: Engine, table_id: str, generation: int, columns: Sequence[FormerColumn]) -> None:
    """Store which columns were renamed or dropped, which decides how earlier rows are read.

    The notes replace all earlier notes of this kind in this *generation* of the table.
    """
    notes = [
        _note(generation, NoteKind.FORMER, one.column, one.up_to, step)._replace(now=one.now)
        for step, one in enumerate(columns)
    ]
    with ledger.begin() as db:
        _replace(db, table_id, generation, NoteKind.FORMER, notes)


def note_gone(ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int) -> None:
    """Store which columns are gone, each with the first position without it.

    Columns that are not in *since* count as present.
    """
    notes = [_note(generation, NoteKind.GONE, column, place, batch) for column, place in since.items()]
    with ledger.begin() as db:
        _replace(db, table_id, generation, NoteKind.GONE, notes)


def note_columns(
    ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int, *, again: bool = False
) -> None:
    """Store since which position a column is new or has a new type; rows from before are unverified.

    If a note on the column exists, its position stays. With *again*, a column that a proof has verified becomes
    unverified again.
    """
    if not since:
        return
    with ledger.begin() as db:
        noted = _of(db, table_id, generation, NoteKind.CHANGED)
        known = {one.column: one.since for one in noted}
        places = {**since, **{column: place for column, place in known.items() if column in since}}
        notes = [_note(generation, NoteKind.CHANGED, column, place, batch) for column, place in places.items()]
        put_notes(db, table_id, [one for one in notes if again or one.column not in known])


def note_from_now(db: Connection, rows: Iterable[Any], kind: NoteKind, columns: Sequence[str], batch: int) -> None:
    """Store that rows in the batches up to *batch* may lack columns or changes (G-141).

    *columns* are the names or patterns of the columns that may be missing. If changes may be missing, *columns* has the
    reason instead. *rows* are the ledger rows of the tables. If the same note exists, it is extended to *batch*. So a
    proof or an initial load that covers fewer batches does not end it.
    """
    noted = {row.id: [_note(row.generation, kind, name, "", batch) for name in columns] for row in rows}
    _NOTES.put_each(db, {table: {_name(one): one for one in notes} for table, notes in noted.items()})


def note_contradicted(ledger: Engine, table_id: str, generation: int, why: str | None, batch: int) -> None:
    """Store why logged changes of a table contradict each other, so that its rows are unverified (G-190).

    If *why* is None, the changes do not contradict each other. Then an earlier note is deleted, unless a proof has
    verified the rows.
    """
    kind = NoteKind.CONTRADICTED
    with ledger.begin() as db:
        kept = [one for one in _of(db, table_id, generation, kind) if one.verified]
        new = [] if why is None else [_note(generation, kind, why, "", batch)]
        _replace(db, table_id, generation, kind, [*kept, *new])


def contradicted_up_to(ledger: Engine, table_id: str, generation: int) -> int:
    """The newest batch with a note on contradicting changes that a proof has verified since; 0 if there is none."""
    with ledger.connect() as db:
        noted = _of(db, table_id, generation, NoteKind.CONTRADICTED)
    return max((one.batch for one in noted if one.verified), default=0)


def keep_taken(db: Connection, table_id: str, generation: int) -> None:
    """Copy notes on logged rows of a table to its next generation, which a reset begins.

    Copied are notes that rows may lack columns or changes, and notes on contradicting changes. Notes that concern only
    the initial load are not copied, because the reset replaces its rows.
    """
    kinds = (NoteKind.TAKEN, NoteKind.ROWS, NoteKind.CONTRADICTED)
    noted = _of(db, table_id, generation, *kinds)
    put_notes(db, table_id, [one._replace(generation=generation + 1) for one in noted])


def forget_taken(db: Connection, table_id: str, below: int) -> None:
    """Delete the notes that rows may lack columns or changes, for batches below *below* (G-141).

    Notes on contradicting changes are deleted, too. An initial load replaces all rows of these batches.
    """
    kinds = (NoteKind.TAKEN, *OF_ROWS)
    noted = _NOTES.of(db, table_id)
    _NOTES.drop(db, table_id, [name for name, one in noted.items() if one.kind in kinds and one.batch < below])


def verify_columns(ledger: Engine, table_id: str, notes: Iterable[ColumnNote]) -> int:
    """Mark notes as verified, unless a note was changed since *notes* were read. Returns the number of marked notes."""
    with ledger.begin() as db:
        return sum(_NOTES.swap(db, table_id, _name(one), one, one._replace(verified=True)) for one in notes)


def column_texts(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[str]]:
    """By table id, sentences on which columns are gone and which are unverified."""
    with ledger.connect() as db:
        noted = column_notes(db, generations, NoteKind.GONE, *UNVERIFIED)
    return {table: found for table, notes in noted.items() if (found := texts(notes))}


def _note(generation: int, kind: NoteKind, column: str, since: str, batch: int = 0) -> ColumnNote:
    return ColumnNote(generation, kind, column[:300], since, batch, datetime.now(UTC))


def _name(note: ColumnNote) -> str:
    place = {NoteKind.DECIDED: [note.since], NoteKind.FORMER: [str(note.batch)]}.get(note.kind, [])
    return " ".join([str(note.generation), note.kind, note.column, *place])


def _of(db: Connection, table_id: str, generation: int, *kinds: NoteKind) -> list[ColumnNote]:
    return column_notes(db, {table_id: generation}, *kinds).get(table_id, [])


def _replace(db: Connection, table_id: str, generation: int, kind: NoteKind, notes: Iterable[ColumnNote]) -> None:
    _NOTES.drop(db, table_id, [_name(one) for one in _of(db, table_id, generation, kind)])
    put_notes(db, table_id, notes)
