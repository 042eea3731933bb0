"""Says how a text is encoded: by its first bytes, which leave no doubt, or by a guess that only messages show."""

from __future__ import annotations

import codecs

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
    """The encoding that the first bytes of a text show, and the length of its byte order mark.

    A text that begins with an ASCII character and a zero byte, or the other way round, is UTF-16 (RFC 4627, section 3).
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
    """What a file is that begins so, if it holds no text at all."""
    return next((what for mark, what in _PACKED if head.startswith(mark)), None)


def looks_like(content: bytes) -> str:
    """What bytes that are no UTF-8 look like, and the command that converts them."""
    beyond = [byte for byte in content if byte > 0x7F]
    oem = sum(byte < 0xA0 and byte not in _MARKS_OF_1252 for byte in beyond)
    kind, name = ("code page 850 or 437", "CP850") if oem * 2 > len(beyond) else ("Windows-1252", "WINDOWS-1252")
    return f"it looks like {kind}; `iconv -f {name} -t UTF-8` converts it"
