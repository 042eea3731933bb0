"""Describes what a source announces of its tables before anybody mirrors them: names, columns, keys."""

from __future__ import annotations

from typing import NamedTuple


class AnnouncedColumn(NamedTuple):
    """A column; *type* is the change log's name of it, else the source's; empty where nothing gives the type."""

    name: str
    type: str = ""


class Note(NamedTuple):
    """A warning about a table that is to be mirrored, and the settings of the table that settle it."""

    text: str
    answered_by: tuple[str, ...] = ()


class Announced(NamedTuple):
    """What one message, or one description beside the messages, tells of a table.

    Args:
        schema: the table's schema at the source.
        table: its name.
        columns: those that are named here; another message may name more.
        key: the key columns in order; empty for a table that has none, None where nothing is said of it.
        notes: warnings for whoever mirrors the table.
        changes_rows: whether this is an update or a delete, which a table without key cannot take.
        sender: the database or the task that sent it; two senders may mean two tables.
        load: an initial load that lies ready: its settings in the mirror file.
    """

    schema: str
    table: str
    columns: tuple[AnnouncedColumn, ...] = ()
    key: tuple[str, ...] | None = None
    notes: tuple[Note, ...] = ()
    changes_rows: bool = False
    sender: str = ""
    load: tuple[tuple[str, str], ...] = ()
