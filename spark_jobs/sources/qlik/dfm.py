"""Reads metadata files (``.dfm``) of Qlik's file targets, which describe a data file (T-41).

Public source: Qlik help, *Metadata file description*.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import NamedTuple

import msgspec

from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.contract.encodings import encoding_of

SUFFIX = ".dfm"
DATA_SUFFIXES = tuple(f".{kind}{packed}" for kind in ("csv", "json", "parquet") for packed in ("", ".gz"))
"""The suffixes of data files."""
_COMPRESSIONS = (".snappy", ".gz", ".gzip", ".zstd", ".zst", ".lz4", ".brotli", ".lzo", ".uncompressed")
"""Parts before the suffix of a Parquet file in names of some tools: ``1.snappy.parquet``."""


_HEX = re.compile(r"0[xX](?:[0-9A-Fa-f]{2})+")
_ESCAPE = re.compile(r"\\(?:[tnr]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|[0-7]{3})")
_NAMED = {"\\t": "\t", "\\n": "\n", "\\r": "\r"}


class DfmColumn(msgspec.Struct, frozen=True):
    """A column as a Qlik metadata file describes it; *length* is in bytes; numbers that the file lacks are 0."""

    ordinal: int
    name: str
    type: str
    length: int = 0
    precision: int = 0
    scale: int = 0
    primaryKeyPos: int = 0


class _Options(msgspec.Struct, frozen=True):
    fieldDelimiter: str = ","
    recordDelimiter: str = "\n"
    nullValue: str = ""
    # The default is Qlik's own; if the file has no quotes after all, one in a text is detected.
    quoteChar: str = '"'
    escapeChar: str = ""


class _Format(msgspec.Struct, frozen=True):
    format: str
    options: _Options = _Options()


class _File(msgspec.Struct, frozen=True):
    name: str
    recordCount: int
    extension: str = ""
    errorCount: int | None = None


class _Data(msgspec.Struct, frozen=True):
    sourceTable: str
    columns: list[DfmColumn]
    sourceSchema: str = ""
    targetSchema: str = ""
    targetTable: str = ""


class _Task(msgspec.Struct, frozen=True):
    name: str | None = None


class _Document(msgspec.Struct, frozen=True):
    fileInfo: _File
    formatInfo: _Format
    dataInfo: _Data
    taskInfo: _Task | None = None


class CsvForm(NamedTuple):
    """The form of a delimited file; *quote* and *escape* are empty if the file uses none."""

    delimiter: str
    record_end: str
    null: str
    quote: str
    escape: str


class Dfm(NamedTuple):
    """The content of a metadata file.

    *target* is the table at the Qlik task's target, *errors* the number of records not written. *task* is the Qlik
    task that wrote the file. The Qlik server's name is ignored, because after a failover the same task runs on another
    server.
    """

    file: str
    records: int
    errors: int
    table: str
    target: str
    columns: tuple[DfmColumn, ...]
    csv: CsvForm
    task: str = ""

    @property
    def names(self) -> list[str]:
        """The names of the columns in physical order."""
        return [column.name for column in self.columns]

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key in order; empty if the metadata file contains no key."""
        return tuple(c.name for c in sorted(self.columns, key=lambda c: c.primaryKeyPos) if c.primaryKeyPos > 0)


_decode = msgspec.json.Decoder(_Document).decode


def read_dfm(content: bytes) -> Dfm:
    """Reads the content of a metadata file. Raises a Refusal if it is not a valid metadata file."""
    encoding, mark = encoding_of(content)
    try:
        document = _decode(content[mark:].decode(encoding))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise Refusal("FILE_DAMAGED", f"the metadata file cannot be read: {error}") from error
    file, data, options = document.fileInfo, document.dataInfo, document.formatInfo.options
    columns = sorted(data.columns, key=lambda column: column.ordinal)
    if [column.ordinal for column in columns] != list(range(1, len(columns) + 1)):
        raise Refusal("FILE_DAMAGED", "the ordinals of its columns are not 1, 2, 3 and so on")
    names = [column.name for column in columns]
    if not names or len(set(names)) != len(names):
        raise Refusal("FILE_DAMAGED", "the metadata file names no column, or one of them twice")
    if file.recordCount < 0:
        raise Refusal("FILE_DAMAGED", f"recordCount is {file.recordCount}")
    return Dfm(
        file=file.name,
        records=file.recordCount,
        errors=file.errorCount or 0,
        table=_dotted(data.sourceSchema, data.sourceTable),
        target=_dotted(data.targetSchema, data.targetTable),
        columns=tuple(columns),
        csv=CsvForm(
            _characters(options.fieldDelimiter),
            _characters(options.recordDelimiter),
            _characters(options.nullValue, escapes=False),
            _characters(options.quoteChar, escapes=False),
            _characters(options.escapeChar, escapes=False),
        ),
        task=(document.taskInfo.name or "").strip() if document.taskInfo is not None else "",
    )


def _characters(spelled: str, *, escapes: bool = True) -> str:
    if _HEX.fullmatch(spelled):
        # Bytes that are not UTF-8 stay as spelled: no file has such a delimiter, so it is refused later.
        with suppress(UnicodeDecodeError):
            return bytes.fromhex(spelled[2:]).decode()
    return _ESCAPE.sub(_escaped, spelled) if escapes else spelled


def _escaped(found: re.Match[str]) -> str:
    text = found[0]
    return _NAMED.get(text) or chr(int(text[2:], 16) if text[1] in "xu" else int(text[1:], 8))


def check_file(dfm: Dfm, file: str) -> None:
    """Raises a Refusal if *dfm* does not describe the data file *file*; extensions vary, and are ignored."""
    if stem(dfm.file.rpartition("/")[2]) != stem(file):
        raise Refusal(
            "FILE_DAMAGED", f"the metadata file describes {shown(dfm.file)}, but the file next to it is {shown(file)}"
        )


def stem(file: str) -> str:
    """The name of a data file or metadata file without the suffixes of format and compression.

    Suffixes are found in upper and lower case.
    """
    bare = without_suffix(file)
    folded = bare.lower()
    return next((bare[: -len(end)] for end in _COMPRESSIONS if folded.endswith(end)), bare)


def without_suffix(file: str) -> str:
    """The name of a data file or metadata file without its suffix, such as ``.csv``, ``.csv.gz`` or ``.dfm``."""
    folded = file.lower()
    return next((file[: -len(end)] for end in (*DATA_SUFFIXES, SUFFIX) if folded.endswith(end)), file)


def metadata_file(path: Place) -> Place:
    """The metadata file of the data file *path*.

    Its name may contain the suffix of the compression or not, and its own suffix may be in any case.
    """
    own, other = (path.with_name(name + SUFFIX) for name in (without_suffix(path.name), stem(path.name)))
    if own.exists() or other.exists():
        return own if own.exists() else other
    beside: list[Place] = [*path.parent.glob("*")]
    alike = (one for one in sorted(beside, key=str) if one.name.lower().endswith(SUFFIX))
    return next((one for one in alike if stem(one.name) == stem(path.name)), own)


def _dotted(schema: str, table: str) -> str:
    return f"{schema}.{table}" if schema else table
