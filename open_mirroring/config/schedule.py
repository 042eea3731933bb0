"""A simple check of cron expressions: five fields of numbers in range, so that a typing error is found early."""

from __future__ import annotations

import re

from open_mirroring.config.names import refusal

_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAY_NAMES = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = {m: n for n, m in enumerate(_MONTH_NAMES, start=1)}
_DAYS = {d: n for n, d in enumerate(_DAY_NAMES)}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_ITEM = re.compile(r"^(?:\*|([0-9a-z]{1,3})(?:-([0-9a-z]{1,3}))?)(?:/([0-9]{1,2}))?$")


def check_cron(text: str) -> str:
    """Refuse a text that is no cron expression of five fields (minute, hour, day of month, month, day of week)."""
    fields = text.split()
    way_out = "write minute hour day month weekday, for instance '0 * * * *' for every full hour"
    if len(fields) != len(_FIELDS):
        raise refusal("VALUE_INVALID", f"a schedule has five fields, this has {len(fields)}", way_out)
    for field, (name, low, high, names) in zip(fields, _FIELDS, strict=True):
        if not all(_valid(item, low, high, names) for item in field.casefold().split(",")):
            raise refusal("VALUE_INVALID", f"the {name} of the schedule is not in {low} to {high}", way_out)
    return text


def _valid(item: str, low: int, high: int, names: dict[str, int]) -> bool:
    match = _ITEM.match(item)
    if match is None or match[3] in ("0", "00"):
        return False
    bounds = [names.get(part, int(part) if part.isdigit() else -1) for part in match.group(1, 2) if part]
    return all(low <= bound <= high for bound in bounds) and bounds == sorted(bounds)
