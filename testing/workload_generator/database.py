"""A database in memory: tables with rows, and random transactions that return what they changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple

from workload_generator.sql_values import key_text, random_text
from workload_generator.tables import SHOP_TABLES, ColumnDef, Key, Row, TableDef

Operation = Literal["I", "U", "D"]
Kind = Literal["insert", "update", "delete", "reinsert", "key_change", "rotate", "churn"]

KINDS: dict[Kind, int] = {
    "insert": 34,
    "update": 36,
    "delete": 12,
    "reinsert": 5,
    "key_change": 6,
    "rotate": 2,
    "churn": 5,
}
"""The possible actions on a table, with their weights. ``rotate``: two or three rows exchange their keys in one
statement; ``churn``: one row is written several times in one transaction."""

_REMEMBERED_KEYS = 500
_NULLS = 0.15


class Change(NamedTuple):
    """One row change: *table* at that time, the row before and after, transaction (from 1), index in it (from 1).

    An update of the key is one change (``U``) whose *before* has the old key and whose *after* has the new one.
    """

    table: TableDef
    op: Operation
    before: Row | None
    after: Row | None
    txn: int
    seq: int

    @property
    def is_key_change(self) -> bool:
        """Whether an update changed the key of its row."""
        return (
            self.before is not None
            and self.after is not None
            and self.table.key_of(self.before) != self.table.key_of(self.after)
        )


Effect = tuple[Operation, Row | None, Row | None]


class TableState:
    """The rows of one table, with a random row in constant time, and the keys of deleted rows."""

    def __init__(self, table: TableDef, rows: Iterable[Row] = (), *, counter: int = 0, deleted: Iterable[Key] = ()):
        self.table = table
        self.counter = counter
        self.deleted = dict.fromkeys(deleted)
        self.rows: dict[Key, Row] = {}
        self._keys: list[Key] = []
        self._places: dict[Key, int] = {}
        for row in rows:
            self.put(row)

    def put(self, row: Row) -> None:
        """Insert or replace the row with this key. A table without key keeps every row, under a running number."""
        key = self.table.key_of(row) if self.table.key else (str(len(self.rows)),)
        if key not in self.rows:
            self._places[key] = len(self._keys)
            self._keys.append(key)
            self.deleted.pop(key, None)
        self.rows[key] = row

    def remove(self, key: Key) -> Row:
        """Delete a row and store its key for later reuse."""
        last, place = self._keys[-1], self._places.pop(key)
        self._keys.pop()
        if last != key:
            self._keys[place], self._places[last] = last, place
        self.deleted[key] = None
        if len(self.deleted) > _REMEMBERED_KEYS:
            del self.deleted[next(iter(self.deleted))]
        return self.rows.pop(key)

    def random_key(self, rng: Random) -> Key:
        """Any existing key."""
        return rng.choice(self._keys)

    def random_keys(self, rng: Random, count: int) -> list[Key]:
        """Some distinct existing keys."""
        return rng.sample(self._keys, count)


class Database:
    """A set of tables: :meth:`commit` runs one random transaction and returns its changes."""

    def __init__(self, tables: Sequence[TableDef] = SHOP_TABLES, *, last_txn: int = 0) -> None:
        self.tables = {table.full_name: TableState(table) for table in tables}
        self.last_txn = last_txn

    def populate(self, rng: Random, rows: int) -> None:
        """Insert rows into every table without changes, as loaded before streaming began."""
        for state in self.tables.values():
            for _ in range(rows):
                self._insert(state, rng)

    def add_column(self, full_name: str, column: ColumnDef) -> None:
        """``ALTER TABLE … ADD`` a nullable column: rows get NULL, without a change."""
        state = self.tables[full_name]
        state.table = state.table.with_column(column)
        for row in state.rows.values():
            row[column.name] = None

    def commit(self, rng: Random, wanted: Sequence[tuple[str, Kind]] = ()) -> list[Change]:
        """Run one transaction: the *wanted* (full table name, kind) and some at random."""
        self.last_txn += 1
        actions = [*wanted]
        bulk = rng.random() < 0.04
        for _ in range(rng.randint(15, 40) if bulk else rng.randint(0 if wanted else 1, 5)):
            actions.append((rng.choice(list(self.tables)), rng.choices(list(KINDS), list(KINDS.values()))[0]))
        rng.shuffle(actions)
        effects = [(self.tables[name], effect) for name, kind in actions for effect in self.act(name, kind, rng)]
        return [Change(state.table, *effect, self.last_txn, seq) for seq, (state, effect) in enumerate(effects, 1)]

    def act(self, full_name: str, kind: Kind, rng: Random) -> Iterator[Effect]:
        """Apply one action to one table; a missing precondition (a row, a deleted key) is created first."""
        state = self.tables[full_name]
        while state.table.key and len(state.rows) < (3 if kind == "rotate" else 0 if kind == "insert" else 1):
            yield self._insert(state, rng)
        if kind == "insert" or not state.table.key:
            yield self._insert(state, rng)
        elif kind == "update":
            yield self._update(state, state.random_key(rng), rng)
        elif kind == "delete":
            yield _delete(state, state.random_key(rng))
        elif kind == "reinsert":
            if not state.deleted:
                yield _delete(state, state.random_key(rng))
            yield self._insert(state, rng, key=rng.choice(list(state.deleted)))
        elif kind == "key_change":
            yield self._change_key(state, rng)
        elif kind == "rotate":
            yield from self._rotate(state, rng)
        else:
            yield from self._churn(state, rng)

    def _insert(self, state: TableState, rng: Random, key: Key | None = None) -> Effect:
        row = self._new_row(state, rng, key or self._new_key(state, rng))
        state.put(row)
        return "I", None, row.copy()

    def _update(self, state: TableState, key: Key, rng: Random) -> Effect:
        before, table = state.rows[key], state.table
        free = [column for column in table.columns if column.name not in table.key]
        if not free:
            return self._change_key(state, rng)
        after = before.copy()
        while after == before:
            for column in rng.sample(free, rng.randint(1, len(free))):
                after[column.name] = self._value(table, column, rng)
        state.put(after)
        return "U", before.copy(), after.copy()

    def _change_key(self, state: TableState, rng: Random) -> Effect:
        # A previously deleted key is the harder case: the tombstone is below the row.
        reuse = bool(state.deleted) and rng.random() < 0.3
        new = rng.choice(list(state.deleted)) if reuse else self._new_key(state, rng)
        before = state.remove(state.random_key(rng))
        after = {**before, **dict(zip(state.table.key, new, strict=True))}
        state.put(after)
        return "U", before.copy(), after.copy()

    def _rotate(self, state: TableState, rng: Random) -> Iterator[Effect]:
        keys = state.random_keys(rng, rng.choice((2, 2, 3)))
        moved = [
            {**state.rows[old], **dict(zip(state.table.key, new, strict=True))}
            for old, new in zip(keys, [*keys[1:], keys[0]], strict=True)
        ]
        befores = [state.rows[key].copy() for key in keys]
        if any(after == befores[(n + 1) % len(keys)] for n, after in enumerate(moved)):
            # Exchanging rows that differ only in the key changes nothing, so no log could show it.
            yield self._change_key(state, rng)
            return
        for after in moved:
            state.put(after)
        yield from (("U", before, after.copy()) for before, after in zip(befores, moved, strict=True))

    def _churn(self, state: TableState, rng: Random) -> Iterator[Effect]:
        if rng.random() < 0.5:
            key = state.random_key(rng)
            yield _delete(state, key)
            yield self._insert(state, rng, key)
            yield self._update(state, key, rng) if len(state.table.columns) > len(key) else _delete(state, key)
        else:
            effect = self._insert(state, rng)
            yield effect
            key = state.table.key_of(effect[2] or {})
            if len(state.table.columns) > len(key):
                yield self._update(state, key, rng)
            if rng.random() < 0.5:
                yield _delete(state, key)

    def _new_key(self, state: TableState, rng: Random) -> Key:
        table, types = state.table, {column.name: column for column in state.table.columns}
        for attempt in range(1_000):
            state.counter += 1
            key = tuple(
                (self._parent_value(table, name, rng) if attempt < 20 else None)
                or key_text(types[name].sql_type, state.counter, rng)
                for name in table.key
            )
            if key not in state.rows:
                return key
        raise ValueError(f"no free key left in {table.full_name}: its key type is too small for so many rows")

    def _new_row(self, state: TableState, rng: Random, key: Key) -> Row:
        fixed = dict(zip(state.table.key, key, strict=True))
        return {
            column.name: fixed[column.name] if column.name in fixed else self._value(state.table, column, rng)
            for column in state.table.columns
        }

    def _value(self, table: TableDef, column: ColumnDef, rng: Random) -> str | None:
        if column.nullable and rng.random() < _NULLS:
            return None
        return self._parent_value(table, column.name, rng) or random_text(column.sql_type, rng)

    def _parent_value(self, table: TableDef, column: str, rng: Random) -> str | None:
        parent_name, parent_column = table.references.get(column, ("", ""))
        parent = self.tables.get(parent_name)
        return parent.rows[parent.random_key(rng)][parent_column] if parent and parent.rows else None


def _delete(state: TableState, key: Key) -> Effect:
    return "D", state.remove(key), None
