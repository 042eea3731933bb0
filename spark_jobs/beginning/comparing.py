"""Compares a mirror file with what its source sends, for `check --sample`.

Most differences between file and source are warnings. A difference is a mistake only if it would stop a table at its
first change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from open_mirroring.changes.column_choice import fitting_none, lacking
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import SourceName, split_source_name
from open_mirroring.config.problems import Problem, SettingPath
from open_mirroring.config.tables import ExportLoad
from open_mirroring.errors import TerminalError
from open_mirroring.reconciliation.joined_tables import REFUSED_NEXT_STEP
from spark_jobs.beginning.announcements import AnnouncedTable
from spark_jobs.beginning.joining import refusals
from spark_jobs.sources.contract.decoded import shown
from spark_jobs.sources.sql_server.chosen_types import chosen_digits, chosen_key_converter, landed_as
from spark_jobs.sources.sql_server.type_text import AS_TEXT, is_known, landing_type

_MOST_NAMED = 20


Compared = tuple[list[Problem], list[Problem]]
"""Mistakes, which would stop a table at its first change, and warnings."""


class _Difference(NamedTuple):
    setting: str
    code: str
    what: str
    next_step: str
    stops: bool = False


def compare(mirror: Mirror, announced: Mapping[tuple[str, str], AnnouncedTable]) -> Compared:
    """Compare the tables of a mirror file with those that its source announces."""
    mistakes, warnings = list[Problem](), list[Problem]()

    def note(path: SettingPath, found: _Difference) -> None:
        of_its_kind = mistakes if found.stops else warnings
        of_its_kind.append(mirror.problem(path, found.code, found.what, found.next_step))

    spelled = {(schema.casefold(), table.casefold()): one for (schema, table), one in announced.items()}
    for place, table in mirror.placed_tables:
        schema, name = table.source_name
        one = announced.get((schema, name))
        alike = spelled.get((schema.casefold(), name.casefold()))
        for found in [_absent(alike)] if one is None else _differences(table, one):
            note((*place, found.setting), found)
    mirrored = {table.source_name for table in mirror.tables}
    known = mirrored | {split_source_name(name) for name in mirror.ignore}
    fitting = {key for key in announced if key not in known and mirror.pattern_of(SourceName(*key)) is not None}
    for pattern, why in refusals(mirror, [announced[key] for key in sorted(fitting) if announced[key].is_streamed]):
        place = ("tables", mirror.entries.index(pattern), "source")
        note(place, _Difference("", "CONFIG_INVALID", why, REFUSED_NEXT_STEP, stops=True))
    of_mirror = [one for key, one in announced.items() if key in mirrored | fitting]
    columns = [name for one in of_mirror for name in (*one.catalog, *one.columns)]
    for lost in fitting_none(mirror.hash.columns, columns) if mirror.hash is not None and columns else []:
        what = f"the source has no column {shown(lost)} in any mirrored table"
        note(("hash", "columns"), _Difference("", "NOT_SEEN", what, "spell it as the source does"))
    others = [one.name for key, one in announced.items() if one.is_streamed and key not in known | fitting]
    if others:
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        what = f"the source sends tables that are not mirrored: {', '.join(map(shown, others[:_MOST_NAMED]))}{more}"
        note(
            ("tables",), _Difference("", "TABLE_UNMIRRORED", what, "`init --add` writes them; or list them in `ignore`")
        )
    return mistakes, warnings


def _absent(alike: AnnouncedTable | None) -> _Difference:
    if alike is not None:
        what = f"the source sends {shown(alike.name)}, which differs in case only"
        return _Difference("source", "TABLE_NAME_DIFFERS", what, "spell it as the source does", stops=True)
    what = "no change of this table is in the sample, and no message describes the table"
    return _Difference("source", "NOT_SEEN", what, "look at a larger sample; a table without changes appears later")


def _differences(table: Table, announced: AnnouncedTable) -> Iterator[_Difference]:
    columns = {**announced.catalog, **announced.columns}
    chosen = table.chosen.of(columns)
    mirrored = [name for name in columns if name in chosen or name in table.key]
    lost_columns = table.chosen.unmet(columns) if columns else []
    lost_key = [name for name in table.key if columns and name not in columns]
    lost_types = lacking(table.types, columns) if columns else []
    lost_hashes = fitting_none(table.hash, columns) if columns else []
    settings = ("key", lost_key), ("columns", lost_columns), ("types", lost_types), ("hash", lost_hashes)
    for setting, lost in settings:
        if lost:
            what = f"the source has no column {shown(lost[0])} in this table, only {shown(list(columns))}"
            yield _Difference(setting, "NOT_SEEN", what, "spell it as the source does", stops=setting == "key")
    if announced.key and set(announced.key) != set(table.key):
        what = f"the source announces {list(announced.key)} as the key, the mirror file says {list(table.key)}"
        yield _Difference(
            "key", "KEY_DIFFERS", what, "use the source's key, unless yours is unique, never NULL and never changes"
        )
    for name in mirrored:
        lands, kind = table.chosen.type_of(name), columns[name]
        if chosen_digits(kind.partition("(")[0], lands):
            continue
        if why := _why_not(kind, lands, is_key=name in table.key):
            what = f"column {shown(name)}: {why.what}"
            yield _Difference("types", why.code, what, why.next_step, stops=name in announced.columns)
        elif name in announced.unlandable and lands != "string":
            what = f"column {shown(name)} of type {shown(announced.unlandable[name])} cannot be mirrored"
            next_step = AS_TEXT
            yield _Difference("columns", "TYPE_UNSUPPORTED", what, next_step, stops=name in announced.columns)
    load = table.initial_load
    for name, kind in load.types.items() if isinstance(load, ExportLoad) else ():
        if columns.get(name) and _lands_as(kind) != _lands_as(columns[name]):
            what = f"the load says {kind} for column {shown(name)}, the source {shown(columns[name])}"
            yield _Difference("initial_load", "VALUE_INVALID", what, "name the source's own type")
    if len(announced.senders) > 1:
        what = f"changes of this table come from {' and '.join(map(shown, sorted(announced.senders)))}"
        yield _Difference(
            "source",
            "SENDER_OTHER",
            what,
            "let only one database or task send the table; `source.database` chooses one",
        )
    for one in announced.notes:
        if not any(getattr(table, setting) for setting in one.answered_by):
            yield _Difference(
                "source", "SETUP_INCOMPLETE", one.text, "fix it at the source, or by the setting that is named"
            )


def _why_not(sql_type: str, chosen: str | None, *, is_key: bool) -> TerminalError | None:
    if chosen is None or _lands_as(sql_type) is None:
        return None
    try:
        chosen_key_converter(sql_type, chosen) if is_key else landed_as(sql_type, chosen)
    except TerminalError as error:
        return error
    return None


def _lands_as(sql_type: str) -> str | None:
    return landing_type(sql_type) if is_known(sql_type) else None
