"""Decisions of operators: to clear a stop whose cause is corrected, to accept a stream or a change of structure.

Each decision is one transaction. It changes the stop, raises the row's version so that a run at work on the row loses
it, and writes who decided, what and why into the audit. Nothing else in the product lifts a stop. A decision that names
its request is taken once: asked again, it reports what it cleared then, and lifts no stop that came later (G-30).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.log_position import is_load_epoch, position_order
from open_mirroring.changes.told_statements import Statement, what_became_of
from open_mirroring.errors import TerminalError
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason, audit
from open_mirroring.ledger.declaring import note_accepted, without_stop, without_unsealed
from open_mirroring.ledger.requests import (
    ACCEPT_EPOCH,
    ACCEPT_RELOAD,
    ACCEPT_SCHEMA,
    ACCEPT_TABLE,
    RESUME,
    RESUME_EXTRACTION,
    Asked,
)
from open_mirroring.ledger.verdict_ledger import accept_count
from open_mirroring.protocols.table_stops import KEY_MENDED, NEEDS_RESET, NEW_TABLE, RESET
from open_mirroring.protocols.verdicts import TARGET_RESTARTED

EPOCH_UNKNOWN = "EPOCH_UNKNOWN"
RENAME_POSSIBLE, COLUMN_RENAMED = "RENAME_POSSIBLE", "COLUMN_RENAMED"
EXPLAINED_BY_A_WORD = (RENAME_POSSIBLE, COLUMN_RENAMED, "PARTIAL_ROWS", "COLUMN_NOT_STREAMED")
"""Stops that may be over once it is known what became of a column."""


class OpenStop(NamedTuple):
    """A stop that waits for a decision. *source* is None for the mirror's extraction, whose stop has no *since*."""

    source: str | None
    code: str
    what: str
    since: datetime | None

    def document(self) -> dict[str, Any]:
        """As a request's outcome keeps it."""
        return {**self._asdict(), "since": None if self.since is None else self.since.isoformat()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> OpenStop:
        """The stop that :meth:`document` describes."""
        since = document["since"]
        return cls(**{**document, "since": None if since is None else datetime.fromisoformat(since)})


class EpochAccepted(NamedTuple):
    """The ordinal that a stream incarnation got.

    *cleared* is the stop that ended with it, None when the table was not stopped for it or still is:
    *still_unknown* names the other incarnations that no one has accepted yet.
    """

    ordinal: int
    cleared: OpenStop | None
    still_unknown: tuple[str, ...]


def open_stops(ledger: Engine, mirror: str) -> list[OpenStop]:
    """Every stop in the ledger: the mirror's own first, then its tables' by name."""
    c = t.mirrored_table.c
    stopped = sa.select(c.source, c.stop_code, c.stop_what, c.stopped_at).where(
        c.mirror == mirror, c.stop_code.is_not(None)
    )
    of_mirror = sa.select(t.mirror.c.stop_code, t.mirror.c.stop_what).where(
        t.mirror.c.name == mirror, t.mirror.c.stop_code.is_not(None)
    )
    with ledger.connect() as db:
        stops = [OpenStop(None, code, what or "", None) for code, what in db.execute(of_mirror).tuples()]
        for source, code, what, since in db.execute(stopped.order_by(c.source)).tuples():
            stops.append(OpenStop(source, code, what or "", since))
    return stops


def resume_table(ledger: Engine, mirror: str, source: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Clear the stop of a table; returns what was cleared. The next run checks again and may stop it again.

    ``TARGET_RESTARTED``, which only inspections find, is cleared by forgetting what the target counted before.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``, ``NOT_STOPPED``; ``RESET_NEEDED`` for a stop in :data:`NEEDS_RESET`;
            ``EPOCH_NOT_ACCEPTED`` for an unknown stream incarnation, which is accepted by name; ``SCHEMA_NOT_ACCEPTED``
            for a column that was dropped or renamed, which the operator has to say; ``TABLE_NOT_ACCEPTED`` for a table
            that waits for :func:`accept_table`; ``RUN_NEEDED`` for a mended key, by which the next run reads again what
            was rejected (G-69).
    """
    with ledger.begin() as db:
        row = locked_table(db, mirror, source)
        asked = Asked(request, RESUME, source)
        if done := requests.known(db, mirror, asked):
            return OpenStop.of(done.outcome or {})
        if row.stop_code is None and (counted := accept_count(db, row.id)):
            cleared = OpenStop(source, TARGET_RESTARTED, *counted)
            requests.record(db, mirror, asked, cleared.document())
            _audit(db, mirror, source, "RESUMED", reason, cleared)
            return cleared
        if row.stop_code is None:
            raise TerminalError(
                "NOT_STOPPED",
                f"table {source!r} has no stop in the ledger",
                where=f"mirror {mirror}",
                way_out="a stop that only the inspection of the landing zone finds passes once its cause is gone; "
                "look at `status`",
            )
        if row.stop_code in NEEDS_RESET:
            raise TerminalError(
                "RESET_NEEDED",
                f"table {source!r} is stopped by {row.stop_code}: {NEEDS_RESET[row.stop_code]}",
                where=f"mirror {mirror}",
                way_out=f"{RESET}; its changes are logged meanwhile",
            )
        if row.stop_code == EPOCH_UNKNOWN:
            raise TerminalError(
                "EPOCH_NOT_ACCEPTED",
                f"table {source!r} is stopped: {row.stop_what}",
                where=f"mirror {mirror}",
                way_out=f"{RESET}; or, if nothing changed at the source between the two streams, "
                "accept the new one by its GUID: `open-mirroring accept-epoch`",
            )
        if row.stop_code == KEY_MENDED:
            raise TerminalError(
                "RUN_NEEDED",
                f"table {source!r} is stopped: {row.stop_what}",
                where=f"mirror {mirror}",
                way_out="run `open-mirroring tick`: the table goes on by itself once nothing is hidden any more",
            )
        if row.stop_code == RENAME_POSSIBLE:
            raise TerminalError(
                "SCHEMA_NOT_ACCEPTED",
                f"table {source!r} is stopped: {row.stop_what}",
                where=f"mirror {mirror}",
                way_out="look at the source, then say which it was: `open-mirroring accept-schema --dropped COLUMN`, "
                "or `--renamed OLD=NEW`",
            )
        if row.stop_code == NEW_TABLE:
            raise TerminalError(
                "TABLE_NOT_ACCEPTED",
                f"table {source!r} is stopped: {row.stop_what}",
                where=f"mirror {mirror}",
                way_out="`open-mirroring accept-table` says that it shall be mirrored",
            )
        cleared = _clear(db, row)
        requests.record(db, mirror, asked, cleared.document())
        _audit(db, mirror, source, "RESUMED", reason, cleared)
    return cleared


def accept_table(ledger: Engine, mirror: str, source: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Let a table be published that joined by a pattern which asks (G-71); returns the stop that ended with it.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``; ``NOT_ASKED`` when the table does not wait for this.
    """
    with ledger.begin() as db:
        row = locked_table(db, mirror, source)
        asked = Asked(request, ACCEPT_TABLE, source)
        if done := requests.known(db, mirror, asked):
            return OpenStop.of(done.outcome or {})
        if row.stop_code != NEW_TABLE:
            is_so = "has no stop" if row.stop_code is None else f"is stopped by {row.stop_code}"
            raise TerminalError(
                "NOT_ASKED",
                f"table {source!r} does not wait to be accepted: it {is_so}",
                where=f"mirror {mirror}",
                way_out="look at `open-mirroring status`",
            )
        note_accepted(db, mirror, source)
        cleared = _clear(db, row)
        requests.record(db, mirror, asked, cleared.document())
        _audit(db, mirror, source, "TABLE_ACCEPTED", reason, cleared)
    return cleared


def accept_reload(ledger: Engine, mirror: str, source: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Say that the newest full load of the source counts (G-125): the next run builds the table from it.

    The stop stays until then; it is returned.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``; ``NOT_RELOADED`` when the table is not stopped.
    """
    with ledger.begin() as db:
        row = locked_table(db, mirror, source)
        asked = Asked(request, ACCEPT_RELOAD, source)
        if done := requests.known(db, mirror, asked):
            return OpenStop.of(done.outcome or {})
        if row.stop_code is None:
            raise TerminalError(
                "NOT_RELOADED",
                f"table {source!r} is not stopped by a full load that came again",
                where=f"mirror {mirror}",
                way_out="look at `open-mirroring status`; to build the table anew: `open-mirroring reload-table`",
            )
        stop = OpenStop(source, row.stop_code, row.stop_what or "", row.stopped_at)
        _set(db, row, reload_accepted=reason.to_json())
        requests.record(db, mirror, asked, stop.document())
        _audit(db, mirror, source, "RELOAD_ACCEPTED", reason, None, stopped={"code": stop.code, "what": stop.what})
    return stop


def accept_epoch(
    ledger: Engine, mirror: str, source: str, epoch: str, reason: Reason, *, request: str = ""
) -> EpochAccepted:
    """Give the next ordinal to a stream incarnation of a table: all its positions are above the earlier ones' (G-01).

    Clears ``EPOCH_UNKNOWN`` when no other incarnation is left unknown; a stop of another code stays.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``; ``EPOCH_NOT_SEEN`` when the log holds no change of it for this table;
            ``EPOCH_KNOWN`` when it has its ordinal already.
    """
    epoch = epoch.strip().lower()
    with ledger.begin() as db:
        row = locked_table(db, mirror, source)
        asked = Asked(request, ACCEPT_EPOCH, source, epoch)
        if done := requests.known(db, mirror, asked):
            before = done.outcome or {}
            lifted = None if before["cleared"] is None else OpenStop.of(before["cleared"])
            return EpochAccepted(before["ordinal"], lifted, tuple(before["still_unknown"]))
        c = t.stream_epoch.c
        known = dict(db.execute(sa.select(c.epoch, c.ordinal).where(c.table_id == row.id)).tuples().all())
        unknown = unknown_epochs(db, row)
        if epoch in known:
            raise TerminalError(
                "EPOCH_KNOWN",
                f"the stream {epoch!r} of table {source!r} has the ordinal {known[epoch]} already",
                way_out=f"not accepted yet: {sorted(unknown) or 'none'}",
            )
        if epoch not in unknown:
            raise TerminalError(
                "EPOCH_NOT_SEEN",
                f"the log holds no change of table {source!r} from a stream {epoch!r}",
                way_out=f"accept one of: {sorted(unknown) or 'none, every stream seen is known'}",
            )
        ordinal = max(known.values(), default=-1) + 1
        db.execute(t.stream_epoch.insert().values(table_id=row.id, epoch=epoch, ordinal=ordinal))
        left = tuple(sorted(unknown - {epoch}))
        cleared = None
        if row.stop_code == EPOCH_UNKNOWN and not left:
            cleared = _clear(db, row)
        else:
            _set(db, row)
        outcome = {"ordinal": ordinal, "cleared": cleared and cleared.document(), "still_unknown": left}
        requests.record(db, mirror, asked, outcome)
        _audit(db, mirror, source, "EPOCH_ACCEPTED", reason, cleared, epoch=epoch, ordinal=ordinal)
    return EpochAccepted(ordinal, cleared, left)


def accept_schema(
    ledger: Engine,
    mirror: str,
    source: str,
    column: str,
    reason: Reason,
    *,
    renamed_to: str | None = None,
    request: str = "",
) -> OpenStop | None:
    """Record that a column was dropped at the source, or renamed; returns the stop that ended with it.

    The word holds for what was logged when it was given: should the column come back and be gone again, it is asked for
    again (G-60). A table with a dropped column goes on. One with a renamed column stays stopped until it is loaded
    anew: the values of rows that did not change since stand under the old name.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``; ``COLUMN_UNKNOWN`` when neither a change nor the load brought the column;
            ``COLUMN_NOT_GONE`` when the newest changes carry it; ``REQUEST_TAKEN``.
    """
    with ledger.begin() as db:
        row = locked_table(db, mirror, source)
        subject = column if renamed_to is None else f"{column}={renamed_to}"
        asked = Asked(request, ACCEPT_SCHEMA, source, subject)
        if done := requests.known(db, mirror, asked):
            before = (done.outcome or {}).get("cleared")
            return None if before is None else OpenStop.of(before)
        up_to = _where_it_is_gone(db, row, column, renamed_to)
        _note_column(db, row, column, up_to, renamed_to)
        cleared = None
        if renamed_to is not None:
            what = f"{column!r} is {renamed_to!r} now: values of rows that did not change since have the old name"
            _set(db, row, stop_code=COLUMN_RENAMED, stop_what=what, stopped_at=datetime.now(UTC))
        elif row.stop_code in EXPLAINED_BY_A_WORD:
            cleared = _clear(db, row)
        else:
            _set(db, row)
        requests.record(db, mirror, asked, {"cleared": cleared and cleared.document()})
        detail = {"column": column, "renamed_to": renamed_to, "up_to": up_to}
        _audit(db, mirror, source, "SCHEMA_ACCEPTED", reason, cleared, **detail)
    return cleared


def accept_told(
    ledger: Engine, mirror: str, source: str, load: str, statements: Sequence[Statement], who: str
) -> dict[str, str]:
    """Take the word of the source's own history of DDL for columns that are gone (T-84); what it says, by column.

    As :func:`accept_schema`, but that a renamed column stops the table where it is published, at its position (G-61). A
    column of which somebody has said already what became of it is left as it is, and so is one whose last row is of an
    older load, for positions of two loads cannot be compared (T-31).

    Args:
        ledger: the ledger.
        mirror: the mirror.
        source: the table.
        load: the load to which the statements' places belong.
        statements: all that the history has of the table.
        who: what tells them, for the audit.
    """
    found: dict[str, str] = {}
    with ledger.begin() as db:
        row = locked_table(db, mirror, source)
        e, d = t.stream_epoch.c, t.column_decision.c
        ordinals = dict(db.execute(sa.select(e.epoch, e.ordinal).where(e.table_id == row.id)).tuples().all())
        said = sa.select(d.column, sa.func.max(d.up_to)).where(d.table_id == row.id).group_by(d.column)
        decided = dict(db.execute(said).tuples().all())
        lists, last = _carried(db, row, ordinals)
        names = {name.casefold(): name for name in last}
        cleared: OpenStop | None = None
        for column, after in last.items():
            ordinal, _, place = after.partition(":")
            if load not in ordinals or (after and int(ordinal) != ordinals[load]) or decided.get(column, "") > after:
                continue
            told = what_became_of(column, place, statements)
            if told is None:
                continue
            now = None if told.renamed_to is None else names.get(told.renamed_to.casefold(), told.renamed_to)
            if any({column, now} <= one for one in lists):
                continue  # one row has both: they are two columns
            try:
                up_to = _where_it_is_gone(db, row, column, now)
            except TerminalError:
                continue  # no row that was read proves it yet
            _note_column(db, row, column, up_to, now)
            if cleared is None and row.stop_code in EXPLAINED_BY_A_WORD:
                cleared = _clear(db, row)
            became = "dropped" if now is None else f"renamed to {now!r}"
            found[column] = f"{became} at {told.by}"
            reason = Reason(who, found[column])
            _audit(db, mirror, source, "SCHEMA_ACCEPTED", reason, cleared, column=column, renamed_to=now, up_to=up_to)
        if found and cleared is None:
            _set(db, row)
    return found


def resume_extraction(ledger: Engine, mirror: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Clear the stop of a mirror's extraction; returns what was cleared. The next run compares log and ledger again.

    Raises:
        TerminalError: ``NOT_STOPPED``.
    """
    c = t.mirror.c
    with ledger.begin() as db:
        row = db.execute(sa.select(t.mirror).where(c.name == mirror).with_for_update()).one_or_none()
        asked = Asked(request, RESUME_EXTRACTION)
        if done := requests.known(db, mirror, asked):
            return OpenStop.of(done.outcome or {})
        if row is None or row.stop_code is None:
            raise TerminalError(
                "NOT_STOPPED",
                f"the extraction of mirror {mirror!r} is not stopped",
                way_out="`resume` clears the stop of a single table",
            )
        cleared = OpenStop(None, row.stop_code, row.stop_what or "", None)
        values = {"stop_code": None, "stop_what": None, "version": c.version + 1}
        db.execute(t.mirror.update().where(c.name == mirror).values(values))
        requests.record(db, mirror, asked, cleared.document())
        _audit(db, mirror, None, "EXTRACTION_RESUMED", reason, cleared)
    return cleared


def unknown_epochs(db: Connection, row: Any) -> set[str]:
    """The streams that have logged changes of a table, given by its row, and no ordinal yet."""
    b, e = t.batch_table.c, t.stream_epoch.c
    logged = db.scalars(sa.select(b.epoch).distinct().where(b.mirror == row.mirror, b.source == row.source))
    known = set(db.scalars(sa.select(e.epoch).where(e.table_id == row.id)))
    return {epoch for epoch in logged if epoch not in known and not is_load_epoch(epoch)}


def locked_table(db: Connection, mirror: str, source: str) -> Any:
    """The row of a table, locked against other writers until the transaction ends.

    Raises:
        TerminalError: ``TABLE_UNKNOWN``.
    """
    c = t.mirrored_table.c
    query = sa.select(t.mirrored_table).where(c.mirror == mirror, c.source == source).with_for_update()
    row = db.execute(query).one_or_none()
    if row is None:
        names = list(db.scalars(sa.select(c.source).where(c.mirror == mirror).order_by(c.source)))
        raise TerminalError(
            "TABLE_UNKNOWN",
            f"the ledger has no table {source!r}",
            where=f"mirror {mirror}",
            way_out=f"choose from {names}",
        )
    return row


def _note_column(db: Connection, row: Any, column: str, up_to: str, renamed_to: str | None) -> None:
    """Keep what became of a column, for changes up to a place; a later word on these replaces an earlier one."""
    c = t.column_decision.c
    here = (c.table_id == row.id) & (c.column == column) & (c.up_to == up_to)
    db.execute(t.column_decision.delete().where(here))
    values = {"table_id": row.id, "column": column, "up_to": up_to, "renamed_to": renamed_to}
    db.execute(t.column_decision.insert().values(**values, decided_at=datetime.now(UTC)))


def _carried(db: Connection, row: Any, ordinals: Mapping[str, int]) -> tuple[list[set[str]], dict[str, str]]:
    """The column lists of a table, and by column the last place of a row with it; empty for one that is only loaded."""
    c, r = t.column_list.c, t.column_range.c
    lists = {
        digest: {name for name, _, _ in json.loads(cols)}
        for digest, cols in db.execute(sa.select(c.digest, c.cols).where(c.table_id == row.id)).tuples()
    }
    last = dict.fromkeys((name for name, *_ in json.loads(row.load_plan)["columns"]) if row.load_plan else (), "")
    ranges = sa.select(r.digest, r.epoch, r.last).where(r.table_id == row.id)
    for digest, epoch, place in db.execute(ranges).tuples():
        at = "" if is_load_epoch(epoch) else position_order(ordinals.get(epoch, 0), place)
        last |= {name: max(at, last.get(name, "")) for name in lists.get(digest, ())}
    return list(lists.values()), last


def _where_it_is_gone(db: Connection, row: Any, column: str, renamed_to: str | None) -> str:
    """The highest place up to which the column is gone: of all changes, or the last one before it was there again.

    Raises:
        TerminalError: ``COLUMN_UNKNOWN``; ``COLUMN_NOT_GONE`` when no change behind one that carries it lacks it.
    """
    e, b, c, r = t.stream_epoch.c, t.batch_table.c, t.column_list.c, t.column_range.c
    ordinals = dict(db.execute(sa.select(e.epoch, e.ordinal).where(e.table_id == row.id)).tuples().all())
    lists = db.execute(sa.select(t.column_list).where(c.table_id == row.id)).all()
    carried = {one.digest: {name for name, _, _ in json.loads(one.cols)} for one in lists}
    loaded = json.loads(row.load_plan)["columns"] if row.load_plan else []
    known = {name for names in carried.values() for name in names} | {name for name, *_ in loaded}
    for name in filter(None, (column, renamed_to)):
        if name not in known:
            raise TerminalError(
                "COLUMN_UNKNOWN",
                f"no change of table {row.source!r} and no load of it brought a column {name!r}",
                way_out=f"choose from {sorted(known)}",
            )
    highest = sa.select(b.epoch, sa.func.max(b.max_pos)).where(b.mirror == row.mirror, b.source == row.source)
    seen = db.execute(highest.group_by(b.epoch)).tuples()
    up_to = max((position_order(ordinals[at], text) for at, text in seen if at in ordinals), default="")
    with_it = [one for one in lists if column in carried[one.digest]]
    places = [position_order(0, one.first_pos) for one in with_it]
    of_lists = (r.table_id == row.id) & r.digest.in_([one.digest for one in with_it])
    for at, text in db.execute(sa.select(r.epoch, r.last).where(of_lists)).tuples():
        if not is_load_epoch(at):
            places.append(position_order(ordinals.get(at, 0), text))
    if up_to > max(places, default=""):
        return up_to
    others = (r.table_id == row.id) & r.digest.not_in([one.digest for one in with_it]) & (r.whole_last != "")
    lacking = db.execute(sa.select(r.epoch, r.whole_last).where(others)).tuples()
    gone = max((position_order(ordinals.get(at, 0), text) for at, text in lacking if not is_load_epoch(at)), default="")
    if gone <= min(places, default=""):
        raise TerminalError(
            "COLUMN_NOT_GONE",
            f"the newest changes of table {row.source!r} carry {column!r}",
            way_out="say it once a change without the column was read",
        )
    return gone


def _clear(db: Connection, row: Any) -> OpenStop:
    _set(db, row, **without_stop(db, row.mirror, row.source), **without_unsealed(row.intent))
    return OpenStop(row.source, row.stop_code, row.stop_what or "", row.stopped_at)


def _set(db: Connection, row: Any, **values: object) -> None:
    # The version moves with every decision: a run that began before it is fenced off and looks again.
    c = t.mirrored_table.c
    db.execute(t.mirrored_table.update().where(c.id == row.id).values(version=c.version + 1, **values))


def _audit(
    db: Connection,
    mirror: str,
    source: str | None,
    event: str,
    reason: Reason,
    cleared: OpenStop | None,
    **more: object,
) -> None:
    stop = None if cleared is None else {"code": cleared.code, "what": cleared.what}
    audit(db, mirror, source, event, {"who": reason.who, "why": reason.why, "cleared": stop, **more})
