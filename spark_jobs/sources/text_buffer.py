"""Many messages in one buffer, looked at by columns: places are arrays, texts are windows and views, never copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places = npt.NDArray[np.int64]
"""Byte offsets in a buffer, one per message."""
Flags = npt.NDArray[np.bool_]
Allowed = npt.NDArray[np.bool_]

_INLINE = 12
"""A text of so many bytes at most stands in an Arrow string view itself."""
PADDING = bytes(_INLINE)
"""What a buffer ends with, so that a view's bytes can be read behind every place in it."""
_VIEW = np.dtype(
    {
        "names": ["length", "inline", "buffer", "offset"],
        "formats": ["<i4", ("u1", _INLINE), "<i4", "<i4"],
        "offsets": [0, 4, 8, 12],
    }
)
_AT_ONCE = 1 << 16
"""So many bytes are compared at once: they stay in the processor's cache, and their memory is used again."""


class TextBuffer:
    """Texts in one buffer of less than 2 GB.

    Args:
        content: the texts, and :data:`PADDING` behind the last one.
        starts: where each text begins.
        ends: where each text ends.
    """

    def __init__(self, content: bytes, starts: Places, ends: Places) -> None:
        self.content, self.starts, self.ends = content, starts, ends
        self._buffer = pa.py_buffer(content)

    def text(self, at: int) -> bytes:
        """One of the texts."""
        return self.content[self.starts[at] : self.ends[at]]

    def window(self, places: Places, length: int) -> npt.NDArray[np.uint8]:
        """The *length* bytes at each place; what would reach beyond the buffer is taken from its end."""
        length = min(length, len(self.content))
        size = len(self.content) - length + 1
        # One item is one window, so that each is copied as a whole and not byte by byte.
        windows = np.ndarray((size,), np.dtype((np.void, length)), self._buffer, strides=(1,))
        return windows[np.minimum(places, size - 1)].view(np.uint8).reshape(len(places), length)

    def equal(self, places: Places, wanted: bytes) -> Flags:
        """Whether *wanted* stands at each place. Few different texts are expected there: each is compared once."""
        ends = np.minimum(places + len(wanted), len(self.content))
        texts = pc.dictionary_encode(self.views(places, ends, pa.binary_view()))
        is_wanted = np.array([text == wanted for text in texts.dictionary.to_pylist()], dtype=bool)
        return is_wanted[texts.indices.to_numpy()] if len(places) else is_wanted

    def alike(self, places: Places, pattern: bytes, varying: Sequence[tuple[int, int, Allowed]]) -> Flags:
        """Whether *pattern* stands at each place, except between the positions that vary.

        Args:
            places: where to look.
            pattern: what to look for.
            varying: first and last (exclusive) position, and which bytes are allowed there, ``allowed[byte]`` at all
                positions or ``allowed[position, byte]`` at each.
        """
        wanted = np.frombuffer(pattern, np.uint8)
        fixed = np.full(len(pattern), 255, dtype=np.uint8)
        for start, end, _ in varying:
            fixed[start:end] = 0

        def look(window: npt.NDArray[np.uint8]) -> Flags:
            found = ~((window ^ wanted) & fixed).any(axis=1)
            for start, end, allowed in varying:
                part = window[:, start:end]
                at_each = allowed[part] if allowed.ndim == 1 else allowed[np.arange(end - start), part]
                found &= at_each.all(axis=1)
            return found

        return self._each(places, len(pattern), look) & (places + len(pattern) <= len(self.content))

    def until(self, places: Places, stops: npt.NDArray[np.bool_], limit: int) -> Places:
        """Where behind each place the first of the bytes *stops* stands; -1 where none is within *limit* bytes."""
        first = self._each(places, limit, lambda window: np.where((at := stops[window]).any(1), at.argmax(1), -1))
        return np.where((first >= 0) & (places + first < len(self.content)), places + first, -1)

    def _each(self, places: Places, length: int, look: Callable[[npt.NDArray[np.uint8]], npt.NDArray[Any]]) -> Any:
        rows = max(1, _AT_ONCE // max(1, length))
        parts = [look(self.window(places[start : start + rows], length)) for start in range(0, len(places), rows)]
        return np.concatenate(parts) if parts else np.zeros(0, dtype=bool)

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
