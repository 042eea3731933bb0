"""Writes a re-created ledger: the tables and batches that :mod:`open_mirroring.reconciliation.rebuilding` decided on.

The ledger is first written into a new database, where the last publication of each table is planned again. Then
:func:`adopt` copies all of the new database into the mirror's ledger, in one transaction.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.column_history import Word
from open_mirroring.changes.column_notes import ColumnNote, NoteKind
from open_mirroring.changes.manifest import BatchRecord, Scope
from open_mirroring.errors import TerminalError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.load_columns import LoadColumn
from open_mirroring.landing_zone.schema import LandingColumn, TableSchema
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason, audit
from open_mirroring.ledger.batch_contents import stop_table
from open_mirroring.ledger.columns import keep_column_lists, note_decision, put_notes
from open_mirroring.ledger.declaring import DROPPED, TableDeclaration
from open_mirroring.ledger.documents import EPOCHS
from open_mirroring.ledger.extract_ledger import bind_ranges, record_batch
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.publish_ledger import PublishLedger, StagedDetails
from open_mirroring.protocols.publishing import Intent, Lost, Owned, StagedFile, TableRow
from open_mirroring.protocols.table_stops import LEDGER_UNKNOWN
from open_mirroring.reconciliation.rebuilding import (
    REBUILT,
    Decision,
    FoundFile,
    KnownTable,
    NewTable,
    UnknownTable,
)

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def write_tables(
    ledger: Engine,
    mirror: str,
    declared: Mapping[str, TableDeclaration],
    decisions: Mapping[str, Decision],
    records: Mapping[int, BatchRecord],
) -> dict[str, str]:
    """Write every table with its state before its last publication, and every batch.

    Return table ids by source name.
    """
    ids: dict[str, str] = {}
    with ledger.begin() as db:
        db.execute(t.mirror.insert().values(name=mirror))
        for source, decision in decisions.items():
            row = _row(mirror, declared[source], decision, records)
            if row is not None:
                db.execute(t.mirrored_table.insert().values(row))
                ids[source] = row["id"]
            if isinstance(decision, KnownTable):
                _write_standing(db, decision, records)
        for number in sorted(records):
            _write_batch(db, mirror, records[number])
            _forget_lifted_stops(db, decisions, number)
        for decision in decisions.values():
            if isinstance(decision, KnownTable) and decision.footer.generation > 1 and _loaded(decision):
                c = t.mirrored_table.c
                known = db.execute(sa.select(t.mirrored_table).where(c.id == decision.footer.table_id)).one()
                keep_column_lists(db, known, decision.standing.hand_over_batch)
        for source, decision in decisions.items():
            if isinstance(decision, UnknownTable):
                c = t.mirrored_table.c
                # A stop that a batch recorded may mean that the change log lacks changes: then only an initial load has
                # all rows.
                stopped = t.mirrored_table.update().where(c.id == ids[source], c.stop_code.is_not(None))
                db.execute(stopped.values(log_from=max(records, default=0)))
                stop_table(db, ids[source], LEDGER_UNKNOWN, decision.why)
            if isinstance(decision, KnownTable):
                life, now = decision.footer, datetime.now(UTC)
                notes = (
                    ColumnNote(life.generation, NoteKind(kind), column, since, life.batch_from, now)
                    for kind, column, since in decision.standing.unverified
                )
                put_notes(db, life.table_id, notes)
        _write_dropped(db, mirror, set(declared))
    return ids


def _row(
    mirror: str, declared: TableDeclaration, decision: Decision, records: Mapping[int, BatchRecord]
) -> dict[str, Any] | None:
    common: dict[str, Any] = {"mirror": mirror, "source": declared.source, **declared.fixed}
    if isinstance(decision, NewTable):
        if decision.incarnation is None:
            return None  # registered by the next run, as a table that was just named
        return common | {
            "id": str(uuid4()),
            "incarnation": decision.incarnation,
            "established": True,
            "marker_etag": decision.marker_etag,
            "load_state": "pending" if declared.loads else "none",
        }
    if isinstance(decision, UnknownTable):
        return common | {
            "id": decision.table_id or str(uuid4()),
            "generation": decision.generation,
            "incarnation": str(uuid4()),
            "confirmed": decision.confirmed,
            "log_from": decision.log_from,
        }
    footer, standing = decision.footer, decision.standing
    columns = TableSchema(_named_as_at_source(decision))
    return common | {
        "id": footer.table_id,
        "generation": footer.generation,
        "incarnation": decision.found.incarnation,
        "established": True,
        "marker_etag": decision.found.marker_etag,
        "confirmed": decision.last[0].number - 1,
        "published_batch": footer.batch_from,
        "published_position": standing.published_position,
        "waiting_rows": standing.waiting_rows,
        "columns": columns.to_json(),
        "types": ColumnChoice(where=standing.where).types_text,
        "load_state": "loaded" if _loaded(decision) else "none",
        "load_plan": _load_plan(decision),
        "stream_from": standing.stream_from,
        "stream_epoch": standing.stream_epoch,
        "log_from": standing.log_from,
        "newest_load": standing.newest_load,
    }


def _named_as_at_source(decision: KnownTable) -> tuple[LandingColumn, ...]:
    """The columns of a table's newest file under their names at the source, not those at the target."""
    names = {landed: name for name, landed in decision.standing.renamed.items()}
    columns = decision.newest.columns
    named = (c._replace(name=names[c.name], renamed=c.name) if c.name in names else c for c in columns)
    return tuple(column._replace(salted=decision.standing.salted.get(column.name)) for column in named)


def _loaded(decision: KnownTable) -> bool:
    return decision.standing.loaded_columns is not None


def _load_plan(decision: KnownTable) -> str | None:
    """The plan of a finished load; only its columns and the batch after it are needed again."""
    standing = decision.standing
    if standing.loaded_columns is None:
        return None
    columns = _named_as_at_source(decision)[: standing.loaded_columns]
    loaded = tuple(LoadColumn(c.name, c.type, renamed=c.renamed, salted=c.salted) for c in columns)
    return LoadPlan("", loaded, (), hand_over_batch=standing.hand_over_batch).to_json()


def _write_standing(db: Connection, decision: KnownTable, records: Mapping[int, BatchRecord]) -> None:
    table_id, generation = decision.footer.table_id, decision.footer.generation
    EPOCHS.put(db, table_id, decision.standing.epochs)
    for word in decision.standing.decided:
        note_decision(db, table_id, Word(*word))
    for file in decision.before:
        db.execute(t.published_file.insert().values(_file_row(file, records)))
    rebuilt: dict[str, Any] = {"table_id": table_id, "generation": generation, "kind": REBUILT}
    # If the first files of the last publication are gone, only the footers account for all numbers.
    first, footer = decision.last[0].number, decision.footer
    is_whole = first == footer.first_number
    settled, batch_to = (first - 1, footer.batch_from) if is_whole else (decision.newest.number, footer.batch_to)
    if settled:
        # One entry stands for all publications before the last one: the outcome of each change is unknown.
        batches = {"batch_from": decision.standing.hand_over_batch, "batch_to": batch_to}
        said = {"version": -1, "counts": json.dumps({"numbers": settled}), "confirmed_at": datetime.now(UTC)}
        db.execute(t.publication.insert().values(rebuilt | batches | said))
    if decision.purged:
        # Record the newest of the absent files: Fabric removes files that it applied long ago, in order (F-36). The
        # file was confirmed no earlier than its newest batch was read, so a file that is too young for a removal is
        # still reported as missing.
        above = decision.found.files[0]
        assert above.footer is not None
        is_first = above.number == above.footer.first_number
        batch = above.footer.batch_from if is_first else above.footer.batch_to
        at = {"number": decision.purged, "batch_from": 0, "batch_to": footer.batch_from}
        nothing = {"rows": 0, "size": 0} | dict.fromkeys(("etag", "digest", "first_position", "last_position"), "")
        row = rebuilt | at | nothing | {"confirmed_at": _read_at(records, batch)}
        db.execute(t.published_file.insert().values(row))


def _read_at(records: Mapping[int, BatchRecord], batch: int) -> datetime:
    """The earliest time at which a file of this batch can have been published; the exact time is lost."""
    return records[batch].at if batch in records else _LONG_AGO


def _file_row(file: FoundFile, records: Mapping[int, BatchRecord]) -> dict[str, Any]:
    assert file.footer is not None
    of_footer = {name: value for name, value in asdict(file.footer).items() if name in t.published_file.c}
    own = {"number": file.number, "etag": file.etag, "size": file.size}
    return {**of_footer, **own, "confirmed_at": _read_at(records, file.footer.batch_to)}


def _write_batch(db: Connection, mirror: str, record: BatchRecord) -> None:
    number, at, ranges, manifest = record
    scope = Scope.from_json(ranges)
    bind_ranges(db, mirror, number, scope.new, scope.versions)
    record_batch(db, mirror, number, ranges, manifest, at, at)
    db.execute(t.mirror.update().where(t.mirror.c.name == mirror).values(committed=number))


def _forget_lifted_stops(db: Connection, decisions: Mapping[str, Decision], number: int) -> None:
    """Remove stops raised by batches that were already published: an operator must have cleared them."""
    c = t.mirrored_table.c
    later = [d.footer.table_id for d in decisions.values() if isinstance(d, KnownTable) and d.footer.batch_to >= number]
    db.execute(t.mirrored_table.update().where(c.id.in_(later)).values(stop_code=None, stop_what=None, stopped_at=None))


def _write_dropped(db: Connection, mirror: str, declared: set[str]) -> None:
    """Record tables that are in the log but no longer in the mirror file: if one comes back, it is a new generation."""
    b = t.batch_table.c
    for source in db.scalars(sa.select(b.source).distinct().where(b.mirror == mirror)).all():
        if source not in declared:
            DROPPED.put(db, mirror, {source: (str(uuid4()), 1)})


def seal_last(
    ledger: Engine, mirror: str, folder: str, table: KnownTable, rest: Sequence[StagedFile], details: StagedDetails
) -> None:
    """Record the last publication of the table at *folder* again: its published files, and *rest*.

    *rest* are the files that are still to be published. If *rest* is empty, the publication is confirmed at once. If
    not, the next run finds the published files by their digest, and renames the files in *rest*.
    """
    table_id, published = table.footer.table_id, PublishLedger(ledger, mirror)
    # The published files have left staging: no object has this name, and the protocol finds them by their digest.
    gone = f"{layout.staging_folder(folder, table.footer.generation)}/published"
    there = [
        StagedFile(gone, one.etag, at.digest, at.rows, one.size, at.first_position, at.last_position)
        for one in table.last
        if (at := one.footer) is not None
    ]
    intent = Intent(table.last[0].number, table.footer.batch_from, table.work)
    c = t.mirrored_table.c
    with ledger.begin() as db:
        # A later batch may have stopped the table. The stop is put aside while the earlier publication is recorded.
        stop = db.execute(sa.select(c.stop_code, c.stop_what, c.stopped_at).where(c.id == table_id)).one()._mapping
        db.execute(t.mirrored_table.update().where(c.id == table_id).values(dict.fromkeys(stop)))
    row = _owned(published.acquire([table_id]), table_id)
    row = _owned(published.intend({table_id: (row.version, intent)}), table_id)
    row = _owned(published.seal({table_id: (row.version, [*there, *rest], details)}), table_id)
    if not rest:
        _owned(published.confirm({table_id: row.version}), table_id)
    with ledger.begin() as db:
        db.execute(t.mirrored_table.update().where(c.id == table_id).values(dict(stop)))


def _owned(replies: Mapping[str, Owned | Lost], table_id: str) -> TableRow:
    reply = replies[table_id]
    if isinstance(reply, Lost):
        raise ValueError(f"no one else writes into this ledger, and table {table_id} was lost")
    return reply.row


def stop_unknown(ledger: Engine, table: KnownTable, unknown: UnknownTable) -> None:
    """Stop a table whose last publication could not be compared with the change log."""
    c = t.mirrored_table.c
    with ledger.begin() as db:
        values = {"confirmed": unknown.confirmed, "log_from": unknown.log_from}
        db.execute(t.mirrored_table.update().where(c.id == table.footer.table_id).values(values))
        stop_table(db, table.footer.table_id, LEDGER_UNKNOWN, unknown.why)


def adopt(rebuilt: Engine, ledger: Engine, mirror: str, reason: Reason, plan: Mapping[str, str]) -> None:
    """Copy a re-created ledger into an empty ledger, in one transaction with its audit entry.

    Raises ``COMMAND_REFUSED`` if the ledger to copy into is not empty.
    """
    with rebuilt.connect() as source, ledger.begin() as db:
        refuse_known(db, mirror)
        for table in (t.mirror, t.mirrored_table):
            name = table.c.name if table is t.mirror else table.c.mirror
            db.execute(table.delete().where(name == mirror))
        for table in t.metadata.sorted_tables:
            if table is not t.audit and (rows := [dict(row._mapping) for row in source.execute(sa.select(table))]):
                db.execute(table.insert(), rows)
        audit(db, mirror, None, "LEDGER_REBUILT", {**reason._asdict(), "tables": dict(plan)})


def refuse_known(db: Connection, mirror: str) -> None:
    """Raise ``COMMAND_REFUSED`` if a ledger knows batches or published tables and so must not be overwritten."""
    m, c = t.mirror.c, t.mirrored_table.c
    batches = sa.select(m.name).where(m.name == mirror, sa.or_(m.committed > 0, m.open_number.is_not(None)))
    tables = sa.select(c.id).where(c.mirror == mirror, sa.or_(c.established, c.reset.is_not(None), c.generation > 1))
    if db.scalar(batches.limit(1)) is not None or db.scalar(tables.limit(1)) is not None:
        next_step = "where it is an older copy, name a new `ledger` in the mirror file, and rebuild into that"
        what = f"the ledger knows batches or tables of mirror {mirror!r}"
        raise TerminalError("COMMAND_REFUSED", what, next_step=next_step)
