"""Writes the entry of one table for a new mirror file: its settings, and comments for the person who reads it.

A setting that the source does not announce is never guessed. Names from the source are quoted, and never contain a
character that could end a YAML comment.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from open_mirroring.changes.streamed_types import is_streamed
from open_mirroring.config import Mirror, Table
from open_mirroring.config.names import check_column, check_target, stream_position
from open_mirroring.config.tables import table_collisions
from open_mirroring.config.yaml_tree import text_smells
from open_mirroring.storage.address import is_address
from spark_jobs.beginning.announcements import AnnouncedTable
from spark_jobs.sources.registry import format_of

WIDTH = 116
_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*")
_NOT_PLAIN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_UNSAFE = re.compile(r"[^\w\- $#@.]|^[_ .]+|[ .]+$")
_SUGGESTED = "initial_load: {format: jdbc, connection: NAME} # rows from before the stream; without, it begins empty"
_APPENDED = "append_only: true # if no row is ever changed: files that the service may read faster"
_ADD_KEY = "name columns that are unique and never NULL, then take the # away"


class FirstRows(NamedTuple):
    """Where `init` finds the rows that tables had before their first change message.

    *connection* is the connection to the source database; None if rows are not read over JDBC. *export* is the folder
    that has an exported file or folder for each table, named like the table; None without exports. *export_format* is
    the format of the exported files. *stream_from* is the position from which on changes are published over the export,
    or a file that contains the position. *unseen* is whether tables in the catalog are mirrored even if the sample has
    no change of them.
    """

    connection: str | None = None
    export: Path | None = None
    export_format: str = "parquet"
    stream_from: str = "beginning"
    unseen: bool = False


@dataclass
class Entry:
    """One table to be written into a mirror file, with its settings and comments.

    *waits* is why the entry is written only as a comment; empty if the table is mirrored. *columns* and *remarks*
    become comments above the entry, and *suggested* settings are written as comments.
    """

    name: str
    settings: dict[str, Any]
    columns: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    suggested: list[str] = field(default_factory=list)
    waits: str = ""

    @property
    def looks_secret(self) -> bool:
        """Whether a name in the entry looks like a secret; a mirror file must not contain secrets (I30)."""
        return any(map(text_smells, self.lines("")))

    def lines(self, indent: str) -> list[str]:
        """The entry as lines of YAML; *indent* comes before the dash."""
        comments = [", ".join(self.columns), *self.remarks]
        comments += [f"Not mirrored yet: {self.waits}"] if self.waits else []
        above = [f"{indent}# {line}" for comment in comments for line in _wrapped(comment, WIDTH - len(indent))]
        settings = [f"{name}: {yaml_text(value)}" for name, value in self.settings.items()]
        body = [f"{'  ' if at else '- '}{one}" for at, one in enumerate(settings)]
        body += [f"  # {one}" for one in self.suggested]
        return [*above, *(f"{indent}{'# ' if self.waits else ''}{line}" for line in body)]


def entries(mirror: Mirror, tables: Iterable[AnnouncedTable], first: FirstRows) -> list[Entry]:
    """Write an entry for each of *tables*, which the mirror must not have yet.

    If two tables have the same source or the same target, the entry of the later table becomes a comment.
    """
    found = [_entry(mirror, announced, first) for announced in tables]
    sound = [*mirror.tables, *(Table.model_validate(one.settings) for one in found if not one.waits)]
    active = [one for one in found if not one.waits]
    for collision in table_collisions(list(enumerate(sound))):
        at = int(collision.path[0]) - len(mirror.tables)
        if at >= 0:
            active[at].waits = _printable(f"{collision.what}; {collision.next_step}")
    return found


def yaml_text(value: Any) -> str:
    """A value as one line of YAML; a string is quoted if YAML could read it as another type."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{yaml_text(name)}: {yaml_text(one)}" for name, one in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ", ".join(map(yaml_text, value)) + "]"
    if isinstance(value, str) and (not _PLAIN.fullmatch(value) or value.casefold() in _NOT_PLAIN):
        quoted: str = yaml.safe_dump(value, default_style='"', allow_unicode=True, width=2**20)
        return quoted.rstrip("\n")
    return str(value)


def _entry(mirror: Mirror, announced: AnnouncedTable, first: FirstRows) -> Entry:
    entry = Entry(_printable(announced.name), {"source": announced.setting, "target": _target_text(announced)})
    entry.columns = [f"{name} {kind}".strip() for name, kind in announced.columns.items()]
    entry.remarks += [f"Warning: {note.text}." for note in announced.notes]
    if len(announced.senders) > 1:
        names = " and ".join(sorted(announced.senders))
        entry.remarks.append(f"Warning: changes of it come from {names}: these may be two tables of one name.")
    if entry.settings["target"] != f"{announced.schema}/{announced.table}":
        entry.remarks.append("Warning: the target does not allow this name; choose another `target` if you like.")
    _choose_columns(entry, announced, first)
    entry.settings["key"] = list(announced.key or ())
    if announced.key == ():
        entry.remarks.append("Warning: the source announces no primary key: a table without key accepts inserts only.")
        entry.suggested.append(_APPENDED)
    _add_first_rows(entry, mirror, announced, first)
    entry.waits = _printable(_why_it_waits(entry, announced, first))
    return entry


def _choose_columns(entry: Entry, announced: AnnouncedTable, first: FirstRows) -> None:
    """Leave out columns that cannot be mirrored: unsupported types, reserved names, types never streamed."""
    bad = dict(announced.unlandable)
    bad |= {name: kind for name, kind in announced.columns.items() if not _is_column(name)}
    if first.connection is not None:
        bad |= {name: kind for name, kind in announced.catalog.items() if not is_streamed(kind) or not _is_column(name)}
    if bad:
        left = ", ".join(f"{name} {kind}".strip() for name, kind in bad.items())
        entry.remarks.append(f"Warning: left out, for the target or the stream has no such columns: {left}.")
        known = dict.fromkeys((*(announced.catalog or announced.columns), *(announced.key or ())))
        entry.settings["columns"] = [name for name in known if name not in bad]
    unseen = ", ".join(f"{name} {kind}" for name, kind in announced.unannounced.items() if name not in bad)
    if unseen:
        entry.remarks.append(f"The table has columns that no change in the sample contains: {unseen}.")


def _add_first_rows(entry: Entry, mirror: Mirror, announced: AnnouncedTable, first: FirstRows) -> None:
    if not announced.key:
        return  # without a key rows that the stream repeats would be there twice (G-08)
    load: dict[str, Any] = dict(announced.load)
    if first.export is not None:
        load = _export(entry, mirror, announced, first) or load
    elif first.connection is not None and announced.catalog and not format_of(mirror).has_loads:
        load = {"format": "jdbc", "connection": first.connection}
    if is_address(load.get("path", "")):
        load |= mirror.source.connections
    elif "path" in load:
        load["path"] = _below_home(mirror, Path(load["path"]))
    if load:
        entry.settings["initial_load"] = load
    elif not format_of(mirror).has_loads:
        entry.suggested.append(_SUGGESTED)


def _export(entry: Entry, mirror: Mirror, announced: AnnouncedTable, first: FirstRows) -> dict[str, Any]:
    """The settings for loading a table's export; empty if there is none, or its name would lead to another folder."""
    assert first.export is not None
    name = entry.settings["source"]
    folder = first.export.absolute() / name
    path = folder if folder.is_dir() else folder.with_name(f"{folder.name}.{first.export_format}")
    if folder.parent != first.export.absolute() or not path.exists():
        entry.remarks.append(f"Warning: there is no export {path.name!r}: rows from before the stream are missing.")
        return {}
    load: dict[str, Any] = {"format": first.export_format, "path": str(path)}
    try:
        load["stream_from"] = stream_position(first.stream_from)
    except PydanticCustomError:
        load["stream_from"] = {"file": _below_home(mirror, Path(first.stream_from).absolute())}
    if first.export_format == "csv":
        load["types"] = {name: kind for name, kind in (announced.catalog or announced.columns).items() if kind}
    return load


def _why_it_waits(entry: Entry, announced: AnnouncedTable, first: FirstRows) -> str:
    if not announced.is_streamed and not first.unseen:
        return "the catalog has the table, and no change of it is in the sample; if it is streamed, take the # away"
    if announced.key is None:
        return f"its key is unknown; {_ADD_KEY}"
    if announced.key == () and announced.changes_rows:
        return f"it has no primary key, and rows are updated or deleted; {_ADD_KEY}"
    lost = [name for name in announced.key if name not in entry.settings.get("columns", announced.key)]
    if lost:
        return f"the key column {lost[0]!r} cannot be mirrored; {_ADD_KEY}"
    try:
        table = Table.model_validate(entry.settings)
    except ValidationError as error:
        return str(error.errors()[0]["msg"])
    if table.source_name != (announced.schema, announced.table):
        return "its name cannot be spelled in a mirror file"
    return ""


def _is_column(name: str) -> bool:
    try:
        check_column(name)
    except PydanticCustomError:
        return False
    return True


def _target_text(announced: AnnouncedTable) -> str:
    plain = f"{announced.schema}/{announced.table}"
    try:
        return check_target(plain)
    except PydanticCustomError:
        return "/".join(_UNSAFE.sub("_", part).lstrip("_") or "table" for part in (announced.schema, announced.table))


def _below_home(mirror: Mirror, path: Path) -> str:
    return path.relative_to(mirror.home).as_posix() if path.is_relative_to(mirror.home) else str(path)


def _wrapped(text: str, width: int) -> list[str]:
    return textwrap.wrap(_printable(text), width, break_long_words=False, break_on_hyphens=False)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
