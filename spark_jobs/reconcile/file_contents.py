"""Runs in a worker: reads published files completely and summarizes their content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq

from open_mirroring.errors import TerminalError, TransientError
from open_mirroring.landing_zone import layout
from open_mirroring.landing_zone.arrow_schema import file_schema
from open_mirroring.landing_zone.data_file import check_data_file, read_footer, rows_digest
from open_mirroring.landing_zone.delimited_text import bytes_digest
from open_mirroring.landing_zone.opening import ZoneAddress, open_store
from open_mirroring.landing_zone.schema import LandingColumn
from open_mirroring.landing_zone.store import LandingZoneStore
from open_mirroring.landing_zone.text_format import TextFormat
from open_mirroring.reconciliation.deep_check import FileContent

_LOOKS = 2


@dataclass(frozen=True)
class CheckedTable:
    """What a worker needs to know of a table.

    Each file must have the first columns of *columns*, in this order; an older file may lack the last columns.
    """

    table_id: str
    folder: str
    keys: tuple[str, ...]
    columns: tuple[LandingColumn, ...]
    text: TextFormat | None = None


class ListedFile(NamedTuple):
    """A file to read, listed at *path*; *loads*: the initial load wrote it, so it has no row markers (F-57)."""

    number: int
    path: str
    size: int
    loads: bool


CheckTask = Sequence[tuple[CheckedTable, ListedFile]]
"""Some files, each with its table."""


def read_contents(zone: ZoneAddress, task: CheckTask) -> list[tuple[str, FileContent]]:
    """Read every file of the task; returns pairs of table id and content, which includes errors of reading."""
    store = open_store(zone)
    return [(table.table_id, _content(store, table, listed)) for table, listed in task]


def _content(store: LandingZoneStore, table: CheckedTable, listed: ListedFile) -> FileContent:
    nothing = FileContent(listed.number, listed.path)
    name = layout.file_name(listed.number, layout.PARQUET if table.text is None else table.text.extension)
    # Where the file was listed, then the folders to which the service may have moved it since (F-36).
    moved = [path for folder in layout.PROCESSED_FOLDERS for path in layout.processed_paths(table.folder, folder, name)]
    try:
        for path in _LOOKS * [listed.path, *moved]:
            info = store.stat(path)
            with store.fetch(path) as local:
                if info is not None and local is not None:
                    found = _judged(table, listed, local, FileContent(listed.number, path, info.size))
                    if found is not None:
                        return found
    except TransientError as error:
        return nothing._replace(unread=str(error))
    except TerminalError as error:
        # Without the permission to look nothing is proved; anything else in the file's place is not the file.
        text = str(error)
        return nothing._replace(unread=text) if error.code == "ACCESS_DENIED" else nothing._replace(unreadable=text)
    return nothing._replace(moved=True)


def _judged(table: CheckedTable, listed: ListedFile, local: Path, content: FileContent) -> FileContent | None:
    if table.text is not None:
        return content._replace(digest=bytes_digest(local))
    try:
        footer, digest = read_footer(local), rows_digest(local)
        metadata = pq.read_metadata(local)
        is_marked = layout.ROW_MARKER in metadata.schema.names
        columns = len(metadata.schema.names) - is_marked
        content = content._replace(footer=footer, digest=digest, rows=metadata.num_rows, columns=columns)
    except FileNotFoundError:
        return None
    except TransientError as error:
        if error.code == "CHANGED_MEANWHILE":
            return None
        raise
    except TerminalError as error:
        return content._replace(unreadable=error.what)
    # Without a key a file with the marker 0 and one without markers say the same (F-57).
    needs_marker = not listed.loads and (is_marked or bool(table.keys))
    expected = file_schema(table.columns[: content.columns], table.keys, marker=needs_marker)
    try:
        check_data_file(local, expected, table.keys)
    except TransientError as error:
        if error.code != "CHANGED_MEANWHILE":
            raise
        # Moved since its content was read, which proves it to be the published one or not.
    except TerminalError as error:
        return content._replace(unfit=error.what)
    return content
