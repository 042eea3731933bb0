"""Dead letters in the ledger: messages that could not be read, and changes whose values do not fit their types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.manifest import LetterPlace, SeenLetter, SettledLetter
from open_mirroring.codes import Trait, having
from open_mirroring.ledger import requests
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.auditing import Reason, audit
from open_mirroring.ledger.declaring import without_stop
from open_mirroring.ledger.requests import ACCEPT_LETTERS, Asked, Effect
from open_mirroring.ledger.tables import upsert
from open_mirroring.protocols.table_stops import KEY_CORRECTED

Outdated = Literal["healed", "reloaded"]
HIDDEN_CHANGES = having(Trait.HIDES_CHANGES)
"""Codes of stops of a table that are caused by a dead letter, because it hides which rows were changed."""
CHANGES_RECOVERED = "CHANGES_RECOVERED"
"""Replaces such a stop once no dead letter of the table hides a change any more: an operator may lift it."""


def settled_letters(ledger: Engine, mirror: str) -> dict[LetterPlace, str]:
    """All settled dead letters of a mirror, each with its outcome: replayed, reread, accepted, healed or reloaded."""
    c = t.settled_letter.c
    query = sa.select(c.batch, c.origin, c.place, c.outcome).where(c.mirror == mirror)
    return {LetterPlace(*row[:3]): row[3] for row in t.rows(ledger, query)}


def settled_counts(ledger: Engine, mirror: str) -> dict[str, int]:
    """The number of settled dead letters of a mirror by outcome: replayed, reread, accepted, healed or reloaded."""
    c = t.settled_letter.c
    query = sa.select(c.outcome, sa.func.count()).where(c.mirror == mirror).group_by(c.outcome)
    return dict(t.rows(ledger, query.order_by(c.outcome)))


def settle_letters(db: Connection, mirror: str, number: int, letters: Iterable[SettledLetter]) -> None:
    """Settle dead letters whose messages batch *number* contains, inside the transaction that completes the batch."""
    settled = {LetterPlace(*letter[:3]): letter[3:] for letter in letters}
    outcomes = {place: outcome for place, (outcome, _) in settled.items()}
    _settle(db, mirror, outcomes, number, {place: without_table for place, (_, without_table) in settled.items()})


def accept_letters(
    ledger: Engine, mirror: str, letters: Mapping[LetterPlace, int], reason: Reason, *, request: str = ""
) -> int:
    """Accept dead letters as lost, with an audit entry. Returns how many of them were open.

    *letters* maps each dead letter to the number of its rows for which no table is known. If an earlier call had the
    same *request* id, its result is returned (G-30).
    """

    def effect(db: Connection, _: Any) -> Effect | None:
        accepted = _settle(db, mirror, dict.fromkeys(letters, "accepted"), None, letters)
        return ({"accepted": len(accepted)}, {"letters": accepted}) if accepted else None

    asked = Asked(request, ACCEPT_LETTERS)
    return int(requests.decide(ledger, mirror, asked, "LETTERS_ACCEPTED", reason, effect).get("accepted", 0))


def settle_outdated(ledger: Engine, mirror: str, outcomes: Mapping[LetterPlace, Outdated]) -> int:
    """Settle dead letters whose rows a later change or an initial load has replaced. Returns how many were open."""
    if not outcomes:
        return 0
    with ledger.begin() as db:
        return len(_settle(db, mirror, outcomes, None, {}))


def mark_healed(db: Connection, mirror: str, sources: Sequence[str]) -> None:
    """Change the stops of tables after every dead letter that hid one of their changes was read.

    The stop becomes ``CHANGES_RECOVERED``, which an operator can lift. A stop ``KEY_CORRECTED`` ends without an
    operator (G-69); if an operator still has to accept its table, ``NEW_TABLE`` takes its place (G-71).
    """
    c = t.mirrored_table.c
    said = sa.literal("every dead letter that hid a change was read after all; it was stopped by ")
    what = said + c.stop_code + ": " + c.stop_what
    ours = (c.mirror == mirror) & c.source.in_(sources)
    t.change_tables(db, ours & c.stop_code.in_(HIDDEN_CHANGES), stop_code=CHANGES_RECOVERED, stop_what=what)
    corrected = sa.select(c.id, c.source).where(ours & (c.stop_code == KEY_CORRECTED))
    for table_id, source in db.execute(corrected).tuples().all():
        audit(db, mirror, source, "KEY_CORRECTED", {"healed": True})
        t.change_tables(db, c.id == table_id, **without_stop(db, mirror, source))


def _settle(
    db: Connection,
    mirror: str,
    outcomes: Mapping[LetterPlace, Any],
    batch: int | None,
    without_table: Mapping[LetterPlace, int],
) -> list[LetterPlace]:
    if not outcomes:
        return []
    # The mirror's row is locked first, so that no other process settles the same dead letters.
    c, s = t.mirror.c, t.settled_letter.c
    db.execute(sa.select(c.name).where(c.name == mirror).with_for_update())
    query = sa.select(s.batch, s.origin, s.place).where(
        s.mirror == mirror, s.batch.in_({one.batch for one in outcomes})
    )
    fresh = sorted(outcomes.keys() - {LetterPlace(*row) for row in db.execute(query)})
    if fresh:
        common = {"mirror": mirror, "settled_in": batch, "settled_at": datetime.now(UTC)}
        rows = [{**common, **place._asdict(), "outcome": outcomes[place]} for place in fresh]
        db.execute(t.settled_letter.insert(), rows)
        named_none = sum(without_table.get(place, 0) for place in fresh)
        values = {"unnamed_rejects": c.unnamed_rejects - named_none}
        db.execute(t.mirror.update().where(c.name == mirror).values(values))
        _take_out(db, mirror, fresh)
    return fresh


class LetterExample(NamedTuple):
    """The oldest of several dead letters."""

    batch: int
    origin: str
    place: int
    code: str
    reason: str

    def __str__(self) -> str:
        return f"{self.code} at {self.origin}:{self.place} in batch {self.batch}: {self.reason}"


@dataclass(frozen=True)
class OpenLetters:
    """The open dead letters of one table, or all open dead letters that name no table.

    *example* is the oldest dead letter whose message is known. *keys* is the number of rows known to be out of date
    because of these dead letters.
    """

    by_code: Mapping[str, int] = field(default_factory=dict)
    example: LetterExample | None = None
    keys: int = 0

    @property
    def count(self) -> int:
        return sum(self.by_code.values())

    def document(self) -> dict[str, Any]:
        """The open dead letters as JSON values."""
        example = None if self.example is None else self.example._asdict()
        return {"open": self.count, "by_code": dict(self.by_code), "keys": self.keys, "example": example}


NO_LETTERS = OpenLetters()


@dataclass(frozen=True)
class LetterCounts:
    """The number of open dead letters of a mirror; *foreign* counts those of tables that are not mirrored.

    *known* is False until the dead letters are counted again: there may be more than these.
    """

    known: bool
    tables: Mapping[str, OpenLetters]
    without_table: OpenLetters
    foreign: int = 0

    @property
    def count(self) -> int:
        """The number of open dead letters that may affect the mirror, without those of tables that are not mirrored."""
        return self.without_table.count + sum(letters.count for letters in self.tables.values())

    def document(self) -> dict[str, Any]:
        """The counts as JSON values."""
        return {
            "known": self.known,
            "open": self.count,
            "tables": {source: letters.document() for source, letters in self.tables.items()},
            "homeless": self.without_table.document(),
            "foreign": self.foreign,
        }


def letter_counts(ledger: Engine, mirror: str) -> LetterCounts:
    """Count the open dead letters of a mirror.

    The cost depends on the number of open dead letters, not on the size of the change log.
    """
    o, m = t.open_letter.c, t.mirrored_table.c
    of_mirror = o.mirror == mirror
    unreadable = sa.select(o.source, o.code, sa.func.sum(o.letters)).where(of_mirror).group_by(o.source, o.code)
    untyped = _untyped(mirror)
    by_code = sa.select(untyped.c.source, untyped.c.code, sa.func.count()).group_by(untyped.c.source, untyped.c.code)
    known = is_counted(ledger, mirror)
    with ledger.connect() as db:
        mirrored = set(db.scalars(sa.select(m.source).where(m.mirror == mirror)))
        counts: dict[str | None, Counter[str]] = {}
        for query in (unreadable, by_code):
            for source, code, letters in db.execute(query).tuples():
                counts.setdefault(source, Counter())[code] += int(letters)
        examples, stale = _examples(db, mirror, untyped), _stale(db, mirror, untyped)
        found = {
            source: OpenLetters(dict(sorted(codes.items())), examples.get(source), stale.get(source, 0))
            for source, codes in sorted(counts.items(), key=lambda item: item[0] or "")
            if source is None or source in mirrored
        }
    without_table = found.pop(None, NO_LETTERS)
    foreign = sum(codes.total() for source, codes in counts.items() if source is not None and source not in mirrored)
    tables = {source: letters for source, letters in found.items() if source is not None}
    return LetterCounts(known, tables, without_table, foreign)


def _untyped(mirror: str) -> sa.Subquery:
    """The changes that could not be typed and are not settled: once each, whatever rows their message has."""
    r, m, s = t.rejected_change.c, t.mirrored_table.c, t.settled_letter.c
    settled = sa.exists().where(s.mirror == mirror, s.batch == r.batch, s.origin == r.origin, s.place == r.place)
    at = (m.source, r.batch, r.origin, r.place)
    code, reason, key = (sa.func.min(column).label(column.name) for column in (r.code, r.reason, r.key))
    query = sa.select(*at, code, reason, key).join(t.mirrored_table, r.table_id == m.id)
    return query.where(m.mirror == mirror, ~settled).group_by(*at).subquery()


def _examples(db: Connection, mirror: str, untyped: sa.Subquery) -> dict[str | None, LetterExample]:
    o, u = t.open_letter.c, untyped.c
    listed = sa.select(o.source, o.batch, o.origin, o.place, o.code, o.reason).where(o.mirror == mirror, o.place >= 0)
    both = listed.union_all(sa.select(u.source, u.batch, u.origin, u.place, u.code, u.reason)).subquery()
    c = both.c
    nth = sa.func.row_number().over(partition_by=c.source, order_by=(c.batch, c.origin, c.place)).label("nth")
    ranked = sa.select(both, nth).subquery()
    rows = db.execute(sa.select(ranked).where(ranked.c.nth == 1)).tuples()
    return {source: LetterExample(*letter) for source, *letter, _ in rows}


def _stale(db: Connection, mirror: str, untyped: sa.Subquery) -> dict[str | None, int]:
    o, u = t.open_letter.c, untyped.c
    unreadable = sa.select(o.source, o.key).where(o.mirror == mirror, o.source.is_not(None), o.key.is_not(None))
    both = unreadable.union(sa.select(u.source, u.key).where(u.key.is_not(None))).subquery()
    return dict(db.execute(sa.select(both.c.source, sa.func.count()).group_by(both.c.source)).tuples().all())


def _take_out(db: Connection, mirror: str, places: Iterable[LetterPlace]) -> None:
    c = t.open_letter.c
    for place in places:
        this = (c.mirror == mirror) & (c.batch == place.batch)
        gone = t.open_letter.delete().where(this, c.origin == place.origin, c.place == place.place)
        is_gone = db.execute(gone).rowcount > 0
        if not is_gone and db.scalar(sa.select(c.batch).where(this, c.place < 0).limit(1)) is not None:
            # One of those that an entry stands for: the next run counts them again.
            db.execute(t.mirror.update().where(t.mirror.c.name == mirror).values(letters_counted=None))


def is_counted(ledger: Engine, mirror: str) -> bool:
    """Whether the ledger has every open dead letter of the change log; True before the first run."""
    rows = t.rows(ledger, sa.select(t.mirror.c.letters_counted).where(t.mirror.c.name == mirror))
    return all(counted for (counted,) in rows)


def recount(ledger: Engine, mirror: str, committed: int, letters: Mapping[int, Sequence[SeenLetter]]) -> None:
    """Replace the open dead letters in the ledger by *letters*, those found in the change log.

    *letters* has the dead letters by batch. Nothing is replaced if a batch after *committed* was added in the meantime,
    because the dead letters of that batch are not in *letters*.
    """
    m, o, s = t.mirror.c, t.open_letter.c, t.settled_letter.c
    with ledger.begin() as db:
        now = db.execute(sa.select(m.committed).where(m.name == mirror).with_for_update()).one_or_none()
        if now is None or now.committed != committed:
            return
        query = sa.select(s.batch, s.origin, s.place).where(s.mirror == mirror)
        settled = {LetterPlace(*row) for row in db.execute(query)}
        db.execute(t.open_letter.delete().where(o.mirror == mirror))
        for batch, seen in letters.items():
            enter_letters(db, mirror, batch, [x for x in seen if LetterPlace(batch, *x[:2]) not in settled])
        db.execute(t.mirror.update().where(m.name == mirror).values(letters_counted=True))


def enter_letters(db: Connection, mirror: str, batch: int, letters: Iterable[SeenLetter]) -> None:
    """Add the dead letters of a batch, inside the transaction that completes the batch."""
    rows = [{"mirror": mirror, "batch": batch, "looked_to": 0, **letter._asdict()} for letter in letters]
    upsert(db, t.open_letter, rows, keys=["mirror", "batch", "origin", "place"], update=[])
