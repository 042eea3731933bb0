"""Registers the tables of a mirror file in the ledger, and refuses changes of settings that need a reset."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_choice import ALL_COLUMNS, ColumnChoice
from open_mirroring.changes.column_notes import NoteKind
from open_mirroring.changes.history_names import is_history, logged_as
from open_mirroring.changes.manifest import EXPECTED, GAPS, SENT_BY, Manifest, Reads, places_left
from open_mirroring.codes import DROP, RESET
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import audit
from open_mirroring.ledger.columns import note_from_now
from open_mirroring.ledger.documents import COLUMN_LISTS, EPOCHS, STRUCTURES, Documents
from open_mirroring.ledger.read_places import close_gaps
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.resetting import ResetStage
from open_mirroring.protocols.table_stops import KEY_CORRECTED, KEY_UNKNOWN, LEDGER_UNKNOWN, LOAD_NEEDED, NEW_TABLE

ZONE, CHANGE_LOG, MIRROR_FILE = "landing_zone", "change_log", "file"
"""Settings of where the mirror writes, stored next to those of where it reads."""
REDECLARED = "TABLE_REDECLARED"


class TableDeclaration(NamedTuple):
    """The settings of a table in the mirror file that the ledger stores.

    *loads* is True if the table has an initial load. *key_types* and *key_names* pair key columns with their type and
    name at the target, if the mirror file sets them.
    """

    source: str
    folder: str
    keys: tuple[str, ...]
    loads: bool
    text_format: str | None = None
    key_types: tuple[tuple[str, str], ...] = ()
    key_names: tuple[tuple[str, str], ...] = ()
    chosen: ColumnChoice = ALL_COLUMNS

    @property
    def fixed(self) -> dict[str, str | None]:
        """The settings that only a reset may change, as columns of the table's ledger row (G-110, G-120)."""
        return {
            "folder": self.folder,
            "keys": json.dumps(self.keys, ensure_ascii=False),
            "key_types": json.dumps(dict(self.key_types), ensure_ascii=False) if self.key_types else None,
            "key_names": json.dumps(dict(self.key_names), ensure_ascii=False) if self.key_names else None,
            "text_format": self.text_format,
        }

    def is_keyed_as(self, row: Any) -> bool:
        """Whether the ledger *row* has the same key columns with the same types as this declaration."""
        return all(self.fixed[name] == getattr(row, name) for name in ("keys", "key_types"))

    def is_that_of(self, row: Any) -> bool:
        """Whether the ledger *row* and this declaration agree in all settings that only a reset may change."""
        return all(value == getattr(row, name) for name, value in self.fixed.items())


class JoinedTable(NamedTuple):
    """A table that a pattern in the mirror file matched, as its source announced it in *batch*.

    *columns* has the source's types by column.
    """

    source: str
    schema: str
    table: str
    keys: tuple[str, ...]
    columns: Mapping[str, str]
    batch: int


_JOINED = Documents[tuple[JoinedTable, str | None]]("joined", tuple[JoinedTable, str | None])
"""A table added by a pattern, and why an operator has to accept it; None once that is done (G-71)."""
DROPPED = Documents[tuple[str, int]]("dropped", tuple[str, int])
"""By source, id and generation of a dropped table. If it is added again, it continues with the next generation."""


def joined_tables(ledger: Engine, mirror: str) -> list[JoinedTable]:
    """Every table that was ever added to a mirror by a pattern, sorted by name."""
    with ledger.connect() as db:
        return [joined for joined, _ in _JOINED.of(db, mirror).values()]


class Joining(NamedTuple):
    """A table to be added because a pattern in the mirror file matches it.

    *asks* is the reason why an operator has to accept the table first; empty if no one has to.
    """

    joined: JoinedTable
    declared: TableDeclaration
    asks: str = ""


def join(ledger: Engine, mirror: str, tables: Sequence[Joining]) -> list[str]:
    """Register tables that a pattern in the mirror file matched. Returns the source names of the new tables.

    All tables are registered in one transaction, together with their stops. So a table that an operator has to accept
    is never published before the operator accepts it. Raises ``CONFIG_INVALID`` if another table already has the
    landing zone folder of a new table.
    """
    c = t.mirrored_table.c
    with ledger.begin() as db:
        known = set(db.scalars(sa.select(c.source).where(c.mirror == mirror)))
        new = [one for one in tables if one.joined.source not in known]
        for joined, declared, asks in new:
            refuse_taken_folder(db, mirror, declared)
            # Under this name a table may have joined before, and been dropped since.
            _JOINED.put(db, mirror, {joined.source: (joined, asks or None)})
            _insert(db, mirror, declared)
            own = (c.mirror == mirror) & (c.source == joined.source) & c.stop_code.is_(None)
            db.execute(t.mirrored_table.update().where(own).values(without_stop(db, mirror, joined.source)))
            audit(db, mirror, joined.source, "TABLE_JOINED", {"keys": [*joined.keys], "asks": bool(asks)})
    return [one.joined.source for one in new]


def without_stop(db: Connection, mirror: str, source: str) -> dict[str, object]:
    """The columns of a table's ledger row after its stop is lifted.

    If an operator still has to accept the table, it gets the stop ``NEW_TABLE`` again (G-71).
    """
    known = _JOINED.one(db, mirror, source)
    if known is None or known[1] is None:
        return {"stop_code": None, "stop_what": None, "stopped_at": None}
    return stopped(NEW_TABLE, known[1])


def stopped(code: str, what: str) -> dict[str, object]:
    """The columns of a table's ledger row for a stop that begins now."""
    return {"stop_code": code, "stop_what": what, "stopped_at": datetime.now(UTC)}


def lift_stop(db: Connection, row: Any) -> None:
    """Lift the stop of a table.

    A publication that has begun but whose files are not fixed (sealed) begins again, because after the stop the table
    may have more changes to publish.
    """
    unsealed = row.intent is not None and json.loads(row.intent)["manifest"] is None
    values = {**without_stop(db, row.mirror, row.source), **({"intent": None} if unsealed else {})}
    t.change_tables(db, t.mirrored_table.c.id == row.id, **values)


def note_accepted(db: Connection, mirror: str, source: str) -> None:
    """Record that an operator accepted or reset a new table, so that it does not wait for an operator any more.

    Rule G-71.
    """
    known = _JOINED.one(db, mirror, source)
    if known is not None:
        _JOINED.put(db, mirror, {source: (known[0], None)})


def declare(
    ledger: Engine,
    mirror: str,
    declarations: Sequence[TableDeclaration],
    reads: Reads = MappingProxyType({}),
    writes: Reads = MappingProxyType({}),
    *,
    keep: bool = True,
) -> dict[str, str]:
    """Register the tables of the mirror file. Returns the ids of all tables in the ledger, by source name.

    *reads* are the places from which the source is read, *writes* those to which rows are written (G-175). If a former
    place is missing in *reads*, its unread changes may be lost, and the tables get a note on that (G-142). Without
    *keep*, nothing is stored. If a dropped table is in the mirror file again, the table begins a new generation with
    its initial load; if it has no initial load, it is stopped. Target, key and file format of a table may change until
    its initial load or first publication begins. The key may change only as long as no change is logged by it (G-69).

    Raises ``TABLE_REDECLARED`` if one of these settings changed later, or if a table was removed from the mirror file.
    Raises ``CONFIG_INVALID`` if two tables have the same landing zone folder.
    """
    with ledger.connect() as db, db.begin() as transaction:
        c = t.mirrored_table.c
        known = {row.source: row for row in db.execute(sa.select(t.mirrored_table).where(c.mirror == mirror))}
        _refuse_undeclared(mirror, known, {declared.source for declared in declarations})
        _note_place(db, mirror, reads, writes, known.values())
        for declared in declarations:
            row = known.get(declared.source)
            if row is not None and row.takes != declared.chosen.takes:
                _take_columns(db, row, declared.chosen)
            if row is None:
                refuse_taken_folder(db, mirror, declared)
                _insert(db, mirror, declared)
            elif declared.is_that_of(row) or is_dropping(row.reset):
                if declared.loads and row.load_state == "none":
                    _load_first(db, row)
            elif not _declare_again(db, row, declared):
                named = f", renamed {row.key_names}," if row.key_names else ""
                form = "Parquet" if row.text_format is None else f"text: {row.text_format}"
                what = f"table {declared.source!r} was mirrored to {row.folder!r} with the key {key_of(row)}{named}"
                next_step = f"put target, key and file format back as they were, or {RESET}"
                raise TerminalError(REDECLARED, f"{what} as {form}", where=f"mirror {mirror}", next_step=next_step)
        ids = dict(db.execute(sa.select(c.source, c.id).where(c.mirror == mirror)).tuples().all())
        if not keep:
            transaction.rollback()
        return ids


def noted_places(ledger: Engine, mirror: str) -> dict[str, list[str]]:
    """Where the mirror read and wrote when its tables were last registered, by setting; empty if unknown."""
    with ledger.connect() as db:
        return _noted(db, mirror)


def note_log(db: Connection, mirror: str, place: Sequence[str]) -> None:
    """Record to which change log a batch is written. The caller has to hold the lock on the mirror's row."""
    former = _noted(db, mirror)
    if former.get(CHANGE_LOG) != [*place]:
        _note(db, mirror, {**former, CHANGE_LOG: [*place]})


def _noted(db: Connection, mirror: str) -> dict[str, list[str]]:
    text = db.scalar(sa.select(t.mirror.c.reads).where(t.mirror.c.name == mirror))
    return {} if text is None else dict(json.loads(text))


def _note(db: Connection, mirror: str, places: Reads) -> None:
    text = json.dumps(dict(places), sort_keys=True, ensure_ascii=False)
    upsert(db, t.mirror, [{"name": mirror, "reads": text}], keys=["name"], update=["reads"])


def _note_place(db: Connection, mirror: str, reads: Reads, writes: Reads, rows: Iterable[Any]) -> None:
    """Record where the source is read; if a former place is no longer read, note that rows may lack changes."""
    former = _noted(db, mirror)
    log = {CHANGE_LOG: former[CHANGE_LOG]} if CHANGE_LOG in former else {}
    now = {**reads, **{name: writes[name] for name in (ZONE, MIRROR_FILE) if name in writes}, **log}
    if not reads or former == now:
        return
    _note(db, mirror, now)
    gone = [f"{name} {one!r}" for name, one in places_left(former, reads)]
    if not gone:
        return
    batch = newest_batch(db, mirror)
    begun = [row for row in rows if row.confirmed or row.load_plan is not None or not is_new_to_log(db, row)]
    note_from_now(db, begun, NoteKind.ROWS, [f"`source` no longer names {', '.join(gone)}"], batch)
    if EXPECTED in former.get(GAPS, ()):
        close_gaps(db, mirror)
    audit(db, mirror, None, "SOURCE_MOVED", {"before": former, "now": dict(reads)})


def _take_columns(db: Connection, row: Any, chosen: ColumnChoice) -> None:
    """Note which columns are read from now on, and that earlier rows lack the new ones (G-141)."""
    is_new = not row.confirmed and row.load_plan is None and is_new_to_log(db, row)
    gained = [] if is_new or row.takes is None else chosen.gained(row.takes)
    note_from_now(db, [row], NoteKind.TAKEN, gained, newest_batch(db, row.mirror))
    c = t.mirrored_table.c
    db.execute(t.mirrored_table.update().where(c.id == row.id).values(takes=chosen.takes))


def _load_first(db: Connection, row: Any) -> None:
    """Let a table of which nothing is there begin with the initial load that the mirror file names now (G-130)."""
    begun = row.confirmed or row.intent is not None or row.reset is not None or row.generation > 1
    c, now = t.mirrored_table.c, {"load_state": "pending"}
    if begun or not is_new_to_log(db, row):
        return
    if t.change_tables(db, (c.id == row.id) & (c.version == row.version), **now) == 1:
        audit(db, row.mirror, row.source, "TABLE_DECLARED_AGAIN", {"now": now})


def _declare_again(db: Connection, row: Any, declared: TableDeclaration) -> bool:
    """Replace the declaration of a table if nothing was published or logged by the old one; False otherwise."""
    if row.established or row.intent is not None or row.load_plan is not None or row.reset is not None:
        return False
    same_key = declared.is_keyed_as(row)
    if row.stop_code == LEDGER_UNKNOWN or not (same_key or is_new_to_log(db, row)):
        return False
    refuse_taken_folder(db, row.mirror, declared)
    c, now = t.mirrored_table.c, declared.fixed
    corrects = not same_key and row.stop_code in (KEY_UNKNOWN, KEY_CORRECTED)
    values: dict[str, Any] = {**now, **(corrected_stop(row, declared) if corrects else {})}
    # Another process that declares at this moment has changed the row: the next run checks it again.
    this = (c.id == row.id) & (c.version == row.version)
    if t.change_tables(db, this, **values) != 1:
        return False
    before = {name: getattr(row, name) for name in now}
    audit(db, row.mirror, row.source, "TABLE_DECLARED_AGAIN", {"before": before, "now": now})
    return True


def key_of(row: Any) -> str:
    """The key in a table's ledger *row*, formatted for messages."""
    return f"{row.keys}, landing as {row.key_types}" if row.key_types else str(row.keys)


def corrected_stop(row: Any, declared: TableDeclaration) -> dict[str, Any]:
    """The stop of a table whose `key` was corrected in the mirror file.

    The stop lasts until the changes that the wrong key rejected are read again.
    """
    what = f"by the key {key_of(row)} changes were rejected; they are read again by {declared.fixed['keys']}"
    return stopped(KEY_CORRECTED, what)


def is_new_to_log(db: Connection, row: Any) -> bool:
    """Whether the change log has no change of a table by its present key, not even in the batch under way.

    Batches up to ``log_from`` of the ledger *row* do not count. The result is False for a table with the stop
    ``LEDGER_UNKNOWN``. The result is also False if several senders (databases or Qlik tasks) were seen: a stop for the
    key would hide the stop ``SENDER_OTHER``.
    """
    if row.stop_code == LEDGER_UNKNOWN:
        return False
    b, m = t.batch_table.c, t.mirror.c
    # Locked, so that no process with the old declaration binds, seals or completes a batch meanwhile.
    newest_batch(db, row.mirror)
    counting = (b.mirror == row.mirror) & (b.source == row.source) & (b.batch > row.log_from)
    if db.scalar(sa.select(b.batch).where(counting).limit(1)) is not None:
        return False
    sealed = db.scalar(sa.select(m.open_manifest).where(m.name == row.mirror))
    if sealed is not None and any(row.source in file["tables"] for file in Manifest.from_json(sealed).files):
        return False
    notes = (one.schema for one in STRUCTURES.of(db, row.mirror).values())
    return len([one for one in notes if (one.topic, one.source) == (SENT_BY, row.source)]) < 2


def refuse_taken_folder(db: Connection, mirror: str, declared: TableDeclaration) -> None:
    """Raise ``CONFIG_INVALID`` if another table of the mirror has the same landing zone folder."""
    c = t.mirrored_table.c
    query = sa.select(c.source).where(c.mirror == mirror, c.folder == declared.folder, c.source != declared.source)
    if (owner := db.scalar(query)) is not None:
        what = f"{declared.source!r} cannot have this `target`: {owner!r} still has it"
        next_step = f"finish the reset of {owner!r} first, or choose another `target` for {declared.source!r}"
        raise TerminalError("CONFIG_INVALID", what, where=f"mirror {mirror}", next_step=next_step)


def newest_batch(db: Connection, mirror: str) -> int:
    """The newest batch that is bound or committed; 0 before the first.

    Locks the mirror's row, so that no other process binds a batch until the transaction ends.
    """
    c = t.mirror.c
    row = db.execute(sa.select(c.open_number, c.committed).where(c.name == mirror).with_for_update()).one_or_none()
    return 0 if row is None else max(row.open_number or 0, row.committed)


def _refuse_undeclared(mirror: str, known: dict[str, Any], declared: set[str]) -> None:
    gone = sorted(source for source, row in known.items() if source not in declared and not is_dropping(row.reset))
    if gone:
        what = f"the mirror file no longer names {gone}, which the ledger mirrors"
        next_step = f"put the table back into the mirror file, or {DROP}"
        raise TerminalError(REDECLARED, what, where=f"mirror {mirror}", next_step=next_step)


def _insert(db: Connection, mirror: str, declared: TableDeclaration) -> None:
    values: dict[str, Any] = {
        "id": str(uuid4()),
        "mirror": mirror,
        "source": declared.source,
        **declared.fixed,
        "takes": declared.chosen.takes,
        "incarnation": str(uuid4()),
        "load_state": "pending" if declared.loads else "none",
    }
    if (dropped := DROPPED.one(db, mirror, declared.source)) is not None:
        DROPPED.drop(db, mirror, [declared.source])
        values |= {
            "id": dropped[0],
            "generation": dropped[1] + 1,
            "log_from": newest_batch(db, mirror),
            "stream_epoch": newest_epoch(db, dropped[0]),
        }
        if not declared.loads:
            what = "the table was dropped and is named again: its changes in between were not read"
            values |= stopped(LOAD_NEEDED, what)
        audit(db, mirror, declared.source, "TABLE_ADDED_AGAIN", {"generation": values["generation"]})
    db.execute(t.mirrored_table.insert().values(values))
    if is_history(declared.source):
        # It begins with the columns and streams that are known of its table: its first change may be a delete (G-194).
        c = t.mirrored_table.c
        owner = db.scalar(sa.select(c.id).where(c.mirror == mirror, c.source == logged_as(declared.source)))
        if owner is not None:
            EPOCHS.put(db, values["id"], EPOCHS.of(db, owner))
            COLUMN_LISTS.put(db, values["id"], COLUMN_LISTS.of(db, owner))


def newest_epoch(db: Connection, table_id: str) -> int:
    """The highest number among the streams of a table; 0 before the first stream.

    A stream is one enabling of streaming or one Qlik full load.
    """
    return max(0, *EPOCHS.of(db, table_id).values(), 0)


@dataclass(frozen=True)
class ResetRecord:
    """The reset of a table that is under way: the table is dropped at the target and, unless *drops*, built again.

    *stage* is the last stage that was reached. *loads* is True if the table is built by an initial load, and False if
    it is built from the change log. *folders* are the landing zone folders to delete. *absent* is True once the target
    was seen without the table. *begins_at* is the number of the stream that began with this initial load (G-128).
    *is_carried_on* is True if every run continues the reset.
    """

    stage: ResetStage
    drops: bool
    loads: bool
    folders: tuple[str, ...]
    absent: bool
    who: str
    why: str
    since: str
    begins_at: int | None = None
    is_carried_on: bool = False

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def of(cls, text: str | None) -> ResetRecord | None:
        """Parse JSON that :meth:`to_json` returned; None if *text* is None."""
        return None if text is None else msgspec.json.decode(text, type=cls)

    @property
    def begun(self) -> datetime:
        """The time at which the reset was requested."""
        return datetime.fromisoformat(self.since)

    def __str__(self) -> str:
        kind = "drop" if self.drops else "reload"
        return f"{kind} asked for by {self.who} at {self.begun:%Y-%m-%d %H:%M} UTC ({self.why}): {self.stage.value}"


def is_dropping(text: str | None) -> bool:
    """Whether the JSON of a reset drops the table for good; False if *text* is None."""
    reset = ResetRecord.of(text)
    return reset is not None and reset.drops
