"""Stores requests of operators and their outcomes, so that one approval has one effect even if it is sent twice (G-30).

A request is recorded in the transaction that begins its effect, and marked as finished in the transaction that ends its
effect. A request with an empty id is not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.errors import TerminalError
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason, audit
from open_mirroring.ledger.tables import upsert

RELOAD, DROP, REPAIR = "reload", "drop", "repair"
RESUME, RESUME_EXTRACTION = "resume", "resume-extraction"
TARGET_GONE, TARGET_BACK = "target-says-gone", "target-says-back"
ACCEPT_EPOCH, ACCEPT_LETTERS = "accept-epoch", "accept-dead-letters"
ACCEPT_SCHEMA, ACCEPT_TABLE, ACCEPT_RELOAD = "accept-schema", "accept-table", "accept-reload"
RESETS = (RELOAD, DROP)
"""A later reset of a table takes over an earlier one; both requests end with it."""


class Asked(NamedTuple):
    """A request of an operator: its id, the action, the source table, and the part of the table.

    The part (*subject*) is, for example, a column. If *source* is empty, the request concerns the entire mirror.
    """

    request: str
    action: str
    source: str = ""
    subject: str = ""


def known(db: Connection, mirror: str, asked: Asked) -> Mapping[str, Any] | None:
    """The outcome of a request, empty while the request is under way; None if no request with this id was recorded.

    Raises ``ARGUMENT_INVALID`` if the id was used for a different action, table or part.
    """
    if not asked.request:
        return None
    c = t.decision_request.c
    query = sa.select(t.decision_request).where(c.mirror == mirror, c.request == asked.request)
    row = db.execute(query).one_or_none()
    if row is None:
        return None
    before = Asked(row.request, row.action, row.source, row.subject)
    if before != asked:
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"the request {asked.request!r} asked for {_said(before)}, not for {_said(asked)}",
            where=f"mirror {mirror}",
            next_step="one approval is for one effect: leave `--request` out, or give a new id",
        )
    return dict(json.loads(row.outcome or "{}"))


def answer(ledger: Engine, mirror: str, asked: Asked) -> Mapping[str, Any] | None:
    """The outcome of a finished request; None if the request is under way or unknown."""
    with ledger.connect() as db:
        return known(db, mirror, asked) or None


Effect = tuple[Mapping[str, Any], Mapping[str, Any]]
"""What a decision did: the outcome, which is returned if it is requested again, and details for the audit trail."""


def decide(
    ledger: Engine,
    mirror: str,
    asked: Asked,
    event: str,
    reason: Reason,
    effect: Callable[[Connection, Any], Effect | None],
) -> Mapping[str, Any]:
    """Carry out a decision in one transaction, with its audit entry. Returns the outcome.

    *effect* gets the ledger row of the table or mirror, and returns None if there was nothing to change. The row is
    locked first: if the same request is sent twice at the same time, the second one waits for the first and returns its
    outcome (G-30).
    """
    with ledger.begin() as db:
        if asked.source:
            row = locked_table(db, mirror, asked.source)
        else:
            row = db.execute(sa.select(t.mirror).where(t.mirror.c.name == mirror).with_for_update()).one_or_none()
        if (done := known(db, mirror, asked)) is not None:
            return done
        had = effect(db, row)
        if had is None:
            return {}
        outcome, detail = had
        record(db, mirror, asked, outcome)
        audit(db, mirror, asked.source or None, event, {**reason._asdict(), **detail})
    return outcome


def locked_table(db: Connection, mirror: str, source: str) -> Any:
    """The ledger row of a table, locked until the transaction ends.

    Raises ``ARGUMENT_INVALID`` if the table is unknown.
    """
    c = t.mirrored_table.c
    query = sa.select(t.mirrored_table).where(c.mirror == mirror, c.source == source).with_for_update()
    row = db.execute(query).one_or_none()
    if row is None:
        raise table_unknown(mirror, [source], db.scalars(sa.select(c.source).where(c.mirror == mirror)))
    return row


def table_unknown(mirror: str, unknown: Sequence[str], known: Iterable[str]) -> TerminalError:
    """Build the error for names of tables that the mirror does not have."""
    what = f"the mirror has no table {', '.join(map(repr, unknown))}"
    next_step = f"choose from {sorted(known)}; to drop one that was taken out: `open-mirroring drop-table`"
    return TerminalError("ARGUMENT_INVALID", what, where=f"mirror {mirror}", next_step=next_step)


def record(db: Connection, mirror: str, asked: Asked, outcome: Mapping[str, Any] | None = None) -> None:
    """Store a request. *outcome* is given if the running transaction carries out the entire effect of the request."""
    if not asked.request:
        return
    now = datetime.now(UTC)
    values = {
        "mirror": mirror,
        **asked._asdict(),
        "asked_at": now,
        "finished_at": None if outcome is None else now,
        "outcome": None if outcome is None else json.dumps(outcome, ensure_ascii=False),
    }
    upsert(db, t.decision_request, [values], keys=["mirror", "request"], update=[])


def finish(
    db: Connection,
    mirror: str,
    source: str,
    actions: Collection[str],
    outcome: Mapping[str, Any],
    subject: str | None = "",
) -> None:
    """Set the outcome of all open requests for one of these actions on a table.

    *subject* is the part of the table that was requested, such as a column; None means every part.
    """
    c = t.decision_request.c
    of = sa.true() if subject is None else c.subject == subject
    is_open = (c.mirror == mirror) & (c.source == source) & c.action.in_(list(actions)) & c.finished_at.is_(None)
    values = {"finished_at": datetime.now(UTC), "outcome": json.dumps(outcome, ensure_ascii=False)}
    db.execute(t.decision_request.update().where(is_open, of).values(values))


def _said(asked: Asked) -> str:
    return " ".join(filter(None, (asked.action, repr(asked.source) if asked.source else "", asked.subject)))
