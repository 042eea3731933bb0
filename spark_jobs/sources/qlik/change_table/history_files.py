"""Reads the history of DDL that a task stores in a folder of its file target (T-98).

Unreadable files are reported and stop nothing; no statement of an incomplete history counts.

Public source: Qlik help, *DDL history*, *File target*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from open_mirroring.changes.told_statements import Told
from open_mirroring.errors import MirroringError
from open_mirroring.protocols.table_losses import ANY_TABLE, CONTROL_TABLE_UNREAD
from open_mirroring.storage.object_path import Place
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.qlik.change_table.ddl_history import statements_of
from spark_jobs.sources.qlik.data_files import read_texts
from spark_jobs.sources.qlik.dfm import DATA_SUFFIXES, SUFFIX, check_file, read_dfm, stem
from spark_jobs.sources.transports.source_files import list_source_files

_COLUMNS = ("task_name", "table_owner", "table_name", "change_seq", "timestamp", "ddl_type", "details")


def read_history_files(folder: Place, tables: Mapping[tuple[str, str], str], encoding: str) -> Told:
    """The statements of the history on mirrored tables; a data file without its ``.dfm`` is read later."""
    try:
        lines = list(_lines(folder, encoding))
    except (MirroringError, Refusal, OSError, pa.ArrowException) as error:
        what = f"the history of DDL in the folder {shown(folder.name)} cannot be read: {shown(str(error))}"
        return Told({(ANY_TABLE, CONTROL_TABLE_UNREAD): f"{what}; its statements on tables are unknown"})
    tasks: dict[str, set[str]] = {}
    rows: list[tuple[str, Any, Any, Any, Any]] = []
    for task, owner, name, *rest in lines:
        table = tables.get((str(owner or "").casefold(), str(name or "").casefold()))
        if table is not None:
            tasks.setdefault(table, set()).add(str(task or "").casefold())
            rows.append((table, *rest))
    return Told(statements=statements_of(row for row in rows if len(tasks[row[0]]) == 1), by=folder.name)


def _lines(folder: Place, encoding: str) -> Iterator[tuple[Any, ...]]:
    listed = list_source_files(folder, (*DATA_SUFFIXES, SUFFIX), was_read=True)
    if listed.unread:
        raise Refusal("FILE_UNKNOWN", f"not all of it is read: {', '.join(listed.unread[:3])}")
    found = [file.name for file in listed.files]
    described = {stem(name): name for name in found if name.lower().endswith(SUFFIX)}
    for name in sorted(name for name in found if stem(name) in described and not name.lower().endswith(SUFFIX)):
        dfm = read_dfm((folder / described[stem(name)]).read_bytes())
        check_file(dfm, name.rpartition("/")[2])
        places = {column.lower(): at for at, column in enumerate(dfm.names)}
        if lacking := [column for column in _COLUMNS if column not in places]:
            raise Refusal("FILE_DAMAGED", f"it has no columns {lacking}")
        for batch in read_texts(folder / name, dfm, encoding=encoding):
            yield from zip(*(batch.column(places[column]).to_pylist() for column in _COLUMNS), strict=True)
