"""Records the highest position that each partition has shown.

The lowest of these decides which transactions are complete.
"""

from __future__ import annotations

from open_mirroring.facts.kind import Kind


def highest_of(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """By partition, the higher one of the positions in *one* and in *other*."""
    return {name: max(one.get(name, ""), other.get(name, "")) for name in {**one, **other}}


SHOWN = Kind[dict[str, str]]("shown", dict[str, str], highest_of)
"""The highest commit (``major`` of a position) by partition and stream.

If a format marks the first change of a transaction (K-80), it is ``major:minor`` of the highest such change; empty
without one."""

UNCOUNTED = Kind[str]("uncounted", str, min)
"""Where a change was found that lacks its number in its transaction, in a format that has one (K-80)."""
