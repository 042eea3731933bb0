"""The ledger transactions of resets: the request, one record for each step, and the new generation of the table.

A reset drops a table at the target and builds the table again: by an initial load, or from the change log if it
contains every change. If the batches logged so far cannot be used for that, ``log_from`` is set to the newest of these
batches. This happens under the lock that binding a batch needs, so no batch is bound in between.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.log_position import BEGINS_EMPTY, LOAD_ORDINAL, load_epoch
from open_mirroring.changes.source_reloads import NewestLoad, ReloadedRows
from open_mirroring.codes import RESET, WHY_LOAD, Trait, having
from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason, audit
from open_mirroring.ledger.columns import keep_taken, record_columns
from open_mirroring.ledger.decisions import EPOCH_UNKNOWN, unknown_epochs
from open_mirroring.ledger.declaring import (
    DROPPED,
    ResetRecord,
    TableDeclaration,
    corrected_stop,
    is_new_to_log,
    key_of,
    newest_batch,
    newest_epoch,
    note_accepted,
    refuse_taken_folder,
)
from open_mirroring.ledger.documents import COLUMN_LISTS, EPOCHS, OFFSETS, STARTS, VERDICTS
from open_mirroring.ledger.horizon import newest_dropped
from open_mirroring.ledger.requests import DROP, RELOAD, Asked, locked_table
from open_mirroring.protocols.resetting import Answer, Lost, ResetRow, ResetStage
from open_mirroring.protocols.table_stops import KEY_CORRECTED, KEY_UNKNOWN, LOAD_NEEDED


class ResetLedger:
    """The ledger of one mirror for resets; tables are identified by source name."""

    def __init__(self, engine: Engine, mirror: str) -> None:
        self._engine = engine
        self._mirror = mirror

    def request_reload(
        self,
        declared: TableDeclaration,
        reason: Reason,
        *,
        again: bool = False,
        request: str = "",
        reloaded: ReloadedRows | None = None,
        loads_stream: str = "",
        is_carried_on: bool = False,
    ) -> bool:
        """Request a reset that builds the table as the mirror file declares it. False if no new reset begins.

        No new reset begins if this *request* was made before (G-30). A request also joins a reset that is under way.
        But a new reset begins if the table's settings changed, the rebuilt table was stopped, or *again* is set. With
        *reloaded*, the table begins with the newest full load by the Qlik task in the change log (G-125).
        *loads_stream* names a stream (one enabling of streaming): the table begins with the initial load with which
        this stream began (G-128).

        Raises ``CHANGED_MEANWHILE`` if more was logged since *reloaded* was read. Raises ``LOAD_NEEDED`` if the rebuilt
        table would lack rows: the change log does not have them, and no initial load contains them. Raises
        ``COMMAND_REFUSED`` if several streams were read that no operator has accepted.
        """
        asked = Asked(request, RELOAD, declared.source)
        with self._engine.begin() as db:
            newest = newest_batch(db, self._mirror)
            if requests.known(db, self._mirror, asked) is not None:
                return False
            row = locked_table(db, self._mirror, declared.source)
            if requests.known(db, self._mirror, asked) is not None:
                return False  # another process recorded it while this one waited for the row
            requests.record(db, self._mirror, asked)
            if not again and _is_under_way(row, declared):
                return False
            refuse_taken_folder(db, self._mirror, declared)
            same_key = declared.is_keyed_as(row)
            corrects = not (declared.loads or same_key or row.confirmed) and is_new_to_log(db, row)
            load = self._newest_load(db, row, reloaded, keeps=not declared.loads)
            begins_at: int | None = None
            if declared.loads:
                self._accept_epoch(db, row, reason, loads_stream)
                begins_at, lacks = _load_begins(db, row, same_key=same_key, loads_stream=bool(loads_stream))
            elif load is not None:
                lacks = _why_load_lacks(db, row, declared, load, is_new=reloaded is not None)
            else:
                lacks = _why_log_lacks(db, row, declared, corrects=corrects)
            if lacks:
                raise load_needed(self._mirror, declared.source, lacks)
            is_lacking = not same_key or row.stop_code in WHY_LOAD
            fresh = is_lacking and not corrects and begins_at is None and load is None
            self._request(
                db,
                row,
                reason,
                drops=False,
                loads=declared.loads,
                begins_at=begins_at,
                **declared.fixed,
                log_from=newest if fresh else row.log_from,
                newest_load=None if load is None else load.to_json(),
                is_carried_on=is_carried_on,
            )
            if reloaded is not None:
                # What the ledger recorded of rows before the newest full load no longer counts.
                STARTS.replace(db, row.id, reloaded.starts)
                COLUMN_LISTS.drop(db, row.id)
                record_columns(db, row.id, reloaded.lists, of_reading=False)
            if corrects and row.stop_code in (KEY_UNKNOWN, KEY_CORRECTED):
                stop = corrected_stop(row, declared)
                db.execute(t.mirrored_table.update().where(t.mirrored_table.c.id == row.id).values(stop))
        return True

    def request_drop(self, source: str, reason: Reason, *, request: str = "") -> bool:
        """Request that a table is dropped for good.

        False if no new drop begins, because one is under way or was requested before.
        """
        asked = Asked(request, DROP, source)
        with self._engine.begin() as db:
            if requests.known(db, self._mirror, asked) is not None:
                return False
            if DROPPED.one(db, self._mirror, source) is not None:
                requests.record(db, self._mirror, asked, {"stage": ResetStage.DROPPED.value})
                return False
            row = locked_table(db, self._mirror, source)
            if requests.known(db, self._mirror, asked) is not None:
                return False
            requests.record(db, self._mirror, asked)
            open_one = ResetRecord.of(row.reset)
            if open_one is not None and open_one.drops:
                return False
            self._request(db, row, reason, drops=True, loads=False)
        return True

    def requests_of(self, source: str, who: str, setting: str, within: timedelta) -> int:
        """How often *who* requested a reset of a table in the time *within*, with a reason that begins ``setting:``."""
        c = t.audit.c
        asked = (c.mirror == self._mirror) & (c.source == source) & (c.event == ResetStage.REQUESTED.value)
        query = sa.select(c.detail).where(asked, c.at > datetime.now(UTC) - within)
        with self._engine.connect() as db:
            found = [json.loads(detail) for detail in db.scalars(query)]
        return sum(one["who"] == who and one["why"].startswith(f"{setting}:") for one in found)

    def keep_stopped(self, source: str, what: str) -> None:
        """Store why a table stays stopped after the Qlik task repeated its full load.

        If an operator has accepted the repeated full load, the acceptance is withdrawn, and has to be given again.
        """
        c = t.mirrored_table.c
        with self._engine.begin() as db:
            row = locked_table(db, self._mirror, source)
            said = what if row.stop_code is not None else row.stop_what
            t.change_tables(db, c.id == row.id, reload_accepted=None, stop_what=said)
            if row.reload_accepted is not None:
                audit(db, self._mirror, source, "RELOAD_REFUSED", {"what": what})

    def look(self, source: str) -> ResetRow:
        """The reset of a table.

        The row's version is not raised, so a process that works on the reset is not disturbed.
        """
        with self._engine.connect() as db:
            return self._owned(db, source)

    def say(self, asked: Asked, version: int, to: ResetStage, reason: Reason) -> bool:
        """Record an operator's confirmation that the target shows the table, or no longer shows the table (G-89).

        A request that was made before is not recorded again. Returns False if the row's version is not *version*.
        """
        with self._engine.begin() as db:
            if requests.known(db, self._mirror, asked) is not None:
                return True
            if isinstance(self._advance(db, asked.source, version, to), Lost):
                return False
            requests.record(db, self._mirror, asked, {"stage": to.value})
            audit(db, self._mirror, asked.source, asked.action.replace("-", "_").upper(), reason._asdict())
        return True

    def asked(self, asked: Asked) -> Answer:
        """Look up a request: ``ENDED`` if it is finished, ``OPEN`` if it is under way or unknown."""
        return Answer.OPEN if requests.answer(self._engine, self._mirror, asked) is None else Answer.ENDED

    def acquire(self, source: str) -> ResetRow:
        """Take over the table's ledger row: raise its version, and return the table's reset.

        A dropped table has no reset any more.
        """
        with self._engine.begin() as db:
            c = t.mirrored_table.c
            t.change_tables(db, (c.mirror == self._mirror) & (c.source == source))
            return self._owned(db, source)

    def advance(self, source: str, version: int, to: ResetStage, *, absent: bool = False) -> ResetRow | Lost:
        """Record the next step of a reset, in the table's ledger row and in the audit trail."""
        with self._engine.begin() as db:
            return self._advance(db, source, version, to, absent=absent)

    def _advance(
        self, db: Connection, source: str, version: int, to: ResetStage, *, absent: bool = False
    ) -> ResetRow | Lost:
        c = t.mirrored_table.c
        query = sa.select(t.mirrored_table).where(c.mirror == self._mirror, c.source == source)
        row = db.execute(query.with_for_update()).one_or_none()
        reset = None if row is None else ResetRecord.of(row.reset)
        if row is None or reset is None or row.version != version:
            return Lost()
        if to is ResetStage.DROPPED:
            DROPPED.put(db, self._mirror, {row.source: (row.id, row.generation)})
            VERDICTS.drop(db, row.id)
            db.execute(t.mirrored_table.delete().where(c.id == row.id))
        else:
            record = replace(reset, stage=to, absent=absent)
            values: dict[str, Any] = {"reset": None if to is ResetStage.TABLE_BACK else record.to_json()}
            if to is ResetStage.REBUILDING:
                values |= _new_generation(db, row, reset)
            t.change_tables(db, c.id == row.id, **values)
        if to is not reset.stage:
            generation = row.generation + (to is ResetStage.REBUILDING)
            detail = {"who": reset.who, "why": reset.why, "generation": generation}
            audit(db, self._mirror, source, to.value, detail)
            if to in (ResetStage.REBUILDING, ResetStage.DROPPED):
                refused = {"refused": f"table {source!r} was reset meanwhile: its numbers are other files now"}
                requests.finish(db, self._mirror, source, (requests.REPAIR,), refused, None)
            if to in (ResetStage.TABLE_BACK, ResetStage.DROPPED):
                outcome = {"stage": to.value, "generation": generation}
                requests.finish(db, self._mirror, source, requests.RESETS, outcome)
        return self._owned(db, source)

    def _newest_load(
        self, db: Connection, row: Any, reloaded: ReloadedRows | None, *, keeps: bool
    ) -> NewestLoad | None:
        """The load of the source with which the new generation begins: one that was just read, or that it had."""
        if not keeps:
            return None
        if reloaded is None:
            return NewestLoad.of(row.newest_load)
        m, b = t.mirror.c, t.bound_range.c
        committed = db.scalar(sa.select(m.committed).where(m.name == self._mirror)) or 0
        if committed != reloaded.up_to:
            what = f"batches up to {committed} are in the log, and those up to {reloaded.up_to} were looked at"
            raise TransientError("CHANGED_MEANWHILE", what, where=f"mirror {self._mirror}", next_step="run again")
        ends = {name: broker.end for name, broker in OFFSETS.of(db, self._mirror).items()}
        bound = dict(db.execute(sa.select(b.name, b.bound_to).where(b.mirror == self._mirror)).tuples().all())
        # The ends are those of the newest batch: it has to be a later one than that with which the load began.
        is_read = bool(ends) and all(bound.get(name, 0) >= end for name, end in ends.items())
        return replace(reloaded.load, is_closed=is_read and committed > reloaded.load.first_batch)

    def _request(
        self,
        db: Connection,
        row: Any,
        reason: Reason,
        *,
        drops: bool,
        loads: bool,
        begins_at: int | None = None,
        is_carried_on: bool = False,
        **values: Any,
    ) -> None:
        open_one = ResetRecord.of(row.reset)
        folders = tuple(dict.fromkeys([*(() if open_one is None else open_one.folders), row.folder]))
        since = datetime.now(UTC).isoformat()
        record = ResetRecord(
            ResetStage.REQUESTED, drops, loads, folders, False, reason.who, reason.why, since, begins_at, is_carried_on
        )
        c = t.mirrored_table.c
        note_accepted(db, self._mirror, row.source)
        # Files that an earlier process sealed are in the folder that is deleted.
        gone = dict.fromkeys(("intent", "stop_code", "stop_what", "stopped_at", "reload_accepted"))
        t.change_tables(db, c.id == row.id, reset=record.to_json(), **gone, **values)
        stop = None if row.stop_code is None else {"code": row.stop_code, "what": row.stop_what}
        abandoned = {} if row.intent is None else {"abandoned": row.intent}
        detail = {**reason._asdict(), "cleared": stop, "drops": drops, "loads": loads, **abandoned}
        audit(db, self._mirror, row.source, ResetStage.REQUESTED.value, detail)

    def _accept_epoch(self, db: Connection, row: Any, reason: Reason, loads_stream: str) -> None:
        """Give a stream that began again its ordinal: a load made after its beginning covers what is between."""
        of_others = {loads_stream} - {"", *EPOCHS.of(db, row.id)}
        unknown = sorted(unknown_epochs(db, row) | of_others)
        if len(unknown) > 1:
            what = f"several streams of table {row.source!r} are unknown, and which came first is not known: {unknown}"
            next_step = f"accept all but the newest in their order (`open-mirroring accept-epoch`), then {RESET}"
            raise TerminalError("COMMAND_REFUSED", what, where=f"mirror {self._mirror}", next_step=next_step)
        for epoch in unknown:
            ordinal = max(EPOCHS.of(db, row.id).values(), default=LOAD_ORDINAL) + 1
            EPOCHS.put(db, row.id, {epoch: ordinal})
            detail = {**reason._asdict(), "cleared": None, "epoch": epoch, "ordinal": ordinal}
            audit(db, self._mirror, row.source, "EPOCH_ACCEPTED", detail)

    def _owned(self, db: Connection, source: str) -> ResetRow:
        c = t.mirrored_table.c
        query = sa.select(t.mirrored_table).where(c.mirror == self._mirror, c.source == source)
        row = db.execute(query).one_or_none()
        reset = None if row is None else ResetRecord.of(row.reset)
        if row is None or reset is None:
            return ResetRow(0 if row is None else row.version)
        rebuilt = self._is_loaded(db, row) if reset.loads else self._is_rebuilt(db, row)
        return ResetRow(row.version, reset.stage, reset.drops, reset.folders, reset.absent, rebuilt, row.confirmed > 0)

    def _is_loaded(self, db: Connection, row: Any) -> bool:
        """Whether the load is published: one that goes through the log is when its batches are."""
        b = t.batch_table.c
        waiting = sa.select(b.batch).where(
            b.mirror == self._mirror,
            b.source == row.source,
            b.epoch == load_epoch(row.generation),
            b.batch > row.published_batch,
        )
        return row.load_state == "loaded" and db.scalar(waiting.limit(1)) is None

    def _is_rebuilt(self, db: Connection, row: Any) -> bool:
        """Whether what the log holds is published, or it holds nothing: without a row no folder is made (F-92)."""
        c = t.batch_table.c
        logged = sa.select(c.batch).where(c.mirror == self._mirror, c.source == row.source).limit(1)
        if row.intent is not None:
            return False
        return row.published_batch > 0 or db.scalar(logged) is None


def _is_under_way(row: Any, declared: TableDeclaration) -> bool:
    reset = ResetRecord.of(row.reset)
    if reset is None or not declared.is_that_of(row):
        return False
    failed = reset.stage is ResetStage.REBUILDING and row.stop_code is not None
    return (reset.drops, reset.loads) == (False, declared.loads) and not failed


def _load_begins(db: Connection, row: Any, *, same_key: bool, loads_stream: bool) -> tuple[int | None, str]:
    """The stream that is published entirely over an initial load, if any, and why its changes would lack some (G-128).

    Unless the request names the stream, it is only assumed to be the newest one if nothing is missing.
    """
    if not (loads_stream or _loaded_stream(db, row)):
        return None, ""
    newest = newest_epoch(db, row.id)
    lacks = "" if same_key else "it has another key"
    lacks = lacks or _why_stream_lacks(db, row, newest) or _why_stop_counts(db, row, newest)
    return (newest, lacks) if loads_stream else (None if lacks else newest, "")


def _new_generation(db: Connection, row: Any, reset: ResetRecord) -> dict[str, Any]:
    """The columns of a table's row when it begins again; values that did not fit their types are tried again."""
    db.execute(t.rejected_change.delete().where(t.rejected_change.c.table_id == row.id))
    keep_taken(db, row.id, row.generation)
    begins_at, stream_from = reset.begins_at, None if reset.begins_at is None else BEGINS_EMPTY
    if load := None if reset.loads else NewestLoad.of(row.newest_load):
        begins_at, stream_from = EPOCHS.one(db, row.id, load.epoch), load.stream_from
    return {
        "generation": row.generation + 1,
        "incarnation": str(uuid4()),
        "established": False,
        "marker_etag": "",
        "confirmed": 0,
        "published_batch": 0,
        "published_position": None,
        "waiting_rows": None,
        "intent": None,
        "columns": "[]",
        "types": None,
        "load_state": "pending" if reset.loads else "none",
        "load_plan": None,
        "load_refused": None,
        "stream_from": stream_from,
        "stream_epoch": newest_epoch(db, row.id) if begins_at is None else begins_at,
    }


def _why_stop_counts(db: Connection, row: Any, begins_at: int) -> str:
    """Why a stop also affects rows of the newest stream; empty if its cause was before that."""
    if row.stop_code not in WHY_LOAD or row.stop_code == EPOCH_UNKNOWN:
        return ""
    if row.stop_code not in (KEY_UNKNOWN, "CHANGES_MISSING"):
        return WHY_LOAD[row.stop_code]
    b, o = t.batch_table.c, t.open_letter.c
    newest = [epoch for epoch, ordinal in EPOCHS.of(db, row.id).items() if ordinal == begins_at]
    of_it = sa.select(sa.func.min(b.batch)).where(b.mirror == row.mirror, b.source == row.source, b.epoch.in_(newest))
    if (first := db.scalar(of_it)) is None:
        return ""
    letters = sa.select(o.batch).where(o.mirror == row.mirror, o.source == row.source, o.batch >= first).limit(1)
    return "" if db.scalar(letters) is None else WHY_LOAD[row.stop_code]


def _loaded_stream(db: Connection, row: Any) -> bool:
    """Whether a table's load is that with which its newest stream began (G-128)."""
    is_so = row.load_state == "loaded" and row.stream_from == BEGINS_EMPTY and row.stop_code not in WHY_LOAD
    return bool(is_so and row.stream_epoch == newest_epoch(db, row.id))


def _why_load_lacks(db: Connection, row: Any, declared: TableDeclaration, load: NewestLoad, *, is_new: bool) -> str:
    """Why the newest full load of the source and later changes do not contain all rows; empty if they do."""
    if not declared.is_keyed_as(row):
        return f"its changes are logged by the key {key_of(row)}"
    if row.stop_code in WHY_LOAD and not (is_new and row.stop_code in having(Trait.BEFORE_A_LOAD)):
        return WHY_LOAD[row.stop_code]
    if row.stop_code == LOAD_NEEDED:
        return row.stop_what or LOAD_NEEDED
    if unknown := unknown_epochs(db, row):
        return f"it holds changes of unknown streams: {sorted(unknown)}"
    lost = max(row.log_from, db.scalar(sa.select(newest_dropped(row.mirror))) or 0)
    return f"its batches up to {lost} do not contain its rows" if load.first_batch <= lost else ""


def _why_log_lacks(db: Connection, row: Any, declared: TableDeclaration, *, corrects: bool) -> str:
    """Why the log alone does not contain all rows of the table; empty if it does.

    *corrects*: nothing was ever logged or published by the ledger's key, so it may be replaced. Only an operator can
    know whether the table had rows before its stream began.
    """
    if not declared.is_keyed_as(row) and not corrects:
        return f"its changes are logged by the key {key_of(row)}"
    if row.stop_code in WHY_LOAD and not (corrects and row.stop_code in (KEY_UNKNOWN, KEY_CORRECTED)):
        return WHY_LOAD[row.stop_code]
    if row.stop_code == LOAD_NEEDED:
        return row.stop_what or LOAD_NEEDED
    if row.log_from:
        return f"its batches up to {row.log_from} do not contain its rows"
    p = t.publication.c
    loaded = sa.select(p.version).where(p.table_id == row.id, p.kind == "load").limit(1)
    if row.load_state != "none" or db.scalar(loaded) is not None:
        return "its first rows came from a load"
    if unknown := unknown_epochs(db, row):
        return f"it holds changes of unknown streams: {sorted(unknown)}"
    c = t.batch_table.c
    gone = (c.mirror == row.mirror) & (c.source == row.source) & (c.batch <= newest_dropped(row.mirror))
    if (newest := db.scalar(sa.select(sa.func.max(c.batch)).where(gone))) is not None:
        return f"maintenance has dropped its changes up to batch {newest} from the log"
    b = t.log_batch.c
    kept = db.scalar(sa.select(sa.func.count()).select_from(t.log_batch).where(b.mirror == row.mirror))
    committed = db.scalar(sa.select(t.mirror.c.committed).where(t.mirror.c.name == row.mirror)) or 0
    if kept != committed:
        return f"it has {kept} of {committed} batches only"
    return ""


def _why_stream_lacks(db: Connection, row: Any, begins_at: int) -> str:
    """Why the log does not contain all rows of a table that was empty when its stream began; empty if it does."""
    if unknown := unknown_epochs(db, row):
        return f"it holds changes of unknown streams: {sorted(unknown)}"
    b = t.batch_table.c
    dropped = db.scalar(sa.select(newest_dropped(row.mirror))) or 0
    lost = max(row.log_from, dropped)
    since = [epoch for epoch, ordinal in EPOCHS.of(db, row.id).items() if ordinal >= begins_at]
    of_it = (b.mirror == row.mirror) & (b.source == row.source) & b.epoch.in_(since)
    first = db.scalar(sa.select(sa.func.min(b.batch)).where(of_it))
    return f"its batches up to {lost} do not contain its rows" if first is not None and first <= lost else ""


def load_needed(mirror: str, source: str, why: str) -> TerminalError:
    """Build the error for a reset that is refused because the rebuilt table would lack rows."""
    what = f"the log does not contain every row of table {source!r}: {why}"
    next_step = f"give the table an `initial_load` in the mirror file, then {RESET}; nothing was deleted"
    return TerminalError(LOAD_NEEDED, what, where=f"mirror {mirror}", next_step=next_step)
