"""Reads files that are not one UTF-8 message per line: JSON arrays, indented JSON, UTF-16.

JSON lines that end with a comma are read, too. Such a file, a *document*, is recognized by its first bytes, and read up
to its last complete value or array.
"""

from __future__ import annotations

import json
import re
from gzip import GzipFile
from typing import IO, NamedTuple

from spark_jobs.sources.contract.encodings import encoding_of

_HEAD = 1 << 16
_NEAR = 8
"""The parser reports a truncated literal or escape at most this many characters before the end."""
_UNIT = {"utf-8": 1, "utf-16-le": 2, "utf-16-be": 2, "utf-32-le": 4, "utf-32-be": 4}
_ERRORS = {codec: "surrogateescape" if codec == "utf-8" else "surrogatepass" for codec in _UNIT}
"""Invalid bytes are kept; the decoder of the message refuses them."""
_BLANKS = re.compile(r"[ \t\r\n]*")
_read_value = json.JSONDecoder(parse_int=str, parse_float=str).raw_decode


class Value(NamedTuple):
    """One message of a document: its position *at* in the file, in bytes, and its UTF-8 bytes *text*."""

    at: int
    text: bytes


class Values(NamedTuple):
    """The complete messages *found* in a range of a document, and up to where the range was read.

    *end* is the position after the last complete array, or value outside of an array. *fault* says what is wrong at the
    position *at*; it is empty if nothing is wrong.
    """

    found: list[Value]
    end: int
    fault: str
    at: int


def document_codec(file: IO[bytes] | GzipFile) -> str | None:
    """The encoding of a document; None for a file with one message per line. Rewinds *file* to its beginning."""
    file.seek(0)
    # Of a truncated compressed file, the part that can be decompressed.
    head = file.read1(_HEAD) if isinstance(file, GzipFile) else file.read(_HEAD)
    file.seek(0)
    codec, mark = encoding_of(head)
    if codec != "utf-8":
        # Without a mark only JSON can be distinguished from binary messages.
        return codec if mark or head[:2].strip(b"\0") in (b"{", b"[", b" ", b"\t", b"\r", b"\n") else None
    is_document = _is_no_line(head[mark:].decode(errors="replace").lstrip())
    return codec if is_document else None


def _is_no_line(head: str) -> bool:
    if head.startswith("["):
        return True
    line, is_ended, _ = head.partition("\n")
    if not is_ended or not head.startswith("{"):
        return False
    try:
        _, end = _read_value(head)
    except ValueError as error:
        return _is_cut(error, head) and line.rstrip().endswith(("{", "[", ","))
    except RecursionError:
        return False
    return end > len(line) or line[end:].strip() == ","


def _is_cut(error: ValueError, text: str) -> bool:
    at = error.pos if isinstance(error, json.JSONDecodeError) else 0
    return at >= len(text.rstrip()) - _NEAR or str(error).startswith("Unterminated string")


def read_values(content: bytes, codec: str, start: int = 0) -> Values:
    """The messages of a document from byte *start* on. *content* is the file from this byte on.

    *start* must not be inside of an array.
    """
    mark = encoding_of(content[:4])[1] if not start else 0
    text = content[mark : len(content) - len(content) % _UNIT[codec]].decode(codec, _ERRORS[codec])
    found = list[Value]()
    place, behind = start + mark, 0

    def byte_of(character: int) -> int:
        nonlocal place, behind
        place += len(text[behind:character].encode(codec, _ERRORS[codec]))
        behind = character
        return place

    at, end, whole, in_array = 0, start, 0, False
    while True:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if not in_array:
            end, whole = byte_of(at), len(found)
        if at == len(text):
            return Values(found[:whole], end, "", end)
        if text[at] == "," or text[at] == ("]" if in_array else "["):
            in_array = in_array != (text[at] != ",")
            at += 1
            continue
        try:
            _, behind_value = _read_value(text, at)
        except (ValueError, RecursionError) as error:
            if isinstance(error, ValueError) and _is_cut(error, text):
                return Values(found[:whole], end, "", end)
            line = text.count("\n", 0, at) + 1
            return Values(found, end, f"line {line} holds no JSON value: {error}", byte_of(at))
        found.append(Value(byte_of(at), text[at:behind_value].encode(errors=_ERRORS[codec])))
        at = behind_value
