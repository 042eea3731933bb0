"""Dead letters in the ledger: which of those in the log wait for nobody any more, and why."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.manifest import LetterPlace, SettledLetter
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.decisions import Reason
from open_mirroring.ledger.letter_counts import take_out
from open_mirroring.ledger.requests import ACCEPT_LETTERS, Asked

Outdated = Literal["healed", "reloaded"]
HIDDEN_CHANGES = ("KEY_UNKNOWN", "CHANGES_MISSING")
"""Stops of a table that a dead letter causes: it hides which rows were meant."""
CHANGES_RECOVERED = "CHANGES_RECOVERED"
"""The stop in place of these once no dead letter of the table hides a change: an operator may lift it."""


def settled_letters(ledger: Engine, mirror: str) -> dict[LetterPlace, str]:
    """Every dead letter of a mirror that is settled, with how: replayed, reread, accepted, healed, reloaded."""
    c = t.settled_letter.c
    query = sa.select(c.batch, c.origin, c.place, c.outcome).where(c.mirror == mirror)
    with ledger.connect() as db:
        return {LetterPlace(*row[:3]): row[3] for row in db.execute(query)}


def settle_letters(db: Connection, mirror: str, number: int, letters: Iterable[SettledLetter]) -> None:
    """Settle dead letters by what batch *number* holds of them, inside the transaction that completes it.

    One that is settled already stays as it is, and counts only once.
    """
    settled = {LetterPlace(*letter[:3]): letter for letter in letters}
    outcomes = {place: letter.outcome for place, letter in settled.items()}
    _settle(db, mirror, outcomes, number, {place: letter.homeless for place, letter in settled.items()})


def accept_letters(
    ledger: Engine, mirror: str, letters: Mapping[LetterPlace, int], reason: Reason, *, request: str = ""
) -> int:
    """Accept dead letters as lost, with an entry in the audit; how many were open until now.

    Args:
        ledger: the ledger.
        mirror: the mirror's name.
        letters: of each, how many of its rows told no table.
        reason: who decides, and why.
        request: asked again by it, nothing more is accepted, whatever is open by then (G-30).
    """
    asked = Asked(request, ACCEPT_LETTERS)
    with ledger.begin() as db:
        # Locked before it is looked, so that of two that ask alike one waits for the other.
        db.execute(sa.select(t.mirror.c.name).where(t.mirror.c.name == mirror).with_for_update())
        if done := requests.known(db, mirror, asked):
            return int((done.outcome or {})["accepted"])
        accepted = _settle(db, mirror, dict.fromkeys(letters, "accepted"), None, letters)
        if accepted:
            requests.record(db, mirror, asked, {"accepted": len(accepted)})
            detail = {"who": reason.who, "why": reason.why, "letters": accepted}
            values = {"at": datetime.now(UTC), "mirror": mirror, "source": None, "event": "LETTERS_ACCEPTED"}
            db.execute(t.audit.insert().values(detail=json.dumps(detail, ensure_ascii=False), **values))
    return len(accepted)


def settle_outdated(ledger: Engine, mirror: str, outcomes: Mapping[LetterPlace, Outdated]) -> int:
    """Settle dead letters that leave no row out of date any more; how many were open until now.

    A later change of the very row is published (*healed*), or the rows were loaded anew (*reloaded*).
    """
    if not outcomes:
        return 0
    with ledger.begin() as db:
        return len(_settle(db, mirror, outcomes, None, {}))


def mark_healed(db: Connection, mirror: str, sources: Sequence[str]) -> None:
    """Let the stops of tables be lifted whose hidden changes have come to light; they stay stopped until then."""
    c = t.mirrored_table.c
    said = sa.literal("every dead letter that hid a change was read after all; it was stopped by ")
    what = said + c.stop_code + ": " + c.stop_what
    healed = c.stop_code.in_(HIDDEN_CHANGES) & (c.mirror == mirror) & c.source.in_(sources)
    values = {"stop_code": CHANGES_RECOVERED, "stop_what": what, "version": c.version + 1}
    db.execute(t.mirrored_table.update().where(healed).values(values))


def _settle(
    db: Connection,
    mirror: str,
    outcomes: Mapping[LetterPlace, Any],
    batch: int | None,
    homeless: Mapping[LetterPlace, int],
) -> list[LetterPlace]:
    """Write the letters that are not settled yet, and take their rows without a table off the mirror's count."""
    if not outcomes:
        return []
    # The mirror's row is locked first, so that nobody settles the same letters beside us.
    c, s = t.mirror.c, t.settled_letter.c
    db.execute(sa.select(c.name).where(c.name == mirror).with_for_update())
    query = sa.select(s.batch, s.origin, s.place).where(
        s.mirror == mirror, s.batch.in_(sorted({place.batch for place in outcomes}))
    )
    fresh = sorted(outcomes.keys() - {LetterPlace(*row) for row in db.execute(query)})
    if fresh:
        common = {"mirror": mirror, "settled_in": batch, "settled_at": datetime.now(UTC)}
        rows = [{**common, **place._asdict(), "outcome": outcomes[place]} for place in fresh]
        db.execute(t.settled_letter.insert(), rows)
        told_none = sum(homeless.get(place, 0) for place in fresh)
        values = {"homeless_rejects": c.homeless_rejects - told_none}
        db.execute(t.mirror.update().where(c.name == mirror).values(values))
        take_out(db, mirror, fresh)
    return fresh
