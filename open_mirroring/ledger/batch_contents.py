"""Writes what a completed batch leaves in the ledger: its contents by table, open fragments, structures, stops."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from open_mirroring.changes.complete_position import Completeness, advance
from open_mirroring.changes.log_position import LOAD_ORDINAL, is_load_epoch, is_of_generation
from open_mirroring.changes.manifest import AnnouncedSchema, ListSeen, Manifest, SettledLetter
from open_mirroring.changes.source_reloads import NewestLoad
from open_mirroring.codes import WHY_RESET, Trait, having
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.columns import record_columns
from open_mirroring.ledger.declaring import without_stop, without_unsealed
from open_mirroring.ledger.foreign_tables import record_foreign
from open_mirroring.ledger.letters import CHANGES_RECOVERED, enter_letters, mark_healed, settle_letters
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.read_places import record_places
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.table_stops import (
    KEY_UNKNOWN,
    LOAD_REPEATED,
    PARTIAL_ROWS,
    RELOAD_SEEN,
    ROW_INCOMPLETE,
    SWAP_POSSIBLE,
)


def record_contents(db: Connection, mirror: str, number: int, bound_at: datetime, manifest: Manifest) -> None:
    """Record what batch *number* holds, inside the transaction that completes it."""
    _record_files(db, mirror, number, manifest)
    _give_back(db, mirror, manifest)
    _record_fragments(db, mirror, number, bound_at, manifest)
    _record_completeness(db, mirror, number, manifest)
    _record_schemas(db, mirror, number, manifest)
    # Healed first: a stop that this batch sets is a new one, which the healing must not lift.
    mark_healed(db, mirror, manifest.healed)
    _record_tables(db, mirror, number, manifest)
    enter_letters(db, mirror, number, manifest)
    record_foreign(db, mirror, number, bound_at, manifest.foreign, manifest.foreign_up_to)
    record_places(db, mirror, number, manifest)
    settle_letters(db, mirror, number, [SettledLetter(*entry) for entry in manifest.settled])


def _record_files(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for file in manifest.files:
        for source, epochs in file["tables"].items():
            for epoch, (rows, lowest, highest) in epochs.items():
                entry = merged.setdefault(
                    (source, epoch), {"rows": 0, "min_pos": lowest, "max_pos": highest, "files": []}
                )
                entry["rows"] += rows
                entry["min_pos"] = min(entry["min_pos"], lowest)
                entry["max_pos"] = max(entry["max_pos"], highest)
                entry["files"].append(file["path"])
    if merged:
        db.execute(
            t.batch_table.insert(),
            [
                {"mirror": mirror, "source": source, "batch": number, "epoch": epoch}
                | entry
                | {"files": json.dumps(entry["files"])}
                for (source, epoch), entry in merged.items()
            ],
        )


def _give_back(db: Connection, mirror: str, manifest: Manifest) -> None:
    c = t.bound_range.c
    for name in manifest.given_back:
        db.execute(t.bound_range.delete().where(c.mirror == mirror, c.name == name))


def _record_fragments(db: Connection, mirror: str, number: int, bound_at: datetime, manifest: Manifest) -> None:
    gone = [*manifest.closed, *(f["identity"] for f in manifest.opened)]
    since = {
        row.identity: (row.since_batch, row.since)
        for row in db.execute(sa.select(t.open_fragment).where(t.open_fragment.c.mirror == mirror))
    }
    for identity in gone:
        c = t.open_fragment.c
        db.execute(t.open_fragment.delete().where(c.mirror == mirror, c.identity == identity))
    for fragment in manifest.opened:
        since_batch, since_time = since.get(fragment["identity"], (number, bound_at))
        db.execute(
            t.open_fragment.insert().values(
                mirror=mirror,
                identity=fragment["identity"],
                epoch=fragment["epoch"],
                pos=fragment["pos"],
                since_batch=since_batch,
                since=since_time,
                files=json.dumps(fragment["files"]),
            )
        )


def _record_completeness(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    """Record the completeness after this batch, from the one before and the events that lack pieces now."""
    if not manifest.partitions:
        return
    c = t.log_batch.c
    before = db.scalar(sa.select(c.completeness).where(c.mirror == mirror, c.number == number - 1))
    f = t.open_fragment.c
    waiting = db.execute(sa.select(f.epoch, f.pos).where(f.mirror == mirror)).tuples()
    after = advance(
        None if before is None else Completeness.from_json(before),
        manifest.told,
        manifest.partitions,
        [(epoch, pos.partition(":")[0]) for epoch, pos in waiting],
        manifest.reads,
    )
    db.execute(t.log_batch.update().where(c.mirror == mirror, c.number == number).values(completeness=after.to_json()))


def _record_schemas(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    rows = []
    for schema in (AnnouncedSchema(*entry) for entry in manifest.schemas):
        digest = hashlib.sha256(json.dumps(schema).encode()).hexdigest()
        rows.append({"mirror": mirror, "digest": digest, "batch": number, **schema._asdict()})
    upsert(db, t.source_schema, rows, keys=["mirror", "digest"], update=[])


def _record_tables(db: Connection, mirror: str, number: int, manifest: Manifest) -> None:
    """Column lists, epochs and undecodable keys of the tables that the mirror knows."""
    db.execute(
        t.mirror.update()
        .where(t.mirror.c.name == mirror)
        .values(homeless_rejects=t.mirror.c.homeless_rejects + manifest.homeless_rejects)
    )
    epochs: dict[str, set[str]] = {}
    for file in manifest.files:
        for source, seen in file["tables"].items():
            epochs.setdefault(source, set()).update(seen)
    concerned = {*epochs, *manifest.columns, *manifest.keyless_rejects, *manifest.reloads, *manifest.stops}
    c = t.mirrored_table.c
    query = sa.select(c.id, c.source, c.generation, c.newest_load)
    query = query.where(c.mirror == mirror, c.source.in_(concerned))
    for table_id, source, generation, newest in db.execute(query).tuples():
        # Batches from before the load with which a table begins are met only when a ledger is made again (G-125).
        load = NewestLoad.of(newest)
        if load is not None and number < load.first_batch:
            _record_epochs(db, table_id, epochs.get(source, set()))
            continue
        # Late rows of an earlier generation's load say nothing of this generation's columns.
        if any(is_of_generation(epoch, generation) for epoch in epochs.get(source, {""})):
            lists = [ListSeen.of(entry) for entry in manifest.columns.get(source, ())]
            lists = lists if load is None else load.lists_behind(lists)
            if record_columns(db, table_id, lists, of_reading=manifest.lists_of_reading):
                _resume(db, table_id, PARTIAL_ROWS)
        _record_epochs(db, table_id, epochs.get(source, set()))
        _record_reloads(db, mirror, table_id, load, manifest.reloads.get(source, {}))
        if source in manifest.shortest:
            _note_shortest(db, table_id, manifest.shortest[source])
        if source in epochs:
            # What a row lacked, or which row left its key, may be told by this batch (G-107).
            _resume(db, table_id, ROW_INCOMPLETE)
            _resume(db, table_id, SWAP_POSSIBLE)
        if source in manifest.loads_whole:
            _resume(db, table_id, LOAD_REPEATED)  # every row of the first load has come again (G-85)
        if source in manifest.stops:
            stop_table(db, table_id, *manifest.stops[source])
        reject = manifest.keyless_rejects.get(source)
        if reject is not None:
            healed = reject["code"] in having(Trait.HEALED_BY_COPY)
            lost = "changes that could not be read" if healed else "a change without a readable key"
            what = f"{lost}: {reject['code']}: {reject['reason']} at {reject['at']}"
            stop_table(db, table_id, "CHANGES_MISSING" if healed else KEY_UNKNOWN, what)


def _record_epochs(db: Connection, table_id: str, epochs: set[str]) -> None:
    c = t.stream_epoch.c
    known = set(db.scalars(sa.select(c.epoch).where(c.table_id == table_id)))
    for epoch in filter(is_load_epoch, epochs - known):
        db.execute(t.stream_epoch.insert().values(table_id=table_id, epoch=epoch, ordinal=LOAD_ORDINAL))
    fresh = sorted(epoch for epoch in epochs - known if not is_load_epoch(epoch))
    if not fresh:
        return
    if all(map(is_load_epoch, known)) and len(fresh) == 1:
        db.execute(t.stream_epoch.insert().values(table_id=table_id, epoch=fresh[0], ordinal=0))
        return
    stop_table(db, table_id, "EPOCH_UNKNOWN", f"changes of an unknown stream incarnation arrived: {fresh}")


def _record_reloads(
    db: Connection, mirror: str, table_id: str, load: NewestLoad | None, seen: Mapping[str, Sequence[int | None]]
) -> None:
    """Record where changes begin; a row of a full load behind that place means that the source was loaded again (K-18).

    A full load ends before the first change of its table is sent. So its rows lie before that change in the change's
    partition, and in every other partition of a broker before the end which that partition had when the change was
    bound. Only a partition that was read up to its end has such a place, because a load that is still being read from a
    slow partition is no reload.
    """
    if not seen:
        return
    c = t.stream_start.c
    known = dict(db.execute(sa.select(c.origin, c.place).where(c.table_id == table_id)).tuples().all())
    starts = dict(known)
    begins = {} if load is None else load.begins
    for origin, (last_loaded, first_change) in sorted(seen.items()):
        # What is read again from before the newest load says nothing of where its changes begin.
        if first_change is not None and first_change >= begins.get(origin, 0):
            starts[origin] = min(first_change, starts.get(origin, first_change))
        if last_loaded is not None and last_loaded > starts.get(origin, last_loaded):
            what = f"a row of a full load came at {origin}:{last_loaded}, after changes of this table"
            stop_table(db, table_id, RELOAD_SEEN, what)
    if starts:
        b, o = t.bound_range.c, t.source_offsets.c
        ends = dict(db.execute(sa.select(o.name, o.end).where(o.mirror == mirror)).tuples().all())
        bound = dict(db.execute(sa.select(b.name, b.bound_to).where(b.mirror == mirror)).tuples().all())
        starts = {**{name: bound[name] - 1 for name, end in ends.items() if bound.get(name, -1) >= end}, **starts}
    fresh = [{"table_id": table_id, "origin": o, "place": at} for o, at in sorted(starts.items()) if known.get(o) != at]
    upsert(db, t.stream_start, fresh, keys=["table_id", "origin"], update=["place"])


def _note_shortest(db: Connection, table_id: str, found: Mapping[str, int]) -> None:
    c = t.mirrored_table.c
    plan = db.scalar(sa.select(c.load_plan).where(c.id == table_id))
    if plan is not None:
        t.change_tables(db, c.id == table_id, load_plan=LoadPlan.from_json(plan).having(found).to_json())


def _resume(db: Connection, table_id: str, code: str) -> None:
    """Lift a stop of which the reason is gone with what this batch brought; publishing decides again."""
    c = t.mirrored_table.c
    mine = (c.id == table_id) & (c.stop_code == code)
    for mirror, source, intent in db.execute(sa.select(c.mirror, c.source, c.intent).where(mine)).tuples().all():
        t.change_tables(db, c.id == table_id, **without_stop(db, mirror, source), **without_unsealed(intent))


def stop_table(db: Connection, table_id: str, code: str, what: str) -> None:
    """Stop a table inside a running transaction.

    The first reason stays, unless it is a lesser one, or its cause was mended. A stop that only a reset ends replaces a
    lesser one: once that one is lifted nothing would look for the cause again.
    """
    c = t.mirrored_table.c
    replaced: sa.ColumnElement[bool] = sa.or_(c.stop_code.is_(None), c.stop_code == CHANGES_RECOVERED)
    if code in WHY_RESET:
        replaced = sa.or_(replaced, c.stop_code.not_in(WHY_RESET))
    now = datetime.now(UTC)
    t.change_tables(db, (c.id == table_id) & replaced, stop_code=code, stop_what=what, stopped_at=now)
