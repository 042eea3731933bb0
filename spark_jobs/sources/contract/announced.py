"""What a source tells of its tables before anybody mirrors them: names, columns, keys.

A mirror file is begun by it (`open-mirroring init`) and compared with it (`open-mirroring check --sample`). It never
decides how a change is read: the decoders do that, by the mirror file.
"""

from __future__ import annotations

from typing import NamedTuple


class AnnouncedColumn(NamedTuple):
    """A column; *type* as the change log calls it, or the source where the log has none; empty where it is untold."""

    name: str
    type: str = ""


class Note(NamedTuple):
    """What whoever mirrors a table should know: a sentence, and the settings of the table that answer it."""

    text: str
    answered_by: tuple[str, ...] = ()


class Announced(NamedTuple):
    """What one message, or one description beside the messages, tells of a table.

    Args:
        schema: the table's schema at the source.
        table: its name.
        columns: as far as they are told; others may be told elsewhere.
        key: the key columns in order; empty for a table that has none, None where nothing is said of it.
        notes: what whoever mirrors the table should know.
        changes_rows: whether this is an update or a delete, which a table without key cannot take.
        sender: who tells it, where two senders could mean two tables: a database, or a task.
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
