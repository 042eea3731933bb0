"""Columns that a table got behind rows which were there: whether those have a default at the source, no change tells.

`ALTER TABLE … ADD … NOT NULL DEFAULT` gives every row a value and sends none (G-07): at the target they have NULL until
they change. A nullable column without default is equal at once, but the stream cannot tell the one from the other. So a
column is told as unverified until source and target were compared, or until a new generation of the table was loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.upsert import upsert


class UnverifiedColumn(NamedTuple):
    """A column, the position of the first change that had it, and the batch up to which it was published then."""

    column: str
    since: str
    batch: int
    at: datetime

    @property
    def note(self) -> str:
        """What it means, for people."""
        return (
            f"column {self.column!r} unverified since position {self.since}: rows that did not change since may have a "
            "default at the source, and have NULL at the target"
        )


def note_columns(ledger: Engine, table_id: str, generation: int, since: Mapping[str, str], batch: int) -> None:
    """Note columns by the position since which they are there; one that is known, verified or not, stays as it is."""
    now = datetime.now(UTC)
    place = {"table_id": table_id, "generation": generation, "batch": batch, "at": now, "verified": False}
    rows = [{**place, "column": column, "since": position} for column, position in sorted(since.items())]
    if rows:
        with ledger.begin() as db:
            upsert(db, t.unverified_column, rows, keys=["table_id", "generation", "column"], update=[])


def verify_columns(ledger: Engine, table_id: str, columns: Iterable[str] | None = None) -> int:
    """Take columns of a table (all, unless *columns* are given) as verified from now on; how many were not before.

    For whoever compared every row of the table with the source.
    """
    c = t.unverified_column.c
    statement = t.unverified_column.update().where(c.table_id == table_id, c.verified.is_(False))
    if columns is not None:
        statement = statement.where(c.column.in_(list(columns)))
    with ledger.begin() as db:
        return db.execute(statement.values(verified=True)).rowcount


def unverified_columns(ledger: Engine, generations: Mapping[str, int]) -> dict[str, list[UnverifiedColumn]]:
    """By table id the columns that are not verified in its present generation, in the order in which they came."""
    c = t.unverified_column.c
    query = sa.select(t.unverified_column).where(c.verified.is_(False)).order_by(c.batch, c.since, c.column)
    found: dict[str, list[UnverifiedColumn]] = {}
    with ledger.connect() as db:
        for row in db.execute(query):
            if generations.get(row.table_id) == row.generation:
                entry = UnverifiedColumn(row.column, row.since, row.batch, row.at)
                found.setdefault(row.table_id, []).append(entry)
    return found
