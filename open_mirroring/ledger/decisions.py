"""Decisions of operators: clear a stop whose cause is fixed; accept a stream, a table or a change of structure.

Each decision is one transaction. The transaction changes the stop, raises the version of the ledger row, and writes who
decided, what and why into the audit trail. If a request id was used before, the outcome of that first request is
returned (G-30). A decision that is impossible at present raises ``COMMAND_REFUSED``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.column_history import Word
from open_mirroring.changes.column_notes import NoteKind, decided
from open_mirroring.changes.ddl_statements import ColumnFate, Statement, given_again, what_became_of
from open_mirroring.changes.log_position import is_load_epoch, position_order
from open_mirroring.changes.places_seen import PlacesSeen
from open_mirroring.codes import CODES, RESET, WHY_RESET, Kind, Lift, Trait, having, of_kind
from open_mirroring.errors import TerminalError
from open_mirroring.facts.column_lists import ColumnList
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason
from open_mirroring.ledger.columns import column_notes, note_decision
from open_mirroring.ledger.declaring import lift_stop, note_accepted, stopped
from open_mirroring.ledger.documents import COLUMN_LISTS, EPOCHS, ZONE_TOKENS
from open_mirroring.ledger.load_ledger import LoadPlan
from open_mirroring.ledger.requests import (
    ACCEPT_EPOCH,
    ACCEPT_RELOAD,
    ACCEPT_SCHEMA,
    ACCEPT_TABLE,
    RESUME,
    RESUME_EXTRACTION,
    Asked,
    Effect,
)
from open_mirroring.ledger.verdict_ledger import accept_count
from open_mirroring.protocols.table_stops import NEW_TABLE
from open_mirroring.protocols.verdicts import LEDGER_BEHIND, TARGET_RESTARTED

EPOCH_UNKNOWN = "EPOCH_UNKNOWN"
RENAME_POSSIBLE, COLUMN_RENAMED = "RENAME_POSSIBLE", "COLUMN_RENAMED"
_NOT_BY_RESUME = {name for name in of_kind(Kind.STOP) if CODES[name].lift in (Lift.DECISION, Lift.NEXT_RUN)}
"""Stops that another decision, or the next run, lifts."""
_LONGEST_SUBJECT = 300
EXPLAINED_BY_DECISION = having(Trait.EXPLAINED)
"""Stops that may end once it is known whether a column was dropped or renamed."""


class OpenStop(NamedTuple):
    """A stop that waits for an operator's decision.

    Without *source* and *since*, it stops reading for the entire mirror.
    """

    source: str | None
    code: str
    what: str
    since: datetime | None

    def document(self) -> dict[str, Any]:
        """The stop as JSON values, for the outcome of a request."""
        return {**self._asdict(), "since": None if self.since is None else self.since.isoformat()}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> OpenStop:
        """Parse JSON values that :meth:`document` returned."""
        since = document["since"]
        return cls(**{**document, "since": None if since is None else datetime.fromisoformat(since)})


def open_stops(ledger: Engine, mirror: str) -> list[OpenStop]:
    """All stops of a mirror in the ledger: first the stop of reading, then the stops of tables, sorted by table."""
    c, m = t.mirrored_table.c, t.mirror.c
    of_tables = sa.select(c.source, c.stop_code, c.stop_what, c.stopped_at).where(c.mirror == mirror)
    of_mirror = sa.select(m.stop_code, m.stop_what).where(m.name == mirror, m.stop_code.is_not(None))
    with ledger.connect() as db:
        stops = [OpenStop(None, code, what or "", None) for code, what in db.execute(of_mirror).tuples()]
        rows = db.execute(of_tables.where(c.stop_code.is_not(None)).order_by(c.source))
        return stops + [_stop_of(row) for row in rows]


def resume_table(ledger: Engine, mirror: str, source: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Clear the stop of a table, and return the cleared stop.

    A stop ``TARGET_RESTARTED`` (the target's row count fell) is cleared by forgetting the former row count, so that the
    next inspection does not compare with it.
    """

    def effect(db: Connection, row: Any) -> Effect:
        if row.stop_code is None and (counted := accept_count(db, row.id)):
            return _cleared(OpenStop(source, TARGET_RESTARTED, *counted))
        if row.stop_code is None:
            next_step = "a stop that only the inspection of the landing zone finds passes once its cause is gone"
            raise _refused(mirror, f"table {source!r} has no stop in the ledger", f"{next_step}; look at `status`")
        if row.stop_code in WHY_RESET:
            what = f"table {source!r} is stopped by {row.stop_code}: {WHY_RESET[row.stop_code]}"
            raise _refused(mirror, what, f"{RESET}; its changes are logged meanwhile")
        if row.stop_code in _NOT_BY_RESUME:
            raise _refused(mirror, f"table {source!r} is stopped: {row.stop_what}", CODES[row.stop_code].next_step)
        return _cleared(_clear(db, row))

    return OpenStop.of(requests.decide(ledger, mirror, Asked(request, RESUME, source), "RESUMED", reason, effect))


def accept_table(ledger: Engine, mirror: str, source: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Accept a new table that a pattern with `new_tables: ask` found, so that it is published (G-71).

    Returns the stop that ended.
    """

    def effect(db: Connection, row: Any) -> Effect:
        if row.stop_code != NEW_TABLE:
            is_so = "has no stop" if row.stop_code is None else f"is stopped by {row.stop_code}"
            what = f"table {source!r} does not wait to be accepted: it {is_so}"
            next_step = "accept only tables that are stopped by NEW_TABLE: `open-mirroring status` lists them"
            raise _refused(mirror, what, next_step)
        note_accepted(db, mirror, source)
        return _cleared(_clear(db, row))

    asked = Asked(request, ACCEPT_TABLE, source)
    return OpenStop.of(requests.decide(ledger, mirror, asked, "TABLE_ACCEPTED", reason, effect))


def accept_reload(ledger: Engine, mirror: str, source: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Accept the newest full load of a table by its Qlik task (G-125). Returns the stop, which the next run ends."""

    def effect(db: Connection, row: Any) -> Effect:
        if row.stop_code is None:
            next_step = "look at `open-mirroring status`; to rebuild the table: `open-mirroring reload-table`"
            raise _refused(mirror, f"table {source!r} is not stopped by a full load that came again", next_step)
        stop = _stop_of(row)
        t.change_tables(db, t.mirrored_table.c.id == row.id, reload_accepted=reason.to_json())
        return (stop.document(), {"cleared": None, "stopped": {"code": stop.code, "what": stop.what}})

    asked = Asked(request, ACCEPT_RELOAD, source)
    return OpenStop.of(requests.decide(ledger, mirror, asked, "RELOAD_ACCEPTED", reason, effect))


def accept_epoch(
    ledger: Engine, mirror: str, source: str, epoch: str, reason: Reason, *, request: str = ""
) -> tuple[int, OpenStop | None, tuple[str, ...]]:
    """Accept a stream as the newest one of a table: all its positions are above those of earlier streams (G-01).

    A stream is one enabling of streaming or one Qlik full load. Returns a tuple: the number that the stream gets, the
    stop that ended, and the streams that no operator has accepted yet. As long as there are such streams, no stop ends
    (None).
    """
    epoch = epoch.strip().lower()

    def effect(db: Connection, row: Any) -> Effect:
        known = EPOCHS.of(db, row.id)
        unknown = unknown_epochs(db, row)
        if epoch in known:
            what = f"the stream {epoch!r} of table {source!r} is accepted already (it has the ordinal {known[epoch]})"
            next_step = f"accept one of: {sorted(unknown)}" if unknown else "nothing: no stream waits for acceptance"
            raise _refused(mirror, what, next_step)
        if epoch not in unknown:
            what = f"the change log contains no change of table {source!r} from a stream {epoch!r}"
            raise _refused(mirror, what, f"accept one of: {sorted(unknown) or 'none, every stream seen is known'}")
        ordinal = max(known.values(), default=-1) + 1
        EPOCHS.put(db, row.id, {epoch: ordinal})
        left = sorted(unknown - {epoch})
        cleared = _touch(db, row, ends=row.stop_code == EPOCH_UNKNOWN and not left)
        return _cleared(cleared, {"ordinal": ordinal, "still_unknown": left}, epoch=epoch, ordinal=ordinal)

    asked = Asked(request, ACCEPT_EPOCH, source, epoch)
    done = requests.decide(ledger, mirror, asked, "EPOCH_ACCEPTED", reason, effect)
    return done["ordinal"], _lifted(done), tuple(done["still_unknown"])


def accept_schema(
    ledger: Engine,
    mirror: str,
    source: str,
    columns: Sequence[str],
    reason: Reason,
    *,
    renamed_to: str | None = None,
    request: str = "",
) -> OpenStop | None:
    """Record that columns were dropped at the source, or that a column was renamed.

    Returns the stop that ended, or None. The decision applies to all changes logged until now; if a column came back,
    it applies up to the last change without the column (G-60). After a rename the table stays stopped until a reset,
    because unchanged rows have their values under the old name. Raises ``ARGUMENT_INVALID`` if a column is unknown, or
    if no change after the first one with the column lacks the column.
    """
    named = ", ".join(columns)

    def effect(db: Connection, row: Any) -> Effect:
        ends = {column: _where_it_is_gone(db, row, column, renamed_to) for column in columns}
        for column, up_to in ends.items():
            note_decision(db, row.id, Word(column, up_to, renamed_to))
        cleared = None
        if renamed_to is not None:
            what = f"{named!r} is now {renamed_to!r}: rows not changed since have the values under the old name"
            t.change_tables(db, t.mirrored_table.c.id == row.id, **stopped(COLUMN_RENAMED, what))
        else:
            cleared = _touch(db, row, ends=row.stop_code in EXPLAINED_BY_DECISION)
        return _cleared(cleared, {}, column=named, renamed_to=renamed_to, up_to=max(ends.values()))

    subject = named if renamed_to is None else f"{named}={renamed_to}"
    asked = Asked(request, ACCEPT_SCHEMA, source, subject[:_LONGEST_SUBJECT])
    return _lifted(requests.decide(ledger, mirror, asked, "SCHEMA_ACCEPTED", reason, effect))


def accept_statements(
    ledger: Engine, mirror: str, source: str, load: str, statements: Sequence[Statement]
) -> dict[str, str]:
    """Record what the source's DDL statements show about missing columns (T-84). Returns by column what became of it.

    *statements* were reported since the full load *load* by the Qlik task. A table with a renamed column stops when it
    is published (G-61). Columns on which an operator has decided are skipped, and so are columns whose last row is from
    before this full load (T-31).
    """
    found: dict[str, str] = {}

    def effect(db: Connection, row: Any) -> Effect | None:
        ordinals, notes = EPOCHS.of(db, row.id), column_notes(db, {row.id: row.generation}, NoteKind.DECIDED)
        decided_up_to = {word.column: word.up_to for word in decided(notes.get(row.id, ()))}
        lists, places = _carried(db, row, ordinals)
        names = {name.casefold(): name for name in places}

        def take(column: str, fate: ColumnFate, lost_at: str | None) -> None:
            renamed_to, by = fate
            now = None if renamed_to is None else names.get(renamed_to.casefold(), renamed_to)
            if any({column, now} <= one and (lost_at is None or first <= lost_at) for one, first in lists):
                return  # one row has both: they are two columns
            try:
                up_to = lost_at or _where_it_is_gone(db, row, column, now)
            except TerminalError:
                return  # no row that was read proves it yet
            note_decision(db, row.id, Word(column, up_to, now))
            became = "dropped" if now is None else f"renamed to {now!r}"
            found[column] = f"{became} at {by}"

        for column, (first, last) in places.items():
            if load not in ordinals or (last and int(last.partition(":")[0]) != ordinals[load]):
                continue
            of_load = position_order(ordinals[load], "")
            said, end = decided_up_to.get(column, ""), last.removeprefix(of_load)
            begin = first.removeprefix(of_load) if first > of_load else ""
            for at, fate in given_again(column, begin, end, statements).items():
                if of_load + at > said:
                    take(column, fate, of_load + at)
            now = None if said > last else what_became_of(column, end, statements)
            if now is not None:
                take(column, now, None)
        if not found:
            return None
        return _cleared(_touch(db, row, ends=row.stop_code in EXPLAINED_BY_DECISION), columns=found)

    asked = Asked("", ACCEPT_SCHEMA, source)
    requests.decide(ledger, mirror, asked, "SCHEMA_ACCEPTED", Reason("the source", "its own history of DDL"), effect)
    return found


def resume_extraction(ledger: Engine, mirror: str, reason: Reason, *, request: str = "") -> OpenStop:
    """Clear the stop of a mirror's reading, and return the cleared stop.

    The next run compares change log and ledger again. If a copy of this ledger has claimed the landing zone
    (``LEDGER_BEHIND``), the next publication claims the landing zone for this ledger.
    """

    def effect(db: Connection, row: Any) -> Effect:
        if row is None or row.stop_code is None:
            what = f"reading of mirror {mirror!r} is not stopped"
            raise _refused(mirror, what, "`resume` clears the stop of a single table")
        c = t.mirror.c
        values = {"stop_code": None, "stop_what": None, "version": c.version + 1}
        db.execute(t.mirror.update().where(c.name == mirror).values(values))
        if row.stop_code == LEDGER_BEHIND:
            ZONE_TOKENS.drop(db, mirror)
        return _cleared(OpenStop(None, row.stop_code, row.stop_what or "", None))

    asked = Asked(request, RESUME_EXTRACTION)
    return OpenStop.of(requests.decide(ledger, mirror, asked, "EXTRACTION_RESUMED", reason, effect))


def unknown_epochs(db: Connection, row: Any) -> set[str]:
    """The streams of a table that have logged changes, but no number yet, so that their order is unknown.

    *row* is the table's ledger row.
    """
    b = t.batch_table.c
    logged = db.scalars(sa.select(b.epoch).distinct().where(b.mirror == row.mirror, b.source == row.source))
    return {epoch for epoch in {*logged} - EPOCHS.of(db, row.id).keys() if not is_load_epoch(epoch)}


def _carried(
    db: Connection, row: Any, ordinals: Mapping[str, int]
) -> tuple[list[tuple[set[str], str]], dict[str, tuple[str, str]]]:
    """The column lists of a table with their first places; by column its first and last place, "" if only loaded."""
    lists = list[tuple[set[str], str]]()
    ends: dict[str, list[str]] = {name: [] for name in _loaded(row)}
    for one in COLUMN_LISTS.of(db, row.id).values():
        at = [position_order(ordinals.get(epoch, 0), place) for epoch, seen in _of_changes(one) for place in seen[:2]]
        lists.append((one.names, min(at, default="")))
        for name in one.names:
            ends.setdefault(name, []).extend(at)
    return lists, {name: (min(at, default=""), max(at, default="")) for name, at in ends.items()}


def _loaded(row: Any) -> list[str]:
    return [column.name for column in LoadPlan.from_json(row.load_plan).columns] if row.load_plan else []


def _where_it_is_gone(db: Connection, row: Any, column: str, renamed_to: str | None) -> str:
    """The highest place up to which a column is missing: of all changes, or the last one before the column came back.

    Raises ``ARGUMENT_INVALID`` if the column is unknown, or no change after one with the column lacks it.
    """
    b, ordinals = t.batch_table.c, EPOCHS.of(db, row.id)
    lists = [*COLUMN_LISTS.of(db, row.id).values()]
    known = {*_loaded(row)}.union(*(one.names for one in lists))
    for name in filter(None, (column, renamed_to)):
        if name not in known:
            what = f"no change of table {row.source!r} and no load of it contained a column {name!r}"
            raise TerminalError("ARGUMENT_INVALID", what, next_step=f"choose from {sorted(known)}")
    highest = sa.select(b.epoch, sa.func.max(b.max_pos)).where(b.mirror == row.mirror, b.source == row.source)
    seen = db.execute(highest.group_by(b.epoch)).tuples()
    up_to = max((position_order(ordinals[at], text) for at, text in seen if at in ordinals), default="")
    places, lacking = list[str](), list[str]()
    for one in lists:
        for epoch, at in _of_changes(one):
            ordinal = ordinals.get(epoch, 0)
            if column in one.names:
                places += [position_order(ordinal, at.first), position_order(ordinal, at.last)]
            elif at.whole_last:
                lacking.append(position_order(ordinal, at.whole_last))
    if up_to > max(places, default=""):
        return up_to
    gone = max(lacking, default="")
    if gone <= min(places, default=""):
        what = f"the newest changes of table {row.source!r} contain {column!r}"
        next_step = "no change without this column has been read yet: run this command again after the next run"
        raise TerminalError("ARGUMENT_INVALID", what, next_step=next_step)
    return gone


def _of_changes(one: ColumnList) -> list[tuple[str, PlacesSeen]]:
    return [(epoch, seen) for epoch, seen in one.seen.items() if not is_load_epoch(epoch)]


def _cleared(stop: OpenStop | None, more: Mapping[str, Any] | None = None, **detail: object) -> Effect:
    """The result of a decision that ended a stop; with *more*, the outcome is *more* and the stop."""
    outcome = (stop and stop.document()) if more is None else {**more, "cleared": stop and stop.document()}
    return (outcome or {}, {"cleared": stop and {"code": stop.code, "what": stop.what}, **detail})


def _lifted(outcome: Mapping[str, Any]) -> OpenStop | None:
    return None if outcome["cleared"] is None else OpenStop.of(outcome["cleared"])


def _refused(mirror: str, what: str, next_step: str) -> TerminalError:
    return TerminalError("COMMAND_REFUSED", what, where=f"mirror {mirror}", next_step=next_step)


def _stop_of(row: Any) -> OpenStop:
    return OpenStop(row.source, row.stop_code, row.stop_what or "", row.stopped_at)


def _touch(db: Connection, row: Any, *, ends: bool) -> OpenStop | None:
    """Raise the version of a row whose stop a decision *ends*, or leaves as it is."""
    if ends:
        return _clear(db, row)
    t.change_tables(db, t.mirrored_table.c.id == row.id)
    return None


def _clear(db: Connection, row: Any) -> OpenStop:
    lift_stop(db, row)
    return _stop_of(row)
