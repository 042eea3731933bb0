"""Finds places at which a source was read before and that it no longer names (G-142)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Reads = Mapping[str, Sequence[str]]
"""The origins of messages and how their bytes are decoded, by setting of the mirror file."""

GAPS, EXPECTED = "offset_gaps", "expected"
"""The setting for gaps between messages, and its value when they are expected; absent otherwise (G-113)."""


def places_left(former: Reads, now: Reads) -> list[tuple[str, str]]:
    """The values of *former* by setting that *now* lacks. A setting that *now* lacks belongs to another transport."""
    return [(name, one) for name, said in former.items() if name in now for one in said if one not in now[name]]
