"""Collects what a source announces about its tables: columns, types, keys and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import PydanticCustomError

from open_mirroring.config import Mirror
from open_mirroring.config.names import split_source_name
from spark_jobs.sources.contract.source import Announced, Note
from spark_jobs.sources.registry import format_of, transport_of
from spark_jobs.sources.sql_server.type_text import is_known


@dataclass
class AnnouncedTable:
    """One table as its source announces it, with its columns, types and key.

    *columns* (in messages) and *catalog* (in the catalog of the source database, if that was read) map column names to
    types; an empty type is unknown. *key* is empty for a table without a key, None if the key is unknown. *keys_differ*
    is whether messages announced two different keys, *is_streamed* whether messages of the table exist, *changes_rows*
    whether updates or deletes were seen.
    """

    schema: str
    table: str
    columns: dict[str, str] = field(default_factory=dict)
    key: tuple[str, ...] | None = None
    notes: list[Note] = field(default_factory=list)
    changes_rows: bool = False
    senders: set[str] = field(default_factory=set)
    load: dict[str, str] = field(default_factory=dict)
    is_streamed: bool = True
    keys_differ: bool = False
    catalog: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """``schema.table``, for messages."""
        return f"{self.schema}.{self.table}"

    @property
    def setting(self) -> str:
        """``schema.table`` for a mirror file; a part that could be misread is put in brackets."""
        quoted = ".".join(f"[{part.replace(']', ']]')}]" for part in (self.schema, self.table))
        for text in (self.name, quoted):
            with suppress(PydanticCustomError):
                if split_source_name(text) == (self.schema, self.table):
                    return text
        return self.name

    @property
    def unannounced(self) -> dict[str, str]:
        """The columns in the source database's catalog that changes do not contain, with their types."""
        shown = self.columns if self.is_streamed else self.catalog
        return {name: kind for name, kind in self.catalog.items() if name not in shown}

    @property
    def unlandable(self) -> dict[str, str]:
        """The columns whose type cannot be mirrored, each with its type."""
        known = {**self.catalog, **self.columns}
        return {name: kind for name, kind in known.items() if kind and not is_known(kind)}

    def add(self, one: Announced) -> None:
        """Add what one message or catalog entry announces; if keys differ, the key added later is kept."""
        for name, kind in one.columns:
            if kind or name not in self.columns:
                self.columns[name] = kind
        if one.key is not None:
            if self.key is not None and set(one.key) != set(self.key):
                self.keys_differ = True
                self._note(Note(f"its key is reported as {list(one.key)} and as {list(self.key)}"))
            self.key = one.key
        for note in one.notes:
            self._note(note)
        self.changes_rows |= one.changes_rows
        self.senders |= {one.sender} - {""}
        self.load = self.load or dict(one.load)

    def _note(self, note: Note) -> None:
        if note not in self.notes:
            self.notes.append(note)


def announcements(
    mirror: Mirror, most: int, database: str | None, spark: Callable[[], Any]
) -> dict[tuple[str, str], AnnouncedTable]:
    """The tables of a source by (schema, name), sorted, from about *most* messages.

    *database* is the connection by which the source database's catalog is read too, or None to read only messages.
    Raises the errors of reading messages and of reading the catalog.
    """
    tables = together(transport_of(mirror).announced(format_of(mirror), most, spark))
    if database is not None:
        from spark_jobs.sources.jdbc.tables import catalog  # loads a database's client, which is rarely needed

        for one in catalog(database, spark):
            known = tables.get((one.schema, one.table))
            if known is None:
                known = tables[one.schema, one.table] = AnnouncedTable(one.schema, one.table, is_streamed=False)
                known.add(one)
            known.catalog = dict(one.columns)
            known.key = known.key or one.key
    return dict(sorted(tables.items()))


def together(announced: Iterable[Announced]) -> dict[tuple[str, str], AnnouncedTable]:
    """Merge announcements into one entry per table, by (schema, name)."""
    tables: dict[tuple[str, str], AnnouncedTable] = {}
    seen = set[Announced]()
    for one in announced:
        if one not in seen:
            seen.add(one)
            tables.setdefault((one.schema, one.table), AnnouncedTable(one.schema, one.table)).add(one)
    return tables
