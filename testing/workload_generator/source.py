"""A source database in one SQLite file.

The file contains the tables with their rows, all values as the text SQL Server prints, and SQL Server's own data:
``_columns`` with the SQL types, the next transaction, the hub's sequence numbers, withheld messages.

:meth:`Source.run` executes transactions and ships them in one format. Rows, bookkeeping and the bytes of all files or
messages are committed together and sent afterwards (an outbox). After a crash in between, the next command sends them.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from workload_generator.ces import commit_lsn
from workload_generator.database import KINDS, Change, Database
from workload_generator.delivery import Piece
from workload_generator.shipping import LoadShipping, Parcel, Run, Shipment, Shipping
from workload_generator.tables import SHOP_TABLES, Row, TableDef

_LAYOUT = """
CREATE TABLE _columns ("table" TEXT, ordinal INTEGER, name TEXT, sql_type TEXT, key_position INTEGER,
                       PRIMARY KEY ("table", ordinal));
CREATE TABLE _state (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE _deleted ("table" TEXT, place INTEGER, key TEXT, PRIMARY KEY ("table", place));
CREATE TABLE _counts ("table" TEXT, what TEXT, n INTEGER, PRIMARY KEY ("table", what));
CREATE TABLE _withheld (place INTEGER PRIMARY KEY, "table" TEXT, txn INTEGER, seq INTEGER, piece INTEGER, of INTEGER,
                        key BLOB, body BLOB);
CREATE TABLE _outbox (place INTEGER PRIMARY KEY, address TEXT, key BLOB, content BLOB);
"""
COUNTS = ("inserts", "updates", "deletes", "key_changes", "split_events", "duplicates", "replays", "late_events")
"""The counters in a report for each table, if the format has them; a key change is an update, too."""


class SourceError(Exception):
    """The state file does not allow the request; the text contains the fix."""


class Source:
    """The database in the SQLite file *path*.

    Raises:
        SourceError: when there is no such file.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise SourceError(f"{path}: no such state file; `init --state {path} --seed N` makes one")
        self.path = path

    @classmethod
    def create(cls, path: Path, seed: int, rows: int) -> Source:
        """Create the database: the shop's tables, each with this many rows without events.

        Raises:
            SourceError: when the file exists already.
        """
        if path.exists():
            raise SourceError(f"{path} exists; remove it to begin anew")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        source, database = cls(path), Database(SHOP_TABLES)
        database.populate(Random(f"initial:{seed}"), rows)
        with source._transaction() as db:
            for statement in filter(str.strip, _LAYOUT.split(";")):
                db.execute(statement)
            for table in SHOP_TABLES:
                _create_table(db, table)
                _write_rows(db, table, database.tables[table.full_name].rows.values())
            state: dict[str, Any] = {"seed": seed, "runs": 0, "loaded": False, "format": None, "memory": {}}
            _save(db, database, state)
        return source

    def load(self, shipping: LoadShipping) -> dict[str, int]:
        """Ship all rows as the beginning of the stream.

        Returns:
            Numbers: rows, messages, files.

        Raises:
            SourceError: when the stream has begun already, or has another format.
            ShippingError: when something did not arrive; the next command tries again.
        """
        with self._transaction() as db:
            state, database = _load(db)
            _memory(state, shipping)
            if state["loaded"] or state["runs"]:
                raise SourceError("the stream has begun; what is loaded comes before everything else")
            state["loaded"] = True
            tables = [(one.table, list(one.rows.values())) for one in database.tables.values()]
            sent = shipping.pack_load(tables, Random(f"load:{state['seed']}"), state["seed"])
            _post(db, [], sent)
            _save(db, database, state)
        rows = sum(len(its) for _, its in tables)
        return dict(rows=rows, messages=sent.messages, files=self.send(shipping))

    def run(self, shipping: Shipping, *, transactions: int = 100, hold_back: bool = False) -> dict[str, int]:
        """Commit transactions and ship their changes, with those withheld before.

        A run with at least one transaction has each kind of change of every table. It also has at least one of each
        event that may happen to a message of this format. With *hold_back* some of them arrive with the next run only.

        Returns:
            Numbers of this run: transactions, events, messages, withheld (messages), files.

        Raises:
            SourceError: when the stream has another format.
            ShippingError: when something did not arrive; the next command tries again.
            ValueError: for an invalid combination of the format's settings.
        """
        with self._transaction() as db:
            _memory(_load(db)[0], shipping)
        files = self.send(shipping)
        with self._transaction() as db:
            state, database = _load(db)
            state["runs"] += 1
            rng = Random(f"run:{state['seed']}:{state['runs']}")
            changes = _work(database, transactions, rng)
            late = [Piece(*row) for row in db.execute('SELECT "table", txn, seq, piece, of, key, body FROM _withheld')]
            run = Run(changes, late, rng, state["seed"], state["runs"], hold_back)
            sent = shipping.pack(run, _memory(state, shipping))
            _write_changes(db, database, changes)
            _post(db, changes, sent)
            _save(db, database, state)
        files += self.send(shipping)
        events, withheld = len(changes), len(sent.withheld)
        return dict(transactions=transactions, events=events, messages=sent.messages, withheld=withheld, files=files)

    def send(self, shipping: Shipping) -> int:
        """Send what is committed but may not be sent yet; returns the number of files written.

        Raises:
            ShippingError: when something did not arrive; the next command tries again.
        """
        with self._transaction() as db:
            query = "SELECT address, key, content FROM _outbox ORDER BY place"
            files = shipping.send([Parcel(*row) for row in db.execute(query)])
            db.execute("DELETE FROM _outbox")
        return files

    def snapshot(self) -> tuple[str, list[tuple[TableDef, list[Row]]]]:
        """All rows at one time, and the first commit LSN whose changes are not in them."""
        with self._transaction() as db:
            state, database = _load(db)
            tables = [(one.table, list(one.rows.values())) for one in database.tables.values()]
            return commit_lsn(state["last_txn"] + 1), tables

    def report(self) -> dict[str, Any]:
        """Rows and :data:`COUNTS` per table, transactions, runs, and the currently withheld messages."""
        with self._transaction() as db:
            state, database = _load(db)
            tables = {
                name: {"rows": len(one.rows), **dict.fromkeys(COUNTS, 0)} for name, one in database.tables.items()
            }
            for table, what, number in db.execute('SELECT "table", what, n FROM _counts'):
                tables[table][what] = number
            (withheld,) = db.execute("SELECT count(*) FROM _withheld").fetchone()
        return {"tables": tables, "transactions": state["last_txn"], "runs": state["runs"], "withheld": withheld}

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        # One command at a time: a second one waits for the first.
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield db
            db.execute("COMMIT")


def _work(database: Database, transactions: int, rng: Random) -> list[Change]:
    """This many transactions, with every kind of change to every table distributed over them."""
    wanted = [(table, kind) for table in database.tables for kind in KINDS]
    rng.shuffle(wanted)
    changes: list[Change] = []
    for number in range(transactions):
        changes += database.commit(rng, wanted[number::transactions])
    return changes


def _create_table(db: sqlite3.Connection, table: TableDef) -> None:
    columns = ", ".join(f'"{one.name}" TEXT{"" if one.nullable else " NOT NULL"}' for one in table.columns)
    key = ", ".join(f'"{name}"' for name in table.key)
    db.execute(f'CREATE TABLE "{table.full_name}" ({columns}, PRIMARY KEY ({key}))')
    places = {name: place for place, name in enumerate(table.key, 1)}
    rows = [
        (table.full_name, n, one.name, one.sql_type, places.get(one.name, 0)) for n, one in enumerate(table.columns)
    ]
    db.executemany("INSERT INTO _columns VALUES (?, ?, ?, ?, ?)", rows)


def _write_rows(db: sqlite3.Connection, table: TableDef, rows: Iterable[Row]) -> None:
    places = ", ".join("?" * len(table.columns))
    db.executemany(f'INSERT INTO "{table.full_name}" VALUES ({places})', [tuple(row.values()) for row in rows])


def _write_changes(db: sqlite3.Connection, database: Database, changes: Iterable[Change]) -> None:
    """Write the state of every changed row in *database* at once, because keys may have been exchanged."""
    touched: dict[str, dict[tuple[str, ...], None]] = {name: {} for name in database.tables}
    for change in changes:
        for row in (change.before, change.after):
            if row is not None:
                touched[change.table.full_name][change.table.key_of(row)] = None
    for name, keys in touched.items():
        state = database.tables[name]
        where = " AND ".join(f'"{column}" = ?' for column in state.table.key)
        db.executemany(f'DELETE FROM "{name}" WHERE {where}', keys)
        _write_rows(db, state.table, [state.rows[key] for key in keys if key in state.rows])


def _memory(state: dict[str, Any], shipping: Shipping) -> dict[str, Any]:
    """The format's stored data; the first format of a source stays."""
    if state["format"] not in (None, shipping.name):
        raise SourceError(f"this source speaks {state['format']}, not {shipping.name}")
    state["format"] = shipping.name
    memory: dict[str, Any] = state["memory"]
    return memory


def _post(db: sqlite3.Connection, changes: Iterable[Change], sent: Shipment) -> None:
    """Store what has to be sent, what is withheld, and the counts of both."""
    db.execute("DELETE FROM _withheld")
    db.executemany("INSERT INTO _withheld VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", sent.withheld)
    db.executemany("INSERT INTO _outbox VALUES (NULL, ?, ?, ?)", sent.parcels)
    _count(db, changes, sent)


def _count(db: sqlite3.Connection, changes: Iterable[Change], sent: Shipment) -> None:
    counts = Counter((table, what) for what, tables in sent.tables.items() for table in tables)
    for change in changes:
        counts[change.table.full_name, {"I": "inserts", "U": "updates", "D": "deletes"}[change.op]] += 1
        counts[change.table.full_name, "key_changes"] += change.is_key_change
    db.executemany(
        'INSERT INTO _counts VALUES (?, ?, ?) ON CONFLICT ("table", what) DO UPDATE SET n = n + excluded.n',
        [(table, what, number) for (table, what), number in counts.items()],
    )


def _save(db: sqlite3.Connection, database: Database, state: dict[str, Any]) -> None:
    state["last_txn"] = database.last_txn
    state["counters"] = {name: one.counter for name, one in database.tables.items()}
    values = [(name, json.dumps(value)) for name, value in state.items()]
    db.executemany("INSERT OR REPLACE INTO _state VALUES (?, ?)", values)
    db.execute("DELETE FROM _deleted")
    for name, one in database.tables.items():
        rows = [(name, place, json.dumps(key)) for place, key in enumerate(one.deleted)]
        db.executemany("INSERT INTO _deleted VALUES (?, ?, ?)", rows)


def _load(db: sqlite3.Connection) -> tuple[dict[str, Any], Database]:
    state = {name: json.loads(value) for name, value in db.execute("SELECT name, value FROM _state")}
    database = Database(SHOP_TABLES, last_txn=state["last_txn"])
    for name, one in database.tables.items():
        order = ", ".join(f'"{column}"' for column in one.table.key)
        names = [column.name for column in one.table.columns]
        for values in db.execute(f'SELECT * FROM "{name}" ORDER BY {order}'):
            one.put(dict(zip(names, values, strict=True)))
        one.counter = state["counters"][name]
        deleted = db.execute('SELECT key FROM _deleted WHERE "table" = ? ORDER BY place', (name,))
        one.deleted = dict.fromkeys(tuple(json.loads(key)) for (key,) in deleted)
    return state, database
