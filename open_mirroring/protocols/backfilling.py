"""A request for a backfill: an interval of source time, and whether to read again what was read before.

The interval never decides what is published. It only selects source ranges to read; publishing then adds only what the
target lacks (I25). An interval cannot begin below the horizon, because older changes may no longer be in the change
log.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple

from open_mirroring.errors import TerminalError


class Interval(NamedTuple):
    """A period from *start* (inclusive) to *end* (exclusive), both with a time zone."""

    start: datetime
    end: datetime

    def __contains__(self, moment: object) -> bool:
        return isinstance(moment, datetime) and self.start <= moment < self.end


class Backfill(NamedTuple):
    """Read what was never read of an interval; with *reread*, then read the rest again, as a new batch."""

    interval: Interval
    reread: bool = False


def parse_interval(start: str, end: str) -> Interval:
    """Parse an interval from two times in ISO form. A time without a zone is in UTC.

    Raises:
        TerminalError: ``ARGUMENT_INVALID``.
    """
    moments = []
    for text in (start, end):
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise _invalid(f"{text!r} is not a moment") from None
        moments.append(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
    if moments[0] >= moments[1]:
        raise _invalid(f"the interval from {start} to {end} is empty")
    return Interval(moments[0].astimezone(UTC), moments[1].astimezone(UTC))


def refuse_below_horizon(interval: Interval, horizon: datetime | None) -> None:
    """Refuse an interval below the horizon, where the log may lack history. Without a horizon nothing is refused.

    Raises:
        TerminalError: ``ARGUMENT_INVALID``.
    """
    if horizon is not None and interval.start < horizon:
        raise TerminalError(
            "ARGUMENT_INVALID",
            f"the interval begins at {interval.start.isoformat()}, before the horizon at {horizon.isoformat()}",
            next_step="begin the interval at the horizon or later. Earlier changes are no longer in the change log: "
            "only a reload of the tables recovers them",
        )


def _invalid(what: str) -> TerminalError:
    return TerminalError(
        "ARGUMENT_INVALID", what, next_step="give two moments in ISO form, the earlier one first: 2026-01-05T10:00:00Z"
    )
