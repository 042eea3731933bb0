"""Gathers what the ledger has on one table: changes, files, columns, dead letters, proofs and decisions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Connection, Engine

from open_mirroring.changes.manifest import LetterPlace
from open_mirroring.config import Mirror
from open_mirroring.ledger import tables as t
from open_mirroring.ledger.decisions import unknown_epochs
from open_mirroring.ledger.reading import ColumnList, LedgerReader, PublishedFile, TableState
from open_mirroring.operate.status import Marks
from open_mirroring.operate.status_gathering import table_marks
from open_mirroring.operate.words import rest
from open_mirroring.reconciliation.deep_check import DISPOSITIONS, TAKEN

SHOWN = 50


class Letter(NamedTuple):
    """An open dead letter. One with the place -1 stands for *letters* dead letters that are only counted."""

    batch: int
    origin: str
    place: int
    source: str | None
    code: str
    reason: str
    key: str | None
    position: str | None
    letters: int
    is_untyped: bool

    @property
    def at(self) -> LetterPlace:
        """Where it is in the log."""
        return LetterPlace(self.batch, self.origin, self.place)


class Decision(NamedTuple):
    """An entry of the audit; *who* and *why* where somebody decided."""

    at: datetime
    event: str
    who: str
    why: str
    detail: Mapping[str, Any]


class ProofLine(NamedTuple):
    """One proof of a table."""

    at: datetime
    verdict: str
    rows_source: int
    rows_target: int
    missing: int
    extra: int
    different: int
    doubled: int
    unproven: int


@dataclass(frozen=True)
class TableStory:
    """What the ledger tells of one table.

    Attributes:
        state: the table as the ledger knows it.
        marks: its four marks.
        taken: changes of its publications by where they came from; *became* by what became of them. They add up (I1).
        loaded: rows of its initial load that were published.
        files: its newest files, the newest first.
        column_lists: the columns that its changes carried, in the order of their first position.
        letters: its oldest open dead letters.
        epochs: ordinal of each stream incarnation; *unknown* ones that nobody accepted yet.
        load: chunks done, and all of them, while there is a plan; *load_left* is how long the rest takes at the pace
            of those that are published, None where nothing tells.
    """

    state: TableState
    marks: Marks
    taken: Mapping[str, int]
    became: Mapping[str, int]
    loaded: int
    publications: int
    files: tuple[PublishedFile, ...]
    column_lists: tuple[ColumnList, ...]
    letters: tuple[Letter, ...]
    proofs: tuple[ProofLine, ...]
    decisions: tuple[Decision, ...]
    epochs: Mapping[str, int]
    unknown: tuple[str, ...]
    load: tuple[int, int] | None
    load_left: timedelta | None

    @property
    def adds_up(self) -> bool:
        """Whether every change that was taken has a disposition."""
        return sum(self.taken.values()) == sum(self.became.values())


def table_story(mirror: Mirror, ledger: Engine, source: str) -> TableStory | None:
    """What the ledger tells of a table; None when it has no table of this name."""
    reader = LedgerReader(ledger, mirror.name)
    state = reader.tables(source).get(source)
    if state is None:
        return None
    publications = reader.publications(state.id, state.row.generation)
    counts: Counter[str] = Counter()
    for publication in publications:
        counts.update(publication.counts)
    plan = state.load_plan
    with ledger.connect() as db:
        unknown = tuple(sorted(unknown_epochs(db, _row(db, state.id))))
        files = _newest_files(db, state)
        proofs = _proofs(db, state)
        left = None if plan is None else _load_left(db, state, len(plan.done), len(plan.chunks))
    return TableStory(
        state=state,
        marks=table_marks(mirror, reader, state),
        taken={name: counts[name] for name in TAKEN},
        became={name: counts[name] for name in DISPOSITIONS},
        loaded=counts["loaded"],
        publications=len(publications),
        files=files,
        column_lists=tuple(reader.column_lists([state.id]).get(state.id, ())),
        letters=tuple(open_letters(ledger, mirror.name, source)),
        proofs=proofs,
        decisions=decisions(ledger, mirror.name, source),
        epochs=reader.epochs([state.id]).get(state.id, {}),
        unknown=unknown,
        load=None if plan is None else (len(plan.done), len(plan.chunks)),
        load_left=left,
    )


def _row(db: Connection, table_id: str) -> Any:
    """The row of a table, not locked."""
    return db.execute(sa.select(t.mirrored_table).where(t.mirrored_table.c.id == table_id)).one()


def open_letters(ledger: Engine, mirror: str, source: str | None, limit: int = SHOWN) -> list[Letter]:
    """The oldest open dead letters of a table, as the ledger lists them; None: those that name no table."""
    o, r, m, s = t.open_letter.c, t.rejected_change.c, t.mirrored_table.c, t.settled_letter.c
    unreadable = sa.select(t.open_letter).where(o.mirror == mirror, o.source == source)
    settled = sa.exists().where(s.mirror == mirror, s.batch == r.batch, s.origin == r.origin, s.place == r.place)
    untyped = sa.select(t.rejected_change).join(t.mirrored_table, r.table_id == m.id)
    untyped = untyped.where(m.mirror == mirror, m.source == source, ~settled)
    found: list[Letter] = []
    with ledger.connect() as db:
        for row in db.execute(unreadable.order_by(o.batch, o.origin, o.place).limit(limit)):
            known = (row.source, row.code, row.reason, row.key, _position(row), row.letters, False)
            found.append(Letter(row.batch, row.origin, row.place, *known))
        if source is not None:
            for row in db.execute(untyped.order_by(r.batch, r.origin, r.place).limit(limit)):
                known = (source, row.code, row.reason, row.key, _position(row), 1, True)
                found.append(Letter(row.batch, row.origin, row.place, *known))
    return sorted(found, key=lambda letter: letter.at)[:limit]


def decisions(ledger: Engine, mirror: str, source: str | None) -> tuple[Decision, ...]:
    """The newest entries of the audit on a table (None: on the mirror as a whole), the newest first."""
    c = t.audit.c
    query = sa.select(c.at, c.event, c.detail).where(c.mirror == mirror, c.source == source)
    found = []
    for at, event, text in t.rows(ledger, query.order_by(c.id.desc()).limit(SHOWN)):
        detail = json.loads(text)
        who = str(detail.pop("who", "") or detail.pop("approved_by", ""))
        found.append(Decision(at, event, who, str(detail.pop("why", "") or ""), detail))
    return tuple(found)


def _position(row: Any) -> str | None:
    return None if row.pos is None else f"{row.epoch or '?'} {row.pos}"


def _newest_files(db: Connection, state: TableState) -> tuple[PublishedFile, ...]:
    c = t.published_file.c
    query = sa.select(t.published_file).where(c.table_id == state.id, c.generation == state.row.generation)
    rows = db.execute(query.order_by(c.number.desc()).limit(SHOWN))
    return tuple(PublishedFile(**{name: getattr(row, name) for name in PublishedFile._fields}) for row in rows)


def _load_left(db: Connection, state: TableState, done: int, of: int) -> timedelta | None:
    if done == of:
        return None
    c = t.published_file.c
    mine = (c.table_id == state.id) & (c.generation == state.row.generation) & (c.kind == "load")
    first, last = db.execute(sa.select(sa.func.min(c.confirmed_at), sa.func.max(c.confirmed_at)).where(mine)).one()
    # From the first chunk on: when it was begun is not known.
    return None if first == last else rest(done - 1, of - 1, last - first)


def _proofs(db: Connection, state: TableState) -> tuple[ProofLine, ...]:
    c = t.proof.c
    kinds = (c.missing, c.extra, c.different, c.doubled, c.unproven)
    query = sa.select(c.proved_at, c.verdict, c.rows_source, c.rows_target, *kinds)
    query = query.where(c.table_id == state.id, c.generation == state.row.generation)
    return tuple(ProofLine(*row) for row in db.execute(query.order_by(c.proved_at.desc()).limit(SHOWN)))
