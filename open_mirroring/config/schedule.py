"""When a mirror replicates: by a cron expression of five fields, or when new data arrives.

Also computes the next time that matches a cron expression.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, ValidationInfo, field_validator

from open_mirroring.config.names import unfit
from open_mirroring.config.section import Section

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, tuple[str, ...]], ...] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_ITEM = re.compile(r"(?:\*|([0-9a-z]{1,3})(?:-([0-9a-z]{1,3}))?)(?:/([0-9]{1,2}))?")
_DAYS_AHEAD = 366 * 8
"""Every day of a month occurs within eight years, even 29 February."""


_SECONDS = {"s": 1, "m": 60, "h": 3600}


class OnNewData(Section):
    """A schedule that starts a run when the source has new data, and at set times even without new data."""

    on: Literal["new_data"] = Field(description="new_data: Airflow watches the topics, or the folder, of the source.")
    at_most_every: Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,3}[smh]$")] = Field(
        default="1m",
        description="The shortest time between two starts by new data, as in 30s, 1m or 1h. What arrives meanwhile is "
        "read by the next run.",
    )
    at_least_every: Literal["5m", "10m", "15m", "20m", "30m", "1h", "2h", "3h", "4h", "6h", "8h", "12h", "24h"] = Field(
        default="1h",
        description="How often a run starts in any case: for data that the watch missed, and tables that are on hold.",
    )

    @field_validator("at_least_every")
    @classmethod
    def _at_least_every(cls, every: str, info: ValidationInfo) -> str:
        most = info.data.get("at_most_every")
        if most is not None and seconds_of(most) > seconds_of(every):
            raise unfit("runs would start more often than `at_most_every` permits", "set `at_most_every` to less")
        return every

    @property
    def most_seconds(self) -> int:
        """`at_most_every` in seconds."""
        return seconds_of(self.at_most_every)

    @property
    def cron(self) -> str:
        """The cron expression of the runs that start even without new data."""
        count, unit = int(self.at_least_every[:-1]), self.at_least_every[-1]
        if unit == "m":
            return f"*/{count} * * * *"
        return {1: "0 * * * *", 24: "0 0 * * *"}.get(count, f"0 */{count} * * *")


def seconds_of(text: str) -> int:
    """Convert a length of time such as ``30s``, ``5m`` or ``1h``, already checked, to seconds."""
    return int(text[:-1]) * _SECONDS[text[-1]]


def check_cron(text: str) -> str:
    """Refuse a string that is not a cron expression of five fields (minute, hour, day of month, month, weekday)."""
    _values_of_fields(text)
    return text


def _values_of_fields(text: str) -> list[set[int]]:
    fields = text.casefold().split()
    next_step = "write minute hour day month weekday, for instance '0 * * * *' for every full hour"
    if len(fields) != len(_FIELDS):
        raise unfit(f"a schedule has five fields, this has {len(fields)}", next_step)
    found = []
    for field, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        items = [_values(item, low, high, names) for item in field.split(",")]
        if not all(items):
            raise unfit(f"the {name} of the schedule is not in {low} to {high}", next_step)
        found.append({value for item in items for value in item})
    return found


def next_after(text: str, moment: datetime) -> datetime | None:
    """Return the first minute after *moment* that matches a checked cron expression, in the time zone of *moment*.

    The result is None if no minute matches. As in cron, if day of month and weekday are both restricted, a day matches
    when one of the two fields matches.
    """
    fields = text.split()
    minutes, hours, days, months, weekdays = _values_of_fields(text)
    weekdays = {value % 7 for value in weekdays}
    either = not (fields[2].startswith("*") or fields[4].startswith("*"))
    start = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for ahead in range(_DAYS_AHEAD):
        day = start + timedelta(days=ahead)
        fits = day.day in days, day.isoweekday() % 7 in weekdays
        if day.month not in months or not (any(fits) if either else all(fits)):
            continue
        first = (start.hour, start.minute) if ahead == 0 else (0, 0)
        times = [(hour, minute) for hour in sorted(hours) for minute in sorted(minutes) if (hour, minute) >= first]
        if times:
            return day.replace(hour=times[0][0], minute=times[0][1])
    return None


def _values(item: str, low: int, high: int, names: tuple[str, ...]) -> range:
    """What one item of a field stands for; nothing if it is malformed."""
    match = _ITEM.fullmatch(item)
    if match is None or match[3] in ("0", "00"):
        return range(0)
    known = {name: at for at, name in enumerate(names, low)}
    bounds = [known.get(part, int(part) if part.isdigit() else -1) for part in match.group(1, 2) if part] or [low, high]
    if bounds != sorted(bounds) or not all(low <= bound <= high for bound in bounds):
        return range(0)
    # A single value with a step is a range from there to the end.
    last = bounds[-1] if len(bounds) > 1 or match[3] is None else high
    return range(bounds[0], last + 1, int(match[3] or 1))
