"""Many messages in one buffer, looked at by columns: places are arrays, texts are windows and views, never copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Places = npt.NDArray[np.int64]
"""Byte offsets in a buffer, one per message."""
Flags = npt.NDArray[np.bool_]

_INLINE = 12
"""A text of so many bytes at most stands in an Arrow string view itself."""
_VIEW = np.dtype(
    {
        "names": ["length", "inline", "buffer", "offset"],
        "formats": ["<i4", ("u1", _INLINE), "<i4", "<i4"],
        "offsets": [0, 4, 8, 12],
    }
)
_ROWS_AT_ONCE = 512  # what is compared at once stays inside the processor's cache


class TextBuffer:
    """Texts side by side in one buffer of less than 2 GB."""

    def __init__(self, texts: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        self.ends: Places = np.cumsum(lengths)
        self.starts: Places = self.ends - lengths
        self.content = b"".join([*texts, bytes(_INLINE)])
        self._buffer = pa.py_buffer(self.content)

    def window(self, places: Places, length: int) -> npt.NDArray[np.uint8]:
        """The *length* bytes at each place; what would reach beyond the buffer is taken from its end."""
        size = max(1, len(self.content) - length + 1)
        windows = np.ndarray((size, min(length, len(self.content))), np.uint8, self._buffer, strides=(1, 1))
        found: npt.NDArray[np.uint8] = windows[np.minimum(places, size - 1)]
        return found

    def equal(self, places: Places, wanted: bytes, fixed: npt.NDArray[np.uint8] | None = None) -> Flags:
        """Whether *wanted* stands at each place, except where *fixed* is zero (255 elsewhere)."""
        result = np.zeros(len(places), dtype=bool)
        pattern = np.frombuffer(wanted, np.uint8)
        inside = places + len(wanted) <= len(self.content)
        for start in range(0, len(places), _ROWS_AT_ONCE):
            rows = slice(start, start + _ROWS_AT_ONCE)
            differing = self.window(places[rows], len(wanted))
            differing ^= pattern
            if fixed is not None:
                differing &= fixed
            result[rows] = ~differing.any(axis=1)
        return result & inside

    def all_in(self, places: Places, allowed: npt.NDArray[np.bool_]) -> Flags:
        """Whether the byte at each position behind each place is allowed there: ``allowed[position, byte]``."""
        length = len(allowed)
        found: Flags = allowed[np.arange(length), self.window(places, length)].all(axis=1)
        return found & (places + length <= len(self.content))

    def until(self, places: Places, ends_with: npt.NDArray[np.bool_], limit: int) -> Places:
        """Where behind each place the first of some bytes stands; -1 where none of the next *limit* bytes is one."""
        stops = ends_with[self.window(places, limit)]
        first = stops.argmax(axis=1)
        found = stops[np.arange(len(places)), first] & (places + first < len(self.content))
        return np.where(found, places + first, -1)

    def find(self, wanted: bytes, places: Places, ends: Places) -> Places:
        """Where *wanted* begins first between place and end; -1 where it does not."""
        find = self.content.find
        pairs = zip(places.tolist(), ends.tolist(), strict=True)
        return np.fromiter((find(wanted, *pair) for pair in pairs), dtype=np.int64, count=len(places))

    def views(self, starts: Places, ends: Places, kind: pa.DataType | None = None) -> pa.Array:
        """Texts as Arrow string views, or binary ones; that texts are UTF-8 is for their reader to check."""
        lengths = ends - starts
        views = np.zeros(len(starts), dtype=_VIEW)
        views["length"] = lengths
        inline = self.window(starts, _INLINE)
        inline[np.arange(_INLINE) >= lengths[:, None]] = 0
        views["inline"] = inline
        long = lengths > _INLINE
        views["buffer"][long] = 0
        views["offset"][long] = starts[long]
        return pa.Array.from_buffers(kind or pa.string_view(), len(starts), [None, pa.py_buffer(views), self._buffer])
