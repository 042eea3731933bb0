"""The highest position that each partition has shown: this decides which transactions are complete."""

from __future__ import annotations

from open_mirroring.facts.kind import Kind


def highest_of(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """Of each name the higher position of both."""
    return {name: max(one.get(name, ""), other.get(name, "")) for name in {**one, **other}}


SHOWN = Kind[dict[str, str]]("shown", dict[str, str], highest_of)
"""By partition, then by stream incarnation: the highest commit, as ``major``.

Where changes are counted (K-80) it is the highest beginning of a transaction, as ``major:minor``; empty without one."""

UNCOUNTED = Kind[str]("uncounted", str, min)
"""The coordinates of a change that lacks its place in its transaction, in a format that has one (K-80)."""
