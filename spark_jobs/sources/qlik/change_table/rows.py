"""Defines rows of change tables, and finds header, key and data columns in them.

Header columns have a prefix (T-02). Bit *n* of a change mask is the column with index *n* among all columns, header
columns included (T-20). Public source: Qlik help, *Change tables* and *Using change tables*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from operator import itemgetter
from typing import NamedTuple

import msgspec

from open_mirroring.changes.column_choice import ColumnChoice
from open_mirroring.changes.row_key import encode_key
from open_mirroring.errors import MirroringError, TerminalError
from spark_jobs.changelog.schema import image_mark
from spark_jobs.sources.contract.decoded import MirroredTable, Refusal, shown
from spark_jobs.sources.qlik.types import key_type, log_type
from spark_jobs.sources.sql_server.chosen_types import chosen_digits
from spark_jobs.sources.sql_server.row_columns import Column, RowColumns
from spark_jobs.sources.sql_server.type_text import is_large

_encode = msgspec.json.encode

Values = tuple[str | None, ...]

SEQUENCE, OPERATION, MASK, OPERATION_NAME = "change_seq", "change_oper", "change_mask", "operation"
PARTITION = "partition_name"
"""Header columns that the decoder uses, without their prefix; others are for information (T-14 to T-18)."""
TRANSACTION = ("timestamp", "transaction_id")
"""Header columns with the time and transaction of a change (T-16, T-17)."""


class ChangeColumn(NamedTuple):
    """A column of a change table, with its type as the change log names types.

    A type that the change log does not know keeps its own name; a mirrored column of such a type is refused.
    """

    name: str
    type: str


class Structure(NamedTuple):
    """The structure of a change table's rows.

    Args:
        table: the source table, ``schema.table``, as the mirror file names it.
        columns: all columns in physical order, header columns included.
        binary_mask: True if the change mask is binary, read as hexadecimal; False if it is text. The two have
            different bit orders (T-23, T-24).
        key: the key columns of the source table in order; empty if unknown.
        sender: the Qlik task that wrote the rows; empty if unknown.
    """

    table: str
    columns: tuple[ChangeColumn, ...]
    binary_mask: bool = False
    key: tuple[str, ...] = ()
    sender: str = ""


class ChangeRow(NamedTuple):
    """One row of a change table, which is one message.

    *place* is the number of the row in *origin*; *values* are in the order of the structure's columns.
    """

    origin: str
    place: int
    structure: Structure
    values: Values


class _KeptRow(NamedTuple):
    table: str
    columns: tuple[ChangeColumn, ...]
    binary_mask: bool
    values: Values
    key: tuple[str, ...] = ()


_decode_row = msgspec.json.Decoder(_KeptRow).decode


def column_type(qlik_type: str, length: int, precision: int, scale: int) -> str:
    """The change log's type for a Qlik type; an unknown Qlik type keeps its name, and is refused when published."""
    try:
        return log_type(qlik_type, length, precision, scale)
    except MirroringError:
        return qlik_type


def row_bytes(row: ChangeRow) -> bytes:
    """A row and its structure as bytes, which fragments and dead letters keep."""
    one = row.structure
    kept = _KeptRow(one.table, one.columns, one.binary_mask, row.values, one.key)
    return _encode(kept if one.key else kept[:-1])


def read_row(origin: str, place: int, raw: bytes) -> ChangeRow:
    """Reads back the row that :func:`row_bytes` wrote."""
    found = _decode_row(raw)
    return ChangeRow(origin, place, Structure(found.table, found.columns, found.binary_mask, found.key), found.values)


def content(row: ChangeRow) -> frozenset[tuple[str, str]]:
    """The names and values of a row, without NULLs.

    If a column was added later, a second reading of the same row has one more NULL, but equal content (T-33).
    """
    named = zip(row.structure.columns, row.values, strict=True)
    return frozenset((column.name, value) for column, value in named if value is not None)


class RowLayout:
    """Finds header, key and mirrored columns, by index, in the rows of a structure; reads keys and row images."""

    def __init__(self, structure: Structure, table: MirroredTable, prefix: str) -> None:
        self.structure = structure
        self.source = table.source
        self.width = len(structure.columns)
        self._places = header_places(structure, prefix)
        self.header_places = frozenset(self._places.values())
        self.keys_never_change, self.full_rows = table.keys_never_change, table.full_rows
        self.logs_transactions = table.columns.logs_transactions
        _refuse_lost_columns(structure, prefix, self.header_places, table.columns)
        for name in (SEQUENCE, OPERATION):
            if name not in self._places:
                raise Refusal("HEADER_INVALID", f"the change table has no column {prefix}{name}")
        data = [at for at in range(self.width) if at not in self.header_places]
        headers = {structure.columns[at].name for at in self.header_places}
        table.refuse_narrower_key([name for name in structure.key if name not in headers])
        self.types = [self._type_of(one, table) for one in structure.columns]
        named = [(structure.columns[at].name, self.types[at], index) for index, at in enumerate(data)]
        self.has_large = any(is_large(self.types[at]) for at in data)
        self._list = RowColumns([Column(*one) for one in named], table.key, table.columns)
        kept = set(self._list.kept)
        self._kept = [(at, n, t, i) for at, (n, t, i) in zip(data, named, strict=True) if n in kept]
        self._names = tuple(name for _, name, _, _ in self._kept)
        self._kept_places = tuple(at for at, _, _, _ in self._kept)
        self._kept_values = _chosen(self._kept_places)
        self.kept = tuple(zip(self._kept_places, self._names, strict=True))
        """Index and name of the mirrored columns, in the order of an image."""
        self.cols = self._list.text
        self.is_marked = not any(is_large(type_) for _, _, type_, _ in self._kept)
        self._key = [(at, name) for at, name, _, _ in self._kept if name in table.key]
        self.key_in_order = tuple({name: at for at, name in self._key}.get(name) for name in table.key)
        self.key_places = frozenset(at for at, _ in self._key)
        self.value_places = tuple(at for at in self._kept_places if at not in self.key_places)
        self.judged_places = tuple(at for at in self.value_places if not is_large(self.types[at]))
        """The indexes of the columns at which a change mask can contradict a before image.

        Key columns (T-60) and large objects, which masks omit (T-25), are not among them.
        """
        self._partial: dict[tuple[int, ...], str] = {}

    @staticmethod
    def _type_of(column: ChangeColumn, table: MirroredTable) -> str:
        chosen = table.columns.type_of(column.name)
        kind = chosen_digits(column.type, chosen) or column.type
        return key_type(kind, chosen) if column.name in table.key else kind

    def place(self, name: str) -> int | None:
        """The index of the header column *name*; None if the Qlik task does not write this header column."""
        return self._places.get(name)

    def header(self, name: str, values: Values) -> str | None:
        """The value of the header column *name*; None if it is NULL or the Qlik task does not write the column."""
        at = self._places.get(name)
        return None if at is None else values[at]

    def key(self, values: Values) -> str | None:
        """The canonical string of the row's key; None for a table without key."""
        texts = self._list.key_texts({name: values[at] for at, name in self._key})
        return encode_key(texts) if texts else None

    def same_key(self, one: Values, other: Values) -> bool:
        """Whether the key columns of two rows have equal strings; different strings may still be the same key."""
        return all(one[at] == other[at] for at in self.key_places)

    def image(self, values: Values) -> str:
        """The mirrored columns of a row as compact JSON."""
        return _encode(dict(zip(self._names, self._kept_values(values), strict=True))).decode()

    def mark(self, before: Values, after: Values) -> int | None:
        """A short hash of the before image *before*; None if the before image may lack values (T-94).

        The before image may lack values in three cases: a mirrored column is a large object, only the key has values,
        or a NULL became a value in *after*.
        """
        is_known = not any(before[at] is None and after[at] is not None for at in self._kept_places)
        is_known &= self.is_marked and self.says_more_than_key(before)
        return image_mark(self.image(before).encode()) if is_known else None

    def partial(self, values: Values, absent: frozenset[int]) -> tuple[str, str]:
        """Column list and row image of an update, without the columns at the indexes *absent*."""
        kept = [entry for entry in self._kept if entry[0] not in absent]
        places = tuple(entry[0] for entry in kept)
        cols = self._partial.get(places)
        if cols is None:
            cols = self._partial[places] = _encode([(name, type_, index) for _, name, type_, index in kept]).decode()
        return cols, _encode({name: values[at] for at, name, _, _ in kept}).decode()

    def left(self, values: Values) -> tuple[str, str]:
        """Column list and row image of the row before a key change, without NULLs that may mean "value not sent".

        A source may log only the old key (T-94). So if only the key has values, all NULLs are left out; if other
        columns have values, too, only NULLs of large objects are left out.
        """
        is_whole = self.says_more_than_key(values)
        nulls = (at for at in self.value_places if values[at] is None)
        unsent = frozenset(at for at in nulls if not is_whole or is_large(self.types[at]))
        return self.partial(values, unsent) if unsent else (self.cols, self.image(values))

    def says_more_than_key(self, values: Values) -> bool:
        """Whether any mirrored column besides the key has a value; in a DELETE all of them may be NULL (T-21)."""
        return any(values[at] is not None for at in self.value_places)

    @property
    def key_converters(self) -> Mapping[int, Callable[[str], str]]:
        """Functions that convert strings of key columns to canonical form, by the column's index.

        There is none for a column whose type loses digits as a key.
        """
        found = {}
        for at, name in self._key:
            with suppress(TerminalError, ValueError):
                found[at] = self._list.key_converter(name)
        return found


def header_places(structure: Structure, prefix: str) -> dict[str, int]:
    """The indexes of the header columns; the keys are the columns' names without *prefix*, in lower case.

    Any other column is a column of the source table (T-61). If *prefix* is empty, every column after the first column
    of the source table belongs to the source table, whatever its name is.
    """
    found: dict[str, int] = {}
    for at, column in enumerate(structure.columns):
        name = header_name(column.name, prefix)
        if name is None and not prefix:
            break
        if name is not None:
            found.setdefault(name, at)
    return found


def header_name(column: str, prefix: str) -> str | None:
    """The name of a header column without its prefix, in lower case; None if *column* is no header column."""
    folded = column.lower()
    if not folded.startswith(prefix.lower()):
        return None
    name = folded[len(prefix) :]
    return name if name in _HEADER_COLUMNS else None


def _refuse_lost_columns(structure: Structure, prefix: str, headers: frozenset[int], chosen: ColumnChoice) -> None:
    """Refuse a column that may be a header or one of the source, unless a selection of columns decides (T-61)."""
    if not prefix:
        return
    behind = False
    mirrored = chosen.of(column.name for column in structure.columns)
    for at, column in enumerate(structure.columns):
        name = header_name(column.name, prefix)
        if name is None:
            behind = True
        elif column.name not in mirrored:
            continue
        elif chosen.listed is not None or at not in headers or (behind and name not in (SEQUENCE, OPERATION, MASK)):
            raise Refusal(
                "HEADER_INVALID",
                f"the column {shown(column.name)} is called like a header column, and may be one of the source",
            )


def _chosen(places: tuple[int, ...]) -> Callable[[Values], Values]:
    if len(places) < 2:
        return lambda values: tuple(values[at] for at in places)
    return itemgetter(*places)


_HEADER_COLUMNS = {
    *(SEQUENCE, OPERATION, MASK, OPERATION_NAME),
    *("stream_position", *TRANSACTION, PARTITION),
}
