"""Keeps the columns of a table over time: where each column list was seen, which columns are gone or unverified.

`ALTER TABLE … ADD … NOT NULL DEFAULT` gives every row a value and sends no change (G-07). At the target these rows have
NULL until they change. A nullable column without default is equal at once, but the stream cannot distinguish the two.
So a new column is reported as unverified until source and target were compared, or the table was loaded again. So is
one whose type changed in a way that may have changed its values.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_history import FormerColumn, place_text
from open_mirroring.changes.manifest import Manifest
from open_mirroring.changes.places_seen import Places, PlacesSeen
from open_mirroring.facts import column_lists
from open_mirroring.facts.column_lists import COLUMN_LISTS as FOUND_LISTS
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.documents import COLUMN_LISTS, EPOCHS
from open_mirroring.ledger.tables import upsert

ROWS = "\n"
"""Begins what stands in the place of a column's name where all columns of all rows are not verified."""
ROWS_OF_LOAD = f"{ROWS}\n"
"""The same where only the load of this generation is doubtful: what follows says the way out, too (T-30)."""
_CONTRADICTED = f"{ROWS}changes contradict those before them, so some are missing: "
"""Begins the note of a table whose log the deep check found in contradiction (G-190)."""


def list_digest(cols: str) -> str:
    """The digest by which the ledger knows a column list."""
    return hashlib.sha256(cols.encode()).hexdigest()


def record_columns(db: Connection, table_id: str, lists: Mapping[str, Places], *, of_reading: bool) -> bool:
    """Record the column lists that a batch brought of a table; *of_reading* as in its manifest.

    Returns whether a row proved for the first time that a known list is complete.
    """
    if not lists:
        return False
    known = {one.cols: one for one in COLUMN_LISTS.of(db, table_id).values()}
    changed, proved = column_lists.fold(known, lists, of_reading=of_reading)
    COLUMN_LISTS.put(db, table_id, {list_digest(cols): one for cols, one in changed.items()})
    return proved


def keep_column_lists(db: Connection, row: Any, after_batch: int) -> None:
    """Drop the column lists of changes that a load replaced, and keep those that are published over it.

    Kept are the lists of batches after the hand-over whose changes reach up to ``stream_from``. A batch that lies on
    both sides may keep a list that only changes below have. Then the table may stop once more than needed, but it never
    lacks a list. Call it inside a transaction.

    Args:
        db: the transaction.
        row: the table's row, its hand-over bound.
        after_batch: the batch of the hand-over.
    """
    b, ordinals = t.batch_table.c, EPOCHS.of(db, row.id)
    found = db.execute(
        sa.select(b.batch, b.epoch, b.max_pos).where(
            b.mirror == row.mirror, b.source == row.source, b.batch > after_batch
        )
    ).tuples()
    begin = (row.stream_epoch, row.stream_from or "") if row.stream_from is not None else (0, "")
    # A stream that nobody accepted yet stops the table by itself; its lists are kept.
    live = {batch for batch, epoch, highest in found if (ordinals.get(epoch, row.stream_epoch + 1), highest) >= begin}
    # Rows that were read before a column was taken, and that are published over the load, lack it still (G-141).
    u = t.unverified_column.c
    replaced = (u.table_id == row.id) & (u.since == "") & (u.batch < min(live, default=sys.maxsize))
    db.execute(t.unverified_column.delete().where(replaced))
    kept = set[str]()
    before = {digest: one._replace(seen={}) for digest, one in COLUMN_LISTS.of(db, row.id).items()}
    COLUMN_LISTS.replace(db, row.id, before)
    number = t.log_batch.c.number
    manifests = sa.select(number, t.log_batch.c.manifest).where(
        t.log_batch.c.mirror == row.mirror, number > after_batch
    )
    for batch, text in db.execute(manifests.order_by(number)).tuples().all():
        if batch in live:
            manifest = Manifest.from_json(text)
            lists = FOUND_LISTS.of_table(manifest.facts, row.source)
            kept |= set(map(list_digest, lists))
            above = {cols: _above(seen, ordinals, begin, row.stream_epoch + 1) for cols, seen in lists.items()}
            reached = {cols: seen for cols, seen in above.items() if seen}
            record_columns(db, row.id, reached, of_reading=manifest.lists_of_reading)
    COLUMN_LISTS.drop(db, row.id, COLUMN_LISTS.of(db, row.id).keys() - kept)


def _above(
    seen: Mapping[str, PlacesSeen], ordinals: Mapping[str, int], begin: tuple[int, str], unknown: int
) -> dict[str, PlacesSeen]:
    """The places from *begin* on. What lies on both sides of it is known by its end alone."""
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


class GoneColumn(NamedTuple):
    """A column that the source dropped: the position since which rows lack it, and what was published by then."""

    column: str
    since: str
    batch: int
    at: datetime

    @property
    def place(self) -> str:
        """The first known place without it, for people."""
        return place_text(self.since)


def note_gone(ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int) -> None:
    """Note the columns that are gone, each with the first place without it; others of the table are not gone."""
    now, c = datetime.now(UTC), t.gone_column.c
    place = {"table_id": table_id, "generation": generation, "batch": batch, "at": now}
    rows = [{**place, "column": column, "since": at} for column, at in sorted(since.items())]
    here = (c.table_id == table_id) & (c.generation == generation)
    with ledger.begin() as db:
        db.execute(t.gone_column.delete().where(here, c.column.not_in(list(since))))
        upsert(db, t.gone_column, rows, keys=["table_id", "generation", "column"], update=["since"])


def gone_columns(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[GoneColumn]]:
    """By table id the columns that are gone, as publications of its present generation met them."""
    rows = _of_present(ledger, t.gone_column, sa.true(), generations)
    return {table: [GoneColumn(*known) for known in of_table] for table, of_table in rows.items()}


def _of_present(
    ledger: Engine, table: sa.Table, condition: sa.ColumnElement[bool], generations: Mapping[str, int]
) -> dict[str, list[Any]]:
    """By table id the columns that are noted of its present generation: name, place, batch, moment; in their order."""
    c = table.c
    query = sa.select(c.table_id, c.generation, c.column, c.since, c.batch, c.at).where(condition)
    noted = t.rows(ledger, query.order_by(c.batch, c.since, c.column))
    return t.grouped((id_, known) for id_, generation, *known in noted if generations.get(id_) == generation)


def column_notes(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[str]]:
    """By table id what is told of its columns in its present generation: gone, or not verified."""
    found: dict[str, list[str]] = {}
    for table, gone in gone_columns(ledger, generations).items():
        names = _since("gone", [(one.column, one.place) for one in gone])
        found.setdefault(table, []).append(f"{names}: rows written since then have NULL there")
    for table, unverified in unverified_columns(ledger, generations).items():
        alike = t.grouped(((one.column if one.is_of_many else "", bool(one.since)), one) for one in unverified)
        for group in alike.values():
            names = _since("unverified", [(one.column, one.since) for one in group])
            found.setdefault(table, []).append(group[0].note_of(names))
    return found


def _since(what: str, columns: Sequence[tuple[str, str]]) -> str:
    """``columns 'a', 'b' gone since position 1``, ``columns 'a' (since position 1), 'b' (since position 2) gone``."""
    of_places = t.grouped((place, repr(name)) for name, place in columns)
    is_one = len(of_places) == 1
    names = [", ".join(of) + ("" if is_one else f" (since position {at})") for at, of in of_places.items()]
    since = f" since position {columns[0][1]}" if is_one and columns[0][1] else ""
    return f"column{'s' if len(columns) > 1 else ''} {', '.join(names)} {what}{since}"


def note_former(ledger: Engine, table_id: str, generation: int, columns: Sequence[FormerColumn]) -> None:
    """Note how a generation reads columns of earlier rows, before its first files; what was noted before is replaced.

    Files that were never published may have been read otherwise: they are made anew.
    """
    c = t.former_column.c
    place = {"table_id": table_id, "generation": generation}
    rows = [{**place, "step": step, **one._asdict()} for step, one in enumerate(columns)]
    with ledger.begin() as db:
        db.execute(t.former_column.delete().where(c.table_id == table_id, c.generation == generation))
        if rows:
            db.execute(t.former_column.insert(), rows)


def former_columns(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[FormerColumn]]:
    """By table id how its present generation reads columns of earlier rows, one after the other."""
    c = t.former_column.c
    noted = t.rows(ledger, sa.select(t.former_column).order_by(c.table_id, c.step))
    of_now = (row for row in noted if generations.get(row.table_id) == row.generation)
    return t.grouped((row.table_id, FormerColumn(row.column, row.up_to, row.now)) for row in of_now)


def columns_of_whole_rows(ledger: Engine, mirror: str, sources: Collection[str]) -> dict[str, set[str]]:
    """By source table the columns that the target or any change has, for tables of which a whole row came."""
    m = t.mirrored_table.c
    query = sa.select(m.id, m.source, m.columns).where(m.mirror == mirror, m.source.in_(sources))
    tables = t.rows(ledger, query) if sources else ()
    with ledger.connect() as db:
        lists = COLUMN_LISTS.of_each(db, [table_id for table_id, _, _ in tables])
    found: dict[str, set[str]] = {}
    for table_id, source, columns in tables:
        known = lists.get(table_id, {}).values()
        if any(one.whole for one in known):
            texts = [columns, *(one.cols for one in known)]
            found[source] = {name for text in texts for name, *_ in json.loads(text)}
    return found


class UnverifiedColumn(NamedTuple):
    """A column, the position of the first change that had it, and the batch up to which it was published then.

    Where *since* is empty, it was not read before (G-141), and *column* may be a pattern. Where it begins with
    :data:`ROWS`, all columns of all rows are meant, and it says why (G-142, T-30).
    """

    column: str
    since: str
    batch: int
    at: datetime

    @property
    def is_of_rows(self) -> bool:
        """Whether all columns of all rows are meant, and *column* is no name."""
        return self.column.startswith(ROWS)

    @property
    def is_of_many(self) -> bool:
        """Whether *column* names no single column."""
        return self.is_of_rows or "*" in self.column

    def note_of(self, names: str) -> str:
        """What it means, for people; *names* says of this column, and of others like it, since when it is so."""
        if self.column.startswith(ROWS_OF_LOAD):
            return f"rows unverified up to batch {self.batch}: {self.column.removeprefix(ROWS_OF_LOAD)}"
        if self.is_of_rows:
            return (
                f"rows unverified up to batch {self.batch}: {self.column.removeprefix(ROWS)}; what they lack of the "
                "source, no message tells: a proof does, and a reset with an initial load brings it"
            )
        if not self.since:
            which = f"columns like {self.column!r} unverified" if "*" in self.column else names
            return (
                f"{which} since `columns` takes it: rows that were read before have NULL there until they "
                "change; a reset with an initial load loads what the source has"
            )
        return (
            f"{names}: rows that have not changed since then may differ from the source, by a default, a new type, or "
            "for a key by a swap with an equal row; run `open-mirroring prove` to check, or reload the table"
        )


def note_columns(
    ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int, *, again: bool = False
) -> None:
    """Note columns by the position since which they are there; one that is known, verified or not, stays as it is.

    With *again* they are not verified any more, for what nobody can verify from changes has happened once more.
    """
    now = datetime.now(UTC)
    place = {"table_id": table_id, "generation": generation, "batch": batch, "at": now, "verified": False}
    rows = [{**place, "column": column, "since": position} for column, position in sorted(since.items())]
    if rows:
        with ledger.begin() as db:
            update = ["verified", "batch", "at"] if again else []
            upsert(db, t.unverified_column, rows, keys=["table_id", "generation", "column"], update=update)


def note_taken(db: Connection, rows: Iterable[Any], columns: Sequence[str], batch: int) -> None:
    """Note columns, or patterns of them, that are read of the tables of a ledger's *rows* from now on (G-141)."""
    place = {"since": "", "batch": batch, "at": datetime.now(UTC), "verified": False}
    of_tables = [{"table_id": row.id, "generation": row.generation} for row in rows]
    noted = [{**table, **place, "column": name[:300]} for table in of_tables for name in columns]
    upsert(
        db,
        t.unverified_column,
        noted,
        keys=["table_id", "generation", "column"],
        update=["verified", "since", "batch", "at"],
    )


def note_types(ledger: Engine, types: Mapping[str, str]) -> None:
    """Note by table id the `types` with which columns are published, or with which they were compared (G-129)."""
    if types:
        c, one = t.mirrored_table.c, [{"table": table_id, "said": said} for table_id, said in types.items()]
        with ledger.begin() as db:
            db.execute(
                t.mirrored_table.update().where(c.id == sa.bindparam("table")).values(types=sa.bindparam("said")), one
            )


def note_rows(db: Connection, rows: Iterable[Any], why: str, batch: int) -> None:
    """Note that the tables of a ledger's *rows* may lack changes that nobody can miss, and why (G-142).

    What is noted already is noted up to this batch: a proof or a load that holds less does not end it.
    """
    note_taken(db, rows, [f"{ROWS}{why}"], batch)


def note_contradicted(ledger: Engine, table_id: str, generation: int, why: str | None, batch: int) -> None:
    """Replace the unverified notes of contradictions in a table's log; None: there are none (G-190)."""
    c = t.unverified_column.c
    with ledger.begin() as db:
        db.execute(t.unverified_column.delete().where(_contradicted(table_id, generation), c.verified.is_(False)))
        if why is not None:
            place = {"table_id": table_id, "generation": generation, "since": "", "batch": batch}
            noted = {**place, "column": f"{_CONTRADICTED}{why}"[:300], "at": datetime.now(UTC), "verified": False}
            keys = ["table_id", "generation", "column"]
            upsert(db, t.unverified_column, [noted], keys=keys, update=["batch", "at", "verified"])


def contradicted_up_to(ledger: Engine, table_id: str, generation: int) -> int:
    """The batch up to which contradictions were noted and verified since; 0: none were."""
    c = t.unverified_column.c
    query = sa.select(sa.func.max(c.batch)).where(_contradicted(table_id, generation), c.verified)
    return t.first(ledger, query) or 0


def _contradicted(table_id: str, generation: int) -> sa.ColumnElement[bool]:
    c = t.unverified_column.c
    return (c.table_id == table_id) & (c.generation == generation) & c.column.startswith(_CONTRADICTED)


def note_load(db: Connection, row: Any, why: str, batch: int) -> None:
    """Note that the load of the present generation of a ledger's *row* may lack changes, and what to do (T-30)."""
    note_taken(db, [row], [f"{ROWS_OF_LOAD}{why}"], batch)


def keep_taken(db: Connection, table_id: str, generation: int) -> None:
    """Carry the notes of :func:`note_taken` into the next generation, which has rows of the log, too.

    Verified ones stay verified, and still say which columns rows may lack (:func:`taken_columns`). Those of
    :func:`note_load` stay behind with their load: else nothing that they say to do would end them.
    """
    c = t.unverified_column.c
    here = (c.table_id == table_id) & (c.generation == generation) & (c.since == "")
    here &= ~c.column.startswith(ROWS_OF_LOAD)
    noted = [dict(one) for one in db.execute(sa.select(t.unverified_column).where(here)).mappings()]
    again = [{**one, "generation": generation + 1} for one in noted]
    upsert(db, t.unverified_column, again, keys=["table_id", "generation", "column"], update=[])


def taken_columns(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[str]]:
    """By table id the names and patterns of columns that rows may lack which were read before (G-141), verified or not.

    Who verifies a column compares the rows that are published: what was read before still has no such column.
    """
    c = t.unverified_column.c
    rows = _of_present(ledger, t.unverified_column, (c.since == "") & ~c.column.startswith(ROWS), generations)
    return {table: [column for column, *_ in of_table] for table, of_table in rows.items()}


def verify_columns(ledger: Engine, table_id: str, notes: Iterable[UnverifiedColumn]) -> int:
    """Mark what these notes of a table say as verified; returns how many were not before, and still say the same.

    For a caller that read the notes, and then compared every row of the table with the source: what was noted since,
    also once more, may tell of what came behind the comparison.
    """
    c = t.unverified_column.c
    here = (c.table_id == table_id) & c.verified.is_(False)
    with ledger.begin() as db:
        return sum(
            db.execute(
                t.unverified_column.update()
                .where(here, c.column == one.column, c.batch == one.batch, c.at == one.at)
                .values(verified=True)
            ).rowcount
            for one in notes
        )


def unverified_columns(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[UnverifiedColumn]]:
    """By table id the columns that are not verified in its present generation, in the order in which they came."""
    rows = _of_present(ledger, t.unverified_column, t.unverified_column.c.verified.is_(False), generations)
    return {table: [UnverifiedColumn(*known) for known in of_table] for table, of_table in rows.items()}
