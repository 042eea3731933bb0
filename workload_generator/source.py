"""A source database with a life of its own, kept in one SQLite file.

The file holds the tables with their rows, all values as the text SQL Server prints, and what SQL Server would keep
for itself: ``_columns`` with the SQL types, the next transaction, the hub's sequence numbers, withheld messages.

:meth:`Source.run` works transactions and writes them as Capture files. Rows, bookkeeping and the files' bytes are
committed together and the files are written afterwards (an outbox): killed in between, the next command writes them.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Literal

from workload_generator.ces import CesOptions, commit_lsn
from workload_generator.database import KINDS, Change, Database
from workload_generator.delivery import Delivery, Piece
from workload_generator.shipping import PARTITIONS, Shipment, ship
from workload_generator.tables import SHOP_TABLES, Row, TableDef
from workload_generator.transports import WINDOW, capture_files, window_start, write_files

_LAYOUT = """
CREATE TABLE _columns ("table" TEXT, ordinal INTEGER, name TEXT, sql_type TEXT, key_position INTEGER,
                       PRIMARY KEY ("table", ordinal));
CREATE TABLE _state (name TEXT PRIMARY KEY, value TEXT);
CREATE TABLE _deleted ("table" TEXT, place INTEGER, key TEXT, PRIMARY KEY ("table", place));
CREATE TABLE _counts ("table" TEXT, what TEXT, n INTEGER, PRIMARY KEY ("table", what));
CREATE TABLE _withheld (place INTEGER PRIMARY KEY, "table" TEXT, txn INTEGER, seq INTEGER, piece INTEGER, of INTEGER,
                        key BLOB, body BLOB);
CREATE TABLE _outbox (path TEXT PRIMARY KEY, content BLOB);
"""
COUNTS = ("inserts", "updates", "deletes", "key_changes", "split_events", "duplicates", "late_events")
"""What a report counts for each table; a key change is an update too."""

_FIRST_WINDOW = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)


class SourceError(Exception):
    """The state file cannot do what was asked; the text says what to do."""


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
        """Make the database: the shop's tables, each with so many rows that no event ever tells of.

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
            state = {"seed": seed, "runs": 0, "offsets": [0] * PARTITIONS, "clock": _FIRST_WINDOW.isoformat()}
            _save(db, database, state)
        return source

    def run(
        self,
        capture: Path,
        *,
        transactions: int = 100,
        encoding: Literal["json", "avro"] = "json",
        generation: Literal["a", "b", "c"] = "c",
        hold_back: bool = False,
    ) -> dict[str, int]:
        """Commit transactions and write their events, and all that was withheld before, as Capture files.

        Every run with at least one transaction has of every table: each kind of change, an event in pieces, a message
        sent twice, and with *hold_back* an event and a single piece that only the next run delivers.

        Returns:
            Numbers of this run: transactions, events, messages, withheld (messages), files.

        Raises:
            ValueError: for a generation and encoding that do not go together.
        """
        written = len(self.write_outbox(capture))
        with self._transaction() as db:
            state, database = _load(db)
            run = state["runs"] = state["runs"] + 1
            options = CesOptions(generation, encoding, max_data_bytes=8_000, seed=state["seed"])
            rng = Random(f"run:{state['seed']}:{run}")
            changes = _work(database, transactions, rng)
            late = [Piece(*row) for row in db.execute('SELECT "table", txn, seq, piece, of, key, body FROM _withheld')]
            since = datetime.fromisoformat(state["clock"])
            delivery = Delivery(PARTITIONS, disorder=40, duplicates=0.02, seed=f"{state['seed']}:{run}")
            sent = ship(changes, late, options, delivery, rng, state["offsets"], since, hold_back=hold_back)
            files = list(capture_files(sent.messages, partitions=PARTITIONS))
            for message in sent.messages:
                state["offsets"][message.partition] = message.offset + 1
            if sent.messages:
                state["clock"] = (
                    window_start(datetime.fromisoformat(sent.messages[-1].enqueued)) + 2 * WINDOW
                ).isoformat()
            _write_changes(db, database, changes)
            db.execute("DELETE FROM _withheld")
            db.executemany("INSERT INTO _withheld VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)", sent.withheld)
            db.executemany("INSERT INTO _outbox VALUES (?, ?)", files)
            _count(db, changes, sent)
            _save(db, database, state)
        written += len(self.write_outbox(capture))
        events, messages, withheld = len(changes), len(sent.messages), len(sent.withheld)
        return dict(transactions=transactions, events=events, messages=messages, withheld=withheld, files=written)

    def write_outbox(self, capture: Path) -> list[Path]:
        """Write the files that are committed but perhaps not written yet; the order is that of their windows."""
        with self._transaction() as db:
            files = db.execute("SELECT path, content FROM _outbox ORDER BY substr(path, -24), path").fetchall()
            written = write_files(capture, files)
            db.execute("DELETE FROM _outbox")
        return written

    def snapshot(self) -> tuple[str, list[tuple[TableDef, list[Row]]]]:
        """All rows of one moment, and the first commit LSN whose changes are not in them."""
        with self._transaction() as db:
            state, database = _load(db)
            tables = [(one.table, list(one.rows.values())) for one in database.tables.values()]
            return commit_lsn(state["last_txn"] + 1), tables

    def report(self) -> dict[str, Any]:
        """Rows and :data:`COUNTS` per table, transactions, runs, and the messages withheld at the moment."""
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
    """So many transactions, with every kind of change to every table spread over them."""
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
    """Bring every row that was touched to its state in *database*; in one go, as keys may have changed places."""
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
