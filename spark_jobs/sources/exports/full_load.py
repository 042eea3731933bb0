"""The full load of a Qlik file target as an export: ``<table>/LOAD*.csv|json|parquet[.gz]``, each with its ``.dfm``.

Values are read as exact texts and typed as the changes of the same column will be, by the types that the metadata file
tells (T-40, T-41).

Public source: Qlik help, *File target: data files, metadata files*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import pyarrow as pa

from open_mirroring.errors import TerminalError
from open_mirroring.storage.object_path import ObjectPath, Place
from spark_jobs.sources.contract.decoded import Refusal
from spark_jobs.sources.qlik.data_files import read_texts
from spark_jobs.sources.qlik.dfm import DATA_SUFFIXES, SUFFIX, Dfm, check_file, read_dfm, stem
from spark_jobs.sources.qlik.types import log_type
from spark_jobs.sources.transports.source_files import list_source_files

_BEGINNING = "LOAD"


def load_files(root: Place) -> list[str]:
    """The data files of a full load in order, relative to *root*; each has its metadata file beside it.

    Raises:
        TerminalError: ``EXPORT_MISSING`` when there is none; ``EXPORT_FOREIGN_FILE`` for a data file that is no part of
            a full load; ``EXPORT_INCOMPLETE`` when a metadata file, or what one describes, is missing or empty.
    """
    there = isinstance(root, ObjectPath) or root.is_dir()
    listed = list_source_files(root, (*DATA_SUFFIXES, SUFFIX), was_read=True) if there else None
    if listed is None or not (listed.files or listed.waiting or listed.unknown):
        raise _error(root, "EXPORT_MISSING", "there is no full load here", "let the task write it, or mend `path`")
    names = [file.name for file in listed.files]
    data = [name for name in names if not name.endswith(SUFFIX)]
    foreign = [name for name in names if not PurePosixPath(name).name.upper().startswith(_BEGINNING)]
    foreign += [file.name for file in listed.unknown]
    if foreign:
        what = f"the file {foreign[0]!r} is none of a full load: their names begin with {_BEGINNING}, and end as data"
        raise _error(root, "EXPORT_FOREIGN_FILE", what, "name the folder of one table, not that of its changes")
    described = {name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)}
    if listed.waiting or described != {stem(name) for name in data}:
        odd = [*listed.waiting, *sorted(described ^ {stem(name) for name in data})]
        what = f"{odd[0]!r} is empty, or has no file beside it that describes it or that it describes"
        raise _error(root, "EXPORT_INCOMPLETE", what, "wait until the full load is complete, or copy all of its files")
    return data


def load_columns(path: Place) -> list[str]:
    """The columns of a file, in its order.

    Raises:
        TerminalError: ``EXPORT_INVALID``, ``EXPORT_INCOMPLETE``.
    """
    return _dfm_of(path).names


def load_types(path: Place, wanted: Sequence[str] | None, given: Mapping[str, str]) -> dict[str, str]:
    """The types of the wanted columns (None: of all) in the log's vocabulary; *given* ones go before the file's own.

    Raises:
        TerminalError: ``TYPE_UNKNOWN`` naming a column; ``EXPORT_INVALID``, ``EXPORT_INCOMPLETE``.
    """
    found = {}
    for column in _dfm_of(path).columns:
        if wanted is not None and column.name not in wanted:
            continue
        try:
            told = given.get(column.name)
            found[column.name] = told or log_type(column.type, column.length, column.precision, column.scale)
        except TerminalError as error:
            raise TerminalError(
                error.code, f"column {column.name!r}: {error.what}", where=str(path), way_out=error.way_out
            ) from error
    return found


def read_load(path: Place, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file with these columns, every value a string or NULL.

    Raises:
        TerminalError: ``EXPORT_INVALID`` when it is damaged or not what its metadata file says; ``EXPORT_INCOMPLETE``.
    """
    try:
        for batch in read_texts(path, _dfm_of(path)):
            yield batch.select(list(columns))
    except Refusal as refusal:
        raise _invalid(path, refusal) from refusal


def _dfm_of(path: Place) -> Dfm:
    described = path.with_name(stem(path.name) + SUFFIX)
    try:
        dfm = read_dfm(described.read_bytes())
        check_file(dfm, path.name)
    except FileNotFoundError:
        what, way_out = f"the metadata file {described.name!r} is missing", "put it back beside its data file"
        raise _error(path.parent, "EXPORT_INCOMPLETE", what, way_out) from None
    except Refusal as refusal:
        raise _invalid(path, refusal) from refusal
    return dfm


def _invalid(path: Place, refusal: Refusal) -> TerminalError:
    what = f"the file is not as a full load is: {refusal.code}: {refusal.reason}"
    return TerminalError("EXPORT_INVALID", what, where=str(path), way_out="load the table anew with the Qlik task")


def _error(root: Place, code: str, what: str, way_out: str) -> TerminalError:
    return TerminalError(code, what, where=str(root), way_out=way_out)
