"""Finds places, such as topics or folders, from which the source is no longer read (G-142).

Changes that were still there are never seen, so the tables may lack some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Reads = Mapping[str, Sequence[str]]
"""Where messages are read from and how their bytes are decoded: values by setting of the mirror file."""

GAPS, EXPECTED = "offset_gaps", "expected"
"""The setting that gaps between offsets are expected, and its value; absent if they are not (G-113)."""


def places_left(former: Reads, now: Reads) -> list[tuple[str, str]]:
    """Each setting with a former value that it no longer has.

    A setting that *now* lacks is ignored: it belongs to another transport.
    """
    return [(name, one) for name, said in former.items() if name in now for one in said if one not in now[name]]
