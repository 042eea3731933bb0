"""Checks the columns of a row as the row's source announces them, and extracts the key (C-43, C-49, T-02).

A change without a valid list of columns is refused: its values would be written under unproven names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.errors import TerminalError
from spark_jobs.sources.contract.decoded import Refusal, shown
from spark_jobs.sources.sql_server.chosen_types import chosen_key_converter

MAX_COLUMNS = 1024
"""SQL Server's limit for a table."""

_encode = msgspec.json.encode


class Column(msgspec.Struct, gc=False):
    """A column of a row; *index* is the column's position in the table, not in the list of columns (C-43)."""

    name: str
    type: str
    index: int


class RowColumns:
    """The columns of one table's rows: *types* by name, and the names *kept* of the mirrored columns.

    *text* is the list of the mirrored columns as the change log stores it.
    """

    def __init__(self, columns: Sequence[Column], key: tuple[str, ...], chosen: ColumnChoice) -> None:
        _check(columns)
        self.types = {column.name: column.type for column in columns}
        self.names = tuple(self.types)
        mirrored = {*chosen.of(self.names), *key}
        kept = [c for c in columns if c.name in mirrored]
        self.text = _encode([[c.name, c.type, c.index] for c in kept]).decode()
        self.kept = tuple(c.name for c in kept)
        self._chosen = chosen
        self._key = [(name, self._converter(name)) for name in key]

    def _converter(self, name: str) -> Callable[[str], str] | str:
        if name not in self.types:
            return f"the key column {shown(name)} is not in cols"
        try:
            return self.key_converter(name)
        except (TerminalError, ValueError) as error:
            return f"the key column {shown(name)}: {error}"

    def key_converter(self, name: str) -> Callable[[str], str]:
        """A function that converts the key column's strings, binary ones in hexadecimal, to canonical form."""
        return chosen_key_converter(self.types[name], self._chosen.type_of(name))

    def key_texts(self, values: Mapping[str, str | None]) -> list[str]:
        """The canonical strings of the key columns. Raises a Refusal if a key column is missing, NULL, or not valid."""
        texts = []
        for name, convert in self._key:
            if isinstance(convert, str):
                raise Refusal("KEY_INVALID", convert)
            if name not in values:
                raise Refusal("KEY_INVALID", f"the row has no value for the key column {shown(name)}")
            value = values[name]
            if value is None:
                raise Refusal("KEY_INVALID", f"the key column {shown(name)} is NULL")
            try:
                texts.append(convert(value))
            except ValueError as error:
                raise Refusal("KEY_INVALID", f"the key column {shown(name)}: {error}") from error
        return texts


def _check(columns: Sequence[Column]) -> None:
    if not columns:
        raise Refusal("ROW_INVALID", "cols is empty")
    if len(columns) > MAX_COLUMNS:
        raise Refusal("MESSAGE_INVALID", f"cols has {len(columns)} columns, a table has {MAX_COLUMNS} at most")
    names: set[str] = set()
    indexes: set[int] = set()
    for column in columns:
        if not column.name or column.name in names:
            raise Refusal("ROW_INVALID", f"cols names {shown(column.name)} twice, or nothing")
        if column.index < 0 or column.index in indexes:
            raise Refusal("ROW_INVALID", f"cols gives {shown(column.name)} the index {column.index}, which is taken")
        names.add(column.name)
        indexes.add(column.index)
