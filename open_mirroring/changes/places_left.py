"""Tells which of the places that a source was read at it names no more (G-142)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Reads = Mapping[str, Sequence[str]]
"""Where messages come from and how their bytes are taken, by setting of the mirror file."""

GAPS, EXPECTED = "offset_gaps", "expected"
"""The setting that says of gaps between messages that nothing is missing; what it says is there only then (G-113)."""


def places_left(former: Reads, now: Reads) -> list[tuple[str, str]]:
    """What *former* says by a setting, and *now* does not; a setting that is not there now is another transport's."""
    return [(name, one) for name, said in former.items() if name in now for one in said if one not in now[name]]
