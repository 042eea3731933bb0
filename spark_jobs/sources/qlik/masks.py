"""Reads column masks of Qlik's change tables and messages: which column each bit names (T-20 to T-24, K-20, K-23).

A mask is read into one integer whose bit *n* is the column at index *n*. The caller knows the index: a change table
counts its header columns first (T-20), a message only the data columns (K-20).

The documentation describes both forms as little-endian byte arrays: byte 0 holds the bits 7 to 0, byte 1 the bits 15 to
8, and zero bytes may be missing at the end (T-20, T-22). But captured hexadecimal text is one number, its most
significant digit first and zeros missing on the left (T-23). So text is first read as a number, and bytes in the
documented order. ``auto`` uses the other reading only if the first one is impossible or contradicted by its row (T-24).

Public source: Qlik Help, *Change tables* and *Metadata and data messages*; the reading of text as a number is that of
captured messages and rows.
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
    """The possible meanings of a mask, the likeliest first; more than one only if *order* is ``auto``.

    An empty mask has no bit.

    Raises:
        ValueError: text that is not a hexadecimal number, or a mask longer than :data:`MAX_MASK_BYTES`.
    """
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
    """The indexes of the columns that a mask names, in ascending order, from 0."""
    return [place for place in range(number.bit_length()) if number >> place & 1]


def width(columns: int) -> int:
    """The number of bytes of a mask for this many columns, by captured messages (K-20)."""
    return columns // 8 + 1
