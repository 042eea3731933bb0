"""Decides which part of a table a scheduled proof compares next, and what the proofs of all parts add up to.

A table is divided into ranges of its split column. The range that was not compared for the longest time comes next. The
result for a range holds for the time at which the range was compared; keys that changed later are compared by the next
proof. The borders between ranges stay the same until every range was compared, so that no range is left out when a
table grows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

_EVER = datetime(1, 1, 1, tzinfo=UTC)


class Rotation(NamedTuple):
    """How often each row of a table is compared: once in the time *cover*, in which there are *runs* proofs."""

    cover: timedelta
    runs: int

    @property
    def period(self) -> timedelta:
        """The time between two scheduled proofs."""
        return self.cover / self.runs


@dataclass(frozen=True)
class Coverage:
    """When each part of a table was last compared with its source.

    Attributes:
        since: when the first scheduled proof since the table's last reset began.
        cut_at: when the borders were chosen.
        column: the split column; empty if the table is one range.
        borders: the values between the ranges, as strings.
        proved: by range, when it was last compared; None if never.
        rows: by range, the number of rows of the source when the range was last compared.
        table_rows: the number of rows of the mirrored table at the last proof.
        batch: changes in batches above this one may not have been compared.
        position: changes of the batches up to *batch* from this position on may not have been compared, either; None if
            all of them were compared.
        differed_at: when a difference was last found.
    """

    since: datetime
    cut_at: datetime
    column: str
    borders: tuple[str, ...]
    proved: tuple[datetime | None, ...]
    rows: tuple[int, ...]
    table_rows: int = 0
    batch: int = 0
    position: str | None = None
    differed_at: datetime | None = None

    @classmethod
    def new(cls, now: datetime, column: str, borders: Sequence[str]) -> Coverage:
        """The coverage before the first comparison."""
        ranges = len(borders) + 1
        return cls(now, now, column, tuple(borders), (None,) * ranges, (0,) * ranges)

    @property
    def oldest(self) -> datetime:
        """The time since which some row was not compared."""
        return min(at or self.since for at in self.proved)

    @property
    def is_round_over(self) -> bool:
        """Whether every range was compared since the borders were chosen."""
        return all(at is not None and at >= self.cut_at for at in self.proved)

    def due(self, rotation: Rotation, now: datetime) -> frozenset[int]:
        """The ranges to compare *now*: those that were not compared for the longest time.

        One run gets as many ranges as are needed to compare each range once in the rotation. If more ranges are late,
        all late ranges are returned. Ranges that were compared recently are left out.
        """
        # One run less than there are: a run may fail, and a range is to be compared before its time is over.
        in_runs = max(1, rotation.runs - 1)
        youngest = now - rotation.period * (in_runs - 0.5)
        waiting = sorted((at or _EVER, number) for number, at in enumerate(self.proved) if at is None or at <= youngest)
        late = sum(at is not None and at < now - rotation.cover for at in self.proved)
        return frozenset(number for _, number in waiting[: max(late, -(-len(self.proved) // in_runs))])

    def cut(self, now: datetime, old: Sequence[Any], texts: Sequence[str], new: Sequence[Any]) -> Coverage:
        """The coverage with the borders *new* instead of *old*.

        Both are ascending; *texts* are the new borders as strings. A new range may consist of parts of several old
        ranges. Its time of comparison is then the earliest of the old ranges' times.
        """
        lows, highs = [0, *(bisect_right(old, low) for low in new)], [*(bisect_left(old, high) for high in new)]
        spans = zip(lows, [*highs, len(old)], strict=True)
        proved = tuple(min(at or _EVER for at in self.proved[low : high + 1]) for low, high in spans)
        rows = (sum(self.rows) // len(proved),) * len(proved)
        known = tuple(None if at == _EVER else at for at in proved)
        return replace(self, cut_at=now, borders=tuple(texts), proved=known, rows=rows)

    def after(self, now: datetime, rows: Mapping[int, int], batch: int, position: str | None) -> Coverage:
        """The coverage after a proof that began *now*.

        *rows* has the number of rows by range that the proof compared. The target had all changes up to *batch* and
        *position* when the proof compared it.
        """
        proved = tuple(now if number in rows else at for number, at in enumerate(self.proved))
        counted = tuple(rows.get(number, known) for number, known in enumerate(self.rows))
        return replace(self, proved=proved, rows=counted, batch=batch, position=position)


class Verified(NamedTuple):
    """What the proofs of a table's parts add up to: the *share* of rows that were compared within *days*.

    *oldest* is the time since which some row was not compared. *is_late* is True if this is longer ago than the setting
    ``alert_after_days`` allows.
    """

    share: float
    days: int
    oldest: datetime
    differed_at: datetime | None
    is_late: bool

    @classmethod
    def of(cls, coverage: Coverage | None, now: datetime, days: int | None, alert_after: int | None) -> Verified | None:
        """Add up the proofs of a table's parts as of *now*; None if no part was compared yet.

        The result is also None if every proof compares all rows (*days* is None).
        """
        if coverage is None or days is None:
            return None
        fresh = [at is not None and at >= now - timedelta(days=days) for at in coverage.proved]
        rows = sum(count for count, is_fresh in zip(coverage.rows, fresh, strict=True) if is_fresh)
        share = 1.0 if all(fresh) else min(1.0, rows / max(coverage.table_rows, sum(coverage.rows), 1))
        is_late = alert_after is not None and coverage.oldest < now - timedelta(days=alert_after)
        return cls(share, days, coverage.oldest, coverage.differed_at, is_late)
