"""Reads exported CSV files (RFC 4180, one header line) as strings; an empty field without quotes is NULL.

A tolerant parser would read half a file without an error. So quotes, line ends (T-93) and the end of the file are
checked before the file is parsed.
"""

from __future__ import annotations

import re
import shutil
from codecs import BOM_UTF8, getincrementaldecoder, getreader, getwriter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.encodings import encoding_of, looks_like, packed_as

_BLOCK = 16 << 20
_EMPTY = "it is empty: even a table without rows has a header line"
_DASHES = re.compile(rb'"?-*-{3,}-*"?(?:,"?-+"?)*|(?:"?-+"?,)+"?-*-{3,}-*"?(?:,"?-+"?)*')
_QUOTE, _COMMA, _LF, _CR = b'",\n\r'


def csv_header(path: Place) -> list[str]:
    """The column names in the header line of a CSV file."""
    with _in_utf8(path) as file, pv.open_csv(file, _READ, _PARSE) as reader:
        return list(reader.schema.names)


def read_csv(path: Place, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Reads the rows of a CSV file in batches with these *columns*; every value is a string or NULL."""
    convert = pv.ConvertOptions(
        column_types={name: pa.string() for name in columns},
        include_columns=list(columns),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    with _in_utf8(path) as file, pv.open_csv(file, _READ, _PARSE, convert) as reader:
        yield from reader


_READ = pv.ReadOptions(block_size=_BLOCK, use_threads=False)
_PARSE = pv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


def why_malformed(path: Place) -> str | None:
    """What is wrong with the encoding, the quotes or the end of a CSV file; None for a valid file."""
    if path.stat().st_size == 0:
        return _EMPTY
    with _in_utf8(path) as text:
        if isinstance(text, Path):
            return _why_malformed(np.memmap(text, dtype=np.uint8, mode="r"))
        with TemporaryFile() as copy:
            shutil.copyfileobj(text, copy, _BLOCK)
            copy.flush()
            return _why_malformed(np.memmap(copy, dtype=np.uint8, mode="r")) if copy.tell() else _EMPTY


def _why_malformed(data: np.memmap[Any, np.dtype[np.uint8]]) -> str | None:
    if reason := _why_no_text(data):
        return reason
    if data[-1] != _LF:
        return "its last line is not ended: it may be cut off"
    inside = 0
    ends: set[bool] = set()
    start = len(BOM_UTF8) if bytes(data[: len(BOM_UTF8)]) == BOM_UTF8 else 0
    for block in range(start, len(data), _BLOCK):
        values = data[block : block + _BLOCK]
        quotes = np.flatnonzero(values == _QUOTE)
        line_ends = np.flatnonzero(values == _LF)
        line_ends = block + line_ends[(np.searchsorted(quotes, line_ends) + inside) % 2 == 0]
        ends |= {bool(one) for one in np.unique(data[line_ends - 1] == _CR)}  # before the first byte: the last one
        if len(ends) > 1:
            return "some lines end with a carriage return and others do not: it may belong to a text without quotes"
        quotes += block
        # A doubled quote closes and opens again at once, so every second quote opens.
        opens, closes = quotes[inside::2], quotes[1 - inside :: 2]
        before = data[opens[opens > start] - 1]
        # The last line is ended, so a byte follows every quote.
        after = data[closes + 1]
        if not np.isin(before, (_QUOTE, _COMMA, _LF)).all() or not np.isin(after, (_QUOTE, _COMMA, _LF, _CR)).all():
            return "a quote is inside a field and is not doubled"
        inside = (inside + len(quotes)) % 2
    return "a quoted field is not closed: it may be cut off" if inside else None


def _why_no_text(data: np.memmap[Any, np.dtype[np.uint8]]) -> str | None:
    if packed := packed_as(bytes(data[:16])):
        return f"it is {packed}: unpack or convert it"
    read = getincrementaldecoder("utf-8")().decode
    for at in range(0, len(data), _BLOCK):
        block = bytes(data[at : at + _BLOCK])
        try:
            if not block.isascii() or at:
                read(block, final=at + _BLOCK >= len(data))
        except UnicodeDecodeError as error:
            line = int(np.count_nonzero(data[:at] == _LF)) + error.object.count(b"\n", 0, error.start) + 1
            found = f"byte 0x{error.object[error.start]:02X}, line {line}"
            return f"its text is not UTF-8 ({found}); {looks_like(block)}"
    second = bytes(data[:_BLOCK]).split(b"\n", 2)[1:2]
    if second and _DASHES.fullmatch(second[0].strip()):
        return "its second line holds dashes, as sqlcmd writes them below the header: delete that line, or use bcp"
    return None


@contextmanager
def _in_utf8(path: Place) -> Iterator[Any]:
    with path.open("rb") as file:
        codec, mark = encoding_of(file.read(4))
        if codec != "utf-8":
            with TemporaryFile() as copy:
                file.seek(mark)
                shutil.copyfileobj(getreader(codec)(file), getwriter("utf-8")(copy), _BLOCK)
                copy.seek(0)
                yield copy
            return
    with readable(path) as text:
        yield text


@contextmanager
def readable(path: Place) -> Iterator[Any]:
    """Opens a file in the form that Arrow's readers accept: the path of a local file, or else a file object."""
    if isinstance(path, Path):
        yield path
        return
    with path.open() as file:
        yield file
