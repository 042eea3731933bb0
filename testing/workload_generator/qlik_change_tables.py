"""Changes as a Qlik task stores them: rows of change tables.

A change table ``<table>__ct`` has header columns and the columns of its source table. An UPDATE is a before image and
the row, with one ``change_seq``; bit *n* of a change mask is the column at index *n*, including header columns. Public
source: Qlik help, *Change tables*, *Metadata file description*, *Change Data Partitioning*.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from workload_generator.database import Change
from workload_generator.sql_values import parse_type
from workload_generator.tables import ColumnDef, Row, TableDef

HEADERS = (
    *("change_seq", "change_oper", "change_mask", "stream_position", "operation", "transaction_id"),
    *("timestamp", "partition_name"),
)
"""All header columns in order; ``partition_name`` exists with Change Data Partitioning only."""

_OPERATIONS = {"I": "INSERT", "U": "UPDATE", "D": "DELETE", "B": "BEFOREIMAGE"}
_HEADER_TYPES = {
    **{"change_seq": "varchar(35)", "change_oper": "varchar(1)", "stream_position": "varchar(128)"},
    **{"operation": "varchar(12)", "transaction_id": "varchar(32)", "timestamp": "datetime2(6)"},
    "partition_name": "varchar(50)",
}
BEGINNING = datetime(2024, 1, 1)
"""The time before the first transaction."""


@dataclass(frozen=True)
class ChangeTableOptions:
    """The settings of a task that stores changes.

    Args:
        headers: the selected header columns, without ``partition_name``.
        prefix: the prefix of their names.
        suffix: the suffix of change tables.
        before_images: whether an UPDATE has its before image.
        binary_mask: masks as bytes (byte 0 holds bits 7 to 0), else as hexadecimal text of one number.
        partition_minutes: length of a partition; None without Change Data Partitioning.
    """

    headers: tuple[str, ...] = HEADERS[:-1]
    prefix: str = "header__"
    suffix: str = "__ct"
    before_images: bool = True
    binary_mask: bool = False
    partition_minutes: int | None = None

    @property
    def selected(self) -> tuple[str, ...]:
        """The header columns of change tables."""
        return (*self.headers, "partition_name") if self.partition_minutes else self.headers


class StoredChange(NamedTuple):
    """One row of a change table: *table* at that time, header values by name without prefix, and the row."""

    table: TableDef
    header: dict[str, str | None]
    row: Row


def stored_changes(changes: Iterable[Change], options: ChangeTableOptions) -> Iterator[StoredChange]:
    """The rows of all change tables in the order of ``change_seq``, a before image before its UPDATE."""
    for change in changes:
        if change.op == "U" and options.before_images:
            yield StoredChange(change.table, _header(change, "B", frozenset(), options), change.before or {})
        row = change.before if change.op == "D" else change.after
        yield StoredChange(change.table, _header(change, change.op, _changed(change), options), row or {})


def change_sequence(txn: int, seq: int) -> str:
    """The ``change_seq`` of a change: 16 digits of time, 19 of a number that rises over all tables."""
    return f"{_commit_time(txn):%Y%m%d%H%M%S}00{txn * 1_000_000 + seq:019d}"


def columns_of(table: TableDef, options: ChangeTableOptions) -> tuple[ColumnDef, ...]:
    """All columns of a table's change table, header columns first."""
    mask = "varbinary(128)" if options.binary_mask else "varchar(256)"
    types = {**_HEADER_TYPES, "change_mask": mask}
    return (*(ColumnDef(options.prefix + name, types[name]) for name in options.selected), *table.columns)


def values_of(change: StoredChange, options: ChangeTableOptions) -> Row:
    """The values of all columns of a row."""
    return {**{options.prefix + name: value for name, value in change.header.items()}, **change.row}


def _header(change: Change, oper: str, bits: frozenset[str], options: ChangeTableOptions) -> dict[str, str | None]:
    moment = _commit_time(change.txn)
    names = [column.name for column in change.table.columns]
    places = [len(options.selected) + names.index(name) for name in bits]
    header: dict[str, str | None] = {
        "change_seq": change_sequence(change.txn, change.seq),
        "change_oper": oper,
        "change_mask": _mask(places, options.binary_mask),
        "stream_position": f"{change.txn:08x}:{change.seq:08x}",
        "operation": _OPERATIONS[oper],
        "transaction_id": hashlib.md5(str(change.txn).encode(), usedforsecurity=False).hexdigest().upper(),
        "timestamp": f"{moment:%Y-%m-%d %H:%M:%S}.000000",
    }
    if options.partition_minutes:
        length = timedelta(minutes=options.partition_minutes)
        start = BEGINNING + (moment - BEGINNING) // length * length
        header["partition_name"] = f"{start:%Y%m%dT%H%M%S}_{start + length:%Y%m%dT%H%M%S}"
    return {name: header[name] for name in options.selected}


def _changed(change: Change) -> frozenset[str]:
    """The columns whose bits are set; large objects have none."""
    if change.op == "D":
        return frozenset(change.table.key)
    names = [c.name for c in change.table.columns if parse_type(c.sql_type).size != -1]
    before, after = change.before or {}, change.after or {}
    return frozenset(name for name in names if change.op == "I" or before.get(name) != after.get(name))


def _mask(places: Iterable[int], binary: bool) -> str:
    number = sum(1 << place for place in places)
    size = (number.bit_length() + 7) // 8
    return (
        "0x" + number.to_bytes(size, "little").hex() if binary else number.to_bytes(max(size, 1), "big").hex().upper()
    )


def _commit_time(txn: int) -> datetime:
    return BEGINNING + timedelta(seconds=20 * txn)
