"""Proof that the quotes of a CSV file open and close at the borders of fields, while the file is being read.

The parser takes a quote in the middle of a field for a character and the rest of an unclosed one for its text: damage
would pass as data. Where a quote inside a text is doubled (RFC 4180), its neighbours tell whether that happened.
"""

from __future__ import annotations

import io
from codecs import BOM_UTF8
from typing import IO

import numpy as np

from spark_jobs.sources.contract.decoded import Refusal

_LINE_ENDS = (b"\n"[0], b"\r"[0])


class QuoteProof(io.RawIOBase):
    """A file that is read through: bytes are handed on once they are proven.

    Reading raises :class:`~spark_jobs.sources.contract.decoded.Refusal` ``FILE_DAMAGED``.
    """

    def __init__(self, file: IO[bytes], quote: str, delimiter: str) -> None:
        self._file = file
        self._quote, self._delimiter = ord(quote), ord(delimiter)
        self._inside = False
        # As if a line had ended before the first byte: a quote may open there.
        self._previous = _LINE_ENDS[0]
        self._at = 0
        self._held = b""
        self._ended = False

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Up to about *size* bytes; empty at the end."""
        while not self._ended:
            block = self._file.read(size if size > 0 else 1 << 20)
            self._ended = not block
            data = self._held + block
            # What follows a quote has to be seen together with it.
            body = data if self._ended else data.rstrip(bytes([self._quote]))
            self._held = data[len(body) :]
            if body:
                self._prove(body)
                return body
        if self._inside:
            raise Refusal("FILE_DAMAGED", "a quoted field is not closed: the file may be cut off")
        return b""

    def _prove(self, data: bytes) -> None:
        values = np.frombuffer(data, np.uint8)
        if self._at == 0 and data.startswith(BOM_UTF8):
            values = values[len(BOM_UTF8) :]
        quotes = np.flatnonzero(values == self._quote)
        # A doubled quote closes and opens again at once, so that every second quote opens.
        opens, closes = quotes[int(self._inside) :: 2], quotes[1 - int(self._inside) :: 2]
        before = np.where(opens > 0, values[opens - 1], self._previous)
        followed = closes[closes + 1 < len(values)]
        after = values[followed + 1]
        borders = (self._quote, self._delimiter, *_LINE_ENDS)
        for places, neighbours in ((opens, before), (followed, after)):
            wrong = np.flatnonzero(~np.isin(neighbours, borders))
            if len(wrong):
                where = self._at + int(places[wrong[0]])
                raise Refusal("FILE_DAMAGED", f"the quote at byte {where} stands inside a field and is not doubled")
        self._inside ^= bool(len(quotes) % 2)
        self._previous = int(values[-1]) if len(values) else self._previous
        self._at += len(data)
