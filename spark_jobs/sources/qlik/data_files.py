"""Reads data files of Qlik's file targets as exact strings, by their metadata files: CSV, JSON lines, Parquet.

Files are read in blocks, so memory does not grow with a file's size. A file must have the number of rows that its
metadata file announces.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from open_mirroring.errors import TransientError
from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.contract.encodings import as_utf8, is_utf8, why_not
from spark_jobs.sources.contract.json_numbers import JsonNumber, may_be_rounded, rounded
from spark_jobs.sources.qlik.delimited import BLOCK, read_delimited
from spark_jobs.sources.qlik.dfm import CsvForm, Dfm, DfmColumn, metadata_file, read_dfm
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

_ROWS_AT_ONCE = 20_000
_BOOLEAN = "BOOLEAN"
_TRUTHS = (("false", "true"), ("0", "1"))
"""The texts of false and true: first for other columns than Booleans, so that they never become numbers; then for
Booleans."""
_DAMAGE = (pa.ArrowException, UnicodeError, EOFError, OSError, zlib.error)
_UTC = ("UTC", "ETC/UTC", "Z", "+00:00")


def read_texts(
    path: Place, dfm: Dfm, headers: Collection[str] = (), encoding: str = "utf-8"
) -> Iterator[pa.RecordBatch]:
    """The rows of a data file: every column of the metadata file *dfm*, in its order, as a string or NULL.

    In the columns *headers* an empty string equals NULL, and bytes are not decoded. If the file's content is damaged,
    raises a Refusal after the rows before the damage.
    """
    rows = 0
    try:
        reader = _reader(path.name)
        nulls = _Nulls(path, dfm, headers, encoding)
        bounded = {c.name: RANGES[c.type.upper()] for c in dfm.columns if c.type.upper() in RANGES}
        for batch in reader(path, dfm, encoding) if reader else _read_parquet(path, dfm, headers):
            nulls.refuse_ambiguous(batch)
            _refuse_out_of_range(batch, bounded)
            rows += batch.num_rows
            yield batch
    except UnicodeDecodeError as error:
        what = f"after {rows} rows: {why_not(error)}"
        next_step = "set `encoding` under `source` in the mirror file, or UTF-8 at the file target"
        raise Refusal("FORMAT_UNSUPPORTED", f"{what}: {next_step}") from error
    except _DAMAGE as error:
        # Damaged content raises an OSError without errno; errors of the system have one.
        if isinstance(error, OSError) and error.errno is not None:
            raise TransientError(
                "UNREACHABLE",
                f"the file cannot be read: {error.strerror}",
                where=str(path),
                next_step="check its disk or mount; the next run reads the same range again",
            ) from error
        raise Refusal("FILE_DAMAGED", f"after {rows} rows: {error}") from error
    if rows != dfm.records:
        what = f"the metadata file announces {dfm.records} rows, the file has {rows}"
        if abs(rows - dfm.records) == 1 and _is_csv(path.name):
            what += ". Is its first line a header line? Compare it with *Add metadata header* of the file target"
        raise Refusal("FILE_DAMAGED", what)
    if dfm.errors:
        raise Refusal("ROWS_MISSING", f"the task says that it could not write {dfm.errors} records of this file")


def _refuse_out_of_range(batch: pa.RecordBatch, bounded: Mapping[str, tuple[int, int]]) -> None:
    """Refuse an integer outside the described type, though the log's type holds it."""
    for name, (low, high) in bounded.items():
        texts = batch.column(name)
        is_short = pc.match_substring_regex(texts, r"^[+-]?[0-9]{1,18}$").fill_null(True)
        limits = pc.min_max(pc.cast(texts.filter(is_short), pa.int64()))
        rest: list[str | None] = texts.filter(pc.invert(is_short)).to_pylist()
        for value in (*(None if one is None else str(one) for one in limits.as_py().values()), *rest):
            if is_out_of_range(value, low, high):
                what = f"the metadata file says that {shown(name)} is from {low} to {high}, the file has {shown(value)}"
                raise Refusal("FILE_DAMAGED", what)


class _Nulls:
    """Refuses a NULL that may be an empty text: without quotes and without a NULL text, both look equal."""

    def __init__(self, path: Place, dfm: Dfm, headers: Collection[str], encoding: str) -> None:
        self._path, self._encoding, self._quote = path, encoding, dfm.csv.quote.encode()
        null_is_clear = not _is_csv(path.name) or bool(dfm.csv.null)
        texts = (c.name for c in dfm.columns if c.type in TEXTS and c.name not in headers)
        self._columns = () if null_is_clear else tuple(texts)
        self._null, self._has_text = "", not self._quote

    def refuse_ambiguous(self, batch: pa.RecordBatch) -> None:
        for name in self._columns:
            nulls = batch.column(name).null_count
            self._null = self._null or (name if nulls else "")
            self._has_text = self._has_text or nulls < batch.num_rows
        if not self._null or not self._has_text:
            return
        if self._quote:
            with _opened(self._path, self._encoding) as file:
                if any(self._quote in block for block in iter(lambda: file.read(BLOCK), b"")):
                    self._columns = ()  # texts may be quoted: then an empty field is NULL
                    return
        what = f"an empty field of {shown(self._null)} may be NULL or an empty text: the file has no quotes"
        raise Refusal("FORMAT_UNSUPPORTED", what)


def is_said_empty(path: Place) -> bool:
    """Whether an empty text file is complete, because its metadata file announces no rows (T-92)."""
    if not path.name.lower().endswith((".csv", ".json")):
        return False
    try:
        return read_dfm(metadata_file(path).read_bytes()).records == 0
    except (Refusal, OSError):
        return False


def has_binary(path: Place, column: str) -> bool:
    """Whether a data file stores a column as bytes instead of text, which only Parquet can."""
    if not path.name.lower().endswith(".parquet"):
        return False
    try:
        with open_source(path) as file:
            schema = pq.read_schema(path if isinstance(path, Path) else file)
    except (pa.ArrowException, OSError):
        return False  # reading its rows will report the mistake
    at = schema.get_field_index(column)
    return at >= 0 and is_binary(schema.field(at).type)


def _is_csv(name: str) -> bool:
    return _reader(name) is _read_csv


def _reader(name: str) -> Callable[[Place, Dfm, str], Iterator[pa.RecordBatch]] | None:
    bare = name.lower().removesuffix(".gz")
    return {".csv": _read_csv, ".json": _read_json}.get(bare[bare.rfind(".") :])


def _opened(path: Place, encoding: str) -> IO[bytes]:
    is_other = False
    if not codecs.lookup(encoding).name.startswith("utf"):
        with _unpacked(path) as file:
            is_other = is_utf8(file)
    if is_other:
        what = f"the file is UTF-8, and the mirror file says `encoding: {encoding}`"
        raise Refusal("FORMAT_UNSUPPORTED", f"{what}: leave `encoding` out, or set this code page at the file target")
    return as_utf8(_unpacked(path), encoding)


def _unpacked(path: Place) -> IO[bytes]:
    file = open_source(path)
    return gzip.GzipFile(fileobj=file) if path.name.lower().endswith(".gz") else file  # type: ignore[return-value]


def _read_csv(path: Place, dfm: Dfm, encoding: str) -> Iterator[pa.RecordBatch]:
    with _opened(path, encoding) as file:
        yield from read_delimited(file, _supported(dfm.csv), dfm.columns)


def _supported(form: CsvForm) -> CsvForm:
    single = (form.quote, form.escape)
    if not form.record_end or not form.delimiter or form.delimiter == form.record_end:
        what = f"records end with {shown(form.record_end)}, fields with {shown(form.delimiter)}"
    elif any(len(one) > 1 or not one.isascii() for one in single):
        what = f"quote {shown(form.quote)} or escape {shown(form.escape)} is no single ASCII character"
    elif any(one and (one in form.delimiter or one in form.record_end) for one in single):
        what = f"quote {shown(form.quote)} or escape {shown(form.escape)} is part of a delimiter"
    elif form.escape not in ("", form.quote) and form.escape in form.null:
        # Read as an escape, it would leave a text that counts as a value.
        what = f"NULL is written {shown(form.null)}, with the escape character {shown(form.escape)} in it"
    elif any(one in form.null for one in (form.quote, form.delimiter, form.record_end, "\n", "\r") if one):
        # Without its quotes, the rest would be a text.
        what = f"NULL is written {shown(form.null)}, with a quote, a delimiter or a line end in it"
    else:
        return form
    next_step = "set other delimiters, a single quote character and a NULL of its own at the file target"
    raise Refusal("FORMAT_UNSUPPORTED", f"{what}: {next_step}")


def _read_json(path: Place, dfm: Dfm, encoding: str) -> Iterator[pa.RecordBatch]:
    schema = pa.schema([pa.field(name, pa.string()) for name in dfm.names])
    names, wanted = dfm.names, set(dfm.names)
    truths = {column.name for column in dfm.columns if column.type == _BOOLEAN}
    exact = {column.name for column in dfm.columns if is_longer_than_a_double(column.type, column.precision)}
    with _opened(path, encoding) as file:
        lines = (line for line in file if line.strip())
        while block := list(islice(lines, _ROWS_AT_ONCE)):
            records = [_record(line, wanted, truths, exact) for line in block]
            arrays = [pa.array([record.get(name) for record in records], pa.string()) for name in names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _record(line: bytes, names: set[str], truths: set[str], exact: set[str]) -> dict[str, str | None]:
    """One record, its numbers as written; a missing member is NULL.

    An unknown member is refused: the column it replaces would be silently NULL. So is a number of an *exact* column
    that may have lost digits in transit (G-112).
    """
    text = line.decode()
    try:
        record = json.loads(text, parse_int=str, parse_float=JsonNumber, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise Refusal("FILE_DAMAGED", f"{shown(line)} is no JSON record: {error}") from error
    if not isinstance(record, dict):
        raise Refusal("FILE_DAMAGED", f"{shown(line)} is no JSON record")
    if not record or not record.keys() <= names:
        what = (
            f"the metadata file does not name {sorted(record.keys() - names)}" if record else "a record has no member"
        )
        raise Refusal("FILE_DAMAGED", f"{what}: {shown(text)}")
    for name, value in record.items():
        if isinstance(value, bool):
            record[name] = _TRUTHS[name in truths][value]
        elif value is not None and not isinstance(value, str):
            raise Refusal("FILE_DAMAGED", f"the value of {shown(name)} is no plain value: {shown(value)}")
        elif name in exact and may_be_rounded(value):
            raise Refusal("FILE_DAMAGED", rounded(shown(name), value))
    return record


def _read_parquet(path: Place, dfm: Dfm, headers: Collection[str] = ()) -> Iterator[pa.RecordBatch]:
    if path.name.lower().endswith(".gz"):
        raise Refusal("FORMAT_UNSUPPORTED", "a Parquet file inside gzip cannot be read in blocks: switch gzip off")
    with open_source(path) as opened, pq.ParquetFile(path if isinstance(path, Path) else opened) as file:
        names = list(file.schema_arrow.names)
        if names != dfm.names:
            raise Refusal("FILE_DAMAGED", f"the metadata file names the columns {dfm.names}, the file {names}")
        for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
            columns = zip(dfm.columns, batch.columns, strict=True)
            texts = [
                texts_of(values if declared.name in headers else _decoded(declared, values))
                for declared, values in columns
            ]
            yield pa.RecordBatch.from_arrays(texts, names=names)


def _decoded(described: DfmColumn, values: pa.Array) -> pa.Array:
    """Decode bytes that are described as text, as some writers omit the annotation; other Booleans become words."""
    if isinstance(values.type, pa.DictionaryType):
        values = values.dictionary_decode()
    kind, name, types = values.type, described.type.upper(), pa.types
    is_float = types.is_floating(kind)
    is_cut = is_float and is_longer_than_a_double(name, described.precision)
    is_cut |= is_float and kind != pa.float64() and is_longer_than_a_float(name, described.precision)
    if types.is_timestamp(kind) and (kind.tz or "UTC").upper() not in _UTC:
        what = f"the clock of {shown(described.name)} is given in the zone {shown(kind.tz)}, and its own is not known"
        raise Refusal("FILE_DAMAGED", what)
    is_text = types.is_string(kind) or types.is_large_string(kind) or is_binary(kind) or types.is_null(kind)
    if is_cut or (name in (TEXTS | BINARIES) and not is_text):
        what = f"the metadata file calls {shown(described.name)} {described.type}, the file holds it as {kind}"
        raise Refusal("FILE_DAMAGED", what)
    if is_float and name in WHOLE_NUMBERS:
        return _as_integers(described, values)
    if types.is_decimal(kind) and name in WHOLE_NUMBERS:
        return pc.replace_substring_regex(texts_of(values), r"\.0*$", "")
    if types.is_boolean(kind) and name != _BOOLEAN:
        return pc.if_else(values, "true", "false")
    if name not in TEXTS or not is_binary(kind):
        return values
    return pc.cast(pc.cast(values, pa.binary()), pa.string())


def _as_integers(described: DfmColumn, values: pa.Array) -> pa.Array:
    beyond = 2**53 if values.type == pa.float64() else 2**24
    if pc.any(pc.greater_equal(pc.abs(values), beyond)).as_py():
        what = f"the metadata file calls {shown(described.name)} {described.type}, the file holds it as {values.type}"
        raise Refusal("FILE_DAMAGED", what)
    return pc.cast(values, pa.int64())
