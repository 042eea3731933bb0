"""Finds places, such as topics or folders, from which the source is no longer read (G-142).

Unread changes in such a place are never seen, so tables may lack changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Reads = Mapping[str, Sequence[str]]
"""Where messages are read from and how their bytes are decoded: values by setting of the mirror file."""

GAPS, EXPECTED = "offset_gaps", "expected"
"""The setting that gaps between offsets are expected, and its value; absent if they are not (G-113)."""


def places_left(former: Reads, now: Reads) -> list[tuple[str, str]]:
    """Pair each setting with each place that it named in *former* and no longer names in *now*.

    A setting that *now* does not contain is ignored, because it belongs to another transport.
    """
    return [(name, one) for name, said in former.items() if name in now for one in said if one not in now[name]]
