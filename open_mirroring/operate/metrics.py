"""The metrics of a mirror (G-11): ages, lags and counts for graphs and alarms, from the ledger alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import Engine

from open_mirroring.ledger import tables as t
from open_mirroring.ledger.horizon import mirror_horizon
from open_mirroring.ledger.letters import letter_counts
from open_mirroring.ledger.reading import LedgerReader

_COUNTED = ("superseded", "duplicates", "compacted", "rejected")


class PartitionLag(NamedTuple):
    """A partition as it was looked at last.

    Attributes:
        behind: messages that are not bound yet.
        until_loss: messages that retention still keeps below what is bound; it falls as retention catches up, and
            what is not bound by then is lost (I28).
        seen_seconds_ago: how old these numbers are.
    """

    behind: int
    until_loss: int
    seen_seconds_ago: float


@dataclass(frozen=True)
class MirrorMetrics:
    """The metrics of a mirror. Ages are in seconds, None where nothing exists that could be old.

    Attributes:
        last_commit_age: since the newest batch of the log was committed.
        open_batch_age: since the batch under way was bound.
        open_fragments: split messages that wait, the oldest since *oldest_fragment_age*.
        homeless_letters: open dead letters that name no table.
        open_letters: open dead letters, by source table and code.
        letters_known: False while they have to be counted again.
        settled_letters: settled dead letters, by how they were settled.
        horizon_age: age of the moment down to which the source may be read again and the log be compared.
        partitions: per topic partition how far reading is behind, and ahead of retention.
        tables: per table what became of the changes of its present generation: *superseded* ones came late.
    """

    last_commit_age: float | None
    open_batch_age: float | None
    open_fragments: int
    oldest_fragment_age: float | None
    homeless_letters: int
    open_letters: Mapping[str, Mapping[str, int]]
    letters_known: bool
    settled_letters: Mapping[str, int]
    horizon_age: float | None
    partitions: Mapping[str, PartitionLag]
    tables: Mapping[str, Mapping[str, int]]

    def document(self) -> dict[str, Any]:
        """The metrics as plain JSON values."""
        partitions = {name: lag._asdict() for name, lag in self.partitions.items()}
        return {**asdict(self), "partitions": partitions}


def mirror_metrics(ledger: Engine, mirror: str, now: datetime, *, with_tables: bool = True) -> MirrorMetrics:
    """The metrics of a mirror at a moment; nothing but the ledger is asked.

    Without those of its tables it costs the same however long the history is.
    """

    def age(moment: datetime | None) -> float | None:
        return None if moment is None else (now - moment).total_seconds()

    reader = LedgerReader(ledger, mirror)
    bound, horizon = reader.bound(), mirror_horizon(ledger, mirror)
    of_mirror = t.mirror.c.name == mirror
    fragments = sa.select(sa.func.count(), sa.func.min(t.open_fragment.c.since)).where(
        t.open_fragment.c.mirror == mirror
    )
    letter = t.settled_letter.c
    settled = sa.select(letter.outcome, sa.func.count()).where(letter.mirror == mirror).group_by(letter.outcome)
    offset = t.source_offsets.c
    offsets = sa.select(offset.name, offset.first, offset.end, offset.seen_at).where(offset.mirror == mirror)
    with ledger.connect() as db:
        row = db.execute(sa.select(t.mirror.c.open_bound_at).where(of_mirror)).one_or_none()
        newest = db.scalar(sa.select(sa.func.max(t.log_batch.c.committed_at)).where(t.log_batch.c.mirror == mirror))
        waiting, oldest = db.execute(fragments).one()
        outcomes = {outcome: count for outcome, count in db.execute(settled).tuples()}
        partitions = {
            name: PartitionLag(max(0, end - bound.get(name, 0)), max(0, bound.get(name, 0) - first), age(at) or 0.0)
            for name, first, end, at in db.execute(offsets.order_by(offset.name)).tuples()
        }
    letters = letter_counts(ledger, mirror)
    return MirrorMetrics(
        last_commit_age=age(newest),
        open_batch_age=None if row is None else age(row.open_bound_at),
        open_fragments=waiting,
        oldest_fragment_age=age(oldest),
        homeless_letters=letters.without_table.count,
        open_letters={source: dict(found.by_code) for source, found in letters.tables.items()},
        letters_known=letters.known,
        settled_letters=outcomes,
        horizon_age=None if horizon is None else age(horizon.at),
        partitions=partitions,
        tables=_counted(reader) if with_tables else {},
    )


def _counted(reader: LedgerReader) -> dict[str, dict[str, int]]:
    """What was published of each table in its generation, by disposition."""
    counts = {source: Counter[str](dict.fromkeys(_COUNTED, 0)) for source in reader.tables()}
    for source, published in reader.published_counts():
        if source in counts:
            counts[source].update({name: published.get(name, 0) for name in _COUNTED})
    return {source: dict(counted) for source, counted in counts.items()}
