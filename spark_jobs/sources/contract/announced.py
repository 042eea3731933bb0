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
    """What one message, or one description beside the messages, tells of a table; another one may name more columns.

    *key* is empty for a table that has none, None where nothing is said of it. *changes_rows*: it is an update or a
    delete. Two senders may mean two tables. *load*: an initial load that lies ready, as settings of the mirror file.
    """

    schema: str
    table: str
    columns: tuple[AnnouncedColumn, ...] = ()
    key: tuple[str, ...] | None = None
    notes: tuple[Note, ...] = ()
    changes_rows: bool = False
    sender: str = ""
    load: tuple[tuple[str, str], ...] = ()
