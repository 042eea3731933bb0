"""Reads messages from lines of text files, plain or gzip: *bare* messages, or messages in a *wrapped* line.

A plain file may grow: it is read in ranges that begin and end at line ends. A wrapped line is a JSON object with
``topic``, ``partition``, ``offset``, and ``value`` or ``payload``. It may also have ``encoding`` (``utf8`` or
``base64``), ``key`` and ``sequence_number``.
"""

from __future__ import annotations

import base64
import binascii
import gzip
import os
import re
import zlib
from codecs import BOM_UTF8
from collections.abc import Iterator
from typing import IO, Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np

from open_mirroring.changes.manifest import BoundRange
from open_mirroring.storage.object_path import Place
from spark_jobs.changelog.schema import RawMessage
from spark_jobs.sources.contract.decoded import Damage
from spark_jobs.sources.contract.encodings import packed_as
from spark_jobs.sources.contract.message_blocks import BLOCK_BYTES, Places
from spark_jobs.sources.transports.json_documents import document_codec, read_values
from spark_jobs.sources.transports.source_files import MAX_RAW, open_source

Layout = Literal["bare", "wrapped"]

SUFFIXES = (".jsonl", ".json", ".ndjson", ".jsonl.gz", ".json.gz", ".ndjson.gz")
RANGE_BYTES = 64 * 2**20
"""Larger files are split into ranges of this size, each ending with a line."""

_Line = tuple[int, bytes]
"""The position of a line in bytes, and its content."""
_CHUNK = 1 << 16
_MARK = 16
_GZIP_DAMAGE = (EOFError, OSError, zlib.error)


# A number that the log cannot store must not stop the run of all tables.
_Place = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Wrapper(msgspec.Struct, gc=False):
    topic: str
    partition: int
    offset: _Place
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    encoding: Literal["utf8", "base64"] | None = None
    key: Any = None
    sequence_number: _Place | msgspec.UnsetType = msgspec.UNSET


_decode_wrapper = msgspec.json.Decoder(_Wrapper, strict=False).decode
_decode_value = msgspec.json.Decoder(str | None).decode
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_MEMBERS = tuple(f'"{name}"'.encode() for name in _Wrapper.__struct_fields__)
_CLAIMS = (
    re.compile(rb'"topic"\s*:\s*"([ !#-\[\]-~]*+)"'),
    re.compile(rb'"partition"\s*:\s*(0|[1-9][0-9]{0,8}+)\s*[,}]'),
    re.compile(rb'"offset"\s*:\s*(0|[1-9][0-9]{0,17}+)\s*[,}]'),
)


def ranges(root: Place, name: str, start: int, size: int) -> list[BoundRange]:
    """The complete lines of a file after byte *start*, in ranges of about 64 MB, so that several workers can read them.

    A gzip file is one range.
    """
    if is_gzip(name):
        return [BoundRange(name, 0, size)] if size > start else []
    found = []
    end = last_line_end(root / name, start, size=size)
    with open_source(root / name) as file:
        is_document = document_codec(file) is not None
        if is_document or packed_as(file.read(_MARK)):
            return [BoundRange(name, start, end)] if end > start else []
        while start < end:
            cut = end
            if end - start > RANGE_BYTES:
                file.seek(start + RANGE_BYTES)
                file.readline()
                cut = min(end, file.tell())
            found.append(BoundRange(name, start, cut))
            start = cut
    return found


def last_line_end(path: Place, start: int, *, size: int | None = None) -> int:
    """The end of the last complete line of a plain file, or of its first *size* bytes.

    *start* if no line is complete. A last line without line end is complete if it is a JSON object, because nothing
    can follow a JSON object on its line.
    """
    with open_source(path) as file:
        codec = document_codec(file)
        is_packed = packed_as(file.read(_MARK))
        end = file.seek(0, os.SEEK_END)
        if size is not None:
            end = min(end, size)
        if is_packed:
            return end
        if codec is not None:
            file.seek(start)
            values = read_values(file.read(end - start), codec, start)
            return end if values.fault else values.end
        line_end = _last_newline(file, start, end)
        file.seek(line_end)
        return end if _is_object(body_of(file.read(end - line_end), line_end)) else line_end


def is_blank(path: Place, start: int, end: int) -> bool:
    """Whether a plain file has only blanks between two positions; only a limited number of bytes is read."""
    if start >= end:
        return True
    with open_source(path) as file:
        file.seek(start)
        return not file.read(min(end - start, _CHUNK)).strip()


def _last_newline(file: IO[bytes], start: int, end: int) -> int:
    while end > start:
        begin = max(start, end - _CHUNK)
        file.seek(begin)
        found = file.read(end - begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end = begin
    return start


def _is_object(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def read_lines(root: Place, name: str, start: int, end: int, layout: Layout) -> Iterator[RawMessage | Damage]:
    """The messages in the lines from byte *start* to byte *end*, or of a complete gzip file.

    Blank lines contain no message. The place of a bare message is the byte offset of its line, in a gzip file the
    offset after decompression. The place of a wrapped message is its ``sequence_number``, or else its ``offset``, in
    ``topic/partition``. A wrapper that cannot be read, and the end of a truncated file, become a :class:`Damage`.
    """
    lines = _unpacked(root / name, name) if is_gzip(name) else _plain(root / name, start, end, name)
    for line in lines:
        if isinstance(line, Damage):
            yield line
        elif (text := line[1]) and not text.isspace():
            yield RawMessage(name, *line) if layout == "bare" else _unwrapped(name, *line)


def is_gzip(name: str) -> bool:
    """Whether a file is compressed, by its name; a compressed file is always read completely."""
    return name.casefold().endswith(".gz")


def is_in_lines(path: Place) -> bool:
    """Whether each line of a plain file is one message, in UTF-8."""
    with open_source(path) as file:
        return document_codec(file) is None and packed_as(file.read(_MARK)) is None


def _plain(path: Place, start: int, end: int, origin: str) -> Iterator[_Line | Damage]:
    with open_source(path) as file:
        codec = document_codec(file)
        if packed := packed_as(file.read(_MARK)):
            reason = f"the file is {packed}, but its name ends as a text does: nothing of it was read"
            yield Damage(origin, start, "FILE_UNKNOWN", reason, None)
            return
        file.seek(start)
        if codec is not None:
            yield from _in_document(file.read(end - start), codec, start, origin)
            return
        at = start
        while at < end:
            line = next(file, b"")
            if not line:
                yield Damage(origin, at, "FILE_DAMAGED", f"the file ends here, but was bound up to byte {end}", b"")
                return
            if at + len(line) > end:
                line = line[: end - at]
            yield at, body_of(line, at)
            at += len(line)


def _unpacked(path: Place, origin: str) -> Iterator[_Line | Damage]:
    with open_source(path) as packed, gzip.GzipFile(fileobj=packed) as file:
        at = 0
        try:
            codec = document_codec(file)
            if codec is not None:
                yield from _in_document(file.read(), codec, 0, origin)
                return
            while line := file.readline():
                yield at, body_of(line, at)
                at += len(line)
        except _GZIP_DAMAGE as error:
            packed.seek(max(0, packed.seek(0, os.SEEK_END) - MAX_RAW))
            yield Damage(origin, at, "FILE_DAMAGED", f"the compressed file is damaged: {error}", packed.read())


def _in_document(content: bytes, codec: str, start: int, origin: str) -> Iterator[_Line | Damage]:
    values = read_values(content, codec, start)
    yield from values.found
    reason = values.fault or ("the file ends within a value or an array" if values.end < start + len(content) else "")
    if reason:
        raw = content[values.at - start :][:MAX_RAW]
        yield Damage(origin, values.at, "FILE_DAMAGED", f"{reason}; nothing was read from here on", raw)


def body_of(line: bytes, at: int) -> bytes:
    """The content of a line, without line end; *at* is the line's byte position in the file."""
    body = line.removesuffix(b"\n").removesuffix(b"\r")
    return body if at else body.removeprefix(BOM_UTF8)


def _unwrapped(origin: str, at: int, text: bytes) -> RawMessage | Damage:
    try:
        return _message(text)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        why = str(error)
        if "required field" in why and all(name not in text for name in _MEMBERS[:3]):
            why = "it has no topic, partition and offset, so it may be a message itself, as `layout: bare` reads it"
        topic, partition, offset = (pattern.search(text) for pattern in _CLAIMS)
        claims = None
        if topic and partition and offset:
            claims = f"{topic[1].decode()}/{partition[1].decode()}", int(offset[1])
        return Damage(origin, at, "FORMAT_UNSUPPORTED", f"the line wraps no message: {why}", text, claims)


def _message(text: bytes) -> RawMessage:
    text.decode()
    wrapper = _decode_wrapper(text)
    if (wrapper.value is msgspec.UNSET) == (wrapper.payload is msgspec.UNSET):
        raise ValueError("it must have `value` or `payload`, and not both")
    raw = bytes(wrapper.payload if isinstance(wrapper.value, msgspec.UnsetType) else wrapper.value)  # type: ignore[arg-type]
    value = None if raw.startswith(b"{") else _decode_value(raw)
    body = raw if raw.startswith(b"{") else None if value is None else _body(value, wrapper.encoding)
    offset = wrapper.offset if isinstance(wrapper.sequence_number, msgspec.UnsetType) else wrapper.sequence_number
    return RawMessage(f"{wrapper.topic}/{wrapper.partition}", offset, body, _key(wrapper.key))


def _body(value: str, encoding: str | None) -> bytes:
    """The message in a text. No message consists only of the letters of base64, so such a text is base64."""
    if encoding == "base64" or (encoding is None and len(value) % 4 == 0 and _BASE64.fullmatch(value)):
        return base64.b64decode(value, validate=True)
    return value.encode()


def _key(key: Any) -> bytes | None:
    """A message's key. A text is base64 if it decodes to text, an Avro record or a number; else it is literal."""
    if key is None:
        return None
    if not isinstance(key, str):
        return msgspec.json.encode(key)
    try:
        found = base64.b64decode(key, validate=True)
        if not found.startswith((b"Obj\x01", b"\x00")):
            found.decode()
    except (binascii.Error, ValueError):
        return key.encode("utf-8", "surrogatepass")
    return found


class LineBlock(NamedTuple):
    """Complete lines of the file *origin* from byte *place* on, as a block of messages."""

    origin: str
    place: int
    content: bytes
    starts: Places
    ends: Places

    @property
    def places(self) -> Places:
        """The byte position of each line in the file."""
        return self.starts + self.place

    def messages(self, numbers: Places) -> Iterator[RawMessage]:
        """The messages in the lines with these *numbers*; blank lines contain none."""
        for start, end in zip(self.starts[numbers].tolist(), self.ends[numbers].tolist(), strict=True):
            body = body_of(self.content[start:end], self.place + start)
            if body.strip():
                yield RawMessage(self.origin, self.place + start, body)


def _line_ends(content: bytes) -> list[int]:
    # Messages are long: the search for the next line end is quicker than a comparison of all bytes.
    ends, at = list[int](), content.find(b"\n")
    while at >= 0:
        ends.append(at)
        at = content.find(b"\n", at + 1)
    return ends if content.endswith(b"\n") else [*ends, len(content)]


def read_blocks(root: Place, name: str, start: int, end: int) -> Iterator[LineBlock]:
    """The lines from byte *start* to byte *end* of a plain file, in blocks.

    If the file was truncated, the blocks end where the file ends.
    """
    with open_source(root / name) as file:
        file.seek(start)
        while start < end:
            content = file.read(min(BLOCK_BYTES, end - start))
            if not content.endswith(b"\n"):
                content += file.readline(end - start - len(content))
            if not content:
                return
            ends = np.array(_line_ends(content), np.int64)
            yield LineBlock(name, start, content, np.append(0, ends[:-1] + 1), ends)
            start += len(content)
