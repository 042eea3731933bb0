"""What can be told of a mirror's tables at their source before anything is read: for ``check``, without a JVM.

A mirrored table that has no place at the source is most often a name spelled wrong, and stays empty without a word. A
change table without masks and before images hides changes of keys (T-60). Both are warnings: what is not there yet may
come, and a key may never change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from open_mirroring.config import Mirror
from open_mirroring.config.connections import Connection, resolve
from open_mirroring.config.problems import Problem, SettingPath, path_text
from open_mirroring.errors import MirroringError
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.contract.table_names import TableNames
from spark_jobs.sources.jdbc.dialects import dialect_of
from spark_jobs.sources.jdbc.postgres_client import ask
from spark_jobs.sources.message_transports import ChangeFilesPlace
from spark_jobs.sources.opening import place_of_mirror
from spark_jobs.sources.qlik.change_table.files import change_folder, table_of_folder
from spark_jobs.sources.qlik.change_table.jdbc import ChangeTablePlace, closed_partitions
from spark_jobs.sources.qlik.change_table.rows import MASK
from spark_jobs.sources.qlik.dfm import SUFFIX, read_dfm
from spark_jobs.sources.transports.source_files import list_source_files

NEVER_SEEN, KEY_CHANGES_UNTOLD = "NEVER_SEEN", "KEY_CHANGES_UNTOLD"


class Survey(NamedTuple):
    """What was found.

    Args:
        unseen: mirrored tables without a place at the source, each with what is missing.
        untold: mirrored tables whose change table has no change mask.
    """

    unseen: Mapping[str, str]
    untold: Collection[str]


class FoundTable(NamedTuple):
    """A change table that is there: the source tables that its name and its description speak of, and its columns."""

    names: tuple[str, ...]
    columns: tuple[str, ...]


def survey_files(found: Iterable[FoundTable], mirrored: Collection[str], suffix: str, prefix: str) -> Survey:
    """Which mirrored tables the folders of a file target have; *found* are its change tables with a metadata file."""
    tables = list(found)
    there = {name: table for table in tables for name in table.names}
    names = TableNames(there)
    unseen = {}
    for one in mirrored:
        if one not in there:
            other = names.meant_by(one)
            alike = f"; there is {shown(other)}" if other is not None else ""
            unseen[one] = f"no folder {one + suffix!r} has a file with its metadata file{alike}"
    mask = (prefix + MASK).lower()
    untold = [one for one in mirrored if one in there and mask not in {c.lower() for c in there[one].columns}]
    return Survey(unseen, untold)


def survey_database(
    place: ChangeTablePlace,
    columns: Mapping[tuple[str, str], Collection[str]],
    listed: Collection[tuple[str, str, str]] | None,
) -> Survey:
    """Which mirrored tables a database has.

    Args:
        place: the source.
        columns: the columns of the change tables that are there, by schema and table.
        listed: owner, table and partition of the closed partitions; None without partitioning.
    """
    closed = None if listed is None else closed_partitions(place, listed)[0]
    unseen, untold = {}, []
    mask = (place.prefix + MASK).lower()
    for source in place.tables:
        name = place.change_table(source)
        if name not in columns:
            unseen[source] = f"the login sees no change table {name.table!r} in the schema {name.schema!r}"
            continue
        if closed is not None and source not in closed:
            unseen[source] = f"the control table lists no closed partition of {'.'.join(name)!r}"
        if mask not in {column.lower() for column in columns[name]}:
            untold.append(source)
    return Survey(unseen, untold)


def survey_topics(topics: Collection[str] | None, named: Mapping[str, str]) -> Survey:
    """Which mirrored tables can come: *named* are those that have a topic of their own, which must be read."""
    missing = {} if topics is None else {table: topic for table, topic in named.items() if topic not in topics}
    return Survey({table: f"its topic {topic!r} is none of `source.topics`" for table, topic in missing.items()}, ())


def warnings(mirror: Mirror) -> list[Problem]:
    """What is worth a look before a run, and stops none: ``NEVER_SEEN``, ``KEY_CHANGES_UNTOLD``.

    Databases that are read by Spark alone are not asked, nor is one that does not answer.
    """
    try:
        survey = _survey(mirror)
    except MirroringError:
        return []  # what is wrong with the source itself is said by others
    found: list[Problem] = []
    for index, table in enumerate(mirror.tables):
        name = ".".join(table.source_name)
        if name in survey.unseen:
            way_out = "mend `source` or `change_table` if the source spells them otherwise; else it will come"
            found.append(_warning(mirror, ("tables", index, "source"), NEVER_SEEN, survey.unseen[name], way_out))
        if name in survey.untold and table.key and not (table.keys_never_change or mirror.source.before_images):
            what = "its change table has no change mask: an update without before image stops it (T-60)"
            way_out = "have the task store before images and say `before_images: true`, or select change_mask; or "
            way_out += "say `keys_never_change: true`"
            found.append(_warning(mirror, ("tables", index, "key"), KEY_CHANGES_UNTOLD, what, way_out))
    return found


def key_changes(mirror: Mirror) -> str:
    """How changes of keys are told, for people; empty where the format always tells them."""
    match mirror.source.format:
        case "qlik-change-table" if mirror.source.before_images:
            return "told by before images; an update waits for its own (T-19)"
        case "qlik-change-table":
            return "told by change masks or before images; an update with neither stops its table (T-60)"
        case "qlik-message":
            return "told by changeMask or beforeData; an update with neither stops its table (K-60)"
        case _:
            return ""


def _warning(mirror: Mirror, path: SettingPath, code: str, what: str, way_out: str) -> Problem:
    return Problem(code, mirror.file, mirror.line_of(path), path_text(path), what, way_out)


def _survey(mirror: Mirror) -> Survey:
    if mirror.source.format == "qlik-message":
        named = {".".join(table.source_name): table.topic for table in mirror.tables if table.topic is not None}
        return survey_topics(mirror.source.topics, named)
    if mirror.source.format != "qlik-change-table":
        return Survey({}, ())
    place = place_of_mirror(mirror)
    if isinstance(place, ChangeFilesPlace):
        found = list(_tables_in_files(place.path, place.suffix))
        return survey_files(found, place.tables, place.suffix, place.prefix)
    if isinstance(place, ChangeTablePlace):
        connection = resolve(place.connection)
        if dialect_of(connection).copies:
            return _ask_database(connection, place)
    return Survey({}, ())


def _tables_in_files(root: Path, suffix: str) -> Iterator[FoundTable]:
    """Each folder of a change table with what its last metadata file says."""
    last: dict[str, str] = {}
    for file in list_source_files(root, (SUFFIX,)).files:
        folder = change_folder(root, file.name, suffix)
        if folder is not None:
            last[folder] = file.name
    for name in last.values():
        folder_table = table_of_folder(root, name, suffix)
        try:
            dfm = read_dfm((root / name).read_bytes())
        except (Refusal, OSError):
            yield FoundTable((folder_table,), ())
        else:
            yield FoundTable((dfm.table if "." in dfm.table else folder_table,), tuple(dfm.names))


def _ask_database(connection: Connection, place: ChangeTablePlace) -> Survey:
    columns: dict[tuple[str, str], list[str]] = {}
    for source in place.tables:
        name = place.change_table(source)
        lines = ask(connection, dialect_of(connection).columns_query(*name))
        if lines is None:
            return Survey({}, ())
        if lines:
            columns[name] = [str(line["name"]) for line in lines]
    listed = None
    if place.control is not None:
        quote = dialect_of(connection).quote
        table = f"{quote(place.control.schema)}.{quote(place.control.table)}"
        lines = ask(connection, f"SELECT DISTINCT table_owner AS owner, table_name AS name FROM {table}")
        listed = None if lines is None else [(str(one["owner"]), str(one["name"]), "") for one in lines]
    return survey_database(place, columns, listed)
