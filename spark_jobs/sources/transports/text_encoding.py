"""Reads text files as UTF-8 from any encoding: that of their byte order mark, or a given one.

Public source: RFC 8259, section 8.1; The Unicode Standard, *Byte order mark*.
"""

from __future__ import annotations

import codecs
import io
from typing import IO

from spark_jobs.sources.contract.encodings import encoding_of, looks_like

_HEAD = 8
_BLOCK = 1 << 20


def as_utf8(file: IO[bytes], encoding: str = "utf-8") -> IO[bytes]:
    """A seekable file, open at its beginning, as UTF-8 without a byte order mark.

    *encoding* is used if its first bytes show none. Reading raises :class:`UnicodeDecodeError` for invalid bytes of
    another encoding; UTF-8 is not checked.
    """
    shown, mark = encoding_of(file.read(_HEAD))
    file.seek(mark)
    name = codecs.lookup(encoding if shown == "utf-8" and not mark else shown).name
    return file if name == "utf-8" else io.BufferedReader(_Recoded(file, name), _BLOCK)


class _Recoded(io.RawIOBase):
    """A text of another encoding as UTF-8."""

    def __init__(self, file: IO[bytes], encoding: str) -> None:
        self._file, self._decoder, self._held = file, codecs.getincrementaldecoder(encoding)(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        while not self._held:
            block = self._file.read(_BLOCK)
            self._held = self._decoder.decode(block, not block).encode("utf-8", "surrogatepass")
            if not block and not self._held:
                return 0
        taken = self._held[: len(buffer)]
        buffer[: len(taken)] = taken
        self._held = self._held[len(taken) :]
        return len(taken)

    def close(self) -> None:
        self._file.close()
        super().close()


def is_utf8(file: IO[bytes]) -> bool:
    """Whether a file without a mark is UTF-8 with characters beyond ASCII, which text of a code page rarely is."""
    if encoding_of(file.read(_HEAD))[1]:
        return False
    file.seek(0)
    decoder, is_ascii = codecs.getincrementaldecoder("utf-8")(), True
    try:
        for block in iter(lambda: file.read(_BLOCK), b""):
            is_ascii = is_ascii and block.isascii()
            decoder.decode(block)
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        return False
    return not is_ascii


def why_not(error: UnicodeDecodeError) -> str:
    """Describe the bytes that are invalid in an encoding, and the encoding they look like."""
    raw = bytes(error.object)
    around = raw[max(0, error.start - 20) : error.start + 20]
    name = "UTF-8" if error.encoding.lower() in ("utf-8", "utf8") else error.encoding
    what = f"the file is not {name}: it has the byte 0x{raw[error.start]:02X} at {around!r}"
    if name != "UTF-8":
        return what
    if b"\0" in around:
        return f"{what}; it looks like UTF-16"
    if not raw[: error.start].isascii():
        return f"{what}; the text before it is UTF-8, so the byte is damaged"
    return f"{what}; {looks_like(raw)}"
