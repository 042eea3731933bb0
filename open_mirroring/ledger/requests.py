"""Requests and their outcomes: one approval has one effect (G-30).

A request is recorded in the transaction that begins its effect, and finished in the one that ends it. An empty id
belongs to no request and is not recorded.
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
"""A later reset of a table takes an earlier one over, and ends it with its own end."""


class Asked(NamedTuple):
    """A request: what is asked for, of which table (empty: of the mirror), and of which part of it."""

    request: str
    action: str
    source: str = ""
    subject: str = ""


def known(db: Connection, mirror: str, asked: Asked) -> Mapping[str, Any] | None:
    """The outcome of a request, empty while it is under way; None when no request had this id yet."""
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
            way_out="one approval is for one effect: leave `--request` out, or give a new id",
        )
    return dict(json.loads(row.outcome or "{}"))


def answer(ledger: Engine, mirror: str, asked: Asked) -> Mapping[str, Any] | None:
    """The outcome of a finished request; None for one that is under way or unknown."""
    with ledger.connect() as db:
        return known(db, mirror, asked) or None


Effect = tuple[Mapping[str, Any], Mapping[str, Any]]
"""What a decision did: the outcome, for whoever asks again, and what the audit says in addition to who and why."""


def decide(
    ledger: Engine,
    mirror: str,
    asked: Asked,
    event: str,
    reason: Reason,
    effect: Callable[[Connection, Any], Effect | None],
) -> Mapping[str, Any]:
    """Take a decision in one transaction, which also writes it into the audit; its outcome.

    The row is locked first, so that of two that ask alike one waits for the other, and gets the outcome (G-30).
    *effect* gets the row of the table, or of the mirror, and returns None when there was nothing to do.
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
    """The row of a table, locked until the transaction ends; raises ``ARGUMENT_INVALID``."""
    c = t.mirrored_table.c
    query = sa.select(t.mirrored_table).where(c.mirror == mirror, c.source == source).with_for_update()
    row = db.execute(query).one_or_none()
    if row is None:
        raise table_unknown(mirror, [source], db.scalars(sa.select(c.source).where(c.mirror == mirror)))
    return row


def table_unknown(mirror: str, unknown: Sequence[str], known: Iterable[str]) -> TerminalError:
    """The error for names that none of a mirror's tables has."""
    what = f"the mirror has no table {', '.join(map(repr, unknown))}"
    way_out = f"choose from {sorted(known)}; to drop one that was taken out: `open-mirroring drop-table`"
    return TerminalError("ARGUMENT_INVALID", what, where=f"mirror {mirror}", way_out=way_out)


def record(db: Connection, mirror: str, asked: Asked, outcome: Mapping[str, Any] | None = None) -> None:
    """Remember a request, with its *outcome* where its effect is done in this very transaction."""
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
    """Set the outcome of every open request of these kinds, whichever run reached it; *subject* None means any."""
    c = t.decision_request.c
    of = sa.true() if subject is None else c.subject == subject
    is_open = (c.mirror == mirror) & (c.source == source) & c.action.in_(list(actions)) & c.finished_at.is_(None)
    values = {"finished_at": datetime.now(UTC), "outcome": json.dumps(outcome, ensure_ascii=False)}
    db.execute(t.decision_request.update().where(is_open, of).values(values))


def _said(asked: Asked) -> str:
    return " ".join(filter(None, (asked.action, repr(asked.source) if asked.source else "", asked.subject)))
