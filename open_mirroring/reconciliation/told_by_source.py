"""Keeps what control tables of the source tell of its tables, in addition to the changes (T-81, T-84, T-85).

What stands there now replaces what stood there before. Only what happened to a table as a whole is kept for good: its
history of DDL tells it for ever, but once the table was built anew it concerns nobody any more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.told_statements import Statement, Told
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.decisions import EXPLAINED_BY_A_WORD, accept_told
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.table_losses import TABLE_EMPTIED, TABLE_RENAMED

_LOOKED, _BEFORE = "", -1
_DONE_TO_ROWS = {"TRUNCATE_TABLE": "truncated", "DROP_TABLE": "dropped"}


def record_told(
    ledger: Engine, mirror: str, load: str, told: Told, batches: Collection[int]
) -> dict[tuple[str, str], str]:
    """Keep what a source tells; what of it is new, by table and code.

    Args:
        ledger: the ledger.
        mirror: the mirror.
        load: the load to which places of statements belong.
        told: tables named as the mirror file does.
        batches: those of the run: only what they brought can have raised a question that nobody has asked yet.
    """
    with ledger.begin() as db:
        new = _record_signals(db, mirror, told.signals)
        if told.statements is not None:
            new |= _record_events(db, mirror, load, told.statements)
        asking = _asking(db, mirror, batches) if told.statements else []
    for source in asking:
        if statements := (told.statements or {}).get(source):
            for column, what in accept_told(ledger, mirror, source, load, statements, told.by).items():
                new[source, f"SCHEMA_TOLD {column!r}"] = what
    return new


def signals_of(db: Connection, mirror: str) -> dict[str, dict[str, str]]:
    """What control tables tell of tables, by table and code; events of an earlier life of a table are over."""
    s, e, m = t.source_signal.c, t.source_event.c, t.mirrored_table.c
    signals = sa.select(s.source, s.code, s.what).where(s.mirror == mirror)
    lives = (m.id == e.table_id) & (m.generation == e.generation)
    events = sa.select(m.source, e.code, e.what).join(t.mirrored_table, lives).where(m.mirror == mirror)
    found: dict[str, dict[str, str]] = {}
    for source, code, what in [*db.execute(signals).tuples(), *db.execute(events.order_by(e.place)).tuples()]:
        found.setdefault(source, {})[code] = what
    return found


def _record_signals(db: Connection, mirror: str, signals: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    c = t.source_signal.c
    told = sa.select(c.source, c.code, c.what).where(c.mirror == mirror)
    known = {(source, code): what for source, code, what in db.execute(told).tuples()}
    if known != dict(signals):
        db.execute(t.source_signal.delete().where(c.mirror == mirror))
        rows = [
            {"mirror": mirror, "source": source, "code": code, "what": what}
            for (source, code), what in sorted(signals.items())
        ]
        upsert(db, t.source_signal, rows, keys=["mirror", "source", "code"], update=["what"])
    return {at: what for at, what in signals.items() if at not in known}


def _asking(db: Connection, mirror: str, batches: Collection[int]) -> list[str]:
    """The tables with changes in some batches, and those that wait for a word on a column."""
    m, b = t.mirrored_table.c, t.batch_table.c
    brought = sa.select(b.source).where(b.mirror == mirror, b.batch.in_(list(batches)))
    may_ask = sa.or_(m.source.in_(brought), m.stop_code.in_(EXPLAINED_BY_A_WORD))
    return list(db.scalars(sa.select(m.source).where(m.mirror == mirror, may_ask).order_by(m.source)))


def _record_events(
    db: Connection, mirror: str, load: str, statements: Mapping[str, Sequence[Statement]]
) -> dict[tuple[str, str], str]:
    """Keep what was done to whole tables, once each.

    What a first look finds below the first change of a table did nothing to rows that were read.
    """
    m, e, b = t.mirrored_table.c, t.source_event.c, t.batch_table.c
    rows = db.execute(sa.select(m.id, m.source, m.generation).where(m.mirror == mirror)).all()
    query = sa.select(e.table_id, e.code, e.place).join(t.mirrored_table, m.id == e.table_id).where(m.mirror == mirror)
    known = {tuple(row) for row in db.execute(query)}
    first_of = sa.select(b.source, sa.func.min(b.min_pos)).where(b.mirror == mirror, b.epoch == load)
    firsts = dict(db.execute(first_of.group_by(b.source)).tuples().all())
    found: dict[tuple[str, str], str] = {}
    kept = []
    for row in rows:
        is_first = (row.id, _LOOKED, "") not in known
        if is_first:
            kept.append({"table_id": row.id, "code": _LOOKED, "place": "", "generation": _BEFORE, "what": ""})
        for one in statements.get(row.source, ()):
            told = _event_of(one)
            if told is None or (row.id, told[0], one.place) in known:
                continue
            lies_before = is_first and not (row.source in firsts and firsts[row.source] < one.place)
            generation = _BEFORE if lies_before else row.generation
            event = {"table_id": row.id, "code": told[0], "place": one.place, "what": told[1]}
            kept.append({**event, "generation": generation})
            if generation != _BEFORE:
                found[row.source, told[0]] = told[1]
    upsert(db, t.source_event, kept, keys=["table_id", "code", "place"], update=[])
    return found


def _event_of(one: Statement) -> tuple[str, str] | None:
    if one.renamed_to is not None:
        return TABLE_RENAMED, f"it is {one.renamed_to!r} at the source since {one.at}: no change comes under this name"
    if one.kind not in _DONE_TO_ROWS:
        return None
    done = _DONE_TO_ROWS[one.kind]
    return TABLE_EMPTIED, f"it was {done} at the source at {one.at}: rows that went with it are still at the target"
