"""Builds the ledger's SQLAlchemy URL from the setting `ledger` of a mirror file, or from a connection."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from open_mirroring.config.connections import Connection, invalid
from open_mirroring.config.names import check_path, refusal, unfit
from open_mirroring.config.yaml_tree import SECRET_NEXT_STEP

_NEXT_STEP = "write sqlite:///FILE, postgresql+psycopg2://HOST/DATABASE without password, or {connection: NAME}"
_POSTGRESQL = "postgresql+psycopg2"
_DRIVERS = ("sqlite", "sqlite+pysqlite", "postgresql", _POSTGRESQL)
_OPTIONS = ("application_name", "connect_timeout", "options", "sslcert", "sslkey", "sslmode", "sslrootcert")
"""The options allowed in a connection's `extra`, by libpq's names. `sslkey` is the path of a file."""


def check_url(text: str) -> str:
    """Refuse a ledger URL that is malformed, contains a password, or names an in-memory or unsupported database."""
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        url = None  # raised below: the parser's errors may repeat the text
    if url is None:
        raise unfit("this is not a URL of a ledger", _NEXT_STEP)
    if url.password is not None or any("password" in option for option in url.query):
        raise refusal("SECRET_IN_FILE", "this URL holds a password", SECRET_NEXT_STEP)
    if url.drivername not in _DRIVERS:
        raise unfit("a ledger lives in SQLite or PostgreSQL", _NEXT_STEP)
    database = url.database or ""
    if url.drivername.startswith("sqlite"):
        if url.host or database in ("", ":memory:") or database.startswith("file:"):
            raise unfit("a SQLite ledger is a file, and sqlite:// needs three slashes before it", _NEXT_STEP)
        check_path(database)
    elif not database:
        raise unfit("the URL names no database", _NEXT_STEP)
    return text


def absolute(text: str, home: Path) -> str:
    """Add the database driver to a ledger URL, and make a relative SQLite path absolute from the folder *home*."""
    url = make_url(text)
    if url.drivername.startswith("sqlite"):
        return url.set(drivername="sqlite", database=str(home / (url.database or ""))).render_as_string(False)
    return url.set(drivername=_POSTGRESQL).render_as_string(False)


def from_connection(connection: Connection) -> str:
    """Build the ledger URL from a ``postgres`` connection.

    Raises ``CONNECTION_INVALID`` when the connection has another type or a wrong value.
    """
    if connection.conn_type != "postgres":
        raise invalid(connection.name, "for a ledger its conn_type is postgres; SQLite is `ledger: sqlite:///FILE`")
    if not connection.extra.keys() <= {*_OPTIONS}:
        raise invalid(connection.name, f"for a ledger, extra may only hold {', '.join(_OPTIONS)}")
    if not connection.host or not connection.schema:
        raise invalid(connection.name, "host or schema (the database) is missing")
    return URL.create(
        _POSTGRESQL,
        username=connection.login,
        password=connection.password,
        host=connection.host,
        port=connection.port,
        database=connection.schema,
        query={option: str(value) for option, value in connection.extra.items()},
    ).render_as_string(False)
