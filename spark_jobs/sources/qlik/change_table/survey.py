"""Checks which change tables a source has before reading: a misspelled name would silently stay empty (T-62)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from open_mirroring.config.names import SourceName
from spark_jobs.sources.contract.decoded import shown
from spark_jobs.sources.contract.source import Survey, unread_text
from spark_jobs.sources.contract.table_names import TableNames
from spark_jobs.sources.qlik.change_table.rows import MASK


class ExistingTable(NamedTuple):
    """An existing change table: the source tables in its name and in its metadata, and its columns."""

    names: tuple[str, ...]
    columns: tuple[str, ...]


def survey_files(
    found: Iterable[ExistingTable], mirrored: Collection[str], suffix: str, prefix: str, unread: Sequence[str] = ()
) -> Survey:
    """Which mirrored tables have a folder in a file target; *found* are its change tables with a metadata file.

    If there is none for a table, one of the *unread* files may be it.
    """
    tables = list(found)
    there = {name: table for table in tables for name in table.names}
    names = TableNames(there)
    unseen = {}
    for one in mirrored:
        if one not in there:
            other = names.meant_by(one)
            alike = f"; there is {shown(other)}" if other is not None else ""
            unseen[one] = f"no folder {one + suffix!r} has a file with its metadata file{alike}"
            unseen[one] += f"; {unread_text(unread)}" if unread else ""
    mask = (prefix + MASK).lower()
    without_mask = [one for one in mirrored if one in there and mask not in {c.lower() for c in there[one].columns}]
    return Survey(unseen, without_mask)


def survey_database(
    tables: Mapping[str, SourceName],
    columns: Mapping[tuple[str, str], Collection[str]],
    closed: Collection[str] | None,
    prefix: str,
) -> Survey:
    """Which mirrored tables a database has.

    *closed* are the mirrored tables with a closed partition; None without partitioning.
    """
    unseen, without_mask = {}, []
    mask = (prefix + MASK).lower()
    for source, name in tables.items():
        if name not in columns:
            unseen[source] = f"the login sees no change table {name.table!r} in the schema {name.schema!r}"
            continue
        if closed is not None and source not in closed:
            unseen[source] = f"the control table lists no closed partition of {'.'.join(name)!r}"
        if mask not in {column.lower() for column in columns[name]}:
            without_mask.append(source)
    return Survey(unseen, without_mask)
