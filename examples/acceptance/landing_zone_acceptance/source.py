"""The truth: a small source database that any writer can read.

It is one SQLite file with the table ``orders``, whose columns and primary key SQLite itself describes, and the table
``changes`` (``position``, ``before``, ``after``), which holds every change of ``orders`` in order; the two images are
JSON, or NULL.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

Value = int | str | None
Row = dict[str, Value]

TABLE = "orders"
FIRST_ROWS = 6


class Change(NamedTuple):
    """One change: an insert has no *before*, a delete no *after*. Positions count from 1 without gaps."""

    position: int
    before: Row | None
    after: Row | None


class Source:
    """The source and its history.

    Attributes:
        path: the SQLite file.
        columns: the names of the columns, in order.
        key: the name of the key column.
        during_scan: if set, it is called once in the middle of the next :meth:`scan`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = ["id", "name", "amount"]
        self.key = "id"
        self.during_scan: Callable[[], None] | None = None
        self._ever: list[Row] = []
        self._next = 1
        self._execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, name TEXT, amount INTEGER)")
        self._execute("CREATE TABLE changes (position INTEGER PRIMARY KEY, before TEXT, after TEXT)")
        for _ in range(FIRST_ROWS):
            row = self._new_row()
            self._write(row)
            self._ever.append(row)

    def rows(self) -> list[Row]:
        """The rows as they are now, in the order of the key."""
        with closing(sqlite3.connect(self.path)) as db:
            found = db.execute(f"SELECT {', '.join(self.columns)} FROM orders ORDER BY {self.key}")
            return [dict(zip(self.columns, values, strict=True)) for values in found]

    def row(self, key: Value) -> Row:
        """The row with this key."""
        return next(row for row in self.rows() if row[self.key] == key)

    def ever(self) -> list[Row]:
        """Every row that the source has held, with the columns of today."""
        return [{name: row.get(name) for name in self.columns} for row in self._ever]

    def scan(self) -> Iterator[Row]:
        """Read the table slowly: each row as it is when the reading comes to it."""
        keys = [row[self.key] for row in self.rows()]
        for at, key in enumerate(keys):
            if at == len(keys) // 2 and self.during_scan is not None:
                happen, self.during_scan = self.during_scan, None
                happen()
            yield from (row for row in self.rows() if row[self.key] == key)

    def position(self) -> int:
        """The position of the last change, or 0."""
        with closing(sqlite3.connect(self.path)) as db:
            return int(db.execute("SELECT coalesce(max(position), 0) FROM changes").fetchone()[0])

    def insert(self, **values: Value) -> Change:
        """Add a row with the next free id, unless *values* contains one."""
        return self._change(None, {**self._new_row(), **values})

    def update(self, row: Row, **values: Value) -> Change:
        """Change some values of a row, which may be its key."""
        return self._change(row, {**row, **values})

    def delete(self, row: Row) -> Change:
        """Remove a row."""
        return self._change(row, None)

    def work(self) -> list[Change]:
        """One insert, two updates and one delete, as a day's work would bring them."""
        oldest, second, third = self.rows()[:3]
        number = self.position()
        return [
            self.insert(),
            self.update(second, amount=10_000 + number),
            self.delete(oldest),
            self.update(third, name=f"renamed {number}"),
        ]

    def add_column(self, name: str) -> None:
        """Add a text column, NULL in every row."""
        self._execute(f"ALTER TABLE orders ADD COLUMN {name} TEXT")
        self.columns.append(name)

    def change_key(self, name: str) -> None:
        """Make another column the primary key."""
        rows = self.rows()
        self._execute("DROP TABLE orders")
        described = ", ".join(f"{one} {'PRIMARY KEY' if one == name else ''}" for one in self.columns)
        self._execute(f"CREATE TABLE orders ({described})")
        self.key = name
        for row in rows:
            self._write(row)

    def _new_row(self) -> Row:
        number, self._next = self._next, self._next + 1
        row: Row = dict.fromkeys(self.columns)
        return {**row, "id": number, "name": f"order {number}", "amount": 100 * number}

    def _change(self, before: Row | None, after: Row | None) -> Change:
        if before is not None:
            self._execute(f"DELETE FROM orders WHERE {self.key} = ?", before[self.key])
        if after is not None:
            self._write(after)
            self._ever.append(after)
        change = Change(self.position() + 1, before, after)
        images = [None if image is None else json.dumps(image) for image in (before, after)]
        self._execute("INSERT INTO changes VALUES (?, ?, ?)", change.position, *images)
        return change

    def _write(self, row: Row) -> None:
        places = ", ".join("?" for _ in self.columns)
        self._execute(f"INSERT INTO orders VALUES ({places})", *(row.get(name) for name in self.columns))

    def _execute(self, statement: str, *values: Value) -> None:
        with closing(sqlite3.connect(self.path, timeout=30)) as db, db:
            db.execute(statement, values)
