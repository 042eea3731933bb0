"""Reads column masks of Qlik's change tables and messages: which column each bit names.

Qlik documents masks as little-endian bytes (T-20, T-22), but captured text masks are one number with the most
significant digit first (T-23). With the order ``auto``, text masks are read as captured, and byte masks as documented.
The opposite byte order is used only if this reading is impossible or contradicted (T-24). Rules: T-20 to T-24, K-20,
K-23. Public source: Qlik Help.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

MaskOrder = Literal["auto", "msb_text", "le_bytes"]
"""``msb_text``: one number, most significant digit or byte first; ``le_bytes``: byte 0 holds the lowest bits."""

MAX_MASK_BYTES = 1024
"""Far more columns than any source has; a longer mask is invalid."""

_HEX = re.compile(r"[0-9A-Fa-f]*")


@lru_cache(maxsize=4096)
def readings(mask: str | bytes, order: MaskOrder = "auto") -> tuple[int, ...]:
    """The possible readings of a mask as numbers, the likeliest first; more than one only if *order* is ``auto``."""
    if isinstance(mask, str):
        if not _HEX.fullmatch(mask):
            raise ValueError(f"{mask[:40]!r} is not a hexadecimal number")
        raw = bytes.fromhex(mask if len(mask) % 2 == 0 else "0" + mask)
    else:
        raw = mask
    if len(raw) > MAX_MASK_BYTES:
        raise ValueError(f"a mask of {len(raw)} bytes is longer than {MAX_MASK_BYTES}")
    number, documented = int.from_bytes(raw, "big"), int.from_bytes(raw, "little")
    if order == "msb_text" or (order == "auto" and number == documented):
        return (number,)
    if order == "le_bytes":
        return (documented,)
    return (number, documented) if isinstance(mask, str) else (documented, number)


def places(number: int) -> list[int]:
    """The indexes, from 0 and in ascending order, of the columns that the mask *number* names."""
    return [place for place in range(number.bit_length()) if number >> place & 1]


def width(columns: int) -> int:
    """The number of bytes of a mask for a table with this many columns, as captured messages show (K-20)."""
    return columns // 8 + 1
