"""Formats verdicts, ages, amounts and sizes as strings, alike on the page and on the command line."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from open_mirroring.protocols.coverage import Verified
from open_mirroring.protocols.verdicts import Verdict

UNKNOWN = "not looked at"
_VERDICTS = {
    Verdict.PASS: "mirrored",
    Verdict.LOSSES: "mirrored, with losses",
    Verdict.HOLD: "waiting",
    Verdict.STOP: "stopped",
}
SEVERITY: Sequence[Verdict | None] = (Verdict.STOP, None, Verdict.LOSSES, Verdict.HOLD, Verdict.PASS)
"""The verdicts, the worst first. None (not inspected) comes second, because it may hide a stop."""


def shown(text: object, *, also: str = "") -> str:
    """Return text from outside in a form that is safe to print.

    Unprintable characters, except the ones in *also*, become escapes.
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in also else c.encode("unicode_escape").decode("ascii") for c in text)


def verdict_words(verdict: Verdict | None) -> str:
    """Return a verdict in words; None means that the table was not inspected."""
    return UNKNOWN if verdict is None else _VERDICTS[verdict]


def verdict_name(verdict: Verdict | None) -> str:
    """Return a verdict as it is used in URLs, CSS classes and metric labels."""
    return "UNKNOWN" if verdict is None else verdict.value


def verdict_counts(counts: Mapping[Verdict | None, int]) -> str:
    """Return the counts of verdicts as a string, the worst verdict first: ``1 stopped, 3 mirrored``."""
    return ", ".join(f"{counts[one]} {verdict_words(one)}" for one in SEVERITY if counts.get(one)) or "none"


def age(length: timedelta | None) -> str:
    """Return a duration as a string: ``3 d 4 h``, ``5 min``, ``12 s``; ``never`` for None."""
    if length is None:
        return "never"
    seconds = max(0, int(length.total_seconds()))
    days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes else f"{seconds} s"


def verified_words(verified: Verified, now: datetime) -> str:
    """Return how much of a table is proved, such as ``verified 93 % of its rows within 7 days``.

    The time of the last difference is added, such as ``last difference 2 d 4 h ago``.
    """
    differed = (
        "no difference" if verified.differed_at is None else f"last difference {age(now - verified.differed_at)} ago"
    )
    late = f"; some rows were not compared for {age(now - verified.oldest)}" if verified.is_late else ""
    return f"verified {verified.share * 100:.0f} % of its rows within {verified.days} days, {differed}{late}"


def rest(done: int, of: int, length: timedelta) -> timedelta | None:
    """Estimate the time until all of *of* parts are done, if *done* parts took *length*.

    The result is None if no part is done, or all are.
    """
    return length / done * (of - done) if 0 < done < of else None


def pace(done: int, of: int, seconds: float) -> str:
    """Return the time left, if work goes on as fast as until now: ``, about 12 min left``; empty if unknown.

    *done* of *of* parts took *seconds*.
    """
    left = rest(done, of, timedelta(seconds=seconds))
    return "" if left is None else f", about {age(left)} left"


def amount(count: int, one: str, many: str = "") -> str:
    """Return a number with its noun: ``1 file``, ``1,234 files``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def to_copy(fix: str, file: Path) -> str:
    """Return *fix* with the mirror file instead of ``FILE`` in its commands, so that an operator can copy them."""
    return re.sub(r"(`open-mirroring [\w-]+) FILE\b", lambda found: f"{found[1]} {shlex.quote(str(file))}", fix)


def alike(said: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Merge pairs of (name, text) that have the same text: yields (``dbo.a, dbo.b``, text)."""
    about = dict[str, list[str]]()
    for name, text in said:
        about.setdefault(str(text), []).append(name)
    yield from ((", ".join(names), text) for text, names in about.items())


def waiting_pieces(count: int) -> str:
    """Return a note that *count* messages wait for others, such as the other pieces of a split event.

    While the messages wait, rows are missing at the target.
    """
    waiting = amount(count, "message waits", "messages wait")
    return f"{waiting} for other pieces, or for a description of a structure"


def size(count: int) -> str:
    """Return a number of bytes as a string: ``812 B``, ``1.5 MB``."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
