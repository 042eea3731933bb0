"""Reads exported CSV files (RFC 4180, UTF-8, one header line) as text; an empty field without quotes is NULL.

A parser that mends what it reads would turn half a file into rows. So before a file is parsed, its quotes are proven
to open and close at the borders of fields, its lines to end in one way (T-93), and its last line to be ended.
"""

from __future__ import annotations

import shutil
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv

from open_mirroring.storage.object_path import ObjectPath, Place
from spark_jobs.sources.qlik.data_files import line_ends

_BLOCK = 16 << 20
_QUOTE, _COMMA, _LF, _CR = b'",\n\r'


def csv_header(path: Place) -> list[str]:
    """The column names of a file.

    Raises:
        pa.ArrowInvalid: the file is empty or cannot be parsed.
    """
    with readable(path) as file, pv.open_csv(file, _READ, _PARSE) as reader:
        return list(reader.schema.names)


def read_csv(path: Place, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows with these columns, every value a string or NULL.

    Raises:
        pa.ArrowInvalid: a line has more or fewer fields than the header, text is no UTF-8, or a field is longer than
            16 MB.
    """
    convert = pv.ConvertOptions(
        column_types={name: pa.string() for name in columns},
        include_columns=list(columns),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[""],
    )
    with readable(path) as file, pv.open_csv(file, _READ, _PARSE, convert) as reader:
        yield from reader


_READ = pv.ReadOptions(block_size=_BLOCK, use_threads=False)
_PARSE = pv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False)


def why_malformed(path: Place) -> str | None:
    """What is wrong with the file's quotes or its end; None for a file that is whole."""
    if path.stat().st_size == 0:
        return "it is empty: even a table without rows has a header line"
    if isinstance(path, ObjectPath):
        with path.open() as file, TemporaryFile() as copy:
            shutil.copyfileobj(file, copy, _BLOCK)
            return _why_malformed(np.memmap(copy, dtype=np.uint8, mode="r"))
    return _why_malformed(np.memmap(path, dtype=np.uint8, mode="r"))


def _why_malformed(data: np.memmap[Any, np.dtype[np.uint8]]) -> str | None:
    if data[-1] != _LF:
        return "its last line is not ended: it may be cut off"
    inside = 0
    ends: set[bool] = set()
    start = len(BOM_UTF8) if bytes(data[: len(BOM_UTF8)]) == BOM_UTF8 else 0
    for block in range(start, len(data), _BLOCK):
        values = data[block : block + _BLOCK]
        quotes = np.flatnonzero(values == _QUOTE)
        ends |= line_ends(values, quotes, inside=bool(inside), previous=int(data[block - 1]) if block else _LF)
        if len(ends) > 1:
            return "some lines end with a carriage return and others do not: it may belong to a text without quotes"
        quotes += block
        # A doubled quote closes and opens again at once, so that every second quote opens.
        opens, closes = quotes[inside::2], quotes[1 - inside :: 2]
        before = data[opens[opens > start] - 1]
        # The last line is ended, so a byte follows every quote.
        after = data[closes + 1]
        if not np.isin(before, (_QUOTE, _COMMA, _LF)).all() or not np.isin(after, (_QUOTE, _COMMA, _LF, _CR)).all():
            return "a quote stands inside a field and is not doubled"
        inside = (inside + len(quotes)) % 2
    return "a quoted field is not closed: it may be cut off" if inside else None


@contextmanager
def readable(path: Place) -> Iterator[Any]:
    """What Arrow's readers take.

    Raises:
        FileNotFoundError: there is no such object.
    """
    if isinstance(path, Path):
        yield path
        return
    with path.open() as file:
        yield file
