"""Records in the ledger what a completed batch of the change log contains.

Among these records are changes by table, split messages that are still incomplete, announced table structures, streams,
column lists and dead letters. A record may stop a table, and may end a stop whose cause is gone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from open_mirroring.changes.complete_position import Completeness, advance
from open_mirroring.changes.history_names import LOGGED_GENERATION, history_of, is_history, logged_as
from open_mirroring.changes.log_position import LOAD_ORDINAL, is_load_epoch, is_of_generation
from open_mirroring.changes.manifest import AnnouncedSchema, Manifest, OpenFragment, SeenLetter, SettledLetter
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.codes import WHY_RESET
from open_mirroring.facts import foreign_tables, full_loads
from open_mirroring.facts.column_lists import COLUMN_LISTS
from open_mirroring.facts.foreign_tables import FOREIGN
from open_mirroring.facts.full_loads import FULL_LOADS, SHORTEST_VALUES, LoadPlaces
from open_mirroring.facts.kind import tables_in
from open_mirroring.facts.read_places import SHOWN
from open_mirroring.facts.unreadable import KEYLESS, READING_STOPS, WITHOUT_TABLE
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.columns import record_columns
from open_mirroring.ledger.dead_letters import CHANGES_RECOVERED, enter_letters, mark_healed, settle_letters
from open_mirroring.ledger.declaring import lift_stop, stopped
from open_mirroring.ledger.documents import (
    EPOCHS,
    FOREIGN_TABLES,
    FRAGMENTS,
    OFFSETS,
    STARTS,
    STRUCTURES,
    Structure,
)
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.read_places import record_places
from open_mirroring.protocols.table_stops import (
    KEY_UNKNOWN,
    LOAD_REPEATED,
    PARTIAL_ROWS,
    RELOAD_SEEN,
    ROW_INCOMPLETE,
    SWAP_POSSIBLE,
)


def record_contents(db: Connection, mirror: str, number: int, bound_at: datetime, manifest: Manifest) -> None:
    """Record the manifest of batch *number*, inside the transaction that completes the batch."""
    _record_files(db, mirror, number, manifest)
    for name in manifest.given_back:
        db.execute(t.bound_range.delete().where(t.bound_range.c.mirror == mirror, t.bound_range.c.name == name))
    _record_fragments(db, mirror, number, bound_at, manifest)
    _record_completeness(db, mirror, number, manifest)
    _record_schemas(db, mirror, number, manifest)
    # Healed first: a stop that this batch sets is a new one, which the healing must not lift.
    mark_healed(db, mirror, manifest.healed)
    _record_tables(db, mirror, number, manifest)
    enter_letters(db, mirror, number, [SeenLetter(*entry) for entry in manifest.letters])
    foreign = FOREIGN.of_mirror(manifest.facts)
    if foreign:
        known = FOREIGN_TABLES.of(db, mirror)
        FOREIGN_TABLES.put(db, mirror, foreign_tables.fold(known, foreign, number, bound_at))
    record_places(db, mirror, number, manifest.facts)
    settle_letters(db, mirror, number, [SettledLetter(*entry) for entry in manifest.settled])


def _record_files(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for file in manifest.files:
        for source, epochs in file["tables"].items():
            for epoch, (rows, lowest, highest) in epochs.items():
                at = {"mirror": mirror, "source": source, "batch": number, "epoch": epoch}
                first = {**at, "rows": 0, "min_pos": lowest, "max_pos": highest, "files": []}
                entry = merged.setdefault((source, epoch), first)
                entry["rows"] += rows
                entry["min_pos"] = min(entry["min_pos"], lowest)
                entry["max_pos"] = max(entry["max_pos"], highest)
                entry["files"].append(file["path"])
    contents = [{**one, "files": json.dumps(one["files"])} for one in merged.values()]
    c, histories = t.mirrored_table.c, {history_of(source) for source, _ in merged}
    for source in db.scalars(sa.select(c.source).where(c.mirror == mirror, c.source.in_(histories))):
        contents += [{**one, "source": source} for one in contents if one["source"] == logged_as(source)]
    if contents:
        db.execute(t.batch_table.insert(), contents)


def _record_fragments(db: Connection, mirror: str, number: int, bound_at: datetime, manifest: Manifest) -> None:
    fresh = [fragment["identity"] for fragment in manifest.opened]
    known = FRAGMENTS.of(db, mirror, fresh) if fresh else {}
    FRAGMENTS.drop(db, mirror, manifest.closed)
    opened = {}
    for one in manifest.opened:
        before = known.get(one["identity"])
        since = (number, bound_at) if before is None else (before.since_batch, before.since)
        opened[one["identity"]] = OpenFragment(one["identity"], one["epoch"], one["pos"], *since, tuple(one["files"]))
    FRAGMENTS.put(db, mirror, opened)


def _record_completeness(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    if not manifest.partitions:
        return
    c = t.log_batch.c
    before = db.scalar(sa.select(c.completeness).where(c.mirror == mirror, c.number == number - 1))
    after = advance(
        None if before is None else Completeness.from_json(before),
        SHOWN.of_mirror(manifest.facts),
        manifest.partitions,
        [(waiting.epoch, waiting.pos.partition(":")[0]) for waiting in FRAGMENTS.of(db, mirror).values()],
        manifest.reads,
    )
    db.execute(t.log_batch.update().where(c.mirror == mirror, c.number == number).values(completeness=after.to_json()))


def _record_schemas(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    announced = [AnnouncedSchema(*entry) for entry in manifest.schemas]
    digests = {hashlib.sha256(json.dumps(schema).encode()).hexdigest(): schema for schema in announced}
    known = STRUCTURES.of(db, mirror, digests)
    fresh = {digest: Structure(schema, number) for digest, schema in digests.items() if digest not in known}
    STRUCTURES.put(db, mirror, fresh)


def _record_tables(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    without_table = sum(WITHOUT_TABLE.of_mirror(manifest.facts).values())
    rejects = t.mirror.c.unnamed_rejects + without_table
    db.execute(t.mirror.update().where(t.mirror.c.name == mirror).values(unnamed_rejects=rejects))
    epochs: dict[str, set[str]] = {}
    for file in manifest.files:
        for source, seen in file["tables"].items():
            epochs.setdefault(source, set()).update(seen)
    read_to_end = _read_to_end(db, mirror) if FULL_LOADS.of(manifest.facts) else {}
    c = t.mirrored_table.c
    query = sa.select(c.id, c.source, c.generation, c.newest_load, c.load_plan)
    concerned = {*epochs, *tables_in(manifest.facts)}
    query = query.where(c.mirror == mirror, c.source.in_({*concerned, *map(history_of, concerned)}))
    for table_id, table, generation, newest, plan in db.execute(query).tuples().all():
        source, generation = logged_as(table), LOGGED_GENERATION if is_history(table) else generation
        # Batches from before the load with which a table begins are met only when a ledger is made again (G-125).
        load = NewestLoad.of(newest)
        if load is not None and number < load.first_batch:
            _record_epochs(db, table_id, epochs.get(source, set()))
            continue
        # Late rows of an earlier generation's load do not show this generation's columns.
        if any(is_of_generation(epoch, generation) for epoch in epochs.get(source, {""})):
            lists = COLUMN_LISTS.of_table(manifest.facts, source)
            lists = lists if load is None else load.lists_behind(lists)
            if record_columns(db, table_id, lists, of_reading=manifest.lists_of_reading):
                _resume(db, table_id, PARTIAL_ROWS)
        _record_epochs(db, table_id, epochs.get(source, set()))
        if is_history(table):
            continue  # each change is a row of its own: no other one, and no load, changes what it says
        _record_starts(db, table_id, load, FULL_LOADS.of_table(manifest.facts, source), read_to_end)
        if (shortest := SHORTEST_VALUES.of_table(manifest.facts, source)) and plan is not None:
            t.change_tables(db, c.id == table_id, load_plan=LoadPlan.from_json(plan).having(shortest).to_json())
        if source in epochs:
            # This batch may contain what a row lacked, or show which row left its key (G-107).
            _resume(db, table_id, ROW_INCOMPLETE)
            _resume(db, table_id, SWAP_POSSIBLE)
        if source in manifest.loads_whole:
            _resume(db, table_id, LOAD_REPEATED)  # every row of the first load has come again (G-85)
        for stop in READING_STOPS.of_table(manifest.facts, source).values():
            stop_table(db, table_id, *stop)
        for reject in KEYLESS.of_table(manifest.facts, source).values():
            stop_table(db, table_id, "CHANGES_MISSING" if reject.healed_by_copy else KEY_UNKNOWN, reject.what)


def _record_epochs(db: Connection, table_id: str, found: set[str]) -> None:
    """Number the new streams of a batch: only an operator knows which one of two streams is the newer one (G-01).

    A table's first stream gets 0, an initial load a number below all streams.
    """
    known = EPOCHS.of(db, table_id)
    loads = {epoch: LOAD_ORDINAL for epoch in found if is_load_epoch(epoch) and epoch not in known}
    unknown = sorted(epoch for epoch in found if not is_load_epoch(epoch) and epoch not in known)
    if len(unknown) == 1 and all(map(is_load_epoch, known)):
        EPOCHS.put(db, table_id, {**loads, unknown[0]: 0})
        return
    EPOCHS.put(db, table_id, loads)
    if unknown:
        stop_table(db, table_id, "EPOCH_UNKNOWN", f"changes of an unknown stream arrived: {unknown}")


def _read_to_end(db: Connection, mirror: str) -> dict[str, int]:
    """The last place of each partition that was read up to its end."""
    b = t.bound_range.c
    bound = dict(db.execute(sa.select(b.name, b.bound_to).where(b.mirror == mirror)).tuples().all())
    ends = {name: broker.end for name, broker in OFFSETS.of(db, mirror).items()}
    return {name: bound[name] - 1 for name, end in ends.items() if bound.get(name, -1) >= end}


def _record_starts(
    db: Connection,
    table_id: str,
    load: NewestLoad | None,
    found: Mapping[str, LoadPlaces],
    read_to_end: Mapping[str, int],
) -> None:
    """Record where changes begin; stop a table if a row of a full load came after that place (K-18)."""
    if not found:
        return
    known = STARTS.of(db, table_id)
    starts, reloaded = full_loads.fold(known, found, {} if load is None else load.begins, read_to_end)
    if reloaded is not None:
        stop_table(db, table_id, RELOAD_SEEN, reloaded)
    STARTS.put(db, table_id, {origin: at for origin, at in starts.items() if known.get(origin) != at})


def _resume(db: Connection, table_id: str, code: str) -> None:
    """Lift a stop whose cause this batch may have removed; the next publication checks it again."""
    c = t.mirrored_table.c
    mine = (c.id == table_id) & (c.stop_code == code)
    for row in db.execute(sa.select(c.id, c.mirror, c.source, c.intent).where(mine)).all():
        lift_stop(db, row)


def stop_table(db: Connection, table_id: str, code: str, what: str) -> None:
    """Stop publishing a table, inside a running transaction.

    A table that is stopped already keeps the code and text of its first stop, with two exceptions. The new stop
    replaces the first one if the cause of the first is fixed and only an operator's confirmation is missing. The new
    stop also replaces the first one if only the new one needs a reset.
    """
    c = t.mirrored_table.c
    replaced: sa.ColumnElement[bool] = sa.or_(c.stop_code.is_(None), c.stop_code == CHANGES_RECOVERED)
    if code in WHY_RESET:
        replaced = sa.or_(replaced, c.stop_code.not_in(WHY_RESET))
    t.change_tables(db, (c.id == table_id) & replaced, **stopped(code, what))
