"""Records what Qlik's control tables report of tables, such as suspended or truncated tables (T-81, T-84, T-85)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.ddl_statements import SourceReport, Statement
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.decisions import EXPLAINED_BY_DECISION, accept_statements
from open_mirroring.ledger.documents import Documents
from open_mirroring.protocols.table_losses import TABLE_EMPTIED, TABLE_RENAMED

_LOOKED, _BEFORE = "", -1


class _Event(NamedTuple):
    """What was done to a complete table, such as TRUNCATE; without a code: the control tables were read."""

    place: str
    code: str
    generation: int
    what: str


_SIGNALS = Documents[dict[str, str]]("signal", dict[str, str])
"""For each source table of a mirror, what control tables report now, as text by code."""
_EVENTS = Documents[_Event]("event", _Event)
_DONE_TO_ROWS = {"TRUNCATE_TABLE": "truncated", "DROP_TABLE": "dropped"}


def record_source_report(
    ledger: Engine, mirror: str, load: str, report: SourceReport, batches: Collection[int]
) -> dict[tuple[str, str], str]:
    """Record what Qlik's control tables report. Return the new reports, as a string by (table, code).

    The reported statements are compared with the changes of one stream; *load* is the epoch of this stream. DDL
    statements on columns are used for two kinds of tables only: tables with changes in *batches*, and tables stopped
    until a column change is explained.
    """
    with ledger.begin() as db:
        new = _record_signals(db, mirror, report.signals)
        if report.statements is None:
            return new
        new |= _record_events(db, mirror, load, report.statements)
        m, b = t.mirrored_table.c, t.batch_table.c
        brought = sa.select(b.source).where(b.mirror == mirror, b.batch.in_(list(batches)))
        may_ask = sa.or_(m.source.in_(brought), m.stop_code.in_(EXPLAINED_BY_DECISION))
        asking = db.scalars(sa.select(m.source).where(m.mirror == mirror, may_ask).order_by(m.source)).all()
    for source in asking:
        if statements := report.statements.get(source):
            for column, what in accept_statements(ledger, mirror, source, load, statements).items():
                new[source, f"SCHEMA_REPORTED {column!r}"] = what
    return new


def signals_of(db: Connection, mirror: str) -> dict[str, dict[str, str]]:
    """Return what Qlik's control tables report, by source table and code.

    Events from before a table's last reset are left out.
    """
    m = t.mirrored_table.c
    rows = db.execute(sa.select(m.id, m.source, m.generation).where(m.mirror == mirror)).tuples().all()
    found = dict(_SIGNALS.of(db, mirror))
    events = _EVENTS.of_each(db, [table_id for table_id, _, _ in rows])
    for table_id, source, generation in rows:
        of_now = [one for one in events.get(table_id, {}).values() if one.generation == generation]
        for one in sorted(of_now, key=attrgetter("place")):
            found.setdefault(source, {})[one.code] = one.what
    return found


def _record_signals(db: Connection, mirror: str, signals: Mapping[tuple[str, str], str]) -> dict[tuple[str, str], str]:
    reported: dict[str, dict[str, str]] = {}
    for (source, code), what in sorted(signals.items()):
        reported.setdefault(source, {})[code] = what
    known = _SIGNALS.of(db, mirror)
    if known != reported:
        _SIGNALS.replace(db, mirror, reported)
    return {(source, code): what for (source, code), what in signals.items() if code not in known.get(source, {})}


def _record_events(
    db: Connection, mirror: str, load: str, statements: Mapping[str, Sequence[Statement]]
) -> dict[tuple[str, str], str]:
    """Record events once each; at the first look, those from before a table's first change count as over."""
    m, b = t.mirrored_table.c, t.batch_table.c
    rows = db.execute(sa.select(m.id, m.source, m.generation).where(m.mirror == mirror)).all()
    known = _EVENTS.of_each(db, [row.id for row in rows])
    first_of = sa.select(b.source, sa.func.min(b.min_pos)).where(b.mirror == mirror, b.epoch == load)
    firsts = dict(db.execute(first_of.group_by(b.source)).tuples().all())
    found: dict[tuple[str, str], str] = {}
    for row in rows:
        before = known.get(row.id, {})
        fresh = {} if before else {_LOOKED: _Event("", "", _BEFORE, "")}
        for one in statements.get(row.source, ()):
            reported = _event_of(one)
            if reported is None or (name := f"{one.place} {reported[0]}") in {**before, **fresh}:
                continue
            lies_before = not before and not (row.source in firsts and firsts[row.source] < one.place)
            generation = _BEFORE if lies_before else row.generation
            fresh[name] = _Event(one.place, reported[0], generation, reported[1])
            if generation != _BEFORE:
                found[row.source, reported[0]] = reported[1]
        _EVENTS.put(db, row.id, fresh)
    return found


def _event_of(one: Statement) -> tuple[str, str] | None:
    if one.renamed_to is not None:
        return TABLE_RENAMED, f"it is {one.renamed_to!r} at the source since {one.at}: no change comes under this name"
    if one.kind not in _DONE_TO_ROWS:
        return None
    done = _DONE_TO_ROWS[one.kind]
    return TABLE_EMPTIED, f"it was {done} at the source at {one.at}: rows that went with it are still at the target"
