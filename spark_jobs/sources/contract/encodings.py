"""Detects the encoding of text files, and reads them as UTF-8. Public source: RFC 8259, section 8.1."""

from __future__ import annotations

import codecs
import io
from typing import IO

_HEAD = 8
_BLOCK = 1 << 20


def as_utf8(file: IO[bytes], encoding: str = "utf-8") -> IO[bytes]:
    """Converts a file, open at its beginning, to UTF-8 without a byte order mark.

    A byte order mark or the file's first bytes show the encoding; if they do not, the file is read in *encoding*.
    """
    shown, mark = encoding_of(file.read(_HEAD))
    file.seek(mark)
    name = codecs.lookup(encoding if shown == "utf-8" and not mark else shown).name
    return file if name == "utf-8" else io.BufferedReader(_Recoded(file, name), _BLOCK)


class _Recoded(io.RawIOBase):
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
    """Whether a file without a byte order mark is certainly UTF-8: valid, and with characters beyond ASCII.

    A file in a code page with such characters is rarely valid UTF-8.
    """
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
    """The message for a file that is invalid in its encoding: where, and which encoding the bytes look like."""
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


_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_PACKED = (
    (b"\x1f\x8b", "packed by gzip"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\x28\xb5\x2f\xfd", "packed by zstandard"),
    (b"BZh91AY&SY", "packed by bzip2"),
    (b"\xfd7zXZ\x00", "packed by xz"),
    (b"PAR1\x15", "a Parquet file"),
)
_MARKS_OF_1252 = {0x80, 0x85, *range(0x91, 0x98)}
"""The euro sign, the ellipsis, quotes and dashes, which texts of code page 1252 hold between 0x80 and 0x9F."""


def encoding_of(head: bytes) -> tuple[str, int]:
    """The encoding that the first bytes *head* show (RFC 4627, section 3), and the byte order mark's length.

    If the bytes show no encoding, it is UTF-8.
    """
    for mark, codec in _BOMS:
        if head.startswith(mark):
            return codec, len(mark)
    first, second = head[:1], head[1:2]
    if second == b"\0" and first.isascii() and first != b"\0":
        return "utf-16-le", 0
    if first == b"\0" and second not in (b"", b"\0") and second.isascii():
        return "utf-16-be", 0
    return "utf-8", 0


def packed_as(head: bytes) -> str | None:
    """The compression or file type that the first bytes *head* show, such as "packed by gzip"; None for a text file."""
    return next((what for mark, what in _PACKED if head.startswith(mark)), None)


def looks_like(content: bytes) -> str:
    """The part of a message about bytes that are not UTF-8: the likely code page, and the command that converts it."""
    beyond = [byte for byte in content if byte > 0x7F]
    oem = sum(byte < 0xA0 and byte not in _MARKS_OF_1252 for byte in beyond)
    kind, name = ("code page 850 or 437", "CP850") if oem * 2 > len(beyond) else ("Windows-1252", "WINDOWS-1252")
    return f"it looks like {kind}; `iconv -f {name} -t UTF-8` converts it"
