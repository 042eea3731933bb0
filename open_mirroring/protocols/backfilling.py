"""A request for a backfill: an interval of source time, and whether ranges that were read before are read again.

The interval never decides what is published. It only selects source ranges to read; publishing then adds only changes
that the target lacks (I25). An interval cannot begin below the horizon, the time before which changes may no longer be
in the change log.
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
    """A request to read those source ranges of an interval that were never read.

    With *reread*, ranges of the interval that were read before are read again, too. Ranges that are read again become a
    batch of their own.
    """

    interval: Interval
    reread: bool = False


def parse_interval(start: str, end: str) -> Interval:
    """Parse an interval from two times in ISO form. A time without a zone is in UTC.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` if a time is not in ISO form, or the start is not before the end.
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
    """Refuse an interval that begins before *horizon*, where the change log may lack older changes.

    If *horizon* is None, nothing is refused.

    Raises:
        TerminalError: ``ARGUMENT_INVALID`` if the interval begins before *horizon*.
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
