"""Reads data files of Qlik's file targets as exact texts, by their metadata files: CSV, JSON lines, Parquet.

Files are read in blocks, so that memory does not grow with them. A parser that mends what it reads would turn half a
file into rows: the rest of an unclosed quote would pass as text. So quotes are proven to open and close at the borders
of fields, and the number of rows to be the announced one. Where a quote inside a text is doubled (RFC 4180), its
neighbours tell whether it stands at a border.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq

from open_mirroring.errors import TransientError
from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.contract.json_numbers import JsonNumber, may_be_rounded, members_once, rounded
from spark_jobs.sources.qlik.dfm import SUFFIX, CsvForm, Dfm, DfmColumn, read_dfm, stem
from spark_jobs.sources.qlik.types import (
    BINARIES,
    RANGES,
    TEXTS,
    WHOLE_NUMBERS,
    is_longer_than_a_double,
    is_longer_than_a_float,
    is_out_of_range,
)
from spark_jobs.sources.sql_server.arrow_texts import is_binary, texts_of
from spark_jobs.sources.transports.source_files import open_source

_BLOCK = 4 << 20
_ROWS_AT_ONCE = 20_000
_BOOLEAN = "BOOLEAN"
_TRUTHS = (("false", "true"), ("0", "1"))
"""The texts of false and true: for other columns than truths, of which no number may be made, and for these."""
_DAMAGE = (pa.ArrowException, UnicodeError, EOFError, OSError, zlib.error, csv.Error)
_LINE_ENDS = (b"\n"[0], b"\r"[0])
_UTC = ("UTC", "ETC/UTC", "Z", "+00:00")


def read_texts(path: Place, dfm: Dfm, headers: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
    """The rows of a data file: every column of the metadata file as a string or NULL, in its order.

    Args:
        path: the data file.
        dfm: what its metadata file says.
        headers: the header columns, in which an empty text and NULL mean the same, and bytes are no texts.

    Raises:
        Refusal: ``DFM_CONTRADICTS`` when the columns differ, ``DFM_COUNT_DIFFERS`` when the number of rows does, at
            the end; ``FILE_DAMAGED``, after the rows before the damage; ``FORMAT_UNSUPPORTED``;
            ``NULL_AMBIGUOUS``.
        TerminalError: ``SOURCE_FILE_MISSING``.
        TransientError: ``SOURCE_UNREADABLE`` when the disk does not give the file.
    """
    rows = 0
    try:
        reader = _reader(path.name)
        nulls = _Nulls(path, dfm, headers)
        bounded = {c.name: RANGES[c.type.upper()] for c in dfm.columns if c.type.upper() in RANGES}
        for batch in _read_parquet(path, dfm, headers) if reader is _read_parquet else reader(path, dfm):
            nulls.refuse_ambiguous(batch)
            _refuse_out_of_range(batch, bounded)
            rows += batch.num_rows
            yield batch
    except _DAMAGE as error:
        # Damaged contents are told by an OSError without an errno; the system's own errors carry one.
        if isinstance(error, OSError) and error.errno is not None:
            raise TransientError(
                "SOURCE_UNREADABLE",
                f"the file cannot be read: {error.strerror}",
                where=str(path),
                way_out="look after its disk or mount; the next run reads the same range again",
            ) from error
        raise Refusal("FILE_DAMAGED", f"after {rows} rows: {error}") from error
    if rows != dfm.records:
        raise Refusal("DFM_COUNT_DIFFERS", f"the metadata file announces {dfm.records} rows, the file has {rows}")
    if dfm.errors:
        raise Refusal("DFM_ERRORS", f"the task says that it could not write {dfm.errors} records of this file")


def _refuse_out_of_range(batch: pa.RecordBatch, bounded: Mapping[str, tuple[int, int]]) -> None:
    """Refuse a whole number that the described type does not have, though the log's type holds it.

    Raises:
        Refusal: ``DFM_CONTRADICTS``.
    """
    for name, (low, high) in bounded.items():
        texts = batch.column(name)
        is_short = pc.match_substring_regex(texts, r"^[+-]?[0-9]{1,18}$").fill_null(True)
        limits = pc.min_max(pc.cast(texts.filter(is_short), pa.int64()))
        rest: list[str | None] = texts.filter(pc.invert(is_short)).to_pylist()
        for value in (*(None if one is None else str(one) for one in limits.as_py().values()), *rest):
            if is_out_of_range(value, low, high):
                what = f"the metadata file says that {shown(name)} is from {low} to {high}, the file has {shown(value)}"
                raise Refusal("DFM_CONTRADICTS", what)


class _Nulls:
    """Refuses a NULL that may be an empty text: without quotes, and without a NULL of its own, both are written alike.

    A file has no quotes if its metadata file names none, or if it has texts and yet not one quote in it.
    """

    def __init__(self, path: Place, dfm: Dfm, headers: Collection[str]) -> None:
        self._path, self._quote = path, dfm.csv.quote.encode()
        is_told = not _is_csv(path.name) or bool(dfm.csv.null)
        texts = (c.name for c in dfm.columns if c.type in TEXTS and c.name not in headers)
        self._columns = () if is_told else tuple(texts)
        self._null, self._has_text = "", not self._quote

    def refuse_ambiguous(self, batch: pa.RecordBatch) -> None:
        """Refuse a batch that is, with those before it, ambiguous.

        Raises:
            Refusal: ``NULL_AMBIGUOUS``.
        """
        for name in self._columns:
            nulls = batch.column(name).null_count
            self._null = self._null or (name if nulls else "")
            self._has_text = self._has_text or nulls < batch.num_rows
        if not self._null or not self._has_text:
            return
        if self._quote and self._has_quote():
            self._columns = ()  # a text may be in quotes: then an empty field is none
            return
        what = f"an empty field of {shown(self._null)} may be NULL or an empty text: the file has no quotes"
        raise Refusal("NULL_AMBIGUOUS", what)

    def _has_quote(self) -> bool:
        with _opened(self._path) as file:
            return any(self._quote in block for block in iter(lambda: file.read(_BLOCK), b""))


def is_said_empty(path: Place) -> bool:
    """Whether the metadata file of a text file without a byte says that it has no row: then it is whole (T-92)."""
    if not path.name.lower().endswith((".csv", ".json")):
        return False
    try:
        return read_dfm(path.with_name(stem(path.name) + SUFFIX).read_bytes()).records == 0
    except (Refusal, OSError):
        return False


def has_binary(path: Place, column: str) -> bool:
    """Whether a file holds a column as bytes, not as a text: only Parquet can."""
    if not path.name.lower().endswith(".parquet"):
        return False
    try:
        with open_source(path) as file:
            schema = pq.read_schema(path if isinstance(path, Path) else file)
    except (pa.ArrowException, OSError):
        return False  # reading its rows will say what is wrong
    at = schema.get_field_index(column)
    return at >= 0 and is_binary(schema.field(at).type)


def _is_csv(name: str) -> bool:
    return _reader(name) is _read_csv


def _reader(name: str) -> Callable[[Place, Dfm], Iterator[pa.RecordBatch]]:
    bare = name.lower().removesuffix(".gz")
    return {".csv": _read_csv, ".json": _read_json}.get(bare[bare.rfind(".") :], _read_parquet)


def _opened(path: Place) -> IO[bytes]:
    file = open_source(path)
    return gzip.GzipFile(fileobj=file) if path.name.lower().endswith(".gz") else file  # type: ignore[return-value]


def _read_csv(path: Place, dfm: Dfm) -> Iterator[pa.RecordBatch]:
    form = _supported(dfm.csv)
    first = _first_record(path, form)
    if first is None:
        return
    with_header = first == dfm.names
    # A text may be the name of a column; a header that is taken for a row makes one row too many.
    if not with_header and 2 * len(set(first) & set(dfm.names)) > len(dfm.names):
        raise Refusal("DFM_CONTRADICTS", f"the metadata file names the columns {dfm.names}, the file {shown(first)}")
    doubled = form.escape in ("", form.quote)
    parse = pv.ParseOptions(
        delimiter=form.delimiter,
        quote_char=form.quote or False,
        double_quote=bool(form.quote) and doubled,
        escape_char=False if doubled else form.escape,
        newlines_in_values=bool(form.quote),
        ignore_empty_lines=False,
    )
    convert = pv.ConvertOptions(
        column_types={name: pa.string() for name in dfm.names},
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        null_values=[form.null],
    )
    how = pv.ReadOptions(block_size=_BLOCK, use_threads=False, column_names=list(dfm.names), skip_rows=int(with_header))
    with _opened(path) as file:
        proven = QuoteProof(file, form.quote, form.delimiter) if doubled else file
        if with_header and dfm.records == 0 and not _has_second_record(path, form):
            return  # a reader of blocks wants one row at least
        with pv.open_csv(pa.PythonFile(proven, "r"), how, parse, convert) as reader:
            yield from reader


def _first_record(path: Place, form: CsvForm) -> list[str] | None:
    return next(iter(_records(path, form, 1)), None)


def _has_second_record(path: Place, form: CsvForm) -> bool:
    return len(_records(path, form, 2)) > 1


def _records(path: Place, form: CsvForm, number: int) -> list[list[str]]:
    quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if form.quote else csv.QUOTE_NONE
    escape = None if form.escape in ("", form.quote) else form.escape
    with _opened(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        lines = csv.reader(
            text, delimiter=form.delimiter, quotechar=form.quote or None, escapechar=escape, quoting=quoting
        )
        return list(islice(lines, number))


def _supported(form: CsvForm) -> CsvForm:
    if form.record_end not in ("\n", "\r\n") or any(len(one) != 1 for one in (form.delimiter,)):
        what = f"records end with {shown(form.record_end)}, fields with {shown(form.delimiter)}"
    elif len(form.quote) > 1 or len(form.escape) > 1 or not (form.delimiter + form.quote + form.escape).isascii():
        what = f"quote {shown(form.quote)} or escape {shown(form.escape)} is no single character"
    elif form.escape not in ("", form.quote) and form.escape in form.null:
        # Read as an escape it would leave a text behind, and that text would be a value.
        what = f"NULL is written {shown(form.null)}, with the escape character {shown(form.escape)} in it"
    elif any(one in form.null for one in (form.quote, form.delimiter, "\n", "\r") if one):
        # The parser takes quotes off, and what is left would be a text.
        what = f"NULL is written {shown(form.null)}, with a quote, a delimiter or a line end in it"
    else:
        return form
    way_out = "set single characters, line ends and a NULL of its own at the file target"
    raise Refusal("FORMAT_UNSUPPORTED", f"{what}: {way_out}")


def _read_json(path: Place, dfm: Dfm) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([pa.field(name, pa.string()) for name in dfm.names])
    names, wanted = dfm.names, set(dfm.names)
    truths = {column.name for column in dfm.columns if column.type == _BOOLEAN}
    exact = {column.name for column in dfm.columns if is_longer_than_a_double(column.type, column.precision)}
    with _opened(path) as file:
        lines = (line for line in file if line.strip())
        while block := list(islice(lines, _ROWS_AT_ONCE)):
            records = [_record(line, wanted, truths, exact) for line in block]
            arrays = [pa.array([record.get(name) for record in records], pa.string()) for name in names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _record(line: bytes, names: set[str], truths: set[str], exact: set[str]) -> dict[str, str | None]:
    """One record, its numbers as they are written. A column that is missing would be a silent NULL: refused.

    So is a number of an *exact* column that may have lost digits on its way (G-112).
    """
    try:
        record = json.loads(
            line, parse_int=str, parse_float=JsonNumber, parse_constant=str, object_pairs_hook=members_once
        )
    except (ValueError, RecursionError) as error:
        raise Refusal("FILE_DAMAGED", f"{shown(line)} is no JSON record: {error}") from error
    if not isinstance(record, dict):
        raise Refusal("FILE_DAMAGED", f"{shown(line)} is no JSON record")
    if record.keys() != names:
        what = f"the metadata file and a record do not both name {sorted(record.keys() ^ names)}"
        raise Refusal("DFM_CONTRADICTS", what)
    for name, value in record.items():
        if isinstance(value, bool):
            record[name] = _TRUTHS[name in truths][value]
        elif value is not None and not isinstance(value, str):
            raise Refusal("FILE_DAMAGED", f"the value of {shown(name)} is no plain value: {shown(value)}")
        elif name in exact and may_be_rounded(value):
            raise Refusal("DFM_CONTRADICTS", rounded(shown(name), value))
    return record


def _read_parquet(path: Place, dfm: Dfm, headers: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
    if path.name.lower().endswith(".gz"):
        raise Refusal("FORMAT_UNSUPPORTED", "a Parquet file inside gzip cannot be read in blocks: switch gzip off")
    with open_source(path) as opened, pq.ParquetFile(path if isinstance(path, Path) else opened) as file:
        names = list(file.schema_arrow.names)
        if names != dfm.names:
            raise Refusal("DFM_CONTRADICTS", f"the metadata file names the columns {dfm.names}, the file {names}")
        for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
            columns = zip(dfm.columns, batch.columns, strict=True)
            texts = [texts_of(values if told.name in headers else _decoded(told, values)) for told, values in columns]
            yield pa.RecordBatch.from_arrays(texts, names=names)


def _decoded(described: DfmColumn, values: pa.Array) -> pa.Array:
    """Bytes that the metadata file calls a text: some writers leave the annotation out. Others stay as they are.

    A truth that the metadata file does not call one becomes a word, of which no number can be made.

    Raises:
        pa.ArrowInvalid: bytes that are no UTF-8.
        Refusal: ``DFM_CONTRADICTS`` for values that may have lost what the described ones had: zeros before a text
            of digits, the spelling of a time, digits of a number that a float does not hold.
    """
    if isinstance(values.type, pa.DictionaryType):
        values = values.dictionary_decode()
    kind, name, types = values.type, described.type.upper(), pa.types
    is_float = types.is_floating(kind)
    is_cut = is_float and is_longer_than_a_double(name, described.precision)
    is_cut |= is_float and kind != pa.float64() and is_longer_than_a_float(name, described.precision)
    if types.is_timestamp(kind) and (kind.tz or "UTC").upper() not in _UTC:
        what = f"the clock of {shown(described.name)} is told in the zone {shown(kind.tz)}, and its own is not known"
        raise Refusal("DFM_CONTRADICTS", what)
    is_text = types.is_string(kind) or types.is_large_string(kind) or is_binary(kind) or types.is_null(kind)
    if is_cut or (name in (TEXTS | BINARIES) and not is_text):
        what = f"the metadata file calls {shown(described.name)} {described.type}, the file holds it as {kind}"
        raise Refusal("DFM_CONTRADICTS", what)
    if is_float and name in WHOLE_NUMBERS:
        return _whole(described, values)
    if types.is_decimal(kind) and name in WHOLE_NUMBERS:
        return pc.replace_substring_regex(texts_of(values), r"\.0*$", "")
    if types.is_boolean(kind) and name != _BOOLEAN:
        return pc.if_else(values, "true", "false")
    if name not in TEXTS or not is_binary(kind):
        return values
    return pc.cast(pc.cast(values, pa.binary()), pa.string())


def _whole(described: DfmColumn, values: pa.Array) -> pa.Array:
    """Whole numbers that a file holds as floats, as whole numbers.

    Raises:
        pa.ArrowInvalid: one is none.
        Refusal: ``DFM_CONTRADICTS`` for one beyond those of which a float holds each.
    """
    beyond = 2**53 if values.type == pa.float64() else 2**24
    if pc.any(pc.greater_equal(pc.abs(values), beyond)).as_py():
        what = f"the metadata file calls {shown(described.name)} {described.type}, the file holds it as {values.type}"
        raise Refusal("DFM_CONTRADICTS", what)
    return pc.cast(values, pa.int64())


def line_ends(values: np.ndarray[Any, Any], quotes: np.ndarray[Any, Any], *, inside: bool, previous: int) -> set[bool]:
    """How lines end in a block of bytes, quoted texts apart: with a carriage return before the line feed, or without.

    Args:
        values: the bytes.
        quotes: the places of quotes among them.
        inside: whether the block begins within quotes.
        previous: the byte before it.
    """
    ends = np.flatnonzero(values == _LINE_ENDS[0])
    ends = ends[(np.searchsorted(quotes, ends) + inside) % 2 == 0]
    returned = np.where(ends > 0, values[ends - 1], previous) == _LINE_ENDS[1]
    return {bool(one) for one in np.unique(returned)}


class QuoteProof(io.RawIOBase):
    """A file that is read through: bytes are handed on once they are proven; *quote* is empty where there is none.

    Its lines end in one way: in a file of two, a text without quotes may end with a carriage return, and a parser takes
    that for a part of the line's end (T-93).

    Reading raises :class:`~spark_jobs.sources.contract.decoded.Refusal` ``FILE_DAMAGED`` or ``FORMAT_UNSUPPORTED``.
    """

    def __init__(self, file: IO[bytes], quote: str, delimiter: str) -> None:
        self._file = file
        self._quotes, self._delimiter = quote.encode(), ord(delimiter)
        self._line_ends: set[bool] = set()
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
            body = data if self._ended or not self._quotes else data.rstrip(self._quotes)
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
        quotes = np.flatnonzero(values == self._quotes[0]) if self._quotes else np.zeros(0, np.int64)
        self._line_ends |= line_ends(values, quotes, inside=self._inside, previous=self._previous)
        if len(self._line_ends) > 1:
            what = "some lines end with a carriage return and others do not, so it may belong to a text without quotes"
            raise Refusal("FORMAT_UNSUPPORTED", f"{what}: set a quote character at the file target")
        # A doubled quote closes and opens again at once, so that every second quote opens.
        opens, closes = quotes[int(self._inside) :: 2], quotes[1 - int(self._inside) :: 2]
        before = np.where(opens > 0, values[opens - 1], self._previous)
        followed = closes[closes + 1 < len(values)]
        after = values[followed + 1]
        borders = (*self._quotes, self._delimiter, *_LINE_ENDS)
        for places, neighbours in ((opens, before), (followed, after)):
            wrong = np.flatnonzero(~np.isin(neighbours, borders))
            if len(wrong):
                where = self._at + int(places[wrong[0]])
                raise Refusal("FILE_DAMAGED", f"the quote at byte {where} stands inside a field and is not doubled")
        self._inside ^= bool(len(quotes) % 2)
        self._previous = int(values[-1]) if len(values) else self._previous
        self._at += len(data)
