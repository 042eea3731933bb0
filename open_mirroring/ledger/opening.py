"""Opens the ledger's database, creates or migrates its tables, and translates database errors.

On SQLite, two transactions that may write never run at the same time. Public source: SQLite, *Result and Error Codes*;
PostgreSQL, *Appendix A. PostgreSQL Error Codes*.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, event, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DatabaseError, OperationalError
from sqlalchemy.pool import NullPool

from open_mirroring.errors import MirroringError, TerminalError, TransientError, disk_error, memory_error
from open_mirroring.ledger.tables import metadata

if TYPE_CHECKING:
    from alembic.config import Config

HEAD = "0003"
"""The newest revision of the migrations. It is repeated here because importing Alembic is slow."""
_BUSY_SECONDS = 60
_LOOK_SECONDS = 10
_UPGRADE = threading.Lock()  # Alembic keeps the upgrade that is under way in module state: one at a time per process
_MIGRATION_LOCK = 7_160_203_118  # any constant: one migration at a time per PostgreSQL database

_VERSION = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""Where Alembic keeps the revision."""

_ERRORS: tuple[tuple[tuple[str, ...], type[MirroringError], str, str, str], ...] = (
    (
        ("SQLITE_READONLY", "25006", "42501"),  # a file or folder, a server that only reads, a user without the right
        TerminalError,
        "ACCESS_DENIED",
        "the ledger cannot be written",
        "give this process the right to write the file and its folder, or the connection's user that to write the "
        "tables; name the database itself, not a copy that can only be read",
    ),
    (
        ("SQLITE_NOTADB", "SQLITE_CORRUPT"),
        TerminalError,
        "LEDGER_DAMAGED",
        "the ledger's file is not an SQLite database, or is damaged",
        "restore an intact copy; without one, remove the file and rebuild the ledger (`open-mirroring rebuild-ledger`)",
    ),
    (
        ("SQLITE_FULL", "SQLITE_IOERR", "53100"),
        TransientError,
        "DISK_FULL",
        "the disk of the ledger is full, or fails",
        "free space there or raise the quota, else check disk and mount; the next run goes on",
    ),
)
"""Codes of the database, and our error for those that begin so."""

_KEPT: dict[str, Engine] = {}
_MOST_KEPT = 4


def open_ledger(url: str, *, keep: bool = False) -> Engine:
    """Open the ledger at a SQLAlchemy URL. Creates its tables, or migrates the tables of an earlier revision.

    With *keep*, connections stay open until :func:`close_ledgers`, because a short run that opens a connection for each
    transaction takes half as long again. Without *keep*, each transaction on SQLite opens its own connection, so that
    no forked worker inherits one. Raises the errors of :func:`ledger_error`. Raises ``LEDGER_UNFIT`` if the database
    has an unknown revision, or belongs to another product.
    """
    parsed = make_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite and parsed.database:
        Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
    engine = _KEPT.get(url) if keep else None
    if engine is None:
        engine = _engine(parsed, _BUSY_SECONDS, keep=keep)
        if is_sqlite:
            make_sqlite_transactional(engine)
    if keep:
        _KEPT[url] = engine
        if len(_KEPT) > _MOST_KEPT:
            _KEPT.pop(next(iter(_KEPT))).dispose()
    with _database_named(engine):
        _migrate(engine)
    return engine


def close_ledgers() -> None:
    """Close the connections that this process keeps open, so that SQLite's file can be copied."""
    for engine in _KEPT.values():
        engine.dispose()


def ledger_to_look(url: str) -> Engine | None:
    """Open a ledger for reading only; None if the ledger does not exist.

    Creates no database and no table, and no writer has to wait for the reader.
    """
    parsed = make_url(url)
    is_sqlite = parsed.get_backend_name() == "sqlite"
    if is_sqlite and not Path(parsed.database or "").is_file():
        return None
    engine = _engine(parsed, _LOOK_SECONDS, keep=False)
    if is_sqlite:
        _make_sqlite_readable(engine)
    with _database_named(engine), engine.connect() as connection:
        current = _revision(connection)
    if current not in (None, HEAD):
        raise _unknown(current)
    return None if current is None else engine


def _engine(url: URL, busy: int, *, keep: bool) -> Engine:
    if url.get_backend_name() != "sqlite":
        return create_engine(url, connect_args={"connect_timeout": _LOOK_SECONDS})
    return create_engine(url, connect_args={"timeout": busy}, **({} if keep else {"poolclass": NullPool}))


def ledger_error(error: DatabaseError, where: str = "") -> MirroringError | None:
    """Translate an error of the ledger's database; None if the error is a programming error.

    The message of the database is left out, because it contains the SQL statement, and perhaps the database's address.
    """
    code = getattr(error.orig, "sqlite_errorname", None) or getattr(error.orig, "pgcode", None) or ""
    for began, kind, name, what, next_step in _ERRORS:
        if code.startswith(began):
            return kind(name, f"{what}: {code}", where=where, next_step=next_step)
    if not isinstance(error, OperationalError):
        return None
    what = f"the ledger does not answer: {', '.join(filter(None, (type(error.orig).__name__, code)))}"
    next_step = "check that the database runs and the connection named in the mirror file reaches it"
    return TransientError("UNREACHABLE", what, where=where, next_step=next_step)


def system_error(error: Exception) -> MirroringError | None:
    """Translate an error of the ledger's database, of a disk, or for lack of memory; None for any other error."""
    if isinstance(error, MemoryError):
        return memory_error()
    if isinstance(error, DatabaseError):
        return ledger_error(error)
    return disk_error(error) if isinstance(error, OSError) else None


@contextmanager
def _database_named(engine: Engine) -> Iterator[None]:
    try:
        yield
    except DatabaseError as error:
        ours = ledger_error(error, engine.url.render_as_string(hide_password=True))
        if ours is None:
            raise
        raise ours from error


def _make_sqlite_readable(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        # One snapshot for a connection's queries; a reader takes no lock that a writer waits for.
        connection.exec_driver_sql("BEGIN DEFERRED")


def make_sqlite_transactional(engine: Engine) -> None:
    """Make every transaction of a SQLite database take the write lock when it begins, and be on disk when it ends."""

    @event.listens_for(engine, "connect")
    def _on_connect(connection: Any, _record: object) -> None:
        # The driver must not open transactions on its own: a read that later writes could not be upgraded.
        connection.isolation_level = None
        _write_ahead(connection)
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _on_begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Switch to a write-ahead log; SQLite itself does not wait for a process that makes the same switch right now."""
    give_up = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _alembic() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(resources.files("open_mirroring.ledger") / "migrations"))
    return config


def _migrate(engine: Engine) -> None:
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _MIGRATION_LOCK})
        current = _revision(connection)
        if current is None:
            metadata.create_all(connection, checkfirst=False)
            _VERSION.create(connection, checkfirst=False)
            connection.execute(_VERSION.insert().values(version_num=HEAD))
        elif current != HEAD:
            _upgrade(connection, current)


def _upgrade(connection: Connection, current: str) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    config = _alembic()
    if current not in {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}:
        raise _unknown(current)
    config.attributes["connection"] = connection
    with _UPGRADE:
        command.upgrade(config, "head")


def _revision(connection: Connection) -> str | None:
    """The revision of a ledger; None where there is no ledger yet. Raises ``LEDGER_UNFIT``."""
    there = set(inspect(connection).get_table_names())
    if _VERSION.name not in there:
        if taken := sorted(metadata.tables.keys() & there):
            raise _foreign(f"it has tables of our names that are not a ledger's: {', '.join(taken)}")
        return None
    current: str | None = connection.execute(select(_VERSION.c.version_num)).scalar()
    if current is None or "mirrored_table" not in there:
        raise _foreign(f"its revision table `{_VERSION.name}` belongs to another product")
    return current


def _unknown(current: str) -> TerminalError:
    what = f"the ledger has revision {current}, and this version of open_mirroring works with {HEAD}"
    next_step = "install the version of open_mirroring that wrote the ledger, or a newer one"
    return TerminalError("LEDGER_UNFIT", what, next_step=next_step)


def _foreign(why: str) -> TerminalError:
    next_step = "give the ledger a database or schema of its own"
    return TerminalError("LEDGER_UNFIT", f"the database is not a ledger: {why}", next_step=next_step)
