"""Decides whether a table that a source announces joins a mirror by a pattern such as ``dbo.*`` (G-70 to G-72)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import SourceName
from open_mirroring.config.source import ChangeEvents
from open_mirroring.config.tables import TablePattern, table_collisions
from open_mirroring.errors import TerminalError
from open_mirroring.operate.target_limits import MOST_TABLES
from open_mirroring.reconciliation.joined_tables import refused, table_of
from spark_jobs.beginning.announcements import AnnouncedTable


class PatternMatch(NamedTuple):
    """A table that joins a mirror: the table's settings, and the pattern in the mirror file that matches its name."""

    announced: AnnouncedTable
    pattern: TablePattern
    table: Table


def fitting(mirror: Mirror, name: str) -> SourceName | None:
    """Split the name of a table that is not mirrored into schema and table; None if no pattern matches the name.

    The last period in the name divides schema and table.
    """
    schema, _, table = name.rpartition(".")
    source = mirror.source
    one_database = isinstance(source, ChangeEvents) and source.database is not None
    if not (schema and table) or ("." in schema and one_database):
        return None
    parts = SourceName(schema, table)
    return None if mirror.pattern_of(parts) is None or mirror.ignores(parts) else parts


def joining(mirror: Mirror, announced: Iterable[AnnouncedTable]) -> list[PatternMatch]:
    """Return the announced tables that match a pattern of the mirror and are not mirrored yet, with their settings.

    Raises ``CONFIG_INVALID`` if such a table cannot be mirrored as the source announces it.
    """
    known = {table.source_name for table in mirror.tables}
    found: list[PatternMatch] = []
    for one in announced:
        name = SourceName(one.schema, one.table)
        pattern = None if name in known or mirror.ignores(name) else mirror.pattern_of(name)
        if pattern is not None:
            found.append(PatternMatch(one, pattern, _table(mirror, pattern, one)))
    _check_names(mirror, found)
    return found


def _table(mirror: Mirror, pattern: TablePattern, announced: AnnouncedTable) -> Table:
    source = announced.setting
    if announced.keys_differ:
        raise refused(mirror, source, "its key is reported in more than one way")
    if announced.key is None:
        raise refused(mirror, source, "its key is unknown")
    table = table_of(mirror, pattern, SourceName(announced.schema, announced.table), source, announced.key)
    if table.source_name != (announced.schema, announced.table):
        raise refused(mirror, source, "its name cannot be spelled in a mirror file")
    return table


def _check_names(mirror: Mirror, found: list[PatternMatch]) -> None:
    tables = [*mirror.tables, *(one.table for one in found)]
    spelled: dict[str, str] = {}
    for table in tables:
        twin = spelled.setdefault(".".join(table.source_name).casefold(), table.source)
        if twin != table.source:
            raise refused(mirror, table.source, f"its name differs from that of {twin!r} in case only")
    for collision in table_collisions(enumerate(tables)):
        raise refused(mirror, tables[int(collision.path[0])].source, collision.what)
    if found and len(tables) > MOST_TABLES:
        what = f"the mirror has {len(mirror.tables)} tables, and a mirrored database takes {MOST_TABLES}"
        raise refused(mirror, found[0].table.source, what)


def refusals(mirror: Mirror, announced: Iterable[AnnouncedTable]) -> list[tuple[TablePattern, str]]:
    """For each table that matches a pattern but cannot join the mirror: the pattern and the reason.

    If each table can join, but not all of them together, one pattern and one reason are returned.
    """
    found: list[tuple[TablePattern, str]] = []
    sound: list[PatternMatch] = []
    for one in announced:
        pattern = mirror.pattern_of(SourceName(one.schema, one.table))
        try:
            sound += joining(mirror, [one])
        except TerminalError as error:
            found += [] if pattern is None else [(pattern, error.what)]
    try:
        _check_names(mirror, sound)
    except TerminalError as error:
        found += [(one.pattern, error.what) for one in sound[:1]]
    return found
